//! The index: the numbers of records by uid, by filter value and by unique key.
//!
//! All three are entries of one table, whose keys are bytes in the order of the values that they encode. Their keys are
//! random, so that a commit which changed the table would write a page for each of its entries. Commits put entries into
//! the delta instead, and a fold writes them in the order of their keys (see [`crate::delta`]). Every lookup merges the
//! delta and the table.
//!
//! Entries have no checksum: the record that an entry leads to must confirm that it has the key.

use std::{cmp::Ordering, ops::ControlFlow};

use platform_engine::{
    store::{
        StoreError,
        place::{self, Place},
    },
    uid,
};
use sha2::{Digest as _, Sha256};

use crate::{
    delta::{Delta, Found},
    entries::Entry,
    error::corrupt,
    escape,
    list::{FilterValue, ListKey},
    packed,
    record::{self, Keys, Stored},
    rows::{EntryRange, Rows},
    schema::{NameId, push_name, take_name},
};

// The tags of keys, which are their first bytes.
const FILTER: u8 = b'f';
const UID: u8 = b'i';
const UNIQUE: u8 = b'u';
/// The length of the digest of a unique value, in bytes: nobody can find two values with the same one.
const DIGEST_LEN: usize = 16;

/// Returns what precedes the uid in the keys of the records of a kind, or of those with a filter value.
fn prefix(kind: NameId, filter: Option<FilterValue<'_>>) -> Vec<u8> {
    let mut key = Vec::with_capacity(128);
    key.push(if filter.is_some() { FILTER } else { UID });
    push_name(&mut key, kind);
    if let Some((name, value)) = filter {
        push_name(&mut key, name);
        escape::push(&mut key, value);
    }
    key
}

/// Returns the key of a record under its uid, or under its uid and a filter value.
pub(crate) fn key(kind: NameId, filter: Option<FilterValue<'_>>, uid: &str) -> Vec<u8> {
    let mut key = prefix(kind, filter);
    packed::push(&mut key, uid);
    key
}

/// Returns a bound of the lengths of all keys of a record with this uid: of its entries, and of the lists at its place. A
/// byte of the value takes up to two bytes, and one of the uid up to 18 bits.
pub(crate) fn max_len(uid: &str, value: usize) -> usize {
    32 + 2 * value + uid.len().div_ceil(4) * 9
}

/// Returns the key of a record under a unique key, which is a space and a value. Contains the digest of
/// the value, which is shorter than most values; values are looked up, but not listed in their order.
pub(crate) fn unique_key((space, value): (NameId, &[u8])) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + DIGEST_LEN);
    key.push(UNIQUE);
    push_name(&mut key, space);
    key.extend(Sha256::digest(value).into_iter().take(DIGEST_LEN));
    key
}

/// Returns the keys of a record without its filter values: those that it has while it is pending (see [`crate::bulk`]).
pub(crate) fn own_keys_of<'a>(kind: NameId, uid: &str, keys: Keys<'a>) -> impl Iterator<Item = Vec<u8>> + use<'a> {
    [key(kind, None, uid)].into_iter().chain(keys.unique().map(unique_key))
}

/// Returns all keys of a record.
pub(crate) fn keys_of<'a>(kind: NameId, uid: &'a str, keys: Keys<'a>) -> impl Iterator<Item = Vec<u8>> + use<'a> {
    own_keys_of(kind, uid, keys).chain(keys.filter().map(move |filter| key(kind, Some(filter), uid)))
}

/// Returns the kind, the filter key and the value of an entry; `None` if it is not of a filter value.
pub(crate) fn filter_of(key: &[u8]) -> Option<(NameId, NameId, Vec<u8>)> {
    let (kind, rest) = take_name(key.strip_prefix(&[FILTER])?)?;
    let (name, rest) = take_name(rest)?;
    let (value, _) = escape::take(rest)?;
    Some((kind, name, value))
}

/// A range of keys, from the first bound to the second one, which is exclusive.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    from: Vec<u8>,
    to: Vec<u8>,
    /// The length of the bytes before the uid in each key.
    prefix: usize,
}

impl Range {
    /// The entries of all records of a kind, optionally only of those with a filter value, in the order of their uids.
    pub(crate) fn of(kind: NameId, filter: Option<FilterValue<'_>>) -> Self {
        let from = prefix(kind, filter);
        // No packed uid begins with this byte, which is greater than all of them.
        let to = [&*from, &[u8::MAX]].concat();
        Self { prefix: from.len(), from, to }
    }

    /// The same of the records below a uid.
    pub(crate) fn below(kind: NameId, filter: Option<FilterValue<'_>>, uid: &str) -> Self {
        let mut from = prefix(kind, filter);
        let (prefix, mut to, bounds) = (from.len(), from.clone(), place::below(uid));
        packed::push(&mut from, &bounds.0);
        packed::push(&mut to, &bounds.1);
        Self { from, to, prefix }
    }

    /// The entries of the record with a uid and of the records below it. May contain others, of uids that sort between.
    pub(crate) fn at_or_below(kind: NameId, uid: &str) -> Self {
        Self { from: key(kind, None, uid), ..Self::below(kind, None, uid) }
    }

    /// The entries with a greater value under a filter key, sorted by value and uid.
    pub(crate) fn above(kind: NameId, name: NameId, value: &[u8]) -> Self {
        let mut from = prefix(kind, Some((name, value)));
        let prefix = from.len();
        from.push(u8::MAX);
        let mut to = vec![FILTER];
        push_name(&mut to, kind);
        push_name(&mut to, name + 1);
        Self { from, to, prefix }
    }

    /// The entries of all filter values.
    pub(crate) fn filters() -> Self {
        Self { from: vec![FILTER], to: vec![FILTER + 1], prefix: 1 }
    }

    /// Everything.
    pub(crate) fn all() -> Self {
        Self { from: Vec::new(), to: vec![u8::MAX], prefix: 0 }
    }

    /// Leaves out the uids up to this one, or with `descending` those from it on.
    pub(crate) fn after(mut self, uid: &str, descending: bool) -> Self {
        let bound = if descending { &mut self.to } else { &mut self.from };
        bound.truncate(self.prefix);
        packed::push(bound, uid);
        if !descending {
            // The least key after this one.
            bound.push(0);
        }
        self
    }

    /// Returns the uid of a key in this range.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it is not the packed form of a text.
    pub(crate) fn uid(&self, key: &[u8]) -> Result<String, StoreError> {
        let uid = key.get(self.prefix..).and_then(packed::unpack);
        uid.ok_or_else(|| corrupt("an index entry has a malformed uid"))
    }
}

/// The changed entries of a range, of which those before a stored one are passed to the caller first.
struct Ahead<I> {
    next: Option<Entry>,
    changed: I,
    descending: bool,
}

/// The fate of a stored entry, after the changed ones before it.
enum Passed {
    /// The caller wants no more.
    Done,
    /// There is a changed entry with its key.
    Replaced,
    Unchanged,
}

impl<I: Iterator<Item = Entry>> Ahead<I> {
    /// Passes the changed entries before a stored one and with its key, or all of them.
    fn pass(
        &mut self,
        stored: Option<&[u8]>,
        take: &mut impl FnMut(&[u8], i64) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<Passed, StoreError> {
        let mut passed = Passed::Unchanged;
        while let Some((key, record)) = &self.next {
            let order = stored.map_or(Ordering::Less, |stored| {
                let order = (**key).cmp(stored);
                if self.descending { order.reverse() } else { order }
            });
            match order {
                Ordering::Greater => break,
                Ordering::Equal => passed = Passed::Replaced,
                Ordering::Less => {}
            }
            if let Some(record) = record
                && take(key, *record)?.is_break()
            {
                return Ok(Passed::Done);
            }
            self.next = self.changed.next();
        }
        Ok(passed)
    }
}

/// The index in one state of the store.
#[derive(Debug)]
pub(crate) struct Index<'a, R> {
    pub(crate) rows: &'a R,
    pub(crate) delta: &'a Delta,
}

impl<R> Clone for Index<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Index<'_, R> {}

impl<R: Rows> Index<'_, R> {
    /// Returns the number of the record under a key.
    pub(crate) fn get(self, key: &[u8]) -> Result<Option<i64>, StoreError> {
        match self.delta.entry(key) {
            Found::Changed(record) => return Ok(Some(record)),
            Found::Deleted => return Ok(None),
            Found::Stored => {}
        }
        self.rows.entry(key)
    }

    /// Calls the function with the record of a uid and returns its result; `None` if it does not exist.
    pub(crate) fn find<T>(
        self,
        kind: NameId,
        uid: &str,
        use_record: impl FnOnce(Stored<'_>) -> T,
    ) -> Result<Option<T>, StoreError> {
        let key = key(kind, None, uid);
        let verify = |stored: Stored<'_>| {
            let is_wanted = stored.kind == kind && stored.uid == uid;
            if is_wanted { Ok(use_record(stored)) } else { Err(record::misplaced(stored.id)) }
        };
        match self.delta.entry(&key) {
            Found::Changed(id) => return record::at(self.rows, id, verify)?.map(Some),
            Found::Deleted => return Ok(None),
            Found::Stored => {}
        }
        match self.rows.entry_record(&key, |stored| stored.verified().and_then(verify))? {
            None => Ok(None),
            Some(None) => Err(corrupt("an index entry points to a record that does not exist")),
            Some(Some(found)) => found.map(Some),
        }
    }

    /// Calls the function with the record of each entry in a range, in ascending order of the entries.
    pub(crate) fn each_record(
        self,
        range: &Range,
        mut use_record: impl FnMut(Stored<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        record::try_each(self.rows, &self.records(range, u64::MAX)?, |stored| {
            use_record(stored).map(ControlFlow::Continue)
        })
    }

    /// Calls the function with the keys and records of a range, in ascending or descending order, until it returns
    /// [`ControlFlow::Break`].
    pub(crate) fn each(
        self,
        range: &Range,
        descending: bool,
        mut take: impl FnMut(&[u8], i64) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let mut changed = self.delta.entries(&range.from, &range.to, descending);
        let mut ahead = Ahead { next: changed.next(), changed, descending };
        let mut is_done = false;
        let entries = EntryRange { from: &range.from, to: &range.to, descending };
        self.rows.entries(entries, |key, record| {
            let flow = match ahead.pass(Some(key), &mut take)? {
                Passed::Done => ControlFlow::Break(()),
                Passed::Replaced => ControlFlow::Continue(()),
                Passed::Unchanged => take(key, record)?,
            };
            is_done = flow.is_break();
            Ok(flow)
        })?;
        if is_done { Ok(()) } else { ahead.pass(None, &mut take).map(drop) }
    }

    /// Returns the records of a range in ascending order, at most this many.
    pub(crate) fn records(self, range: &Range, most: u64) -> Result<Vec<i64>, StoreError> {
        self.records_if(range, most, |_, _| Ok(true))
    }

    /// The same, of those for which the function returns `true`.
    fn records_if(
        self,
        range: &Range,
        most: u64,
        is_wanted: impl Fn(&[u8], i64) -> Result<bool, StoreError>,
    ) -> Result<Vec<i64>, StoreError> {
        let mut records = Vec::new();
        self.each(range, false, |key, record| {
            if is_wanted(key, record)? {
                records.push(record);
            }
            let is_full = records.len() as u64 >= most;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(records)
    }

    /// Returns whether there is a record in a range.
    pub(crate) fn has(self, range: &Range) -> Result<bool, StoreError> {
        Ok(!self.records(range, 1)?.is_empty())
    }

    /// Returns the last uid of a range.
    pub(crate) fn last(self, range: &Range) -> Result<Option<String>, StoreError> {
        let mut last = None;
        self.each(range, true, |key, _| {
            last = Some(range.uid(key)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(last)
    }

    /// Returns the number of records in a range, counting no more than `most`.
    pub(crate) fn count(self, range: &Range, most: u64) -> Result<u64, StoreError> {
        let mut count = 0;
        self.each(range, false, |_, _| {
            count += 1;
            Ok(if count < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(count)
    }

    /// Returns the members of a list that is not materialized, of those with a lower number than `before`: at most
    /// `most`, not counting the record with the list's uid. For a queue, only children are members.
    pub(crate) fn members(
        self,
        list: &ListKey,
        place: Place<'_>,
        queue: bool,
        (most, before): (u64, i64),
    ) -> Result<Vec<i64>, StoreError> {
        let (kind, filter) = (list.kind, list.filter());
        let Place::At(top) = place else {
            return self.records_if(&Range::of(kind, filter), most, |_, record| Ok(record < before));
        };
        let range = Range::below(kind, filter, top);
        let mut records = self.records_if(&range, most, |key, record| {
            let is_below = || Ok(!queue || uid::parent(&range.uid(key)?) == Some(top));
            if record < before { is_below() } else { Ok(false) }
        })?;
        let own = if queue { None } else { self.get(&key(kind, filter, top))? };
        records.extend(own.filter(|own| *own < before));
        Ok(records)
    }
}
