//! Checks materialized lists against the records: every entry belongs to a record of the list, no entry is missing, and
//! every list that has to be materialized is.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::ControlFlow,
};

use platform_engine::store::{
    StoreError,
    check::Findings,
    place::{Part, Place, SHORT_LEN},
};

use crate::{
    delta::Found,
    error::corrupt,
    index::{self, Index, Range},
    list::{FilterValue, List, ListKey},
    nodes::{self, SnapshotNodes},
    record::{self, Stored},
    rows::Rows,
    schema::{NameId, Names, decode_place, order_key},
    search,
    tree::{Visit, verify},
};

pub(super) fn check(
    index: Index<'_, impl Rows>,
    names: &Names,
    kinds: &BTreeSet<NameId>,
    searched: BTreeMap<(NameId, NameId), (u64, u64)>,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let Index { rows, delta } = index;
    let mut check = Check { index, names, findings, nodes: HashSet::new(), materialized: HashSet::new(), searched };
    rows.each_list(|key, roots, sum| {
        if !matches!(delta.list(&key), Found::Stored) {
            return Ok(());
        }
        match key.decode(roots, sum) {
            Ok(list) => check.list(&key, &list)?,
            Err(_) => check.findings.add("the row of a list does not match its checksum"),
        }
        check.materialized.insert(key);
        Ok(())
    })?;
    for (key, list) in delta.lists().filter_map(|(key, list)| Some((key, list?))) {
        check.list(key, list)?;
        check.materialized.insert(key.clone());
    }
    // Nodes that no tree reaches are leaked.
    let count = nodes::count(rows, delta)?;
    let used = check.nodes.len() as u64;
    check.findings.expect(count == used, || format!("{used} of {count} nodes are in use"));
    for (kind, key) in std::mem::take(&mut check.searched).into_keys() {
        check.findings.add(format!("the search index of key {key} of kind {kind} is missing"));
    }
    check.no_list_is_missing(kinds)
}

struct Check<'a, R> {
    index: Index<'a, R>,
    names: &'a Names,
    findings: &'a mut Findings,
    /// The nodes that were visited.
    nodes: HashSet<u64>,
    materialized: HashSet<ListKey>,
    /// The search indexes that records require, and for each the number of records and the sum of the hashes of its
    /// postings. Those that were found are removed.
    searched: BTreeMap<(NameId, NameId), (u64, u64)>,
}

impl<R: Rows> Check<'_, R> {
    fn list(&mut self, key: &ListKey, list: &List) -> Result<(), StoreError> {
        if key.is_search() {
            return self.search(key, list);
        }
        let name = || format!("list {} {} of kind {}", key.place.escape_ascii(), key.value.escape_ascii(), key.kind);
        let Some(place) = decode_place(&key.place) else {
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

    /// Checks a search index: the number of its records, and the sum of the hashes of its postings.
    fn search(&mut self, key: &ListKey, list: &List) -> Result<(), StoreError> {
        let expected = self.searched.remove(&(key.kind, key.key)).unwrap_or_default();
        let result = self.postings(key, search::root(list));
        if let Some((count, sum)) = self.findings.catch(result)? {
            self.findings.expect((list.deep, sum) == expected && list.direct == count, || {
                format!("the search index of key {} of kind {} differs from the records", key.key, key.kind)
            });
        }
        Ok(())
    }

    /// Returns the number of postings in the blocks of a search index, and the sum of the hashes of all its postings.
    fn postings(&mut self, key: &ListKey, root: u64) -> Result<(u64, u64), StoreError> {
        let Self { index: Index { rows, delta }, nodes, .. } = self;
        let stored = SnapshotNodes(*rows, delta);
        let mut blocks: Vec<(Vec<u8>, u64)> = Vec::new();
        if root != 0 {
            verify(&stored, root, &mut |visit| {
                let id = match visit {
                    Visit::Node(id) => id,
                    Visit::Entry(key, id) => {
                        blocks.push((key.to_vec(), id));
                        id
                    }
                };
                if nodes.insert(id) { Ok(()) } else { Err(corrupt(format!("node {id} is used twice"))) }
            })?;
        }
        // Whether the record has the trigram now, and whether it is in the blocks.
        let mut changed = HashMap::new();
        delta.each_searched(key.kind, key.key, |change| {
            changed.extend(change.postings().map(|(trigram, id, has)| ((trigram, id), (has, false))));
        });
        let (mut count, mut sum, mut previous) = (0, 0_u64, None);
        for (first, block) in blocks {
            let malformed = || corrupt(format!("block {block} of a search index is out of order"));
            let (trigram, first) = search::take_posting(&first).ok_or_else(malformed)?;
            let mut numbers = Vec::new();
            search::read_block(&stored, block, &mut numbers)?;
            count += numbers.len() as u64;
            for id in numbers {
                if id < first || previous.is_some_and(|previous| previous >= (trigram, id)) {
                    return Err(malformed());
                }
                previous = Some((trigram, id));
                sum = sum.wrapping_add(search::hash(trigram, id));
                if let Some((_, is_stored)) = changed.get_mut(&(trigram, id)) {
                    *is_stored = true;
                }
            }
        }
        for ((trigram, id), change) in changed {
            match change {
                (true, false) => sum = sum.wrapping_add(search::hash(trigram, id)),
                (false, true) => sum = sum.wrapping_sub(search::hash(trigram, id)),
                _ => {}
            }
        }
        Ok((count, sum))
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
        let Self { index: Index { rows, delta }, nodes, .. } = self;
        verify(&SnapshotNodes(*rows, delta), root, &mut |visit| {
            let (entry, id) = match visit {
                Visit::Node(id) if nodes.insert(id) => return Ok(()),
                Visit::Node(id) => return Err(corrupt(format!("node {id} is used twice"))),
                Visit::Entry(entry, id) => (entry, id.cast_signed()),
            };
            let belongs = record::at(*rows, id, |stored| belongs(&stored, key, place, part, order, entry))?;
            if !belongs || previous.as_deref().is_some_and(|previous| previous >= entry) {
                return Err(record::misplaced(id));
            }
            previous = Some(entry.to_vec());
            Ok(())
        })
    }

    /// Returns the number of records in the index that belong to a list.
    fn length(&self, key: &ListKey, place: Place<'_>) -> Result<u64, StoreError> {
        let queue = self.names.is_queue(key.kind);
        let mut length = 0;
        self.for_each_uid(key.kind, key.filter(), place, |uid| {
            let part = place.part_of(uid);
            length += u64::from(part.is_some_and(|(part, _)| part == Part::Direct || !queue));
        })?;
        Ok(length)
    }

    /// Calls the function with the uids of all records with a filter value that can be at a place, and of some others.
    fn for_each_uid(
        &self,
        kind: NameId,
        filter: Option<FilterValue<'_>>,
        place: Place<'_>,
        mut use_uid: impl FnMut(&str),
    ) -> Result<(), StoreError> {
        let range = match place {
            Place::At(top) => {
                if self.index.get(&index::key(kind, filter, top))?.is_some() {
                    use_uid(top);
                }
                Range::below(kind, filter, top)
            }
            Place::All | Place::Roots => Range::of(kind, filter),
        };
        self.index.each(&range, false, |key, _| {
            use_uid(&range.uid(key)?);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Reports lists that have to be materialized and are not. For a filter value, that is only the case if more than
    /// `SHORT_LEN` records of the kind have it.
    fn no_list_is_missing(&mut self, kinds: &BTreeSet<NameId>) -> Result<(), StoreError> {
        for kind in kinds {
            self.none_is_missing_with(*kind, None)?;
        }
        let mut values: Vec<(NameId, NameId, Vec<u8>)> = Vec::new();
        let mut current = (None, 0);
        self.index.each(&Range::filters(), false, |key, _| {
            let value = index::filter_of(key);
            current = if value == current.0 { (value, current.1 + 1) } else { (value, 1) };
            if current.1 == SHORT_LEN + 1 {
                values.extend(current.0.clone());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for (kind, key, value) in values {
            self.none_is_missing_with(kind, Some((key, &value)))?;
        }
        Ok(())
    }

    fn none_is_missing_with(&mut self, kind: NameId, filter: Option<FilterValue<'_>>) -> Result<(), StoreError> {
        let mut lengths: HashMap<String, u64> = HashMap::new();
        let queue = self.names.is_queue(kind);
        let mut has_roots = false;
        let count = |uid: &str| {
            for place in Place::of(uid, queue) {
                match place {
                    Place::All => {}
                    Place::Roots => has_roots = true,
                    // The length decides without the record at the list's own uid.
                    Place::At(top) if top == uid => {}
                    Place::At(top) => match lengths.get_mut(top) {
                        Some(length) => *length += 1,
                        None => drop(lengths.insert(top.to_owned(), 1)),
                    },
                }
            }
        };
        self.for_each_uid(kind, filter, Place::All, count)?;
        let long = lengths.iter().filter(|(_, length)| **length > SHORT_LEN).map(|(uid, _)| Place::At(uid));
        for place in long.chain([Place::All]).chain(has_roots.then_some(Place::Roots)) {
            let exists = self.materialized.contains(&ListKey::new(kind, place, filter));
            self.findings.expect(exists, || format!("the list of kind {kind} at {place:?} is missing"));
        }
        Ok(())
    }
}

/// Returns whether the record belongs to this part of the list, with the key of this entry.
fn belongs(stored: &Stored<'_>, key: &ListKey, place: Place<'_>, part: Part, order: NameId, entry: &[u8]) -> bool {
    let value = stored.value(order);
    let is_member = stored.kind == key.kind && key.filter().is_none_or(|filter| stored.keys.has(filter));
    let is_here = |(p, rest): (Part, &str)| p == part && order_key(value.as_bytes(), rest) == entry;
    is_member && place.part_of(stored.uid).is_some_and(is_here)
}
