//! The standard methods (AIP-131 to AIP-135) and actions, each implemented once for all kinds.
//!
//! Every method checks in the same order: the caller, the uid, access by the uid's path, the rest of the request, the
//! stored data (`docs/api.md`, Access).

pub(crate) mod action;
pub(crate) mod batch_get;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
mod modify;
pub(crate) mod update;
pub(crate) mod watch;

pub use crate::fields::times;
pub use batch_get::{MAX_UIDS, REQUEST as BATCH_GET_REQUEST};
pub use create::Prepared;
pub use list::{ListReply, PAGE_BYTES};
pub use update::is_same;

use std::{borrow::Cow, sync::OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    aip::field_mask::Mask,
    context::Context,
    error::{Error, Result},
    etag::Reply,
    fields::{self, Values},
    kind::{Kind, Registered, Verb, WriteRules},
    offload,
    request::ListRequest,
    scope::Scopes,
    uid::Uid,
    write::{CURRENT_RENDERING, Write, is_current},
};

/// The parsed body of a request, so that it is parsed only once even if the operation is retried.
#[derive(Debug, Default)]
pub(crate) struct Once(OnceLock<Sent>);

/// The values of a body, and the fields that it sets.
#[derive(Debug, Clone)]
struct Sent {
    values: Values,
    mask: Mask,
}

impl Once {
    /// Parses a body with `read`, or returns the result of an earlier attempt. A body with costly fields is parsed by
    /// [`Offload`](offload::Offload), on the share of the organization of `uid`.
    async fn read(
        &self,
        cx: &Context<'_>,
        kind: &'static Kind,
        uid: &Uid,
        body: &Map<String, Value>,
        read: impl FnOnce(Map<String, Value>) -> Result<Sent> + Send + 'static,
    ) -> Result<Sent> {
        if let Some(sent) = self.0.get() {
            return Ok(sent.clone());
        }
        let body = body.clone();
        let sent = if fields::is_costly(kind.fields, &body) {
            offload::run(cx.platform().offload(), uid.root(), move || read(body)).await??
        } else {
            read(body)?
        };
        Ok(self.0.get_or_init(|| sent).clone())
    }
}

/// Parses a uid of a request.
pub(crate) fn uid_in(field: &'static str, text: &str) -> Result<Uid> {
    parse_uid(text).map_err(|rule| Error::invalid_field(field, rule))
}

/// Parses a uid that must be set.
///
/// # Errors
/// The rule that the text breaks.
fn parse_uid(text: &str) -> std::result::Result<Uid, String> {
    if text.is_empty() {
        return Err("is required".to_owned());
    }
    Uid::parse(text).map_err(|rule| rule.to_string())
}

/// Checks that the caller may call a standard method for this uid, which for a create is the parent's.
pub(crate) async fn demand(cx: &Context<'_>, registered: &Registered, verb: Verb, uid: &str) -> Result<()> {
    let kind = registered.kind;
    match verb {
        Verb::List => Ok(()),
        Verb::Create => create::demand(cx, registered, uid).await.map(drop),
        Verb::Get | Verb::Update | Verb::Delete => cx.demand_method(kind, verb, &uid_in("uid", uid)?),
    }
}

/// Renders the bodies that are not stored in the current rendering, and returns all in their order.
async fn rendered(cx: &Context<'_>, registered: &Registered, stored: Vec<(u16, Bytes)>) -> Result<Vec<Bytes>> {
    let is_current = |rendering: u16| is_current(registered.kind, rendering);
    if stored.iter().all(|(rendering, _)| is_current(*rendering)) {
        return Ok(stored.into_iter().map(|(_, body)| body).collect());
    }
    // Rendered together, so that a page needs each lookup only once.
    let computed = stored.iter().filter(|(rendering, _)| !is_current(*rendering));
    let bodies = computed.map(|(_, body)| body.clone()).collect();
    let mut bodies = (registered.render)(cx, bodies).await?.into_iter();
    stored
        .into_iter()
        .map(|(rendering, body)| match rendering {
            rendering if is_current(rendering) => Ok(body),
            _ => bodies.next().ok_or_else(|| Error::internal("rendering returned too few resources")),
        })
        .collect()
}

/// Returns whether a body that is `computed` or not is stored as replies show it.
fn is_stored(kind: &Kind, computed: bool) -> bool {
    !computed && is_current(kind, CURRENT_RENDERING)
}

/// Returns the reply of a write that was committed with this sequence. A preview has no tag, and no secret that only the
/// reply of a create shows, because nobody could use it.
fn written(cx: &Context<'_>, kind: &Kind, body: Bytes, sequence: u64, is_stored: bool) -> Result<Reply> {
    if !cx.options().validate_only {
        return Ok(Reply::new(body, sequence, is_stored));
    }
    if !kind.fields.iter().any(|field| field.once) {
        return Ok(Reply::untagged(body));
    }
    let body: Value = serde_json::from_slice(&body).map_err(Error::internal)?;
    let body = fields::without(kind.fields, Cow::Owned(body), |field| field.once);
    encode(&body).map(Reply::untagged)
}

/// Encodes one body, and renders it if it is `computed`.
pub(crate) async fn rendered_one(
    cx: &Context<'_>,
    registered: &Registered,
    body: &Value,
    computed: bool,
) -> Result<Bytes> {
    let body = encode(body)?;
    if !computed {
        return Ok(body);
    }
    let body = (registered.render)(cx, vec![body]).await?.pop();
    body.ok_or_else(|| Error::internal("rendering returned no resource"))
}

/// Encodes a body that is in canonical form.
///
/// # Errors
/// INTERNAL when it cannot be written as JSON.
pub fn encode(body: &Value) -> Result<Bytes> {
    serde_json::to_vec(body).map(Bytes::from).map_err(Error::internal)
}

/// Building blocks for the actions of kinds.
impl Context<'_> {
    /// Prepares a create without committing it, so that several creates can be combined into one commit.
    ///
    /// # Errors
    /// As [`Platform::create_erased`](crate::platform::Platform::create_erased).
    pub async fn prepare_create(
        &self,
        registered: &Registered,
        parent: &str,
        body: &Map<String, Value>,
    ) -> Result<Prepared> {
        create::prepare(&self.part(), registered, parent, body, &Once::default(), WriteRules::of(registered.kind)).await
    }

    /// Prepares an update without committing it, so that it can be part of another commit; empty if it changes nothing.
    /// No event is added, and the caller's capabilities are not checked.
    ///
    /// # Errors
    /// As [`Platform::update_erased`](crate::platform::Platform::update_erased).
    pub async fn prepare_update(
        &self,
        registered: &Registered,
        uid: &Uid,
        body: &Map<String, Value>,
        mask: &str,
        rules: WriteRules,
    ) -> Result<Write> {
        let once = Once::default();
        let prepared = update::prepare(&self.part(), registered, uid.clone(), body, Some(mask), &once, rules).await?;
        Ok(if prepared.write.is_empty() { Write::default() } else { prepared.write })
    }

    /// Deletes a resource with its dependents. The caller's capabilities are not checked.
    ///
    /// # Errors
    /// NOT_FOUND, FAILED_PRECONDITION when a dependent restricts the delete, and those of the store.
    pub async fn delete(&self, registered: &Registered, uid: Uid) -> Result<()> {
        delete::carry_out(&self.part(), registered, uid).await
    }

    /// Lists the resources of a kind in these scopes. The caller's capabilities are not checked.
    ///
    /// # Errors
    /// INVALID_ARGUMENT on `page_token`, and those of the store.
    pub async fn list_in(&self, registered: &Registered, request: &ListRequest, scopes: Scopes) -> Result<ListReply> {
        list::list_in(self, registered, request, scopes).await
    }

    /// Returns stored bodies as methods return them, completed by [`Resource::render`](crate::kind::Resource::render).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn rendered(&self, registered: &Registered, bodies: Vec<Bytes>) -> Result<Vec<Bytes>> {
        (registered.render)(self, bodies).await
    }
}
