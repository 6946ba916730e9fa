//! Patterns of sort keys ([`Filter::Like`](platform_engine::store::Filter::Like)), which are compared with the records of
//! the scopes, or of a filter value: no index has the parts of values.

use std::borrow::Cow;

use platform_engine::store::{MAX_LIKE, Query, StoreError, pattern::Pattern};

use super::{Filters, Scopes};
use crate::{
    connection::Connection,
    error::Failure,
    schema::{SLOTS, Slots},
};

/// Counts the records of a kind ($1) between uids of organizations, up to one more than [`MAX_LIKE`].
pub(crate) const COUNT_IN_SCOPES: &str = "SELECT count(*) FROM (SELECT FROM unnest($2::int8[], $3::text[], $4::text[]) \
     s(org, low, high) CROSS JOIN LATERAL (SELECT FROM record r WHERE r.org = s.org AND r.kind = $1 AND \
     r.uid >= s.low AND r.uid < s.high OFFSET 0) r LIMIT 100001) c";
/// The same of all records of the kind.
pub(crate) const COUNT_OF_ALL: &str =
    "SELECT count(*) FROM (SELECT FROM record r WHERE r.kind = $1 AND r.uid >= '' LIMIT 100001) c";

impl Filters<'_> {
    /// Adds the pattern of a sort key, whose number is the column of the key, negated.
    pub(super) fn add_like(
        &mut self,
        slots: &Slots,
        (kind, key): (&str, &str),
        pattern: &Pattern,
    ) -> Result<(), Failure> {
        if let Some(slot) = slots.slot(kind, key) {
            self.numbers.push(i32::try_from(slot).map_or(i32::MIN, |slot| -1 - slot));
            self.keys.push("");
            self.values.push(Cow::Owned(like(pattern)));
        } else if slots.knows(kind, key) {
            return Err(StoreError::TooCostly("a search by a sort key without a column".into()).into());
        } else if !pattern.matches(b"") {
            // All records have the empty value. No record has one of no values.
            self.operations.push(0);
        }
        Ok(())
    }

    /// Returns the patterns of each column.
    pub(super) fn likes(&self) -> [Vec<&[u8]>; SLOTS] {
        std::array::from_fn(|slot| {
            let number = i32::try_from(slot).map_or(i32::MIN, |slot| -1 - slot);
            let of_column = self.numbers.iter().zip(&self.values).filter(|(other, _)| **other == number);
            of_column.map(|(_, value)| &**value).collect()
        })
    }

    /// Returns whether there is a pattern.
    pub(super) fn has_like(&self) -> bool {
        self.numbers.iter().any(|number| *number < 0)
    }
}

/// Returns a pattern as that of LIKE for bytes.
pub(super) fn like(pattern: &Pattern) -> Vec<u8> {
    let escaped = |part: &String| {
        part.bytes().flat_map(|byte| b"\\%_".contains(&byte).then_some(b'\\').into_iter().chain([byte])).collect()
    };
    pattern.parts.iter().map(escaped).collect::<Vec<Vec<u8>>>().join(&b'%')
}

/// Fails if patterns would be compared with too many records.
///
/// # Errors
/// [`StoreError::TooCostly`].
pub(super) async fn bound(connection: &Connection, scopes: &Scopes<'_>, query: &Query) -> Result<(), Failure> {
    let rows = if scopes.everywhere {
        connection.query(COUNT_OF_ALL, &[&query.kind]).await?
    } else {
        connection.query(COUNT_IN_SCOPES, &[&query.kind, &scopes.orgs, &scopes.lows, &scopes.highs]).await?
    };
    let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    if count.cast_unsigned() > MAX_LIKE {
        return Err(StoreError::TooCostly("a search compares too many records".into()).into());
    }
    Ok(())
}
