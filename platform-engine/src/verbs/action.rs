//! Actions: methods other than the five standard ones (AIP-136).

use serde_json::{Map, Value};

use super::uid_in;
use crate::{
    context::Context,
    error::{Error, Result},
    fields,
    kind::{Action, Authorization},
};

/// Checks that the caller may run this action. Capabilities at a uid are checked for the uid in the request.
pub(crate) fn demand(cx: &Context<'_>, action: &'static Action, request: &Map<String, Value>) -> Result<()> {
    match action.authorization {
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

pub(crate) async fn run(cx: &Context<'_>, action: &'static Action, request: &Map<String, Value>) -> Result<Value> {
    demand(cx, action, request)?;
    let mut input = fields::read(action.request, cx.platform().capabilities(), request.clone(), None);
    input.require(action.request);
    (action.run)(cx, input.checked()?.into_inner()).await
}
