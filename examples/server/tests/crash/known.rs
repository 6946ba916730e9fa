//! What clients know of what the server holds: what it acknowledged, and what it was asked and did not answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Resources by a name that says what they are, such as `repo w1-7` or `tag w1-7 latest`.
pub(crate) type Seen = BTreeMap<String, Value>;

/// What one client was told, of resources that are its own.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<String, Expected>);

/// How a resource should be.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    /// Exactly so, as the server has answered.
    Exactly(Value),
    /// With these fields; others the server has set.
    With(Value),
}

/// What a request would change: resources by name, and how they would be, if they would be there.
pub(crate) type Change = Vec<(String, Option<Expected>)>;

/// The changes of which one, or none, was done as a whole, because requests for them got no answer.
pub(crate) type Unsure = Vec<Change>;

impl Known {
    /// Takes down the server's word for a resource.
    pub(crate) fn acknowledge(&mut self, name: impl Into<String>, body: Value) {
        self.0.insert(name.into(), Expected::Exactly(body));
    }

    /// Takes down how some fields of a resource were left, where others may have been written since.
    pub(crate) fn acknowledge_fields(&mut self, name: impl Into<String>, fields: Value) {
        self.0.insert(name.into(), Expected::With(fields));
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns a resource that is known whole.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        match self.0.get(name)? {
            Expected::Exactly(body) => Some(body),
            Expected::With(_) => None,
        }
    }

    /// Compares what is known with what is there, and learns how a request without an answer came out. Returns
    /// whether it was done, when there was one.
    ///
    /// # Panics
    /// When something is missing, other than it was acknowledged, or half done.
    pub(crate) fn settle(&mut self, unsure: &Unsure, seen: &Seen) -> Option<bool> {
        let open: BTreeSet<&String> = unsure.iter().flatten().map(|(name, _)| name).collect();
        for (name, expected) in self.0.iter().filter(|(name, _)| !open.contains(name)) {
            let body = seen.get(name).unwrap_or_else(|| panic!("`{name}` is lost: {expected:?}"));
            assert!(expected.is(body), "`{name}` is {body} and was left {expected:?}");
        }
        let came_out = |change: &Change| {
            open.iter().all(|name| {
                let changed = change.iter().find(|(changed, _)| changed == *name);
                let expected = changed.map_or_else(|| self.0.get(*name), |(_, expected)| expected.as_ref());
                match (expected, seen.get(*name)) {
                    (Some(expected), Some(body)) => expected.is(body),
                    (expected, body) => expected.is_none() && body.is_none(),
                }
            })
        };
        let undone = came_out(&Change::new());
        if !undone && !unsure.iter().any(came_out) {
            let now: Vec<_> = open.iter().map(|name| (name, self.0.get(*name), seen.get(*name))).collect();
            panic!("neither done nor left undone: {unsure:?}, before and now {now:?}");
        }
        // From here on, what is there is what is known.
        let names: BTreeSet<String> = open.into_iter().chain(self.0.keys()).cloned().collect();
        let there = |name: String| seen.get(&name).map(|body| (name, Expected::Exactly(body.clone())));
        self.0 = names.into_iter().filter_map(there).collect();
        (!unsure.is_empty()).then_some(!undone)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the names that begin so.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let from = self.0.range(prefix.to_owned()..).map(|(name, _)| name);
        from.take_while(|name| name.starts_with(prefix)).cloned().collect()
    }
}

impl Expected {
    fn is(&self, body: &Value) -> bool {
        match self {
            Self::Exactly(expected) => expected == body,
            Self::With(fields) => fields.as_object().unwrap().iter().all(|(name, value)| body.get(name) == Some(value)),
        }
    }
}
