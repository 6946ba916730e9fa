//! Shared test support: a platform to import into, and documents.

#[path = "../../../platform-http/tests/support/setting.rs"]
mod setting;

use std::path::Path;

use platform_core::resources::registry::{Image, Repo, Tag};
use platform_engine::{
    access::Caller,
    kind::{Imported, Resource},
    platform::{Platform, PutReply},
    request::ListRequest,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_import::{Dataset, Done, Options, Refusal, Sink, Summary, Watcher, run, source::Limits};
use pollster::block_on;

use setting::OPERATOR;
pub(crate) use setting::ORG;

pub(crate) struct World {
    pub(crate) platform: Platform,
    pub(crate) operator: Caller,
    pub(crate) limits: Limits,
    pub(crate) now: Timestamp,
    /// The refusals of the last import.
    pub(crate) refused: Vec<String>,
    /// The number of resources after which the sink fails.
    pub(crate) fails_after: Option<usize>,
}

impl World {
    pub(crate) fn new() -> Self {
        let platform = block_on(setting::platform());
        let operator = Caller::new(Uid::parse(OPERATOR).unwrap());
        Self {
            platform,
            operator,
            limits: Limits::default(),
            now: Timestamp::EPOCH,
            refused: Vec::new(),
            fails_after: None,
        }
    }

    pub(crate) fn advisories(&self) -> Dataset {
        Dataset::Advisories { group: ORG.to_owned(), namespace: "wolfi".to_owned() }
    }

    /// Creates a repo; returns its uid.
    pub(crate) fn repo(&self) -> String {
        let repo = Repo { name: "repo".to_owned(), ..Repo::default() };
        block_on(self.platform.create(&self.operator, ORG, &repo)).unwrap().uid.to_string()
    }

    pub(crate) fn import(&mut self, dataset: Dataset, paths: &[&Path]) -> Result<Summary, String> {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let options = Options { dataset, paths, limits: self.limits.clone(), now: self.now };
        let mut refusals = Refusals(Vec::new());
        let mut sink = Into { world: self, left: self.fails_after };
        let done = run(&options, &mut sink, &mut refusals);
        self.refused = refusals.0;
        done
    }

    pub(crate) fn list<R: Resource>(&self, parameters: &[(&str, &str)]) -> Vec<R> {
        let pairs: Vec<_> = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request = ListRequest::from_query(R::KIND, &pairs).unwrap();
        block_on(self.platform.list(&self.operator, &request)).unwrap().resources
    }
}

struct Into<'a> {
    world: &'a World,
    left: Option<usize>,
}

impl Sink for Into<'_> {
    type Error = String;

    fn put<R: Imported>(&mut self, parent: &str, resources: Vec<R>) -> Result<Done, String> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(resources.len()).ok_or("the sink is full")?;
        }
        let reply = block_on(self.world.platform.put(&self.world.operator, parent, resources));
        reply.map(done).map_err(|error| error.to_string())
    }

    fn put_blobs(&mut self, repo: &str, contents: Vec<Vec<u8>>) -> Result<Done, String> {
        let contents = contents.into_iter().map(From::from).collect();
        let reply = block_on(self.world.platform.put_blobs::<Image>(&self.world.operator, repo, contents));
        reply.map(done).map_err(|error| error.to_string())
    }

    fn put_tags(&mut self, repo: &str, tags: Vec<Tag>) -> Result<Done, String> {
        let mut done = Done::default();
        for (index, tag) in tags.iter().enumerate() {
            match block_on(self.world.platform.create(&self.world.operator, repo, tag)) {
                Ok(_) => done.created += 1,
                Err(error) => done.refused.push((index, rules(&error))),
            }
        }
        Ok(done)
    }
}

fn done(reply: PutReply) -> Done {
    let refused = reply.refused.iter().map(|refused| (refused.index as usize, rules(&refused.error))).collect();
    Done { created: reply.created, updated: reply.updated, unchanged: reply.unchanged, refused }
}

fn rules(error: &platform_engine::error::Error) -> String {
    let rules = error.violations().iter().map(|one| format!("{}: {}", one.field, one.description));
    rules.collect::<Vec<_>>().join("; ")
}

struct Refusals(Vec<String>);

impl Watcher for Refusals {
    fn refused(&mut self, refusal: &Refusal) {
        self.0.push(refusal.to_string());
    }

    fn skipped(&mut self, skipped: &Refusal) {
        self.0.push(format!("skipped: {skipped}"));
    }

    fn progress(&mut self, _: &Summary, read: u64, size: u64) {
        assert!(size == 0 || read <= size, "{read} of {size} bytes");
    }
}

pub(crate) trait Counts {
    fn counts(&self, kind: &str) -> (u64, u64, u64);
}

impl Counts for Summary {
    fn counts(&self, kind: &str) -> (u64, u64, u64) {
        let found = self.kinds.iter().find(|(plural, _)| *plural == kind);
        found.map_or((0, 0, 0), |(_, done)| (done.created, done.updated, done.unchanged))
    }
}

/// Builds a document of a package with these advisories.
pub(crate) fn document(package: &str, ids: &[&str]) -> String {
    let entry = |id: &&str| {
        format!(
            "  - id: {id}\n    events:\n      - timestamp: 2026-01-01T00:00:00Z\n        type: fixed\n        data:\n          fixed-version: 1.0-r0\n"
        )
    };
    format!(
        "schema-version: 2.0.2\npackage:\n  name: {package}\nadvisories:\n{}",
        ids.iter().map(entry).collect::<String>()
    )
}
