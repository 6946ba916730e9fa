//! [`Scope::All`](platform_engine::store::Scope::All) without filters, by uid or by sequence: read from the index, or from
//! the tables by sequence.

use std::ops::{Bound, ControlFlow};

use platform_engine::store::{Page, Position, Query, StoreError, order::sequence_of};

use super::{Budget, OverBudget, position, source::Sources};
use crate::{
    index::{self, Index, Range},
    record::{self, Stored},
    rows::{Rows, SequenceRange, Tables},
    schema::{BY_SEQUENCE, NameId},
};

/// Returns the page. The cost of a `skip` grows with its length.
pub(super) fn page(
    sources: Sources<'_, impl Tables>,
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
        let after = match &query.after {
            None => Bound::Unbounded,
            Some(after) => Bound::Excluded(place_of(index, kind, after, descending)?),
        };
        let mut result = Ok(());
        index.rows.by_sequence(SequenceRange { kind, after, descending, skip, limit }, |stored| {
            let flow = stored.verified().map(|stored| fill.take(stored));
            flow.unwrap_or_else(|error| {
                result = Err(error);
                ControlFlow::Break(())
            })
        })?;
        result?;
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
        record::each(index.rows, &ids, |stored| {
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

/// Returns a position by sequence: a revision and a place in its commit.
fn place_of(
    index: Index<'_, impl Rows>,
    kind: NameId,
    after: &Position,
    descending: bool,
) -> Result<(i64, i64), StoreError> {
    let mut value = [0; 8];
    value.iter_mut().zip(after.value.as_bytes()).for_each(|(to, from)| *to = *from);
    let revision = sequence_of(value).cast_signed();
    if let Some(id) = index.get(&index::key(kind, None, &after.uid))?
        && let Some(place) = index.rows.place(id, revision)?
    {
        return Ok((revision, place));
    }
    // The record was deleted or replaced since the last page: derive its place from its neighbors in the commit, whose
    // places ascend with uids. Without a neighbor on the far side, every remaining record of the commit is before the
    // position.
    let neighbor = index.rows.neighbor_place(kind, revision, &after.uid, descending)?;
    let place = match (neighbor, descending) {
        (Some(place), true) => place + 1,
        (Some(place), false) => place - 1,
        (None, true) => -1,
        (None, false) => i64::MAX,
    };
    Ok((revision, place))
}
