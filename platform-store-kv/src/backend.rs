//! The interface of the key-value library below the engine.
//!
//! The numbers are those of the rules in the documentation of [`Backend`], which the code refers to.

use std::{fmt, ops::ControlFlow};

use platform_engine::store::StoreError;

/// A set of keys with values. A library may have a table for each, or one table whose keys begin with
/// [`Space::number`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// The number of the format, and the state of the store.
    State,
    /// Names of kinds, keys and spaces of unique keys.
    Names,
    /// Records.
    Records,
    /// The records of each kind by sequence.
    Sequence,
    /// The index: records by uid, filter value and unique key.
    Entries,
    /// Epochs.
    Epochs,
    /// Materialized lists.
    Lists,
    /// The nodes of their trees.
    Nodes,
    /// Earlier versions of records, from which indexes and lists are computed again after a crash.
    Replaced,
    /// Records of a bulk load that are not indexed yet.
    Unindexed,
}

impl Space {
    /// All spaces, by their numbers.
    pub const ALL: [Self; 10] = [
        Self::State,
        Self::Names,
        Self::Records,
        Self::Sequence,
        Self::Entries,
        Self::Epochs,
        Self::Lists,
        Self::Nodes,
        Self::Replaced,
        Self::Unindexed,
    ];

    /// Returns the number of the space, which never changes.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the name of the space, for a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Names => "names",
            Self::Records => "records",
            Self::Sequence => "sequence",
            Self::Entries => "entries",
            Self::Epochs => "epochs",
            Self::Lists => "lists",
            Self::Nodes => "nodes",
            Self::Replaced => "replaced",
            Self::Unindexed => "unindexed",
        }
    }
}

/// The length of keys that a store needs for values of 1,024 bytes and uids of 900: our choice, as uids of the platform
/// have up to some 200.
pub const KEY_LEN: usize = 4_200;
/// The length of values that a store needs for anything but long records: a tree node has 3,900 bytes, unless these are
/// fewer than four entries.
pub const NODE_LEN: usize = 4 * KEY_LEN;

/// A key-value library, opened.
///
/// A store over it is correct if it keeps these rules, for each of which `BackendSuite` of `platform-testkit` has cases:
///
/// 1. **Snapshot.** All reads of a call go through one [`Snapshot`], which shows one state of all spaces. A library without
///    snapshots needs a lock against [`Backend::write`].
/// 2. **A snapshot keeps the library open.** An error is never the end of a range, and nothing is read after one.
/// 3. **Keys** have 1 to [`Backend::MAX_KEY`] bytes, and values 0 to [`Backend::MAX_VALUE`]. The engine fails a commit
///    with longer ones before it writes, as a library may not answer with an error. The bounds of a range may be empty.
/// 4. **Ranges** are ordered by the bytes of their keys, from a lower bound to an upper one, which is exclusive, in either
///    direction. The engine never asks for a range whose bounds are in the wrong order.
/// 5. **Batch.** A batch has each key once at most, and all of it is written or nothing. All spaces exist from the
///    opening on: a space in which nothing was written is empty and not an error.
/// 6. **Durability is an argument.** With `sync`, a batch survives a power cut when [`Backend::write`] returns; without,
///    it may be lost with all later ones, and with no earlier one.
/// 7. **A group of commits is one batch**, so that no reader sees a commit that is not durable: a snapshot shows a batch only
///    after it is.
/// 8. **After a failed write** the outcome is unknown, and the engine writes no more until the store is opened again.
///    [`StoreError::Full`] says that nothing was written: from a check of the free space before.
/// 9. **One process.** The opener holds a lock on a file of its own, and does not wait for it: some libraries let a second
///    process in.
/// 10. **Creation.** The opener makes a new store in a temporary directory, syncs it, renames it and syncs its parent:
///     not all libraries sync the directory.
/// 11. **Snapshots are short.** A library may keep all that changed since the oldest one: the engine has one for each call,
///     and none between calls.
/// 12. **Threads.** One thread writes. Snapshots are sent between threads; a range is read within one call.
/// 13. **Formats.** The engine keeps the number of its own format. The opener keeps the version of the library's format
///     with it, if the library does not refuse a file of another one. [`Directory`](crate::directory::Directory) keeps rules 9
///     and 10 and this one for any library.
/// 14. **Deletes.** A library may pass over deleted keys when it reads a range. The documentation of a store states that cost.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// The greatest length of a key: [`KEY_LEN`] is enough.
    const MAX_KEY: usize;
    /// The greatest length of a value, at least [`NODE_LEN`]. A longer record fails its commit.
    const MAX_VALUE: usize;

    /// The state that reads see.
    type Snapshot: Snapshot;

    /// Returns the state after the last batch (rules 1, 2 and 11).
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the library cannot be read.
    fn snapshot(&self) -> Result<Self::Snapshot, StoreError>;

    /// Writes a batch (rules 5 to 8). `sync` is whether it must be durable.
    ///
    /// # Errors
    /// [`StoreError::Full`] if nothing was written because the disk is full, and any other error if the outcome is not
    /// known.
    fn write<'b>(&self, batch: impl Iterator<Item = Change<'b>>, sync: bool) -> Result<(), StoreError>;

    /// Checks the library's own structures, and calls the function with each problem. Nothing by default.
    ///
    /// # Errors
    /// Any, if they cannot be read.
    fn check(&self, report: impl FnMut(String)) -> Result<(), StoreError> {
        let _ = report;
        Ok(())
    }

    /// Does upkeep when no commits are waiting.
    fn when_idle(&self) {}
}

/// A change of a batch: the value of a key, or `None` to delete it, whether it exists or not.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The space of the key.
    pub space: Space,
    /// The key.
    pub key: &'a [u8],
    /// Its new value.
    pub value: Option<&'a [u8]>,
}

/// A range of the keys of a space.
#[derive(Debug, Clone, Copy)]
pub struct KeyRange<'a> {
    /// The space.
    pub space: Space,
    /// The lower bound, which is a part of the range.
    pub from: &'a [u8],
    /// The upper bound, which is not; `None` is the end of the space.
    pub to: Option<&'a [u8]>,
    /// Whether keys are read from the end.
    pub descending: bool,
}

/// One state of all spaces, which later batches do not change.
pub trait Snapshot: fmt::Debug + Send {
    /// Calls the function with the value of a key.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`] if the library cannot be read.
    fn get<T>(&self, space: Space, key: &[u8], use_value: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError>;

    /// Calls the function with the keys and values of a range, until it returns [`ControlFlow::Break`] (rule 4).
    ///
    /// # Errors
    /// See [`Snapshot::get`].
    fn range(&self, range: KeyRange<'_>, take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), StoreError>;
}
