//! Snapshots of the content of a store, and their restoration.

use std::sync::Arc;

use super::{
    MemoryStore,
    state::{RecordNumbers, State},
};

/// The content of a [`MemoryStore`] at one moment. It shares all parts with the store that have not changed since.
#[derive(Clone)]
pub struct MemorySnapshot {
    state: Arc<State>,
    numbers: RecordNumbers,
}

impl MemoryStore {
    /// Returns the current content. Takes constant time, except for the numbers of deleted records, which are copied.
    pub fn snapshot(&self) -> MemorySnapshot {
        let numbers = self.shared.writer.lock();
        MemorySnapshot { state: self.shared.state.load_full(), numbers: numbers.clone() }
    }

    /// Replaces the content by that of a snapshot of this or of another store, atomically.
    ///
    /// To readers and writers, it is a commit that puts and deletes what differs and raises every epoch, so whatever is
    /// cached or decided with the content before is invalid. Revisions are those of the snapshot; later commits have
    /// greater sequences than all before. Takes time in proportion to the number of epochs.
    pub fn restore(&self, snapshot: &MemorySnapshot) {
        let mut numbers = self.shared.writer.lock();
        let next = snapshot.state.following(&self.shared.state.load());
        *numbers = snapshot.numbers.clone();
        self.shared.state.store(Arc::new(next));
    }
}

impl std::fmt::Debug for MemorySnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemorySnapshot").field("sequence", &self.state.sequence()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;

    use crate::{
        store::{Commit, Conflict, Delete, Epoch, Key, Put, Require, Store, StoreError, memory::MemoryStore},
        uid::Uid,
    };

    const KIND: &str = "Note";

    fn key(name: &str) -> Key {
        Key::new(KIND, Uid::opaque(name.to_owned()))
    }

    fn put(name: &str, body: &'static str) -> Put {
        Put {
            key: key(name),
            sort: Vec::new(),
            filter: Vec::new(),
            unique: Vec::new(),
            search: Vec::new(),
            rendering: 0,
            body: body.into(),
            private: "".into(),
            queue: false,
            revision: None,
        }
    }

    fn commit(store: &MemoryStore, put: Vec<Put>, delete: Vec<Delete>, raise: Vec<Epoch>) -> u64 {
        block_on(store.commit(Commit { put, delete, raise, ..Commit::default() })).unwrap().sequence
    }

    fn bodies(store: &MemoryStore) -> Vec<Option<String>> {
        let read = block_on(store.get(&["a", "b", "c"].map(key), &[])).unwrap().records;
        let text = |record: crate::store::Record| String::from_utf8(record.body.to_vec()).unwrap();
        read.into_iter().map(|record| record.map(text)).collect()
    }

    #[test]
    fn a_restored_store_has_the_records_of_the_snapshot_and_goes_on_from_there() {
        let store = MemoryStore::new();
        commit(&store, vec![put("a", "1"), put("b", "1")], vec![], vec![]);
        let snapshot = store.snapshot();
        let before = bodies(&store);
        // The numbers of deleted records are used again, which must not reach into the snapshot.
        commit(&store, vec![], vec![Delete::Key(key("a")), Delete::Key(key("b"))], vec![]);
        commit(&store, vec![put("c", "2")], vec![], vec![]);
        store.restore(&snapshot);
        assert_eq!(bodies(&store), before);
        commit(&store, vec![put("c", "3")], vec![], vec![]);
        assert_eq!(bodies(&store), ["1", "1", "3"].map(|body| Some(body.to_owned())));
        store.restore(&snapshot);
        assert_eq!(bodies(&store), before);
        let other = MemoryStore::new();
        other.restore(&snapshot);
        assert_eq!(bodies(&other), before);
    }

    #[test]
    fn every_epoch_is_raised_and_no_sequence_is_used_again() {
        let store = MemoryStore::new();
        let [early, late] = ["early", "late"].map(|name| Epoch::new("grants", Uid::opaque(name)));
        commit(&store, vec![], vec![], vec![early.clone()]);
        let snapshot = store.snapshot();
        let last = commit(&store, vec![put("a", "1")], vec![], vec![late.clone()]);
        store.restore(&snapshot);
        let epochs = block_on(store.get(&[], &[early, late.clone()])).unwrap().epochs;
        assert_eq!(epochs, [last + 1, last + 1]);
        let stale = Commit { require: vec![Require::Epoch(late, last)], ..Commit::default() };
        let refused = block_on(store.commit(stale)).unwrap_err();
        assert!(matches!(refused, StoreError::Conflict(Conflict::Require(0))), "{refused}");
        assert_eq!(commit(&store, vec![], vec![], vec![]), last + 2);
    }
}
