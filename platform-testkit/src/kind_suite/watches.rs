//! Checks of watches.

use futures_lite::future::{block_on, poll_once};
use platform_engine::{
    kind::Verb,
    platform::Platform,
    request::ListRequest,
    uid::Uid,
    watch::{ResumeFrom, WatchEvent, WatchRequest, Watcher, is_watchable},
};
use serde_json::Value;

use super::{
    KindSuite,
    steps::{parsed, uid_of},
};

/// How often a watch is asked again for an event that is not there at once.
const TICKS: usize = 100;

impl KindSuite<'_> {
    /// A create, an update and a delete of a resource are each reported once and in this order, as the list then shows the
    /// resource, and again by a watch that resumes from before them. A list that does not show a resource without being
    /// asked reports it as deleted.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn changes_are_watched_once(&self) {
        if !self.begin("changes_are_watched_once", &[Verb::Create, Verb::List]) || !is_watchable(self.kind()) {
            return;
        }
        // Resources in no organization cannot be watched.
        for pair in self.fresh_pairs().iter().filter(|pair| !pair.parent.is_empty()) {
            if self.kind().parent.shares_uid() {
                let _ = self.delete(&self.owner, &pair.parent);
            }
            let mut watcher = self.watch(&pair.parent, None);
            let begin = self.event(&mut watcher).map(|event| event.token);
            let begin = begin.unwrap_or_else(|| self.fail("a watch begins with a bookmark"));
            let uid = uid_of(&self.create(&pair.parent, &pair.a));
            let mut seen = vec![self.reported(&mut watcher, &uid, "added")];
            if self.has(Verb::Update) {
                self.clock.advance(1000);
                self.update(&uid, &pair.b, Some("*"));
                seen.push(self.reported(&mut watcher, &uid, "modified"));
            }
            if self.has(Verb::Delete) {
                self.done("delete", self.delete(&self.owner, &uid));
                seen.push(self.reported(&mut watcher, &uid, "deleted"));
            }
            let mut again = self.watch(&pair.parent, Some(begin));
            let names: Vec<_> = self.events_of(&mut again, &uid).iter().map(|event| event.what.name()).collect();
            self.equal("events after resuming", &names, &seen);
        }
    }

    /// Checks that exactly one event is there for a resource, and returns its name.
    fn reported(&self, watcher: &mut Watcher<&Platform>, uid: &str, name: &'static str) -> &'static str {
        let listed = self.walk(&self.owner, &[]).into_iter().find(|item| *uid_of(item) == *uid);
        let expected = if listed.is_some() { name } else { "deleted" };
        let events = self.events_of(watcher, uid);
        let names: Vec<_> = events.iter().map(|event| event.what.name()).collect();
        self.equal("events", &names, &[expected]);
        if let (Some(listed), Some(event)) = (listed, events.first()) {
            self.equal("resource of the event", &resource(event), &listed);
        }
        expected
    }

    fn watch(&self, parent: &Uid, token: Option<String>) -> Watcher<&Platform> {
        let within = ("uidp.descendantsOf".to_owned(), parent.root().to_owned());
        let query = self.query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let list = ListRequest::from_query(self.kind(), &query.chain([within]).collect::<Vec<_>>());
        let list = self.done("request of a list", list);
        let request = WatchRequest { list, names: false, initial_state: false, resume: token.map(ResumeFrom::Token) };
        self.done("watch", block_on(Watcher::open(self.platform, &self.owner, &self.registered, request)))
    }

    /// Returns the next event, if there is one.
    fn event(&self, watcher: &mut Watcher<&Platform>) -> Option<WatchEvent> {
        block_on(poll_once(watcher.next())).flatten()
    }

    /// Returns the events that are there for a resource, at least one.
    fn events_of(&self, watcher: &mut Watcher<&Platform>, uid: &str) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        for _ in 0..TICKS {
            while let Some(event) = self.event(watcher) {
                if resource(&event).get("uid").and_then(Value::as_str) == Some(uid) {
                    events.push(event);
                }
            }
            if !events.is_empty() {
                break;
            }
            // A store that does not answer at once has answered by then.
            block_on(watcher.tick());
        }
        events
    }
}

/// Returns the resource of an event; null for an event without one.
fn resource(event: &WatchEvent) -> Value {
    parsed(&event.what.to_json()).get("resource").cloned().unwrap_or_default()
}
