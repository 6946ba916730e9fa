//! [`Scope::All`](platform_engine::store::Scope::All) without filters, by uid or by sequence: read from the indexes of
//! the `record` table.

use platform_engine::store::{Page, Position, Query, StoreError, order::sequence_of};
use rusqlite::{Connection, Params, types::Value};

use super::{Budget, OverBudget, position, source::Sources};
use crate::{
    error::store_error,
    record::{Stored, columns},
    schema::{BY_SEQUENCE, NameId},
};

/// Returns the page. The cost of a `skip` grows with its length.
pub(super) fn page(
    sources: Sources<'_>,
    query: &Query,
    budget: Budget,
) -> Result<Result<Page, OverBudget>, StoreError> {
    let Sources { view, kind, order, .. } = sources;
    let total = sources.total(None)?.unwrap_or(0);
    let limit = total.min(query.limit as u64);
    if limit > budget.records || query.skip.min(total) > budget.candidates {
        return Ok(Err(OverBudget));
    }
    let mut page = Page { total: query.count.then_some(total), ..Page::default() };
    if limit == 0 {
        return Ok(Ok(page));
    }
    let connection = view.connection()?;
    // One more than the page, to learn whether there is a next page.
    let (limit, skip) = (limit.cast_signed() + 1, query.skip.min(total).cast_signed());
    let fill = Fill { order, most: limit.cast_unsigned() - 1, bytes: query.bytes, page: &mut page };
    let descending = query.order.descending;
    if order == BY_SEQUENCE {
        let select = if descending {
            concat!(
                "SELECT ",
                columns!(),
                " FROM record WHERE kind = ? AND (revision, place) < (?, ?) \
                 ORDER BY revision DESC, place DESC LIMIT ? OFFSET ?"
            )
        } else {
            concat!(
                "SELECT ",
                columns!(),
                " FROM record WHERE kind = ? AND (revision, place) > (?, ?) ORDER BY revision, place LIMIT ? OFFSET ?"
            )
        };
        let (revision, place) = bound_by_sequence(connection, kind, query.after.as_ref(), descending)?;
        fill.from(connection, select, (kind, revision, place, limit, skip))?;
    } else {
        let select = if descending {
            concat!("SELECT ", columns!(), " FROM record WHERE kind = ? AND uid < ? ORDER BY uid DESC LIMIT ? OFFSET ?")
        } else {
            concat!("SELECT ", columns!(), " FROM record WHERE kind = ? AND uid > ? ORDER BY uid LIMIT ? OFFSET ?")
        };
        let bound = match &query.after {
            Some(after) => Value::Text(after.uid.to_string()),
            // In SQLite, every text is less than any blob. No uid is empty.
            None if descending => Value::Blob(Vec::new()),
            None => Value::Text(String::new()),
        };
        fill.from(connection, select, (kind, bound, limit, skip))?;
    }
    Ok(Ok(page))
}

/// A page that is being filled, and its limits.
struct Fill<'a> {
    order: NameId,
    most: u64,
    bytes: usize,
    page: &'a mut Page,
}

impl Fill<'_> {
    fn from(self, connection: &Connection, select: &str, params: impl Params) -> Result<(), StoreError> {
        let Self { order, most, bytes: most_bytes, page } = self;
        let mut select = connection.prepare_cached(select).map_err(store_error)?;
        let mut rows = select.query(params).map_err(store_error)?;
        let (mut last, mut bytes) = (None, 0_usize);
        while let Some(row) = rows.next().map_err(store_error)? {
            let stored = Stored::read(row)?;
            bytes = bytes.saturating_add(stored.body.len());
            if page.items.len() as u64 == most || (bytes > most_bytes && !page.items.is_empty()) {
                page.next = last;
                return Ok(());
            }
            page.items.push(stored.to_loaded().item());
            last = Some(position(&stored, order));
        }
        Ok(())
    }
}

/// Returns the exclusive bound of a page by sequence: a revision and a place in its commit.
fn bound_by_sequence(
    connection: &Connection,
    kind: NameId,
    after: Option<&Position>,
    descending: bool,
) -> Result<(i64, i64), StoreError> {
    let Some(after) = after else { return Ok(if descending { (i64::MAX, i64::MAX) } else { (-1, -1) }) };
    let mut value = [0; 8];
    value.iter_mut().zip(after.value.as_bytes()).for_each(|(to, from)| *to = *from);
    let revision = sequence_of(value).cast_signed();
    let place = |sql: &str| {
        let mut select = connection.prepare_cached(sql)?;
        select.query_row((kind, revision, &*after.uid), |row| row.get::<_, Option<i64>>(0))
    };
    let of_uid = "SELECT max(place) FROM record INDEXED BY record_uid WHERE kind = ? AND revision = ? AND uid = ?";
    // If the record was deleted or replaced since the last page, derive its place from its neighbors in the commit:
    // places ascend with uids.
    let of_neighbor = if descending {
        "SELECT max(place) + 1 FROM record INDEXED BY record_sequence WHERE kind = ? AND revision = ? AND uid < ?"
    } else {
        "SELECT min(place) - 1 FROM record INDEXED BY record_sequence WHERE kind = ? AND revision = ? AND uid > ?"
    };
    let found = match place(of_uid).map_err(store_error)? {
        Some(place) => Some(place),
        None => place(of_neighbor).map_err(store_error)?,
    };
    // Without a neighbor on the far side, every remaining record of the commit is before the position.
    Ok((revision, found.unwrap_or(if descending { -1 } else { i64::MAX })))
}
