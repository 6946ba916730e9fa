//! Lists with a filter (AIP-160; `docs/api.md`, Filters).
//!
//! Conditions that filter keys, search indexes and uids answer become part of the store's query. The other conditions are evaluated on
//! the resources of that query as the list shows them, one after another: all of them, for the exact total, but at most
//! [`MAX_READ`] (or [`MAX_READ_OPEN`]) and [`MAX_READ_BYTES`]. Where a range of a sort key has all resources that pass, only that is read.
//!
//! Every page reads all of them again, so that a page token is a position as in any list, and the total is that of the
//! moment. Rejected: a cursor that remembers what was evaluated, which is state in the store.

use std::cmp::Ordering;

use bytes::Bytes;

use super::{AT_ONCE, Found, PAGE_BYTES, indexed, position, rendered_for_list};
use crate::{
    aip::filter::{self, Filter, Plan, Range},
    context::Context,
    error::{Code, Error, Result},
    kind::{Kind, Registered},
    request::{FILTER, MAX_PAGE_SIZE},
    scope::Scopes,
    store::{self, Item, MAX_LIKE, Order, OrderBy, Position, Query, Scope},
    uid::Uid,
};

/// The maximum number of resources that a list reads to evaluate a filter. Our choice: some 100 ms of work, with
/// pauses.
const MAX_READ: usize = 10_000;

/// The same for a list that needs no token, whose callers have no share of their own in the work. Our choice.
const MAX_READ_OPEN: usize = 1_000;

/// The maximum length of these resources in bytes. Our choice.
const MAX_READ_BYTES: usize = 32 << 20;

/// Returns a page of the resources of a query that pass a filter.
///
/// # Errors
/// INVALID_ARGUMENT on `filter` when more resources than allowed would have to be read, and those of the store.
pub(super) async fn list(cx: &Context<'_>, registered: &Registered, filter: &Filter, query: Query) -> Result<Found> {
    let plan = filter.plan(registered.kind, true);
    if !has_search(&plan.filters) {
        return planned(cx, registered, filter, plan, query).await;
    }
    match planned(cx, registered, filter, plan, query.clone()).await {
        Err(error) if error.code() == Code::DeadlineExceeded => {
            let plan = filter.plan(registered.kind, false);
            if plan.range.is_none() {
                return Err(Error::invalid_field(FILTER.name, too_frequent()).because(error));
            }
            planned(cx, registered, filter, plan, query).await
        }
        result => result,
    }
}

fn has_search(filters: &[store::Filter]) -> bool {
    filters.iter().any(|filter| matches!(filter, store::Filter::Like { .. }))
}

/// Returns the rule that a search breaks for which the store would compare too many resources.
fn too_frequent() -> String {
    format!(
        "must select fewer resources by a part of a text: the store would compare more than {MAX_LIKE} with it; write more \
         of the text, or narrow the list with `uidp.descendants_of`"
    )
}

/// Returns the page of a query by a plan of its filter.
async fn planned(
    cx: &Context<'_>,
    registered: &Registered,
    filter: &Filter,
    plan: Plan<'_>,
    mut query: Query,
) -> Result<Found> {
    let kind = registered.kind;
    let most = if cx.caller().is_some() { MAX_READ } else { MAX_READ_OPEN };
    let Plan { filters, uids, range, rest } = plan;
    let has_filters = !filters.is_empty();
    let mut scopes = Scopes::disjoint(query.scopes);
    for uids in uids {
        scopes = scopes.and(&Scopes::disjoint(uids.into_iter().map(Scope::Exact)));
    }
    query.scopes = scopes.into_vec();
    query.filters.extend(filters);
    let any_of = query.filters.iter().filter(|filter| matches!(filter, store::Filter::AnyOf { .. }));
    if has_filters && !has_search(&query.filters) && any_of.clone().count() > 1 {
        // The store reads the shortest of their lists.
        let mut shortest = u64::MAX;
        for filter in any_of {
            shortest = shortest.min(count(cx, &query, vec![filter.clone()]).await?);
        }
        if shortest > most as u64 {
            return Err(too_many(kind, most, &["its conditions together"]));
        }
    }
    if rest.is_empty() {
        return indexed(cx, registered, query).await;
    }
    if range.is_none() && count(cx, &query, query.filters.clone()).await? > most as u64 {
        return Err(too_many(kind, most, &rest));
    }
    let matches = matches(cx, registered, filter, &query, range.as_ref(), most).await?;
    Ok(page(&query, matches.ok_or_else(|| too_many(kind, most, &rest))?))
}

/// Returns the number of resources in the scopes of a query that pass these filters.
async fn count(cx: &Context<'_>, query: &Query, filters: Vec<store::Filter>) -> Result<u64> {
    let first = Query { filters, after: None, skip: 0, limit: 1, bytes: 1, ..query.clone() };
    Ok(cx.page(first).await?.total.unwrap_or_default())
}

/// Returns all resources of a query that pass a filter, in its order, each with its position; `None` if more than `most`
/// would have to be read, or too many bytes.
async fn matches(
    cx: &Context<'_>,
    registered: &Registered,
    filter: &Filter,
    query: &Query,
    range: Option<&Range>,
    most: usize,
) -> Result<Option<Vec<(Position, Bytes)>>> {
    let kind = registered.kind;
    let mut next =
        Query { after: None, skip: 0, limit: MAX_PAGE_SIZE, bytes: PAGE_BYTES, count: false, ..query.clone() };
    if let Some(Range { key, low, .. }) = range {
        next.order = Order { by: OrderBy::Key(key), descending: false };
        // No uid is before the empty one, so that resources with the smallest value follow this position.
        next.after = low.clone().map(|value| Position { value, uid: Uid::default() });
    }
    let (mut found, mut read, mut bytes, mut pace) = (Vec::new(), 0_usize, 0_usize, cx.pace());
    loop {
        let page = cx.page(next.clone()).await?;
        let items = within(kind, next.order, &page.items, range)?;
        let is_last = items.len() < page.items.len();
        read = read.saturating_add(items.len());
        if read > most {
            return Ok(None);
        }
        for some in items.chunks(AT_ONCE) {
            for (item, body) in some.iter().zip(rendered_for_list(cx, registered, some).await?) {
                bytes = bytes.saturating_add(body.len());
                pace.step(body.len()).await;
                if filter.passes(&serde_json::from_slice(&body).map_err(Error::internal)?) {
                    found.push((position(kind, query.order, item)?, body));
                }
            }
        }
        if bytes > MAX_READ_BYTES {
            return Ok(None);
        }
        match page.next.filter(|_| !is_last) {
            Some(position) => next.after = Some(position),
            None => break,
        }
    }
    found.sort_by(|(one, _), (other, _)| compare(query.order, one, other));
    Ok(Some(found))
}

/// Returns the resources of a page that are not after a range, in the order of its key.
fn within<'i>(kind: &Kind, order: Order, items: &'i [Item], range: Option<&Range>) -> Result<&'i [Item]> {
    let Some(range) = range.filter(|range| range.high.is_some()) else { return Ok(items) };
    for (at, item) in items.iter().enumerate() {
        if range.ends_before(&position(kind, order, item)?.value) {
            return Ok(items.get(..at).unwrap_or_default());
        }
    }
    Ok(items)
}

fn compare(order: Order, one: &Position, other: &Position) -> Ordering {
    let ascending = (&one.value, &one.uid).cmp(&(&other.value, &other.uid));
    if order.descending { ascending.reverse() } else { ascending }
}

/// Returns the page of a query among all resources that match.
fn page(query: &Query, matches: Vec<(Position, Bytes)>) -> Found {
    let total = matches.len() as u64;
    let is_before =
        |position: &Position| query.after.as_ref().is_some_and(|after| compare(query.order, position, after).is_le());
    let skip = usize::try_from(query.skip).unwrap_or(usize::MAX);
    let mut rest = matches.into_iter().skip_while(|(position, _)| is_before(position)).skip(skip).peekable();
    let (mut items, mut bytes, mut last) = (Vec::new(), 0_usize, None);
    while let Some((position, body)) = rest.next_if(|(_, body)| {
        let fits = bytes.saturating_add(body.len()) <= query.bytes || items.is_empty();
        fits && items.len() < query.limit
    }) {
        bytes = bytes.saturating_add(body.len());
        items.push(body);
        last = Some(position);
    }
    Found { items, next: last.filter(|_| rest.peek().is_some()), total }
}

/// Returns the error for a filter whose evaluation would read too many resources, because no index answers this.
fn too_many(kind: &'static Kind, most: usize, what: &[&str]) -> Error {
    let indexed: Vec<_> = filter::indexed(kind).collect();
    let searched: Vec<_> = kind.fields.iter().filter(|field| field.searched).map(|field| field.name).collect();
    let parts = if searched.is_empty() {
        String::new()
    } else {
        format!(", or at least three bytes of {}", searched.join(" or "))
    };
    let rule = format!(
        "must select fewer resources: no index answers {}, and more than {most} resources, or {} MiB of them, would have \
         to be read; narrow the list with `uidp.descendants_of`, or compare {}{parts}",
        what.join(" and "),
        MAX_READ_BYTES >> 20,
        indexed.join(", "),
    );
    Error::invalid_field(FILTER.name, rule)
}
