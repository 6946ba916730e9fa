//! Checks materialized lists against the records: every entry belongs to a record of the list, no entry is missing, and
//! every list that has to be materialized is.

use std::collections::{HashMap, HashSet};

use platform_engine::{store::StoreError, uid};
use rusqlite::{Connection, Params, Row};

use super::{Findings, number, records::for_each_row};
use crate::{
    error::{corrupt, store_error},
    list::{FilterValue, List, ListKey},
    nodes::StoredNodes,
    record::{self, Stored},
    schema::{NameId, Names, Part, Place, SHORT_LEN, below, order_key},
    tree::{Visit, verify},
};

pub(super) fn check(connection: &Connection, names: &Names, findings: &mut Findings) -> Result<(), StoreError> {
    let mut check = Check { connection, names, findings, nodes: HashSet::new(), materialized: HashSet::new() };
    for_each_row(connection, "SELECT kind, place, key, value, roots, sum FROM list", |row| {
        let read = || Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?));
        let (kind, place, key, value, roots, sum): (_, _, _, _, Vec<u8>, i64) = read().map_err(store_error)?;
        let key = ListKey { kind, place, key, value };
        match List::decode(&roots).filter(|_| key.checksum(&roots) == sum) {
            Some(list) => check.list(&key, &list)?,
            None => check.findings.add("the row of a list does not match its checksum"),
        }
        check.materialized.insert(key);
        Ok(())
    })?;
    // Nodes that no tree reaches are leaked.
    let count = crate::nodes::count(connection)?;
    let used = check.nodes.len() as u64;
    check.findings.expect(count == used, || format!("{used} of {count} nodes are in use"));
    check.no_list_is_missing()
}

struct Check<'a> {
    connection: &'a Connection,
    names: &'a Names,
    findings: &'a mut Findings,
    /// The nodes that were visited.
    nodes: HashSet<u64>,
    materialized: HashSet<ListKey>,
}

impl Check<'_> {
    fn list(&mut self, key: &ListKey, list: &List) -> Result<(), StoreError> {
        let name = || format!("list {} {} of kind {}", key.place.escape_ascii(), key.value.escape_ascii(), key.kind);
        let Some(place) = Place::decode(&key.place) else {
            self.findings.add(format!("{} has an invalid place", name()));
            return Ok(());
        };
        let length = self.length(key, place)?;
        let counted = list.direct + list.deep;
        self.findings
            .expect(counted == length, || format!("{} has {length} records, but a count of {counted}", name()));
        for roots in &list.orders {
            for (part, root, count) in [(Part::Direct, roots.direct, list.direct), (Part::Deep, roots.deep, list.deep)]
            {
                let result = self.tree(key, place, part, (roots.order, root));
                let found = self.findings.catch(result)?;
                self.findings.expect(found.is_none_or(|found| found == count), || {
                    format!("a tree of {} has a wrong length", name())
                });
            }
        }
        Ok(())
    }

    /// Checks one tree and returns its number of entries.
    fn tree(
        &mut self,
        key: &ListKey,
        place: Place<'_>,
        part: Part,
        (order, root): (NameId, u64),
    ) -> Result<u64, StoreError> {
        if root == 0 {
            return Ok(0);
        }
        let mut previous: Option<Vec<u8>> = None;
        let Self { connection, nodes, .. } = self;
        verify(&StoredNodes(connection), root, &mut |visit| {
            let (entry, id) = match visit {
                Visit::Node(id) if nodes.insert(id) => return Ok(()),
                Visit::Node(id) => return Err(corrupt(format!("node {id} is used twice"))),
                Visit::Entry(entry, id) => (entry, id.cast_signed()),
            };
            let belongs = record::at(connection, id, |stored| belongs(&stored, key, place, part, order, entry))?;
            if !belongs || previous.as_deref().is_some_and(|previous| previous >= entry) {
                return Err(record::misplaced(id));
            }
            previous = Some(entry.to_vec());
            Ok(())
        })
    }

    /// Returns the number of records in the tables that belong to a list.
    fn length(&self, key: &ListKey, place: Place<'_>) -> Result<u64, StoreError> {
        let Self { connection, .. } = self;
        let (kind, filter) = (key.kind, (key.key, &key.value));
        match (place, key.filter()) {
            (Place::All, None) => number(connection, "SELECT count(*) FROM record WHERE kind = ?", [kind]),
            (Place::All, Some(_)) => {
                let count = "SELECT count(*) FROM member WHERE kind = ? AND key = ? AND value = ?";
                number(connection, count, (kind, filter.0, filter.1))
            }
            (Place::Roots, None) => {
                number(connection, "SELECT count(*) FROM record WHERE kind = ? AND instr(uid, '/') = 0", [kind])
            }
            (Place::Roots, Some(_)) => {
                let count =
                    "SELECT count(*) FROM member WHERE kind = ? AND key = ? AND value = ? AND instr(uid, '/') = 0";
                number(connection, count, (kind, filter.0, filter.1))
            }
            (Place::At(parent), None) if self.names.is_queue(kind) => {
                let (from, to) = below(parent);
                let uids = "SELECT uid FROM record WHERE kind = ? AND uid > ? AND uid < ?";
                children(connection, parent, uids, (kind, from, to))
            }
            (Place::At(parent), Some((key, value))) if self.names.is_queue(kind) => {
                let (from, to) = below(parent);
                let uids = "SELECT uid FROM member WHERE kind = ? AND key = ? AND value = ? AND uid > ? AND uid < ?";
                children(connection, parent, uids, (kind, key, value, from, to))
            }
            (Place::At(uid), None) => {
                let (from, to) = below(uid);
                let count = "SELECT count(*) FROM record WHERE kind = ? AND uid > ? AND uid < ?";
                let own = "SELECT count(*) FROM record WHERE kind = ? AND uid = ?";
                Ok(number(connection, count, (kind, from, to))? + number(connection, own, (kind, uid))?)
            }
            (Place::At(uid), Some((key, value))) => {
                let (from, to) = below(uid);
                let count =
                    "SELECT count(*) FROM member WHERE kind = ? AND key = ? AND value = ? AND uid > ? AND uid < ?";
                let own = "SELECT count(*) FROM member WHERE kind = ? AND key = ? AND value = ? AND uid = ?";
                let below = number(connection, count, (kind, key, value, from, to))?;
                Ok(below + number(connection, own, (kind, key, value, uid))?)
            }
        }
    }

    /// Reports lists that have to be materialized and are not. For a filter value, that is only the case if more than
    /// `SHORT_LEN` records of the kind have it.
    fn no_list_is_missing(&mut self) -> Result<(), StoreError> {
        let mut kinds = Vec::new();
        for_each_row(self.connection, "SELECT DISTINCT kind FROM record", |row| {
            kinds.push(row.get(0).map_err(store_error)?);
            Ok(())
        })?;
        for kind in kinds {
            self.none_is_missing_with(kind, None)?;
        }
        let mut values: Vec<(NameId, NameId, Vec<u8>)> = Vec::new();
        let select = format!("SELECT kind, key, value FROM member GROUP BY 1, 2, 3 HAVING count(*) > {SHORT_LEN}");
        for_each_row(self.connection, &select, |row| {
            let read = || Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            values.push(read().map_err(store_error)?);
            Ok(())
        })?;
        for (kind, key, value) in values {
            self.none_is_missing_with(kind, Some((key, &value)))?;
        }
        Ok(())
    }

    fn none_is_missing_with(&mut self, kind: NameId, filter: Option<FilterValue<'_>>) -> Result<(), StoreError> {
        let mut lengths: HashMap<String, u64> = HashMap::new();
        let levels = if self.names.is_queue(kind) { 1 } else { usize::MAX };
        let mut has_roots = false;
        let mut count = |uid: &str| {
            has_roots |= uid::parent(uid).is_none();
            for place in std::iter::successors(uid::parent(uid), |uid| uid::parent(uid)).take(levels) {
                match lengths.get_mut(place) {
                    Some(length) => *length += 1,
                    None => drop(lengths.insert(place.to_owned(), 1)),
                }
            }
        };
        let mut select;
        let mut rows = match filter {
            None => {
                select = self.connection.prepare("SELECT uid FROM record WHERE kind = ?").map_err(store_error)?;
                select.query([kind])
            }
            Some((key, value)) => {
                let members = "SELECT uid FROM member WHERE kind = ? AND key = ? AND value = ?";
                select = self.connection.prepare(members).map_err(store_error)?;
                select.query((kind, key, value))
            }
        }
        .map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            let uid = row.get_ref(0).map_err(store_error)?.as_str().map_err(|error| corrupt(error.to_string()))?;
            count(uid);
        }
        let long = lengths.iter().filter(|(_, length)| **length > SHORT_LEN).map(|(uid, _)| Place::At(uid));
        for place in long.chain([Place::All]).chain(has_roots.then_some(Place::Roots)) {
            let exists = self.materialized.contains(&ListKey::new(kind, place, filter));
            self.findings.expect(exists, || format!("the list of kind {kind} at {place:?} is missing"));
        }
        Ok(())
    }
}

/// Returns how many of the uids that a statement selects are children of `parent`.
fn children(connection: &Connection, parent: &str, uids: &str, params: impl Params) -> Result<u64, StoreError> {
    let mut select = connection.prepare(uids).map_err(store_error)?;
    let is_child = |row: &Row<'_>| Ok(uid::parent(row.get_ref(0)?.as_str()?) == Some(parent));
    let found = select.query_map(params, is_child).map_err(store_error)?;
    let found = found.collect::<rusqlite::Result<Vec<bool>>>().map_err(store_error)?;
    Ok(found.into_iter().filter(|is_child| *is_child).count() as u64)
}

/// Returns whether the record belongs to this part of the list, with the key of this entry.
fn belongs(stored: &Stored<'_>, key: &ListKey, place: Place<'_>, part: Part, order: NameId, entry: &[u8]) -> bool {
    let value = stored.value(order);
    let is_member = stored.kind == key.kind && key.filter().is_none_or(|filter| stored.keys.has(filter));
    let is_here = |(p, rest): (Part, &str)| p == part && order_key(value.as_bytes(), rest) == entry;
    is_member && place.part_of(stored.uid).is_some_and(is_here)
}
