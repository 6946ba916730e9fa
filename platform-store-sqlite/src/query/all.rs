//! [`Scope::All`](platform_engine::store::Scope::All) without filters, by uid or by sequence: read from the index, or from
//! that of the `record` table by sequence.

use std::ops::ControlFlow;

use platform_engine::store::{Page, Position, Query, StoreError, order::sequence_of};

use super::{Budget, OverBudget, position, source::Sources};
use crate::{
    error::store_error,
    index::{self, Index, Range},
    record::{self, Stored, columns},
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
    let index = view.index()?;
    // One more than the page, to learn whether there is a next page.
    let (limit, skip) = (limit + 1, query.skip.min(total));
    let descending = query.order.descending;
    let mut fill = Fill { order, most: limit - 1, bytes: query.bytes, page: &mut page, used: 0, last: None };
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
        let (revision, place) = bound_by_sequence(index, kind, query.after.as_ref(), descending)?;
        let mut select = index.connection.prepare_cached(select).map_err(store_error)?;
        let params = (kind, revision, place, limit.cast_signed(), skip.cast_signed());
        let mut rows = select.query(params).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            if fill.take(Stored::read(row)?).is_break() {
                break;
            }
        }
    } else {
        let range = Range::of(kind, None);
        let range = match &query.after {
            Some(after) => range.after(&after.uid, descending),
            None => range,
        };
        let (mut ids, mut skipped) = (Vec::new(), 0);
        index.each(&range, descending, |_, id| {
            if skipped < skip {
                skipped += 1;
            } else {
                ids.push(id);
            }
            Ok(if ids.len() as u64 == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let mut misplaced = None;
        record::each(index.connection, &ids, |stored| {
            if stored.kind != kind {
                misplaced = Some(record::misplaced(stored.id));
                return ControlFlow::Break(());
            }
            fill.take(stored)
        })?;
        if let Some(error) = misplaced {
            return Err(error);
        }
    }
    Ok(Ok(page))
}

/// A page that is being filled, and its limits.
struct Fill<'a> {
    order: NameId,
    most: u64,
    bytes: usize,
    page: &'a mut Page,
    /// The bytes of the bodies so far.
    used: usize,
    /// The position of the last record.
    last: Option<Position>,
}

impl Fill<'_> {
    /// Adds a record, or ends the page before it.
    fn take(&mut self, stored: Stored<'_>) -> ControlFlow<()> {
        self.used = self.used.saturating_add(stored.body.len());
        let items = &mut self.page.items;
        if items.len() as u64 == self.most || (self.used > self.bytes && !items.is_empty()) {
            self.page.next = self.last.take();
            return ControlFlow::Break(());
        }
        items.push(stored.to_loaded().item());
        self.last = Some(position(&stored, self.order));
        ControlFlow::Continue(())
    }
}

/// Returns the exclusive bound of a page by sequence: a revision and a place in its commit.
fn bound_by_sequence(
    index: Index<'_>,
    kind: NameId,
    after: Option<&Position>,
    descending: bool,
) -> Result<(i64, i64), StoreError> {
    let Some(after) = after else { return Ok(if descending { (i64::MAX, i64::MAX) } else { (-1, -1) }) };
    let mut value = [0; 8];
    value.iter_mut().zip(after.value.as_bytes()).for_each(|(to, from)| *to = *from);
    let revision = sequence_of(value).cast_signed();
    // If the record was deleted or replaced since the last page, derive its place from its neighbors in the commit:
    // places ascend with uids.
    let select = if descending {
        "SELECT (SELECT place FROM record WHERE id = ?4 AND revision = ?2), \
         (SELECT max(place) + 1 FROM record INDEXED BY record_sequence WHERE kind = ?1 AND revision = ?2 AND uid < ?3)"
    } else {
        "SELECT (SELECT place FROM record WHERE id = ?4 AND revision = ?2), \
         (SELECT min(place) - 1 FROM record INDEXED BY record_sequence WHERE kind = ?1 AND revision = ?2 AND uid > ?3)"
    };
    let id = index.get(&index::key(kind, None, &after.uid))?;
    let select = index.connection.prepare_cached(select);
    let places = select.and_then(|mut select| {
        select.query_row((kind, revision, &*after.uid, id), |row| Ok((row.get(0)?, row.get(1)?)))
    });
    let (own, of_neighbor): (Option<i64>, Option<i64>) = places.map_err(store_error)?;
    // Without a neighbor on the far side, every remaining record of the commit is before the position.
    Ok((revision, own.or(of_neighbor).unwrap_or(if descending { -1 } else { i64::MAX })))
}
