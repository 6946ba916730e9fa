//! A materialized list: its key, its counts and the roots of its trees, as the tables store them.

use platform_engine::store::{StoreError, place::Place};

use crate::{
    error::corrupt,
    rows::Rows,
    schema::{NO_KEY, NameId, Table, checksum, encode_place},
};

/// A filter key and its value.
pub(crate) type FilterValue<'a> = (NameId, &'a [u8]);

/// A materialized list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct List {
    /// The number of records in [`Part::Direct`].
    pub(crate) direct: u64,
    /// The number of records in [`Part::Deep`].
    pub(crate) deep: u64,
    pub(crate) orders: Vec<Roots>,
}

/// The root nodes of the two trees of one order of a list.
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

    pub(crate) fn encode(&self) -> Vec<u8> {
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

/// Identifies a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListKey {
    /// The kind of its records.
    pub kind: NameId,
    /// Their place.
    pub place: Vec<u8>,
    /// Their filter key, or 0.
    pub key: NameId,
    /// Their filter value.
    pub value: Vec<u8>,
}

impl ListKey {
    pub(crate) fn new(kind: NameId, place: Place<'_>, filter: Option<FilterValue<'_>>) -> Self {
        let (key, value) = filter.unwrap_or((NO_KEY, &[]));
        Self { kind, place: encode_place(place), key, value: value.to_vec() }
    }

    pub(crate) fn checksum(&self, roots: &[u8]) -> i64 {
        let numbers = [self.kind, self.key].map(i64::to_le_bytes);
        checksum(Table::List, [numbers.as_flattened(), &self.place, &self.value, roots])
    }

    /// Reads the list; `None` if it is not materialized.
    pub(crate) fn load(&self, rows: &impl Rows) -> Result<Option<List>, StoreError> {
        rows.list(self, |roots, sum| self.decode(roots, sum))?.transpose()
    }

    /// Decodes the row of the list.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it does not match its checksum.
    pub(crate) fn decode(&self, roots: &[u8], sum: i64) -> Result<List, StoreError> {
        let list = List::decode(roots).filter(|_| self.checksum(roots) == sum);
        list.ok_or_else(|| corrupt("the row of a list does not match its checksum"))
    }

    pub(crate) fn filter(&self) -> Option<FilterValue<'_>> {
        (self.key != NO_KEY).then_some((self.key, &self.value))
    }
}
