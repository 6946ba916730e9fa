//! Lists that are long enough to be kept: their counts and orders, changed in the commit that changes a record.
//!
//! A list is of a kind and a place, and perhaps of one filter value. It is kept from the commit on in which it grows
//! past [`LIST_LEN`], until it is empty; what is shorter is read from the indexes. So nothing is ever built that is
//! longer than a short list, and what is not kept is certain to be short. The lists of one value are all short as
//! long as the value has few members in the whole store, which the list of all of these tells.

use std::collections::HashMap;

use platform_engine::{store::StoreError, uid};
use rusqlite::{Connection, Params};

use crate::{
    cache::Row,
    commit::has_below,
    error::{corrupt, store_error},
    nodes::{EditedNodes, NodeCache},
    record::{self, Keys},
    schema::{BY_SEQUENCE, BY_UID, LIST_LEN, NO_KEY, NameId, Part, Place, Table, below, checksum, order_key},
    transaction::Transaction,
    tree::write::{insert, remove},
};

/// How many lists the writer remembers from one group to the next.
const REMEMBERED: usize = 20_000;

/// A filter key and its value.
pub(crate) type FilterValue<'a> = (NameId, &'a [u8]);

/// A list that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// How many records it has in each part.
    pub(crate) direct: u64,
    pub(crate) deep: u64,
    pub(crate) orders: Vec<Roots>,
}

/// The two trees of one order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roots {
    pub(crate) order: NameId,
    pub(crate) direct: u64,
    pub(crate) deep: u64,
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.direct + self.deep == 0
    }

    fn encode(&self) -> Vec<u8> {
        let orders = self.orders.iter().flat_map(|o| [o.order.cast_unsigned(), o.direct, o.deep]);
        [self.direct, self.deep].into_iter().chain(orders).flat_map(u64::to_le_bytes).collect()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks() else { return None };
        let [direct, deep, rest @ ..] = words else { return None };
        let (orders, []) = rest.as_chunks::<3>() else { return None };
        let number = |word: &[u8; 8]| u64::from_le_bytes(*word);
        let roots = |[order, direct, deep]: &[[u8; 8]; 3]| Roots {
            order: number(order).cast_signed(),
            direct: number(direct),
            deep: number(deep),
        };
        Some(Self { direct: number(direct), deep: number(deep), orders: orders.iter().map(roots).collect() })
    }
}

/// Which list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ListKey {
    pub(crate) kind: NameId,
    pub(crate) place: Vec<u8>,
    pub(crate) key: NameId,
    pub(crate) value: Vec<u8>,
}

impl ListKey {
    pub(crate) fn new(kind: NameId, place: Place<'_>, filter: Option<FilterValue<'_>>) -> Self {
        let (key, value) = filter.unwrap_or((NO_KEY, &[]));
        Self { kind, place: place.encode(), key, value: value.to_vec() }
    }

    pub(crate) fn checksum(&self, roots: &[u8]) -> i64 {
        let numbers = [self.kind, self.key].map(i64::to_le_bytes);
        checksum(Table::List, [numbers.as_flattened(), &self.place, &self.value, roots])
    }

    /// Returns the list, if it is kept.
    pub(crate) fn load(&self, connection: &Connection) -> Result<Option<List>, StoreError> {
        let select = "SELECT sum, roots FROM list WHERE kind = ? AND place = ? AND key = ? AND value = ?";
        let mut select = connection.prepare_cached(select).map_err(store_error)?;
        let mut rows = select.query((self.kind, &self.place, self.key, &self.value)).map_err(store_error)?;
        let Some(row) = rows.next().map_err(store_error)? else { return Ok(None) };
        let sum: i64 = row.get(0).map_err(store_error)?;
        let roots = row.get_ref(1).map_err(store_error)?.as_blob().map_err(|error| corrupt(error.to_string()))?;
        let list = List::decode(roots).filter(|_| self.checksum(roots) == sum);
        list.map(Some).ok_or_else(|| corrupt("the row of a list does not pass its checksum"))
    }

    fn save(&self, list: &List, transaction: Transaction<'_>) -> Result<(), StoreError> {
        let key = (self.kind, &self.place, self.key, &self.value);
        if list.is_empty() {
            let delete = "DELETE FROM list WHERE kind = ? AND place = ? AND key = ? AND value = ?";
            return transaction.change(Row::List(self), delete, key);
        }
        let roots = list.encode();
        let insert = "INSERT OR REPLACE INTO list (kind, place, key, value, sum, roots) VALUES (?, ?, ?, ?, ?, ?)";
        let row = (key.0, key.1, key.2, key.3, self.checksum(&roots), &roots);
        transaction.change(Row::List(self), insert, row)
    }

    pub(crate) fn filter(&self) -> Option<FilterValue<'_>> {
        (self.key != NO_KEY).then_some((self.key, &self.value))
    }
}

/// What the writer remembers of lists and of the nodes of their orders.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    lists: HashMap<ListKey, Slot>,
    nodes: NodeCache,
}

#[derive(Debug)]
enum Slot {
    Kept {
        list: List,
        changed: bool,
    },
    /// Not kept; it has at most that many members.
    Short(u64),
}

impl Memory {
    /// Makes ready for a transaction.
    pub(crate) fn begin(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.nodes.begin(connection)
    }

    /// Writes what was changed.
    pub(crate) fn flush(&mut self, transaction: Transaction<'_>) -> Result<(), StoreError> {
        for (key, slot) in &mut self.lists {
            if let Slot::Kept { list, changed: changed @ true } = slot {
                key.save(list, transaction)?;
                *changed = false;
            }
        }
        if self.lists.len() > REMEMBERED {
            self.lists = HashMap::new();
        }
        self.nodes.flush(transaction)
    }
}

/// One state of a record: what its place in lists depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'a> {
    pub(crate) revision: u64,
    pub(crate) keys: Keys<'a>,
}

/// A record that is put, replaced or deleted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) kind: NameId,
    /// Whether the kind is a queue.
    pub(crate) queue: bool,
    pub(crate) uid: &'a str,
    pub(crate) id: i64,
    pub(crate) old: Option<Version<'a>>,
    pub(crate) new: Option<Version<'a>>,
}

impl<'a> Change<'a> {
    /// Changes all lists that the record is in, or was, or is now. The tables have been changed already.
    pub(crate) fn apply(self, transaction: Transaction<'_>, memory: &mut Memory) -> Result<(), StoreError> {
        let mut upkeep = Upkeep { transaction, memory: &mut *memory };
        // A new record with nothing below it is in no list of its own place: such a list would be empty.
        let own = !self.queue && (self.old.is_some() || has_below(transaction.connection, self.kind, self.uid)?);
        upkeep.change(self, None, own)?;
        let filters = |version: &Option<Version<'a>>| -> Vec<FilterValue<'a>> {
            version.iter().flat_map(|version| version.keys.filter()).collect()
        };
        let (was, is) = (filters(&self.old), filters(&self.new));
        let left = was.iter().filter(|filter| !is.contains(filter));
        for filter in is.iter().chain(left) {
            let old = self.old.filter(|_| was.contains(filter));
            let new = self.new.filter(|_| is.contains(filter));
            upkeep.change(Change { old, new, ..self }, Some(*filter), own)?;
        }
        memory.nodes.trim(transaction)
    }
}

struct Upkeep<'a> {
    transaction: Transaction<'a>,
    memory: &'a mut Memory,
}

impl Upkeep<'_> {
    fn change(&mut self, change: Change<'_>, filter: Option<FilterValue<'_>>, own: bool) -> Result<(), StoreError> {
        if !self.change_list(change, Place::All, filter)? {
            return Ok(());
        }
        if uid::parent(change.uid).is_none() {
            self.change_list(change, Place::Roots, filter)?;
        }
        let places = std::iter::successors(Some(change.uid), |uid| uid::parent(uid));
        for uid in places.skip(usize::from(!own)).take(if change.queue { 1 } else { usize::MAX }) {
            self.change_list(change, Place::At(uid), filter)?;
        }
        Ok(())
    }

    /// Changes one list, and tells whether it is kept.
    fn change_list(
        &mut self,
        change: Change<'_>,
        place: Place<'_>,
        filter: Option<FilterValue<'_>>,
    ) -> Result<bool, StoreError> {
        let key = ListKey::new(change.kind, place, filter);
        let is_new = change.old.is_none();
        let Memory { lists, nodes } = &mut *self.memory;
        let at_most = match lists.get_mut(&key) {
            Some(Slot::Kept { list, changed }) => {
                list.change(change, place, &mut EditedNodes { connection: self.transaction.connection, cache: nodes })?;
                *changed = true;
                if list.is_empty() {
                    // At once, since nothing else will put a record into it that is alone at its place.
                    key.save(list, self.transaction)?;
                    lists.remove(&key);
                }
                return Ok(true);
            }
            Some(Slot::Short(at_most)) => *at_most + u64::from(is_new),
            None => {
                let kept = key.load(self.transaction.connection)?;
                let is_always_kept = place == Place::Roots || place == Place::All && filter.is_none();
                if let Some(list) = kept.or_else(|| is_always_kept.then(List::default)) {
                    lists.insert(key, Slot::Kept { list, changed: false });
                    return self.change_list(change, place, filter);
                }
                LIST_LEN + u64::from(is_new)
            }
        };
        if at_most <= LIST_LEN {
            lists.insert(key, Slot::Short(at_most));
            return Ok(false);
        }
        // The bound may be too high, since deletes do not lower it.
        let members = self.members(&key, place, change.queue)?;
        if members.len() as u64 <= LIST_LEN {
            self.memory.lists.insert(key, Slot::Short(members.len() as u64));
            return Ok(false);
        }
        self.keep(key, place, &members, change)?;
        Ok(true)
    }

    /// Makes a list of its members, which the tables have, the newest among them.
    fn keep(&mut self, key: ListKey, place: Place<'_>, members: &[i64], newest: Change<'_>) -> Result<(), StoreError> {
        let mut list = List::default();
        if place == Place::All {
            // What was remembered of the value's lists is from before it had few members.
            let is_other = |other: &ListKey| (other.kind, other.key, &other.value) != (key.kind, key.key, &key.value);
            self.memory.lists.retain(|other, _| is_other(other));
        }
        // Where the list of a value begins to be kept, so does that of the roots among its members.
        let mut roots = List::default();
        let mut nodes = EditedNodes { connection: self.transaction.connection, cache: &mut self.memory.nodes };
        for id in members {
            let copy = |r: record::Stored<'_>| (r.uid.to_owned(), r.revision, r.keys.0.to_vec());
            let (uid, revision, keys) = record::at(self.transaction.connection, *id, copy)?;
            let new = Some(Version { revision, keys: Keys(&keys) });
            let change = Change { uid: &uid, id: *id, old: None, new, ..newest };
            list.change(change, place, &mut nodes)?;
            // The newest will be put into that list after this.
            if place == Place::All && *id != newest.id {
                roots.change(change, Place::Roots, &mut nodes)?;
            }
        }
        if !roots.is_empty() {
            let key = ListKey::new(key.kind, Place::Roots, key.filter());
            self.memory.lists.insert(key, Slot::Kept { list: roots, changed: true });
        }
        self.memory.lists.insert(key, Slot::Kept { list, changed: true });
        Ok(())
    }

    /// Returns the members of a list that is not kept: at most one more than a short list has, beside the record of
    /// the place itself. Of a queue they are children.
    fn members(&self, key: &ListKey, place: Place<'_>, queue: bool) -> Result<Vec<i64>, StoreError> {
        let ListKey { kind, key: name, value, .. } = key;
        let limit = LIST_LEN.cast_signed() + 1;
        match (place, key.filter()) {
            (Place::At(parent), None) if queue => {
                let (from, to) = below(parent);
                let select = "SELECT id, uid FROM record WHERE kind = ? AND uid > ? AND uid < ?";
                self.children(parent, select, (kind, from, to))
            }
            (Place::At(parent), Some(_)) if queue => {
                let (from, to) = below(parent);
                let select =
                    "SELECT record, uid FROM member WHERE kind = ? AND key = ? AND value = ? AND uid > ? AND uid < ?";
                self.children(parent, select, (kind, name, value, from, to))
            }
            (Place::At(uid), None) => {
                let (from, to) = below(uid);
                let select = "SELECT id FROM record WHERE kind = ?1 AND uid = ?2 UNION ALL SELECT id FROM \
                              (SELECT id FROM record WHERE kind = ?1 AND uid > ?3 AND uid < ?4 LIMIT ?5)";
                self.ids(select, (kind, uid, from, to, limit))
            }
            (Place::At(uid), Some(_)) => {
                let (from, to) = below(uid);
                let select = "SELECT record FROM member WHERE kind = ?1 AND key = ?2 AND value = ?3 AND uid = ?4 \
                              UNION ALL SELECT record FROM (SELECT record FROM member \
                              WHERE kind = ?1 AND key = ?2 AND value = ?3 AND uid > ?5 AND uid < ?6 LIMIT ?7)";
                self.ids(select, (kind, name, value, uid, from, to, limit))
            }
            (Place::All | Place::Roots, _) => {
                let select = "SELECT record FROM member WHERE kind = ? AND key = ? AND value = ? LIMIT ?";
                self.ids(select, (kind, name, value, limit))
            }
        }
    }

    /// Returns those that lie directly below a uid: at most one more than a short list has.
    fn children(&self, parent: &str, select: &str, params: impl Params) -> Result<Vec<i64>, StoreError> {
        let mut select = self.transaction.connection.prepare_cached(select).map_err(store_error)?;
        let mut rows = select.query(params).map_err(store_error)?;
        let mut ids = Vec::new();
        while let Some(row) = rows.next().map_err(store_error)? {
            let uid = row.get_ref(1).map_err(store_error)?.as_str().map_err(|error| corrupt(error.to_string()))?;
            if uid::parent(uid) == Some(parent) {
                ids.push(row.get(0).map_err(store_error)?);
            }
            if ids.len() as u64 > LIST_LEN {
                break;
            }
        }
        Ok(ids)
    }

    fn ids(&self, select: &str, params: impl Params) -> Result<Vec<i64>, StoreError> {
        let mut select = self.transaction.connection.prepare_cached(select).map_err(store_error)?;
        let rows = select.query_map(params, |row| row.get(0));
        rows.and_then(Iterator::collect).map_err(store_error)
    }
}

impl List {
    fn change(&mut self, change: Change<'_>, place: Place<'_>, nodes: &mut EditedNodes<'_>) -> Result<(), StoreError> {
        let Some((part, rest)) = place.part_of(change.uid) else { return Ok(()) };
        if let (true, Some(new)) = (self.is_empty() && place != Place::All, change.new) {
            let others = [BY_UID].into_iter().chain(new.keys.sort().map(|(name, _)| name));
            let orders = [BY_SEQUENCE].into_iter().chain(others.filter(|_| !change.queue));
            self.orders = orders.map(|order| Roots { order, direct: 0, deep: 0 }).collect();
        }
        let count = if part == Part::Direct { &mut self.direct } else { &mut self.deep };
        let after = (*count + u64::from(change.new.is_some())).checked_sub(u64::from(change.old.is_some()));
        *count = after.ok_or_else(|| corrupt("the count of a list is less than its length"))?;
        let id = change.id.cast_unsigned();
        for Roots { order, direct, deep } in &mut self.orders {
            let key = |v: Version<'_>| order_key(v.keys.value(*order, v.revision).as_bytes(), rest);
            let (old, new) = (change.old.map(key), change.new.map(key));
            if old == new {
                continue;
            }
            let root = if part == Part::Direct { direct } else { deep };
            if let Some(old) = old {
                *root = remove(nodes, *root, &old)?;
            }
            if let Some(new) = new {
                *root = insert(nodes, *root, &new, id)?;
            }
        }
        Ok(())
    }
}
