//! The statements that were sent, for tests that know all of them.

use std::collections::BTreeSet;

use parking_lot::Mutex;

static SENT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Remembers a statement.
pub(crate) fn add(sql: &str) {
    let mut sent = SENT.lock();
    if !sent.contains(sql) {
        sent.insert(sql.to_owned());
    }
}

/// Returns all statements that were sent.
pub(crate) fn all() -> Vec<String> {
    SENT.lock().iter().cloned().collect()
}
