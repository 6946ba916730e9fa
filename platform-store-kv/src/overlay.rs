//! The writer's view of a backend: the state after the last batch, and the changes of a transaction, which become the
//! next batch.
//!
//! Changes are held in memory until the transaction ends, because a batch is all that every library has: some have no
//! transactions that see their own changes, and in others a failed change spoils the whole transaction. A fold is as large
//! as the bound of the delta.

use std::{
    cell::RefCell,
    cmp::Ordering,
    collections::BTreeMap,
    iter,
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use platform_engine::store::StoreError;

use crate::{
    backend::{Backend, Change, KeyRange, Snapshot, Space},
    error::unavailable,
};

/// The changes of one space: new values, or `None` for a deleted key.
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The state after the last batch, and the changes since.
#[derive(Debug)]
pub(crate) struct Overlay<B: Backend> {
    pub(crate) backend: Arc<B>,
    /// Whether batches must be durable.
    sync: bool,
    /// The state when the transaction began; `None` outside of one, so that no snapshot lives long.
    base: RefCell<Option<B::Snapshot>>,
    /// By space. A range of one space is read while others are changed, so that each has a cell.
    changes: [RefCell<Changes>; Space::ALL.len()],
}

impl<B: Backend> Overlay<B> {
    pub(crate) fn new(backend: Arc<B>, sync: bool) -> Self {
        Self { backend, sync, base: RefCell::new(None), changes: Default::default() }
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self) -> Result<(), StoreError> {
        self.roll_back();
        let snapshot = self.backend.snapshot()?;
        *self.base.try_borrow_mut().map_err(|_| in_use())? = Some(snapshot);
        Ok(())
    }

    /// Writes the changes.
    pub(crate) fn commit(&self) -> Result<(), StoreError> {
        // A backend may have a lock between snapshots and writes.
        drop(self.base.try_borrow_mut().map_err(|_| in_use())?.take());
        let spaces: Result<Vec<_>, _> = self.changes.iter().map(RefCell::try_borrow_mut).collect();
        let mut spaces = spaces.map_err(|_| in_use())?;
        let batch = Space::ALL.into_iter().zip(&spaces).flat_map(|(space, changes)| {
            changes.iter().map(move |(key, value)| Change { space, key, value: value.as_deref() })
        });
        let written = self.backend.write(batch, self.sync).map_err(|error| match error {
            StoreError::Full(cause) => StoreError::Full(cause),
            StoreError::Unavailable(cause) | StoreError::Unknown(cause) | StoreError::Corrupt(cause) => {
                StoreError::Unknown(cause)
            }
            other => other,
        });
        spaces.iter_mut().for_each(|changes| changes.clear());
        written
    }

    /// Forgets the changes.
    pub(crate) fn roll_back(&self) {
        // None is in use between calls.
        if let Ok(mut base) = self.base.try_borrow_mut() {
            *base = None;
        }
        self.changes.iter().filter_map(|changes| changes.try_borrow_mut().ok()).for_each(|mut changes| changes.clear());
    }

    /// Sets the value of a key; `None` deletes it.
    pub(crate) fn set(&self, space: Space, key: &[u8], value: Option<Vec<u8>>) -> Result<(), StoreError> {
        let len = value.as_ref().map_or(0, Vec::len);
        if key.len() > B::MAX_KEY || len > B::MAX_VALUE {
            let (max_key, max_value, name) = (B::MAX_KEY, B::MAX_VALUE, space.name());
            return Err(unavailable(format!(
                "a key of {} bytes with a value of {len} bytes in {name}: the library of the store has keys of up to \
                 {max_key} bytes and values of up to {max_value}",
                key.len()
            )));
        }
        let mut changes = self.of(space)?.try_borrow_mut().map_err(|_| in_use())?;
        changes.insert(key.to_vec(), value);
        Ok(())
    }

    fn of(&self, space: Space) -> Result<&RefCell<Changes>, StoreError> {
        self.changes.get(usize::from(space.number())).ok_or_else(in_use)
    }

    /// Calls the function with the state when the transaction began, or the last one outside of a transaction.
    fn with_base<T>(&self, read: impl FnOnce(&B::Snapshot) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match &*self.base.try_borrow().map_err(|_| in_use())? {
            Some(base) => read(base),
            None => read(&self.backend.snapshot()?),
        }
    }
}

/// The error of a change of a space that is being read, which the engine never does.
fn in_use() -> StoreError {
    unavailable("the changes of the transaction are being read")
}

impl<B: Backend> Snapshot for Overlay<B> {
    fn get<T>(&self, space: Space, key: &[u8], use_value: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        if let Some(changed) = self.of(space)?.try_borrow().map_err(|_| in_use())?.get(key) {
            return Ok(changed.as_deref().map(use_value));
        }
        self.with_base(|base| base.get(space, key, use_value))
    }

    fn range(
        &self,
        range: KeyRange<'_>,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let changes = self.of(range.space)?.try_borrow().map_err(|_| in_use())?;
        let bounds = (Bound::Included(range.from), range.to.map_or(Bound::Unbounded, Bound::Excluded));
        let mut changed = changes.range::<[u8], _>(bounds).map(|(key, value)| (key.as_slice(), value.as_deref()));
        let next = || if range.descending { changed.next_back() } else { changed.next() };
        let mut ahead = iter::from_fn(next).peekable();
        let mut is_done = false;
        self.with_base(|base| {
            base.range(range, |key, value| {
                let mut is_replaced = false;
                while let Some((changed, new)) = ahead.next_if(|(changed, _)| {
                    let order = (*changed).cmp(key);
                    (if range.descending { order.reverse() } else { order }) != Ordering::Greater
                }) {
                    is_replaced |= changed == key;
                    if new.is_some_and(|new| take(changed, new).is_break()) {
                        is_done = true;
                        return ControlFlow::Break(());
                    }
                }
                is_done = !is_replaced && take(key, value).is_break();
                if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        })?;
        if is_done {
            return Ok(());
        }
        for (key, value) in ahead {
            if value.is_some_and(|value| take(key, value).is_break()) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A backend of one space. Writes while there is a snapshot fail, as if they waited for it.
    #[derive(Debug)]
    struct OneSpace(Mutex<Arc<Map>>);

    #[derive(Debug)]
    struct OneSnapshot(Arc<Map>);

    impl OneSpace {
        fn new(map: Map) -> Arc<Self> {
            Arc::new(Self(Mutex::new(Arc::new(map))))
        }
    }

    impl Backend for OneSpace {
        const MAX_KEY: usize = 10;
        const MAX_VALUE: usize = 10;
        type Snapshot = OneSnapshot;

        fn snapshot(&self) -> Result<OneSnapshot, StoreError> {
            Ok(OneSnapshot(Arc::clone(&self.0.lock())))
        }

        fn write<'b>(&self, batch: impl Iterator<Item = Change<'b>>, _: bool) -> Result<(), StoreError> {
            let mut map = self.0.lock();
            let map = Arc::get_mut(&mut map).ok_or_else(|| unavailable("a snapshot is read"))?;
            for Change { key, value, .. } in batch {
                match value {
                    Some(value) => drop(map.insert(key.to_vec(), value.to_vec())),
                    None => drop(map.remove(key)),
                }
            }
            Ok(())
        }
    }

    impl Snapshot for OneSnapshot {
        fn get<T>(&self, _: Space, key: &[u8], use_value: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
            Ok(self.0.get(key).map(|value| use_value(value)))
        }

        fn range(
            &self,
            range: KeyRange<'_>,
            mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
        ) -> Result<(), StoreError> {
            let mut found: Vec<_> = self.0.range(range.from.to_vec()..).collect();
            found.retain(|(key, _)| range.to.is_none_or(|to| key.as_slice() < to));
            if range.descending {
                found.reverse();
            }
            let _ = found.into_iter().try_for_each(|(key, value)| take(key, value));
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn a_range_has_the_changes_and_what_they_do_not_replace(
            base in vec(0..30_u8, 0..20),
            changes in vec((0..30_u8, option::of(0..9_u8)), 0..20),
            (from, to, descending, most) in (0..30_u8, option::of(0..30_u8), any::<bool>(), 1..40_usize),
        ) {
            let mut model: Map = base.into_iter().map(|key| (vec![key], vec![100])).collect();
            let overlay = Overlay::new(OneSpace::new(model.clone()), true);
            overlay.begin().unwrap();
            for (key, value) in changes {
                overlay.set(Space::Nodes, &[key], value.map(|value| vec![value])).unwrap();
                match value {
                    Some(value) => drop(model.insert(vec![key], vec![value])),
                    None => drop(model.remove(&[key][..])),
                }
            }
            let (from, to) = ([from], to.filter(|to| *to >= from).map(|to| [to]));
            let range = KeyRange { space: Space::Nodes, from: &from, to: to.as_ref().map(|to| &to[..]), descending };
            let mut found = Vec::new();
            overlay.range(range, |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }).unwrap();
            let mut wanted: Vec<_> = model.clone().into_iter().collect();
            wanted.retain(|(key, _)| key[..] >= from[..] && to.is_none_or(|to| key[..] < to[..]));
            if descending {
                wanted.reverse();
            }
            wanted.truncate(most);
            prop_assert_eq!(found, wanted);
            for key in 0..30 {
                let value = overlay.get(Space::Nodes, &[key], <[u8]>::to_vec).unwrap();
                prop_assert_eq!(value.as_ref(), model.get(&[key][..]));
            }
        }
    }

    #[test]
    fn keys_and_values_that_the_backend_cannot_have_are_rejected() {
        let overlay = Overlay::new(OneSpace::new(Map::new()), true);
        for (key, value, fits) in [(10, 10, true), (11, 1, false), (1, 11, false)] {
            let set = overlay.set(Space::Nodes, &vec![0; key], Some(vec![0; value]));
            assert_eq!(set.is_ok(), fits, "{key} {value}");
            assert!(set.is_ok() || set.unwrap_err().to_string().contains("up to 10 bytes"));
        }
    }

    #[test]
    fn a_transaction_has_one_base_and_its_own_changes_and_leaves_neither() {
        let backend = OneSpace::new(Map::new());
        let overlay = Overlay::new(Arc::clone(&backend), true);
        let get = |key: &str| overlay.get(Space::Nodes, key.as_bytes(), <[u8]>::to_vec).unwrap();
        let set = |key: &str, value: &str| overlay.set(Space::Nodes, key.as_bytes(), Some(value.into())).unwrap();
        let (one, two) = (Some(b"1".to_vec()), Some(b"2".to_vec()));
        // Another write, which no snapshot prevents.
        let replace = |key: &str, value: &str| {
            let mut map = backend.0.lock();
            *map = Arc::new(Map::from([(key.into(), value.into())]));
        };
        overlay.begin().unwrap();
        replace("a", "2");
        assert_eq!(get("a"), None, "the state when the transaction began");
        set("a", "1");
        assert_eq!(get("a"), one);
        overlay.begin().unwrap();
        assert_eq!(get("a"), two, "without the changes of one that did not end");
        set("a", "1");
        overlay.roll_back();
        assert_eq!(get("a"), two);
        replace("b", "2");
        assert_eq!((get("a"), get("b")), (None, two.clone()), "the last state, outside of a transaction");
        overlay.begin().unwrap();
        set("a", "1");
        // Fails if the snapshot still is there.
        overlay.commit().unwrap();
        assert_eq!((get("a"), get("b")), (one, two.clone()));
        replace("a", "2");
        assert_eq!(get("a"), two);
        overlay.begin().unwrap();
        overlay.roll_back();
        assert!(Arc::get_mut(&mut backend.0.lock()).is_some(), "no snapshot is left");
    }
}
