//! Lists (AIP-132, AIP-158; `docs/api.md`, Lists).

mod filtered;

use std::borrow::Cow;

use bytes::Bytes;

use serde_json::Value;

use super::{encode, is_current, rendered};
use crate::{
    aip::read_mask::ReadMask,
    context::Context,
    error::{Error, Result},
    fields::{self, Checked},
    kind::{Kind, Registered, Verb},
    request::ListRequest,
    scope::Scopes,
    store::{Item, KeyValue, Order, OrderBy, Position, Query, Scope},
};

/// The maximum length of a page's resources in bytes, both stored and rendered. A longer resource has a page of its
/// own. Our choice.
pub const PAGE_BYTES: usize = 4 << 20;

/// The number of resources that are rendered at once, and thus the maximum number that are rendered in vain when a page
/// reaches [`PAGE_BYTES`].
const AT_ONCE: usize = 50;

/// A page of a list, each resource as its JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    /// The resources, in order.
    pub items: Vec<Bytes>,
    /// The token of the next page; `None` on the last page.
    pub next_page_token: Option<String>,
    /// The number of resources on all pages that match and that the caller may see.
    pub total_count: u64,
    /// The `skip` of the request.
    pub skipped: u64,
}

pub(crate) async fn list(cx: &Context<'_>, registered: &Registered, request: &ListRequest) -> Result<ListReply> {
    let kind = registered.kind;
    let Some(method) = kind.method(Verb::List) else { return Err(Error::denied()) };
    let requested = request.uidp.scopes();
    let visible =
        if method.open { Scopes::disjoint([Scope::Roots]) } else { cx.visible(kind, method.capabilities, &requested) };
    let scopes = requested.and(&visible);
    // A caller who may not see anything there gets an empty list, whether or not the resource exists.
    if let (Some((_, of)), Some(uid), false) = (method.of, &request.of, scopes.is_empty())
        && cx.record(of, uid).await?.is_none()
    {
        return Err(Error::not_found(of, uid.as_str()));
    }
    list_in(cx, registered, request, scopes).await
}

/// Lists resources in these scopes. The caller's capabilities are not checked.
pub(crate) async fn list_in(
    cx: &Context<'_>,
    registered: &Registered,
    request: &ListRequest,
    scopes: Scopes,
) -> Result<ListReply> {
    let kind = registered.kind;
    let (platform, now) = (cx.platform(), cx.now());
    let identity = cx.caller().map_or("", |caller| &caller.identity);
    let binding = request.binding.clone().with("caller", [identity.as_bytes()]);
    let after = match request.page_token.as_str() {
        "" => None,
        token => platform
            .page_keys()
            .open(now, &binding, token)
            .map_err(|rule| Error::invalid_field("page_token", rule.to_string()))?,
    };
    let query = Query {
        kind: kind.name,
        scopes: scopes.into_vec(),
        filters: request.filters.clone(),
        order: request.order,
        after,
        skip: request.skip,
        limit: request.page_size,
        bytes: PAGE_BYTES,
        count: true,
        epochs: Default::default(),
    };
    let Found { items, next, total } = match &request.condition {
        None => indexed(cx, registered, query).await?,
        Some(filter) => filtered::list(cx, registered, filter, query).await?,
    };
    let items = match &request.read_mask {
        None => items,
        Some(mask) => masked(cx, mask, items).await?,
    };
    Ok(ListReply {
        items,
        next_page_token: next.map(|next| platform.page_keys().issue(now, &binding, &next)),
        total_count: total,
        skipped: request.skip,
    })
}

/// Returns the fields of a mask of each resource.
async fn masked(cx: &Context<'_>, mask: &ReadMask, mut items: Vec<Bytes>) -> Result<Vec<Bytes>> {
    let mut pace = cx.pace();
    for item in &mut items {
        pace.step(item.len()).await;
        *item = mask.apply(item)?;
    }
    Ok(items)
}

/// A page of rendered resources, the position of the last one if there are more, and the number on all pages.
struct Found {
    items: Vec<Bytes>,
    next: Option<Position>,
    total: u64,
}

/// Returns the page that the store finds.
async fn indexed(cx: &Context<'_>, registered: &Registered, query: Query) -> Result<Found> {
    let order = query.order;
    let page = cx.page(query).await?;
    let (items, next) = completed(cx, registered, order, page.items).await?;
    // A page that is cut short continues after its own last resource, and not after the last one that the store read.
    Ok(Found { items, next: next.or(page.next), total: page.total.unwrap_or_default() })
}

/// Renders resources for a list. If not all of them fit into [`PAGE_BYTES`], returns the first ones and the position of
/// the last one returned: a rendered resource may be much longer than the stored one.
async fn completed(
    cx: &Context<'_>,
    registered: &Registered,
    order: Order,
    stored: Vec<Item>,
) -> Result<(Vec<Bytes>, Option<Position>)> {
    let kind = registered.kind;
    if !is_cut(kind) && stored.iter().all(|item| is_current(kind, item.rendering)) {
        // The replies have the stored bytes, which the store has already limited.
        return Ok((stored.into_iter().map(|item| item.body).collect(), None));
    }
    let (mut items, mut bytes, mut pace) = (Vec::with_capacity(stored.len()), 0_usize, cx.pace());
    for some in stored.chunks(AT_ONCE) {
        for body in rendered_for_list(cx, registered, some).await? {
            bytes = bytes.saturating_add(body.len());
            pace.step(body.len()).await;
            if bytes > PAGE_BYTES
                && let Some(last) = items.len().checked_sub(1).and_then(|last| stored.get(last))
            {
                return Ok((items, Some(position(kind, order, last)?)));
            }
            items.push(body);
        }
    }
    Ok((items, None))
}

/// Returns resources as lists show them.
pub(super) async fn rendered_for_list(
    cx: &Context<'_>,
    registered: &Registered,
    stored: &[Item],
) -> Result<Vec<Bytes>> {
    let kind = registered.kind;
    let bodies = stored.iter().map(|item| (item.rendering, item.body.clone())).collect();
    let bodies = rendered(cx, registered, bodies).await?;
    if is_cut(kind) { bodies.iter().map(|body| listed(kind, body)).collect() } else { Ok(bodies) }
}

/// Returns whether lists omit fields of a kind.
pub(super) fn is_cut(kind: &Kind) -> bool {
    kind.fields.iter().any(|field| field.unlisted)
}

/// Returns a record's position in an order, as a store would.
fn position(kind: &Kind, order: Order, item: &Item) -> Result<Position> {
    let value = match order.by {
        OrderBy::Uid => KeyValue::default(),
        OrderBy::Sequence => KeyValue::integer(item.revision.cast_signed()),
        OrderBy::Key(name) => {
            let body = Checked::stored(kind, &item.body)?;
            let mut keys = fields::sort_keys(kind, &body).into_iter();
            keys.find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
        }
    };
    Ok(Position { value, uid: item.uid() })
}

/// Returns a resource's JSON without the fields that lists omit.
fn listed(kind: &Kind, item: &[u8]) -> Result<Bytes> {
    let body: Value = serde_json::from_slice(item).map_err(Error::internal)?;
    encode(&fields::without(kind.fields, Cow::Owned(body), |field| field.unlisted))
}
