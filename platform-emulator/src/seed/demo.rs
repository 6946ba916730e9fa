//! The data of `dev --demo`: images with vulnerable packages, and the advisories about them. All of it is invented.

use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    registry::{
        Digest, Image,
        image::{ImagePackage, ImagePlatform},
    },
    vulnerabilities::{
        Advisory, AdvisoryEvent, Severity,
        advisory::{
            ReviewState,
            event::{Detection, FalsePositiveDetermination, FalsePositiveType, Fixed, Note},
        },
        severity::SeverityType,
    },
};
use platform_engine::{access::Caller, error::Result, platform::Platform, timestamp::Timestamp, uid::Uid};
use serde_json::{Map, Value, json};

use crate::upstream::UPSTREAM_ISSUER;

const DAY: i64 = 24 * 60 * 60 * 1000;

/// The groups, with their repos.
const REPOS: &[(&str, &[&str])] = &[
    ("base", &["static", "python", "node", "jdk"]),
    ("payments", &["api", "worker", "ledger"]),
    ("web", &["nginx", "storefront", "search", "images"]),
];

/// The versions of each repo, the oldest first.
const TAGS: &[&str] = &["1.0", "1.1", "1.2"];

/// The packages: the name, and the version that the images of each tag have.
const PACKAGES: &[(&str, [&str; 3])] = &[
    ("openssl", ["3.0.7-r0", "3.0.7-r2", "3.0.8-r0"]),
    ("zlib", ["1.2.12-r0", "1.2.12-r0", "1.2.13-r0"]),
    ("curl", ["7.85.0-r0", "7.87.0-r0", "7.88.0-r1"]),
    ("libxml2", ["2.10.2-r0", "2.10.3-r0", "2.10.3-r1"]),
    ("expat", ["2.4.8-r0", "2.4.8-r0", "2.5.0-r0"]),
    ("busybox", ["1.35.0-r3", "1.35.0-r9", "1.36.0-r0"]),
];

/// The facts about a vulnerability.
enum State {
    Fixed(&'static str),
    Open,
    NotAffected,
    Upstream,
    Planned,
}

/// The vulnerabilities: the package, the number of the id, the vector, a summary, and what is known.
const FOUND: &[(&str, u32, &str, &str, State)] = &[
    (
        "openssl",
        90001,
        "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H",
        "A handshake overwrites memory",
        State::Fixed("3.0.7-r2"),
    ),
    (
        "openssl",
        90002,
        "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H",
        "A certificate stops the server",
        State::Fixed("3.0.8-r0"),
    ),
    (
        "zlib",
        90003,
        "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H",
        "A header overruns a buffer",
        State::Fixed("1.2.13-r0"),
    ),
    (
        "curl",
        90004,
        "CVSS:3.1/AV:N/AC:H/PR:N/UI:N/S:U/C:L/I:N/A:N",
        "A cookie is sent to another host",
        State::Fixed("7.88.0-r1"),
    ),
    ("curl", 90005, "CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:U/C:H/I:N/A:N", "A redirect keeps the credentials", State::Open),
    (
        "libxml2",
        90006,
        "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H",
        "A document exhausts the stack",
        State::Fixed("2.10.3-r1"),
    ),
    (
        "libxml2",
        90007,
        "CVSS:3.1/AV:L/AC:L/PR:N/UI:R/S:U/C:N/I:N/A:L",
        "A long name is read past its end",
        State::NotAffected,
    ),
    (
        "expat",
        90008,
        "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:N",
        "A parameter entity is used after it is freed",
        State::Upstream,
    ),
    (
        "busybox",
        90009,
        "CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:L/I:L/A:N",
        "An archive writes outside its folder",
        State::Fixed("1.36.0-r0"),
    ),
    (
        "busybox",
        90010,
        "CVSS:3.1/AV:L/AC:H/PR:L/UI:N/S:U/C:L/I:N/A:N",
        "A terminal shows control characters",
        State::Planned,
    ),
];

/// Returns what is created: groups, repos, tags, and a person and a program with roles.
pub(super) fn resources() -> Map<String, Value> {
    let (mut groups, mut repos, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    for (group, names) in REPOS {
        groups.push(json!({ "name": group }));
        for name in *names {
            let path = format!("{group}/{name}");
            repos.push(json!({ "parent": group, "name": name, "description": format!("The image {name} of the group {group}") }));
            for (at, tag) in TAGS.iter().enumerate() {
                tags.push(json!({ "parent": path, "name": tag, "digest": digest(&path, at) }));
            }
            tags.push(json!({ "parent": path, "name": "latest", "digest": digest(&path, latest(&path)) }));
        }
    }
    let identity = |parent: &str, name: &str| {
        let matched = json!({ "issuer": UPSTREAM_ISSUER, "subject": name });
        json!({ "parent": parent, "name": name, "claimMatch": matched })
    };
    let binding = |parent: &str, name: &str, role: &str| {
        let (identity, role) = (format!("${{identities/{parent}/{name}}}"), format!("${{roles/{role}}}"));
        json!({ "parent": parent, "identityUid": identity, "roleUid": role })
    };
    let lists = [
        ("groups", groups),
        ("repos", repos),
        ("tags", tags),
        ("identities", vec![identity("payments", "ci"), identity("web", "deployer"), identity("web", "auditor")]),
        (
            "roleBindings",
            vec![
                binding("payments", "ci", "owner"),
                binding("web", "deployer", "editor"),
                binding("web", "auditor", "viewer"),
            ],
        ),
    ];
    lists.into_iter().map(|(plural, list)| (plural.to_owned(), list.into())).collect()
}

/// Writes what is imported: vulnerabilities, advisories of the organization, and the images of the repos, given by their
/// paths. The times end now, so that charts of the last weeks have something to show. Returns the number of resources.
pub(super) async fn import(
    platform: &Platform,
    caller: &Caller,
    organization: &Uid,
    repos: impl Iterator<Item = (&str, &Uid)>,
) -> Result<u64> {
    let now = platform.now();
    let metadata = FOUND.iter().map(|(_, number, vector, summary, _)| VulnerabilityMetadata {
        id: id(*number),
        summary: (*summary).to_owned(),
        severities: vec![Severity { scale: SeverityType::TypeCvssV3, score: (*vector).to_owned() }],
        ..VulnerabilityMetadata::default()
    });
    let mut created = platform.put(caller, "", metadata.collect::<Vec<_>>()).await?.created;
    let advisories: Vec<_> = FOUND.iter().enumerate().map(|(at, found)| advisory(at, found, now)).collect();
    created += platform.put(caller, organization.as_str(), advisories).await?.created;
    for (path, uid) in repos {
        let images = (0..TAGS.len()).map(|at| image(path, at)).collect::<Vec<_>>();
        created += platform.put(caller, uid.as_str(), images).await?.created;
    }
    Ok(created)
}

fn id(number: u32) -> String {
    format!("CVE-2026-{number}")
}

/// Returns the number of the tag that `latest` names: some repos are behind.
fn latest(path: &str) -> usize {
    TAGS.len() - 1 - path.len() % TAGS.len()
}

fn digest(path: &str, tag: usize) -> String {
    let number = path.bytes().fold(tag as u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("sha256:{number:064x}")
}

/// Returns an image with some of the packages.
fn image(path: &str, tag: usize) -> Image {
    let has = |at: &usize| !(path.len() + at).is_multiple_of(3);
    let packages = PACKAGES.iter().enumerate().filter(|(at, _)| has(at)).map(|(_, (name, versions))| ImagePackage {
        name: (*name).to_owned(),
        version: versions.get(tag).copied().unwrap_or_default().to_owned(),
        origin: String::new(),
    });
    let digest = Digest::opaque(digest(path, tag));
    let size = 20_000_000 + i64::try_from(path.len() * 3_000_000 + tag * 400_000).unwrap_or_default();
    let platform =
        ImagePlatform { architecture: "amd64".to_owned(), digest: digest.clone(), size, packages: packages.collect() };
    Image { digest, platforms: vec![platform], ..Image::default() }
}

fn advisory(at: usize, (package, number, _, _, state): &(&str, u32, &str, &str, State), now: Timestamp) -> Advisory {
    let days = |days: usize| now.plus_millis(-DAY * i64::try_from(days).unwrap_or_default());
    let event = |when| AdvisoryEvent {
        create_time: Some(when),
        author: "security@example.com".to_owned(),
        review_state: ReviewState::ReviewStateApproved,
        ..AdvisoryEvent::default()
    };
    let note = |text: &str| Some(Note { note: text.to_owned() });
    let mut events = vec![AdvisoryEvent { detection: Some(Detection::default()), ..event(days(20 + at)) }];
    let later = event(days(2 + at));
    match state {
        State::Fixed(version) => {
            let fixed = Fixed { fixed_version: (*version).to_owned(), ..Fixed::default() };
            events.push(AdvisoryEvent { fixed: Some(fixed), ..later });
        }
        State::Open => {}
        State::NotAffected => events.push(AdvisoryEvent {
            false_positive_determination: Some(FalsePositiveDetermination {
                reason: FalsePositiveType::TypeVulnerableCodeNotInExecutionPath,
                note: "Only a test program has this code".to_owned(),
            }),
            ..later
        }),
        State::Upstream => {
            events.push(AdvisoryEvent { pending_upstream_fix: note("The next release has the fix"), ..later });
        }
        State::Planned => {
            events.push(AdvisoryEvent { fix_not_planned: note("The effect is too small"), ..later });
        }
    }
    Advisory {
        advisory_id: format!("CGA-demo-{number}"),
        create_time: Some(days(20 + at)),
        update_time: events.last().and_then(|event| event.create_time),
        author: "security@example.com".to_owned(),
        artifact_name: (*package).to_owned(),
        artifact_type: "apk".to_owned(),
        component_name: (*package).to_owned(),
        component_type: "apk".to_owned(),
        aliases: vec![id(*number)],
        events,
        package_namespace: "wolfi".to_owned(),
        ..Advisory::default()
    }
}
