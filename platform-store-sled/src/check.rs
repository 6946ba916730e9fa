//! The proof that a store is sound, from all there is in it.
//!
//! Every value is unsealed, every entry that a record should have is looked up, and entries are counted: if all that
//! should be are there, and there are no more than that, then there are none that should not be.

use std::{collections::HashMap, fmt};

use platform_engine::{store::StoreError, uid::Uid};

use crate::{
    commit::{Membership, Step, entries},
    error::from_sled,
    query,
    schema::{self, Header, List, Row},
    store::{Halt, View},
};

/// Something that [`SledStore::check`](crate::SledStore::check) found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub advice: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

const RESTORE: &str = "stop the server, keep a copy of the store's directory, and restore a backup";

/// The most findings that are told; what follows is more of the same.
const MOST: usize = 100;

#[derive(Default)]
struct Proof {
    findings: Vec<Finding>,
    /// How many entries each space has, and how many it should have.
    found: HashMap<u8, u64>,
    expected: HashMap<u8, u64>,
    digest: u64,
    latest: u64,
    lists: HashMap<Vec<u8>, Kept>,
}

/// A list's counters as they are stored, and as they come out.
#[derive(Default)]
struct Kept {
    stored: List,
    counted: List,
}

/// Goes through the store.
pub(crate) fn check(view: &mut View<'_>) -> Result<Vec<Finding>, Halt> {
    let mut proof = Proof::default();
    for entry in view.db().scan_prefix([schema::LIST]) {
        view.step()?;
        let (key, stored) = entry.map_err(from_sled)?;
        if let Ok(stored) = schema::unseal(&key, &stored).and_then(|(payload, _)| List::decode(payload)) {
            proof.lists.insert(key.to_vec(), Kept { counted: List { all: 0, direct: 0, ..stored.clone() }, stored });
        }
    }
    for entry in view.db().iter() {
        view.step()?;
        match entry.map_err(from_sled) {
            Ok((key, stored)) => proof.entry(view, &key, &stored)?,
            Err(error) => {
                // sled cannot go on behind a page that it cannot read.
                proof.finding(format!("entries cannot be read: {error}"));
                return Ok(proof.findings);
            }
        }
    }
    proof.lists();
    proof.counts();
    proof.header(view)?;
    Ok(proof.findings)
}

impl Proof {
    fn finding(&mut self, what: String) {
        if self.findings.len() < MOST {
            self.findings.push(Finding { what, advice: RESTORE });
        }
    }

    fn entry(&mut self, view: &mut View<'_>, key: &[u8], stored: &[u8]) -> Result<(), Halt> {
        let space = key.first().copied().unwrap_or_default();
        *self.found.entry(space).or_default() += 1;
        let (payload, seal) = match schema::unseal(key, stored) {
            Ok(unsealed) => unsealed,
            Err(error) => {
                self.finding(error.to_string());
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
                    self.finding(format!("the list \"{}\" cannot be read", key.escape_ascii()));
                }
            }
            schema::PIECE | schema::FILTER | schema::SEQUENCE | schema::UNIQUE | schema::ORDER => {}
            _ => self.finding(format!("there is an entry \"{}\" that belongs to nothing", key.escape_ascii())),
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
            self.finding(format!("the key \"{}\" of a record cannot be read", key.escape_ascii()));
            return Ok(());
        };
        let stored = match query::record(view.db(), &kind, &uid) {
            Ok(Some(stored)) => stored,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.finding(error.to_string());
                return Ok(());
            }
        };
        for _ in 0..stored.pieces {
            self.expect(schema::PIECE);
        }
        match stored.row() {
            Ok(row) => self.indexes(view, &kind, &uid, &row),
            Err(error) => {
                self.finding(format!("{kind} {uid}: {error}"));
                Ok(())
            }
        }
    }

    /// Looks up all that leads to a record.
    fn indexes(&mut self, view: &mut View<'_>, kind: &str, uid: &Uid, row: &Row<'_>) -> Result<(), Halt> {
        self.latest = self.latest.max(row.revision);
        let mut expected = entries(kind, uid, row);
        for membership in Membership::all(kind, uid, row) {
            match self.lists.get_mut(&membership.list) {
                Some(list) => {
                    membership.count(&mut list.counted, Step::Up);
                    let orders = membership.orders(&list.stored, uid, row);
                    expected.extend(orders.into_iter().map(|order| (order, Vec::new())));
                }
                None if membership.always => self.finding(format!("a list that {kind} {uid} belongs to is missing")),
                None => {}
            }
        }
        for (key, value) in expected {
            view.step()?;
            self.expect(key.first().copied().unwrap_or_default());
            let found = view.get(&key)?;
            let sound = found.is_some_and(|found| schema::unseal(&key, &found).is_ok_and(|(found, _)| found == value));
            if !sound {
                self.finding(format!("{kind} {uid} is not found by \"{}\"", key.escape_ascii()));
            }
        }
        Ok(())
    }

    fn lists(&mut self) {
        let wrong: Vec<_> = self
            .lists
            .iter()
            .filter(|(_, list)| list.stored != list.counted)
            .map(|(key, list)| {
                let Kept { stored, counted } = list;
                format!(
                    "the list \"{}\" says that it holds {} records and {} of them directly, and it holds {} and {}",
                    key.escape_ascii(),
                    stored.all,
                    stored.direct,
                    counted.all,
                    counted.direct
                )
            })
            .collect();
        for what in wrong {
            self.finding(what);
        }
    }

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
                self.finding(format!("{found} entries are in the space `{space}`, where {expected} belong"));
            }
        }
    }

    fn header(&mut self, view: &View<'_>) -> Result<(), StoreError> {
        let key = schema::header_key();
        let stored = view.get(&key)?;
        let header = stored.and_then(|stored| Header::decode(schema::unseal(&key, &stored).ok()?.0));
        let Some((_, header)) = header else {
            self.finding("the header cannot be read".to_owned());
            return Ok(());
        };
        if header.digest != self.digest {
            self.finding("records or epochs are not as the last commit left them".to_owned());
        }
        if header.sequence < self.latest {
            let (last, latest) = (header.sequence, self.latest);
            self.finding(format!("the last commit is said to be {last}, and there is something of commit {latest}"));
        }
        Ok(())
    }
}
