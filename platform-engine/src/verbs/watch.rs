//! The resources that a watch shows: those of the list, rendered in the same way.

use std::sync::Arc;

use bytes::Bytes;

use super::list::{PAGE_BYTES, is_cut, rendered_for_list};
use crate::{
    context::Context,
    error::{Error, Result},
    etag::Tag,
    fields::{Checked, Keys},
    kind::{Kind, Registered, Verb},
    request::ListRequest,
    scope::Scopes,
    store::{Epoch, Item, Order, OrderBy, Position, Query, Scope},
    uid::Uid,
    write::is_current,
};

/// The number of resources of the state that are read at once. Our choice.
const STATE_PAGE: usize = 100;

/// A resource as a watch shows it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// The resource, as a list shows it.
    pub(crate) body: Bytes,
    /// The tag that a get returns; `None` if it depends on fields that the list omits.
    pub(crate) tag: Option<Tag>,
}

/// Returns the scopes of a list in which the caller sees resources, and the epochs on which that depends.
pub(crate) async fn visible(
    cx: &Context<'_>,
    registered: &Registered,
    request: &ListRequest,
) -> Result<(Scopes, Arc<[Epoch]>)> {
    let kind = registered.kind;
    let Some(method) = kind.method(Verb::List) else { return Err(Error::denied()) };
    let requested = request.uidp.scopes();
    let scopes = requested.and(&cx.visible(kind, method.capabilities, &requested));
    if let (Some((_, of)), Some(uid), false) = (method.of, &request.of, scopes.is_empty())
        && cx.record(of, uid).await?.is_none()
    {
        return Err(Error::not_found(of, uid.as_str()));
    }
    Ok((scopes, cx.basis_epochs()))
}

/// Returns resources as a list shows them, `None` for each that its filters exclude; `None` if they are not all stored as
/// the list shows them, or have to be looked at.
pub(crate) fn shown_as_stored(
    registered: &Registered,
    request: &ListRequest,
    items: &[Item],
) -> Option<Vec<Option<Shown>>> {
    let kind = registered.kind;
    let is_whole = request.read_mask.is_none() && !is_cut(kind);
    let is_plain = request.filters.is_empty() && request.condition.is_none() && is_whole;
    let shown = |item: &Item| {
        is_current(kind, item.rendering)
            .then(|| Some(Shown { body: item.body.clone(), tag: Some(Tag::of_stored(item.revision)) }))
    };
    if is_plain { items.iter().map(shown).collect() } else { None }
}

/// Returns resources as a list shows them, `None` for each that its filters exclude.
pub(crate) async fn shown(
    cx: &Context<'_>,
    registered: &Registered,
    request: &ListRequest,
    items: &[Item],
) -> Result<Vec<Option<Shown>>> {
    let kind = registered.kind;
    let passes = items.iter().map(|item| passes_keys(kind, request, item)).collect::<Result<Vec<_>>>()?;
    let passing = items.iter().zip(&passes).filter(|(_, passes)| **passes).map(|(item, _)| item.clone());
    let passing: Vec<_> = passing.collect();
    let mut bodies = passing.iter().zip(rendered_for_list(cx, registered, &passing).await?);
    let mut all = Vec::with_capacity(items.len());
    for passes in passes {
        let next = if passes { bodies.next() } else { None };
        let Some((item, body)) = next else {
            all.push(None);
            continue;
        };
        all.push(match &request.condition {
            Some(filter) if !filter.passes(&serde_json::from_slice(&body).map_err(Error::internal)?) => None,
            _ => {
                let tag = tag(kind, item, &body);
                // Without the uid, nobody knows which resource has changed.
                let masked = request.read_mask.as_ref().map(|mask| mask.apply_with_uid(&body)).transpose()?;
                Some(Shown { body: masked.unwrap_or(body), tag })
            }
        });
    }
    Ok(all)
}

fn tag(kind: &Kind, item: &Item, body: &[u8]) -> Option<Tag> {
    if is_current(kind, item.rendering) {
        Some(Tag::of_stored(item.revision))
    } else if is_cut(kind) {
        None
    } else {
        Some(Tag::of_completed(item.revision, body))
    }
}

/// Returns whether a resource passes the filters of a list that the store evaluates.
fn passes_keys(kind: &Kind, request: &ListRequest, item: &Item) -> Result<bool> {
    if request.filters.is_empty() {
        return Ok(true);
    }
    let body = Checked::stored(kind, &item.body)?;
    let keys = Keys::of(kind, &body, &[])?;
    Ok(request.filters.iter().all(|filter| filter.passes(&keys.sort, &keys.filter)))
}

/// Returns a page of the resources of a list in these scopes after a uid, in the order of the uids, each with its
/// revision and, unless the filters exclude it, as the list shows it; and whether it is the last page.
pub(crate) async fn state_page(
    cx: &Context<'_>,
    registered: &Registered,
    request: &ListRequest,
    scopes: &[Scope],
    after: &Uid,
) -> Result<(Vec<(Uid, u64, Option<Shown>)>, bool)> {
    let after = (!after.is_empty()).then(|| Position { value: Default::default(), uid: after.clone() });
    let page = cx.page(Query {
        kind: registered.kind.name,
        scopes: scopes.to_vec(),
        filters: request.filters.clone(),
        order: Order { by: OrderBy::Uid, descending: false },
        after,
        skip: 0,
        limit: STATE_PAGE,
        bytes: PAGE_BYTES,
        count: false,
        epochs: Default::default(),
    });
    let page = page.await?;
    let shown = shown(cx, registered, request, &page.items).await?;
    let items = page.items.iter().zip(shown).map(|(item, shown)| (item.uid(), item.revision, shown));
    Ok((items.collect(), page.next.is_none()))
}
