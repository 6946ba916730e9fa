//! The consistency check of a whole store.
//!
//! The check verifies the checksum of every value, looks up every entry that each record requires, and counts the
//! entries of each space: if all required entries exist and the numbers are equal, there are no superfluous ones.

use std::collections::HashMap;

use platform_engine::{
    store::{
        StoreError,
        check::{Finding, Findings},
    },
    uid::Uid,
};

use crate::{
    commit::{Membership, Step, entries},
    error::from_sled,
    query,
    schema::{self, Header, List, Row},
    store::{Halt, View},
};

const RESTORE: &str = "stop the server, keep a copy of the store's directory, and restore a backup";

/// The state of a check.
struct Check {
    findings: Findings,
    /// The number of entries in each space.
    found: HashMap<u8, u64>,
    /// The number of entries that each space should have.
    expected: HashMap<u8, u64>,
    /// The sum of the checksums of records and epochs.
    digest: u64,
    /// The highest sequence of a record or an epoch.
    latest: u64,
    lists: HashMap<Vec<u8>, ListCounts>,
}

/// A list with its stored counters, and with the counters that its records give.
#[derive(Default)]
struct ListCounts {
    stored: List,
    counted: List,
}

/// Checks the store.
pub(crate) fn check(view: &mut View<'_>) -> Result<Vec<Finding>, Halt> {
    let mut check = Check {
        findings: Findings::new(RESTORE),
        found: HashMap::new(),
        expected: HashMap::new(),
        digest: 0,
        latest: 0,
        lists: HashMap::new(),
    };
    for entry in view.db().scan_prefix([schema::LIST]) {
        view.step()?;
        let (key, stored) = entry.map_err(from_sled)?;
        if let Ok(stored) = schema::unseal(&key, &stored).and_then(|(payload, _)| List::decode(payload)) {
            check
                .lists
                .insert(key.to_vec(), ListCounts { counted: List { all: 0, direct: 0, ..stored.clone() }, stored });
        }
    }
    for entry in view.db().iter() {
        view.step()?;
        match entry.map_err(from_sled) {
            Ok((key, stored)) => check.entry(view, &key, &stored)?,
            Err(error) => {
                // sled cannot iterate past a page that it cannot read.
                check.findings.add(format!("entries cannot be read: {error}"));
                return Ok(check.findings.into_vec());
            }
        }
    }
    check.lists();
    check.counts();
    check.header(view)?;
    Ok(check.findings.into_vec())
}

impl Check {
    /// Checks one entry of the tree.
    fn entry(&mut self, view: &mut View<'_>, key: &[u8], stored: &[u8]) -> Result<(), Halt> {
        let space = key.first().copied().unwrap_or_default();
        if space == schema::PADDING {
            return Ok(());
        }
        *self.found.entry(space).or_default() += 1;
        let (payload, seal) = match schema::unseal(key, stored) {
            Ok(unsealed) => unsealed,
            Err(error) => {
                self.findings.add(error.to_string());
                return Ok(());
            }
        };
        match space {
            schema::RECORD => self.record(view, key, seal)?,
            schema::EPOCH => {
                self.digest = self.digest.wrapping_add(seal);
                self.expect(schema::EPOCH);
                if let Some(value) = payload.first_chunk() {
                    self.latest = self.latest.max(u64::from_le_bytes(*value));
                }
            }
            schema::HEADER => self.expect(schema::HEADER),
            schema::LIST => {
                self.expect(schema::LIST);
                if !self.lists.contains_key(key) {
                    self.findings.add(format!("the list \"{}\" is malformed", key.escape_ascii()));
                }
            }
            schema::PIECE | schema::FILTER | schema::SEQUENCE | schema::UNIQUE | schema::ORDER => {}
            _ => self.findings.add(format!("the entry \"{}\" is in an unknown space", key.escape_ascii())),
        }
        Ok(())
    }

    fn expect(&mut self, space: u8) {
        *self.expected.entry(space).or_default() += 1;
    }

    fn record(&mut self, view: &mut View<'_>, key: &[u8], seal: u64) -> Result<(), Halt> {
        self.expect(schema::RECORD);
        self.digest = self.digest.wrapping_add(seal);
        let Some((kind, uid)) = schema::split_record_key(key) else {
            self.findings.add(format!("the key \"{}\" of a record is malformed", key.escape_ascii()));
            return Ok(());
        };
        let stored = match query::record(view.db(), &kind, &uid) {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.findings.add(error.to_string());
                return Ok(());
            }
        };
        for _ in 0..stored.pieces {
            self.expect(schema::PIECE);
        }
        match stored.row() {
            Ok(row) => self.indexes(view, &kind, &uid, &row),
            Err(error) => {
                self.findings.add(format!("{kind} {uid}: {error}"));
                Ok(())
            }
        }
    }

    /// Looks up every entry that leads to a record.
    fn indexes(&mut self, view: &mut View<'_>, kind: &str, uid: &Uid, row: &Row<'_>) -> Result<(), Halt> {
        self.latest = self.latest.max(row.revision);
        let mut expected = entries(kind, uid, row);
        for membership in Membership::all(kind, uid, row) {
            match self.lists.get_mut(&membership.list) {
                Some(list) => {
                    membership.count(&mut list.counted, Step::Up);
                    let orders = membership.orders(&list.stored, row);
                    expected.extend(orders.into_iter().map(|order| (order, Vec::new())));
                }
                None if membership.always() => {
                    self.findings.add(format!("a list that {kind} {uid} belongs to is missing"));
                }
                None => {}
            }
        }
        for (key, value) in expected {
            view.step()?;
            self.expect(key.first().copied().unwrap_or_default());
            let found = view.get(&key)?;
            let is_valid =
                found.is_some_and(|found| schema::unseal(&key, &found).is_ok_and(|(found, _)| found == value));
            if !is_valid {
                self.findings.add(format!("{kind} {uid} lacks its entry \"{}\"", key.escape_ascii()));
            }
        }
        Ok(())
    }

    /// Compares the counters of lists.
    fn lists(&mut self) {
        let wrong: Vec<_> = self
            .lists
            .iter()
            .filter(|(_, list)| list.stored != list.counted)
            .map(|(key, list)| {
                let ListCounts { stored, counted } = list;
                format!(
                    "the list \"{}\" has counters of {} records and {} children, but has {} and {}",
                    key.escape_ascii(),
                    stored.all,
                    stored.direct,
                    counted.all,
                    counted.direct
                )
            })
            .collect();
        for what in wrong {
            self.findings.add(what);
        }
    }

    /// Compares the numbers of entries by space.
    fn counts(&mut self) {
        let mut spaces: Vec<u8> = self.found.keys().chain(self.expected.keys()).copied().collect();
        spaces.sort_unstable();
        spaces.dedup();
        for space in spaces {
            let of = |counts: &HashMap<u8, u64>| counts.get(&space).copied().unwrap_or_default();
            let (found, expected) = (of(&self.found), of(&self.expected));
            if found != expected {
                let space = [space];
                let space = space.escape_ascii();
                self.findings.add(format!("the space `{space}` has {found} entries instead of {expected}"));
            }
        }
    }

    /// Checks the header against all records and epochs.
    fn header(&mut self, view: &View<'_>) -> Result<(), StoreError> {
        let key = schema::header_key();
        let stored = view.get(&key)?;
        let header = stored.and_then(|stored| Header::decode(schema::unseal(&key, &stored).ok()?.0));
        let Some((_, header)) = header else {
            self.findings.add("the header is malformed");
            return Ok(());
        };
        if header.digest != self.digest {
            self.findings.add("records or epochs are missing or outdated: the sum of their checksums is wrong");
        }
        if header.sequence < self.latest {
            let (last, latest) = (header.sequence, self.latest);
            self.findings.add(format!("the header's last commit is {last}, but there is data of commit {latest}"));
        }
        Ok(())
    }
}
