//! Actions: methods other than the five standard ones (AIP-136).

use serde_json::{Map, Value};

use super::uid_in;
use crate::{
    context::Context,
    error::{Error, Result},
    fields,
    kind::{Action, Authorization, ListPage, Run},
    platform::ActionReply,
};

/// Checks that the caller may run this action. Capabilities at a uid are checked for the uid in the request.
pub(crate) async fn demand(cx: &Context<'_>, action: &'static Action, request: &Map<String, Value>) -> Result<()> {
    match action.authorization {
        Authorization::As(kind, verb, field) => {
            let uid = sent(action, field, request).and_then(Value::as_str).unwrap_or_default();
            let renamed = |error: Error| error.rename_fields(|_| field.to_owned());
            super::demand(cx, cx.platform().registered_as(kind)?, verb, uid).await.map_err(renamed)
        }
        Authorization::Public | Authorization::Authenticated | Authorization::FiltersResult(_) => Ok(()),
        Authorization::Anywhere(capabilities) if cx.nodes(capabilities).is_empty() => Err(Error::denied()),
        Authorization::Anywhere(_) => Ok(()),
        Authorization::At(field, capabilities) => {
            let uid = uid_in(field, sent(action, field, request).and_then(Value::as_str).unwrap_or_default())?;
            cx.demand(&uid, capabilities)
        }
    }
}

/// Returns a field of the request by its name in camelCase or snake_case.
pub(crate) fn sent<'r>(action: &Action, field: &str, request: &'r Map<String, Value>) -> Option<&'r Value> {
    let known = fields::named(action.request, field)?;
    request.iter().find(|(key, _)| fields::is_named(key, known.name)).map(|(_, value)| value)
}

/// Runs an action, or the first page of one that returns pages: see [`run_page`].
pub(crate) async fn run(
    cx: &Context<'_>,
    action: &'static Action,
    request: &Map<String, Value>,
) -> Result<ActionReply> {
    match action.run {
        Run::Once(run) => run(cx, admitted(cx, action, request).await?).await.map(ActionReply::Value),
        Run::Encoded(run) => run(cx, admitted(cx, action, request).await?).await.map(ActionReply::Encoded),
        Run::Rendered(run) => run(cx, admitted(cx, action, request).await?).await.map(ActionReply::Rendered),
        Run::Resource(run) => run(cx, admitted(cx, action, request).await?).await.map(ActionReply::Resource),
        Run::Pages(_) => Err(Error::internal("an action that returns pages is run page by page")),
    }
}

/// Runs an action that returns pages, for the page after this token.
pub(crate) async fn run_page(
    cx: &Context<'_>,
    action: &'static Action,
    request: &Map<String, Value>,
    page_token: &str,
) -> Result<ListPage> {
    match action.run {
        Run::Pages(run) => run(cx, admitted(cx, action, request).await?, page_token).await,
        _ => Err(Error::internal("an action that returns one response has no pages")),
    }
}

/// Checks the access and the request of an action, and returns the request in canonical form.
async fn admitted(
    cx: &Context<'_>,
    action: &'static Action,
    request: &Map<String, Value>,
) -> Result<Map<String, Value>> {
    demand(cx, action, request).await?;
    // A read ignores them, and a standard method checks them itself.
    if !action.http.is_safe() && !matches!(action.run, Run::Resource(_)) {
        cx.options().preconditions.reject()?;
        if !action.has_preview {
            cx.reject_preview()?;
        }
        if !action.is_one_commit || cx.caller().is_none() {
            cx.options().reject_key()?;
        }
    }
    let mut input = fields::read(action.request, cx.platform().capabilities(), request.clone(), None);
    input.require(action.request);
    Ok(input.checked()?.into_inner())
}
