//! The lists that are kept: for which places and filters orders and counters are written with every record.
//!
//! A list is all records of a kind at a place, or those of them with one filter value. While it is short, it is made
//! when asked for. Once more than a number of records are below its uid, it is kept: every order of it has an entry
//! a record, and one entry has its counters. It stays so until the last of its records is gone. Lists of roots are
//! always kept, because nothing short leads to them.

use std::collections::{HashMap, HashSet};

use platform_engine::{store::StoreError, uid::Uid};

use super::plan::{Changes, Writes};
use crate::{
    error::from_sled,
    query,
    schema::{self, BY_SEQUENCE, BY_UID, Class, List, ListAt, Place, Row},
};

/// What the writer knows of lists.
pub(super) struct Lists {
    promote_above: u32,
    /// All that are kept.
    kept: HashMap<Vec<u8>, List>,
    /// How many records are below the uid of some of those that are not.
    short: HashMap<Vec<u8>, u32>,
}

/// How many short lists are remembered; our choice, for some megabytes.
const REMEMBERED: usize = 32_768;

/// What a commit makes of lists: `None` is no longer kept.
#[derive(Default)]
pub(super) struct Touched {
    kept: Vec<(Vec<u8>, Option<List>)>,
    short: Vec<(Vec<u8>, Option<u32>)>,
}

/// A record's place in a list.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) list: Vec<u8>,
    relation: Relation,
    /// How much of the record's uid is the list's.
    prefix: usize,
    /// Whether the list is kept even if it is short.
    pub(crate) always: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    /// It is but counted.
    Counted,
    /// It is the list's uid.
    Top,
    /// It is directly below that.
    Direct,
    /// It is further below.
    Deep,
}

impl Membership {
    /// Returns all lists that a record belongs to, kept or not.
    pub(crate) fn all(kind: &str, uid: &Uid, row: &Row<'_>) -> Vec<Self> {
        let list = |place, filter, relation, prefix| {
            let always = matches!(place, Place::All | Place::Roots);
            Self { list: schema::list_key(kind, place, filter), relation, prefix, always }
        };
        let mut all = vec![list(Place::All, None, Relation::Counted, 0)];
        for filter in std::iter::once(None).chain(row.filters().into_iter().map(Some)) {
            if uid.is_root() {
                all.push(list(Place::Roots, filter, Relation::Direct, 0));
            }
            let relations = [Relation::Top, Relation::Direct].into_iter().chain(std::iter::repeat(Relation::Deep));
            for (ancestor, relation) in uid.ancestry().zip(relations) {
                all.push(list(Place::At(ancestor), filter, relation, ancestor.len()));
            }
        }
        all
    }

    /// Adds the record to the list's counters, or takes it off.
    pub(crate) fn count(&self, list: &mut List, by: Step) {
        let step = |count: &mut u64| match by {
            Step::Up => *count += 1,
            Step::Down => *count = count.saturating_sub(1),
        };
        step(&mut list.all);
        if self.relation == Relation::Direct {
            step(&mut list.direct);
        }
    }

    fn is_below(&self) -> bool {
        matches!(self.relation, Relation::Direct | Relation::Deep)
    }

    /// Returns the keys of the record's entries in the orders of the list.
    pub(crate) fn orders(&self, list: &List, uid: &Uid, row: &Row<'_>) -> Vec<Vec<u8>> {
        let class = match self.relation {
            Relation::Counted => return Vec::new(),
            Relation::Direct => Class::Direct,
            Relation::Top | Relation::Deep => Class::Deep,
        };
        let rest = uid.get(self.prefix..).unwrap_or_default();
        let sequence = schema::sequence_value(row.revision);
        let order = |name, value| schema::order_key(&schema::order_prefix(list.id, class, name), value, rest);
        let mut orders: Vec<_> = list.names.iter().map(|name| order(name, row.sort_value(name))).collect();
        orders.push(order(BY_SEQUENCE, sequence.as_bytes()));
        if class == Class::Direct {
            // What is at any depth has its order by uid from the records themselves.
            orders.push(order(BY_UID, &[]));
        }
        orders
    }
}

/// Which way a counter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Up,
    Down,
}

/// A record that a commit takes off a list or adds to it.
struct Entrance<'a> {
    membership: Membership,
    step: Step,
    uid: &'a Uid,
    row: Row<'a>,
}

impl Lists {
    /// Reads which lists are kept.
    pub(super) fn load(db: &sled::Db, promote_above: u32) -> Result<Self, StoreError> {
        let mut kept = HashMap::new();
        for entry in db.scan_prefix([schema::LIST]) {
            let (key, stored) = entry.map_err(from_sled)?;
            kept.insert(key.to_vec(), List::decode(schema::unseal(&key, &stored)?.0)?);
        }
        Ok(Self { promote_above, kept, short: HashMap::new() })
    }

    /// Takes note of what a commit did.
    pub(super) fn adopt(&mut self, touched: Touched) {
        for (key, list) in touched.kept {
            match list {
                Some(list) => self.kept.insert(key, list),
                None => self.kept.remove(&key),
            };
        }
        if self.short.len() > REMEMBERED {
            self.short.clear();
        }
        for (key, count) in touched.short {
            match count {
                Some(count) => self.short.insert(key, count),
                None => self.short.remove(&key),
            };
        }
    }

    /// Works out what the changes mean for the lists.
    pub(super) fn plan(
        &self,
        db: &sled::Db,
        changes: &Changes,
        next_list: &mut u64,
        writes: &mut Writes,
    ) -> Result<Touched, StoreError> {
        let mut entrances: HashMap<Vec<u8>, Vec<Entrance<'_>>> = HashMap::new();
        for ((kind, uid), change) in changes {
            let old = change.old.as_ref().map(|old| old.row()).transpose()?;
            let new = change.new.as_deref().and_then(Row::parse);
            for (row, step) in [(old, Step::Down), (new, Step::Up)] {
                for membership in row.iter().flat_map(|row| Membership::all(kind, uid, row)) {
                    let Some(row) = row else { continue };
                    let entrance = |membership| Entrance { membership, step, uid, row };
                    match entrances.get_mut(&membership.list) {
                        Some(of_list) => of_list.push(entrance(membership)),
                        None => {
                            entrances.insert(membership.list.clone(), vec![entrance(membership)]);
                        }
                    }
                }
            }
        }
        let mut touched = Touched::default();
        for (key, entrances) in entrances {
            let kept = self.kept.get(&key);
            let before = match kept {
                Some(list) => Some(list.clone()),
                None if entrances.iter().any(|entrance| entrance.membership.always) => new_list(next_list, &entrances),
                None => self.promote(db, &key, &entrances, next_list, writes, &mut touched)?,
            };
            let Some(mut after) = before else { continue };
            for step in [Step::Down, Step::Up] {
                for entrance in entrances.iter().filter(|entrance| entrance.step == step) {
                    entrance.membership.count(&mut after, step);
                    for order in entrance.membership.orders(&after, entrance.uid, &entrance.row) {
                        match step {
                            Step::Up => writes.set(order, Vec::new()),
                            // What leaves a list that is new was never written to it.
                            Step::Down if kept.is_some() => writes.remove(order, Vec::new()),
                            Step::Down => {}
                        }
                    }
                }
            }
            if after.all == 0 && kept.is_some() {
                writes.remove(key.clone(), Vec::new());
            } else if after.all > 0 && Some(&after) != kept {
                writes.set(key.clone(), after.encode());
            }
            touched.kept.push((key, (after.all > 0).then_some(after)));
        }
        Ok(touched)
    }

    /// Returns the list as it is before the commit, if the commit makes it long enough to be kept; the orders of
    /// those that stay in it are written.
    fn promote(
        &self,
        db: &sled::Db,
        key: &[u8],
        entrances: &[Entrance<'_>],
        next_list: &mut u64,
        writes: &mut Writes,
        touched: &mut Touched,
    ) -> Result<Option<List>, StoreError> {
        let count = |step| {
            let below = |entrance: &&Entrance<'_>| entrance.step == step && entrance.membership.is_below();
            u32::try_from(entrances.iter().filter(below).count()).unwrap_or(u32::MAX)
        };
        let (comes, goes) = (count(Step::Up), count(Step::Down));
        let Some(at) = ListAt::parse(key).filter(|_| comes != goes) else { return Ok(None) };
        let before = match self.short.get(key) {
            Some(before) => *before,
            None => query::count_below(db, &at, self.promote_above)?,
        };
        let after = before.saturating_add(comes).saturating_sub(goes);
        if after <= self.promote_above {
            touched.short.push((key.to_vec(), (after > 0).then_some(after)));
            return Ok(None);
        }
        touched.short.push((key.to_vec(), None));
        let Some(mut list) = new_list(next_list, entrances) else { return Ok(None) };
        let leaving: HashSet<&Uid> =
            entrances.iter().filter(|entrance| entrance.step == Step::Down).map(|entrance| entrance.uid).collect();
        for uid in query::members(db, &at)? {
            let Some(stored) = query::record(db, &at.kind, &uid)? else { continue };
            let row = stored.row()?;
            for membership in Membership::all(&at.kind, &uid, &row) {
                if membership.list != key {
                    continue;
                }
                membership.count(&mut list, Step::Up);
                if !leaving.contains(&uid) {
                    for order in membership.orders(&list, &uid, &row) {
                        writes.set(order, Vec::new());
                    }
                }
            }
        }
        Ok(Some(list))
    }
}

/// Returns an empty list with the next number, for records such as are added to it.
fn new_list(next: &mut u64, entrances: &[Entrance<'_>]) -> Option<List> {
    let added = entrances.iter().find(|entrance| entrance.step == Step::Up)?;
    let names = added.row.sort.iter().map(|(name, _)| name.to_owned()).collect();
    let id = *next;
    *next += 1;
    Some(List { id, names, ..List::default() })
}
