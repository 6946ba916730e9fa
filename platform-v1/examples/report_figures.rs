//! Measures computed vulnerability reports: `cargo run --release -p platform-v1 --example report_figures`.
//!
//! A memory store has 30,030 advisories of 1,001 packages with metadata, an image with 1,000 packages, and 1,000 images
//! with 60 packages each. The program prints the time of the first request, which computes, and the median of later
//! ones, with the goals for the latter: a report in 10 ms, and the counts of 1,000 images in 100 ms.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program that measures"
)]

use std::{sync::Arc, time::Instant};

use platform_core::{
    iam::{Bootstrap, Iam},
    resources::{
        advisory::VulnerabilityMetadata,
        registry::{Image, Repo, Tag},
        vulnerabilities::Advisory,
    },
};
use platform_engine::{
    access::Caller,
    kind::{Imported, Run},
    options::RequestOptions,
    platform::{ActionReply, Platform, Settings},
    store::memory::MemoryStore,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_testkit::{SeededEntropy, TestClock};
use pollster::block_on;
use serde_json::{Value, json};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of packages with advisories.
const PACKAGES: usize = 1_001;

/// The number of advisories of each package.
const PER_PACKAGE: usize = 30;

/// The number of measured requests.
const ROUNDS: usize = 50;

/// 2026-01-01T00:00:00Z.
const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

struct World {
    platform: Platform,
    operator: Caller,
    org: Uid,
}

impl World {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let (operator, org) = (Uid::from_digest([1; 20]), Uid::from_digest([2; 20]));
        let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
        let builder = platform_v1::builder(store, TestClock::ticking(NOW, 1), SeededEntropy::new(1));
        let platform = builder.settings(settings).ephemeral_keys().build().unwrap();
        let first =
            Bootstrap { organization: org.clone(), organization_name: "org".to_owned(), operator: operator.clone() };
        block_on(Iam::of(&platform).bootstrap(&first)).unwrap();
        Self { platform, operator: Caller::new(operator), org }
    }

    fn put<R: Imported>(&self, parent: &str, resources: impl Iterator<Item = Value> + Send) {
        let resources = resources.map(|one| serde_json::from_value::<R>(one).unwrap());
        let reply = block_on(self.platform.put(&self.operator, parent, resources)).unwrap();
        assert!(reply.refused.is_empty(), "{:?}", reply.refused.first());
    }

    /// Creates a repo with an image that has the packages from this number on, and a tag.
    fn image(&self, image: usize, packages: usize) -> Uid {
        let repo = Repo { name: format!("repo {image}"), ..Repo::default() };
        let repo = block_on(self.platform.create(&self.operator, &self.org, &repo)).unwrap().uid;
        let digest = format!("sha256:{image:064x}");
        let package = |place: usize| {
            let number = (image * 37 + place) % PACKAGES;
            json!({ "name": format!("package-{number}"), "version": version(image) })
        };
        let packages: Vec<_> = (0..packages).map(package).collect();
        let platform = json!({ "architecture": "amd64", "digest": digest, "size": "1000", "packages": packages });
        self.put::<Image>(&repo, [json!({ "digest": digest, "platforms": [platform] })].into_iter());
        let tag: Tag = serde_json::from_value(json!({ "name": "latest", "digest": digest })).unwrap();
        block_on(self.platform.create(&self.operator, &repo, &tag)).unwrap();
        repo
    }

    /// Returns the number of bytes of the reply, as a transport sends it.
    fn call(&self, service: &str, method: &str, request: &Value) -> usize {
        let service = platform_v1::services::SERVICES.iter().find(|one| one.kind.service == service).unwrap();
        let action = service.actions.iter().find(|action| action.name == method).unwrap();
        let (caller, request) = (Some(&self.operator), request.as_object().unwrap());
        if matches!(action.run, Run::Pages(_)) {
            let (mut bytes, mut token) = (0, String::new());
            loop {
                let page = block_on(self.platform.run_page(caller, service.kind, action, request, &token)).unwrap();
                bytes += page.items.iter().map(|item| item.len()).sum::<usize>();
                match page.next_page_token {
                    Some(next) => token = next,
                    None => return bytes,
                }
            }
        }
        match block_on(self.platform.run_rendered(caller, service.kind, action, request, RequestOptions::none()))
            .unwrap()
        {
            ActionReply::Encoded(body) => body.len(),
            ActionReply::Rendered(reply) => reply.body.len(),
            ActionReply::Resource(reply) => reply.body.len(),
            ActionReply::Value(value) => value.to_string().len(),
        }
    }

    /// Measures a request: the first time, and the median of later ones, in milliseconds.
    fn measure(&self, name: &str, goal: f64, service: &str, method: &str, request: &Value) {
        let time = || {
            let begin = Instant::now();
            let reply = self.call(service, method, request);
            (begin.elapsed().as_secs_f64() * 1000.0, reply)
        };
        let (first, bytes) = time();
        let mut times: Vec<_> = (0..ROUNDS).map(|_| time().0).collect();
        times.sort_by(f64::total_cmp);
        let median = times[ROUNDS / 2];
        println!("{name}: first {first:.1} ms, then {median:.1} ms (goal {goal} ms), {bytes} bytes");
    }
}

/// Returns the version of the packages of an image. Most advisories are fixed in it, one in seven to three in ten are not.
fn version(image: usize) -> String {
    format!("1.{}.0-r0", 4 + image % 2)
}

fn advisory(number: usize) -> Value {
    let (package, place) = (number / PER_PACKAGE, number % PER_PACKAGE);
    let event = |day: usize, form: &str, value: Value| {
        let at = format!("2025-{:02}-{:02}T00:00:00Z", 1 + place % 12, day);
        json!({ "createTime": at, "reviewState": "REVIEW_STATE_APPROVED", form: value })
    };
    let mut events = vec![event(1, "detection", json!({ "manual": {} }))];
    if place > 0 {
        let version = format!("1.{}.0-r0", place % 7);
        events.push(event(9, "fixed", json!({ "fixedVersion": version })));
    }
    json!({
        "advisoryId": format!("CGA-{number}"), "artifactName": format!("package-{package}"), "artifactType": "apk",
        "packageNamespace": "wolfi", "aliases": [format!("CVE-2025-{number}")], "events": events,
    })
}

fn metadata(number: usize) -> Value {
    let level = ["N", "L", "H"][number % 3];
    let vector = format!("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:{level}/I:N/A:H");
    json!({
        "id": format!("CVE-2025-{number}"), "summary": "A read buffer overrun",
        "references": [{ "type": "TYPE_WEB", "url": "https://example.com/advisory" }],
        "severities": [{ "type": "TYPE_CVSS_V3", "score": vector }],
    })
}

fn main() {
    let world = World::new();
    let advisories = PACKAGES * PER_PACKAGE;
    world.put::<Advisory>(&world.org, (0..advisories).map(advisory));
    world.put::<VulnerabilityMetadata>("", (0..advisories).map(metadata));
    println!("{advisories} advisories");
    let large = world.image(0, 1_000);
    let report = json!({ "repoId": large });
    world.measure("report of 1,000 packages", 10.0, "Vulnerabilities", "ListVulnReports", &report);
    for number in 1..1_000 {
        world.image(number, 60);
    }
    let counts = json!({});
    world.measure("counts of 1,000 images", 100.0, "Vulnerabilities", "ListVulnCountReports", &counts);
    let month = json!({ "repo": "repo 7", "from": "2025-12-02T00:00:00Z" });
    world.measure("cumulative counts of an image", 10.0, "Vulnerabilities", "ListCumulativeVulnCountReports", &month);
}
