//! Lists (AIP-132, AIP-158; `docs/api.md`, Lists).

use bytes::Bytes;

use super::rendered;
use crate::{
    cx::Cx,
    error::{Error, Result},
    kind::{Registered, Verb},
    request::ListRequest,
    scope::Scopes,
    store::{Query, Scope},
};

/// A page of a list, each resource as its JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    /// The resources, in order.
    pub items: Vec<Bytes>,
    /// The token of the next page; none when this is the last.
    pub next_page_token: Option<String>,
    /// How many resources match on all pages, of those that the caller may see.
    pub total_count: u64,
    /// The `skip` of the request.
    pub skipped: u64,
}

pub(crate) async fn list(cx: &Cx<'_>, registered: &Registered, request: &ListRequest) -> Result<ListReply> {
    let kind = registered.kind;
    let Some(method) = kind.method(Verb::List) else { return Err(Error::denied()) };
    let (platform, now) = (cx.platform(), cx.now());
    let binding = format!("{}\n{}", cx.caller().identity, request.canonical);
    let after = match request.page_token.as_str() {
        "" => None,
        token => platform
            .page_keys()
            .open(now, binding.as_bytes(), token)
            .map_err(|rule| Error::invalid_field("page_token", rule.to_string()))?,
    };
    let visible = match method.open {
        true => Scopes::disjoint([Scope::Roots]),
        false => cx.visible(kind, method.capabilities),
    };
    let scopes = request.uidp.scopes().and(&visible).into_vec();
    // Who may see nothing learns nothing.
    if let (Some((_, of)), Some(uid), false) = (method.of, &request.of, scopes.is_empty()) {
        let of = platform.kinds().find(|kind| kind.name == of);
        let of = of.ok_or_else(|| Error::internal("a list of a kind that the platform was not given"))?;
        if cx.record(of, uid).await?.is_none() {
            return Err(Error::not_found(of, uid.as_str()));
        }
    }
    let page = cx
        .page(Query {
            kind: kind.name,
            scopes,
            filters: request.filters.clone(),
            order: request.order,
            after,
            skip: request.skip,
            limit: request.page_size,
            count: true,
            epochs: Default::default(),
        })
        .await?;
    let stored = page.items.into_iter().map(|item| (item.rendering, item.body)).collect();
    Ok(ListReply {
        items: rendered(cx, registered, stored).await?,
        next_page_token: page.next.map(|next| platform.page_keys().issue(now, binding.as_bytes(), &next)),
        total_count: page.total.unwrap_or_default(),
        skipped: request.skip,
    })
}
