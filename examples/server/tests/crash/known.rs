//! The expected state of the server: acknowledged writes, and requests without a response, whose outcome is unknown.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Stored resources by kind and name, such as `repo w1-7` or `tag w1-7 latest`.
pub(crate) type Seen = BTreeMap<String, Value>;

/// The last acknowledged state of the resources of one client. No other client writes them.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<String, Expected>);

/// The expected state of a resource.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    /// Exactly this body, which the server returned.
    Exactly(Value),
    /// These fields; the server sets the others.
    With(Value),
}

/// The effect of a request: resources by name with their expected state, or `None` if they are deleted.
pub(crate) type Change = Vec<(String, Option<Expected>)>;

/// Alternative changes by requests without a response. At most one of them was applied, and as a whole.
pub(crate) type Unacknowledged = Vec<Change>;

impl Known {
    /// Records a resource as the server returned it.
    pub(crate) fn acknowledge(&mut self, name: impl Into<String>, body: Value) {
        self.0.insert(name.into(), Expected::Exactly(body));
    }

    /// Records some fields of a resource, of which other fields may have been written since.
    pub(crate) fn acknowledge_fields(&mut self, name: impl Into<String>, fields: Value) {
        self.0.insert(name.into(), Expected::With(fields));
    }

    /// Records that a resource was deleted.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns a resource of which all fields are known.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        match self.0.get(name)? {
            Expected::Exactly(body) => Some(body),
            Expected::With(_) => None,
        }
    }

    /// Compares the known state with the stored one, and determines the outcome of requests without a response. Returns
    /// whether such a request was applied, or `None` if there was none.
    ///
    /// # Panics
    /// Panics if an acknowledged resource is missing or different, or if a change was applied in part.
    pub(crate) fn reconcile(&mut self, unacknowledged: &Unacknowledged, seen: &Seen) -> Option<bool> {
        let open: BTreeSet<&String> = unacknowledged.iter().flatten().map(|(name, _)| name).collect();
        for (name, expected) in self.0.iter().filter(|(name, _)| !open.contains(name)) {
            let body = seen.get(name).unwrap_or_else(|| panic!("`{name}` is lost: {expected:?}"));
            assert!(expected.is(body), "`{name}` is {body}, expected {expected:?}");
        }
        let is_applied = |change: &Change| {
            open.iter().all(|name| {
                let changed = change.iter().find(|(changed, _)| changed == *name);
                let expected = changed.map_or_else(|| self.0.get(*name), |(_, expected)| expected.as_ref());
                match (expected, seen.get(*name)) {
                    (Some(expected), Some(body)) => expected.is(body),
                    (expected, body) => expected.is_none() && body.is_none(),
                }
            })
        };
        let is_unchanged = is_applied(&Change::new());
        if !is_unchanged && !unacknowledged.iter().any(is_applied) {
            let now: Vec<_> = open.iter().map(|name| (name, self.0.get(*name), seen.get(*name))).collect();
            panic!("applied in part: {unacknowledged:?}, before and now {now:?}");
        }
        // The stored state is the known state from here on.
        let names: BTreeSet<String> = open.into_iter().chain(self.0.keys()).cloned().collect();
        let stored = |name: String| seen.get(&name).map(|body| (name, Expected::Exactly(body.clone())));
        self.0 = names.into_iter().filter_map(stored).collect();
        (!unacknowledged.is_empty()).then_some(!is_unchanged)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the names with this prefix.
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
