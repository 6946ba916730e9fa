//! The directory of one case, and reads and writes whose errors are texts.

use std::{
    fmt::{Debug, Display},
    ops::ControlFlow,
    path::Path,
};

use platform_engine::store::StoreError;
use platform_store_kv::{
    Backend,
    backend::{Change, KeyRange, Snapshot, Space},
};

use super::{BackendSuite, Outcome};

/// A key and its value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// A change of a batch, with its own bytes.
pub(super) type Write = (Space, Vec<u8>, Option<Vec<u8>>);

/// The directory of a case.
pub(super) struct Fixture<'s, B: Backend> {
    pub(super) suite: &'s BackendSuite<B>,
    directory: tempfile::TempDir,
}

impl<'s, B: Backend> Fixture<'s, B> {
    pub(super) fn new(suite: &'s BackendSuite<B>) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        Ok(Self { suite, directory })
    }

    /// Opens the backend.
    pub(super) fn open(&self) -> Result<B, String> {
        (self.suite.open)(self.directory()).map_err(|error| format!("the backend does not open: {error}"))
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

pub(super) fn put(space: Space, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Write {
    (space, key.into(), Some(value.into()))
}

pub(super) fn delete(space: Space, key: impl Into<Vec<u8>>) -> Write {
    (space, key.into(), None)
}

/// Writes a batch.
pub(super) fn try_write<B: Backend>(backend: &B, batch: &[Write], sync: bool) -> Result<(), StoreError> {
    let changes = batch.iter().map(|(space, key, value)| Change { space: *space, key, value: value.as_deref() });
    backend.write(changes, sync)
}

/// Writes a batch that must succeed.
pub(super) fn write<B: Backend>(backend: &B, batch: &[Write], sync: bool) -> Outcome {
    try_write(backend, batch, sync).map_err(|error| format!("a write of {} changes fails: {error}", batch.len()))
}

/// Returns the state after the last batch.
pub(super) fn snapshot<B: Backend>(backend: &B) -> Result<B::Snapshot, String> {
    backend.snapshot().map_err(|error| format!("a snapshot fails: {error}"))
}

pub(super) fn get(snapshot: &impl Snapshot, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let got = snapshot.get(space, key, <[u8]>::to_vec);
    got.map_err(|error| format!("a get of {} in {} fails: {error}", brief(key), space.name()))
}

/// Returns a whole range.
pub(super) fn try_range(snapshot: &impl Snapshot, range: KeyRange<'_>) -> Result<Vec<Pair>, StoreError> {
    let mut pairs = Vec::new();
    snapshot.range(range, |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(pairs)
}

/// Returns a whole range, which must not fail.
pub(super) fn range(snapshot: &impl Snapshot, range: KeyRange<'_>) -> Result<Vec<Pair>, String> {
    try_range(snapshot, range).map_err(|error| format!("a range of {} fails: {error}", range.space.name()))
}

/// Returns the range of all keys of a space.
pub(super) const fn whole(space: Space, descending: bool) -> KeyRange<'static> {
    KeyRange { space, from: &[], to: None, descending }
}

/// Returns all pairs of a space in ascending order, after it has compared both directions.
pub(super) fn all(snapshot: &impl Snapshot, space: Space) -> Result<Vec<Pair>, String> {
    let (ascending, mut descending) = (range(snapshot, whole(space, false))?, range(snapshot, whole(space, true))?);
    descending.reverse();
    pairs_are(&format!("{} in descending order, reversed", space.name()), &descending, &ascending)?;
    Ok(ascending)
}

/// Compares pairs, and describes the first difference.
pub(super) fn pairs_are(what: &str, found: &[Pair], wanted: &[Pair]) -> Outcome {
    if found == wanted {
        return Ok(());
    }
    let at = found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
    let show = |pair: Option<&Pair>| {
        pair.map_or("nothing".to_owned(), |(key, value)| format!("{} = {}", brief(key), brief(value)))
    };
    let (found, wanted, lens) = (show(found.get(at)), show(wanted.get(at)), (found.len(), wanted.len()));
    Err(format!("{what}: {} pairs instead of {}; pair {at} is {found} instead of {wanted}", lens.0, lens.1))
}

/// Compares two values.
pub(super) fn is<T: PartialEq + Debug>(what: &str, found: &T, wanted: &T) -> Outcome {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?} instead of {wanted:?}")) }
}

/// Describes what failed and why.
pub(super) fn failed(what: &str, error: impl Display) -> String {
    format!("{what}: {error}")
}

/// Returns the beginning of bytes, and their number if they are long.
pub(super) fn brief(bytes: &[u8]) -> String {
    let head = bytes.get(..12).unwrap_or(bytes).escape_ascii();
    if bytes.len() > 12 { format!("\"{head}\".. of {} bytes", bytes.len()) } else { format!("\"{head}\"") }
}
