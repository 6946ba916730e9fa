//! Actions: methods that are none of the five (AIP-136).

use serde_json::{Map, Value};

use super::uid_in;
use crate::{
    cx::Cx,
    error::{Error, Result},
    fields,
    kind::{Action, Needs},
};

pub(crate) async fn run(cx: &Cx<'_>, action: &'static Action, request: &Map<String, Value>) -> Result<Value> {
    match action.needs {
        Needs::Nothing | Needs::Caller | Needs::Narrowed(_) => {}
        Needs::Somewhere(capabilities) => {
            if cx.nodes(capabilities).is_empty() {
                return Err(Error::denied());
            }
        }
        Needs::At(field, capabilities) => {
            let sent = fields::named(action.request, field).and_then(|known| {
                request.iter().find(|(key, _)| fields::is_named(key, known.name)).map(|(_, value)| value)
            });
            let uid = uid_in(field, sent.and_then(Value::as_str).unwrap_or_default())?;
            cx.demand(&uid, capabilities)?;
        }
    }
    let mut input = fields::read(action.request, request.clone(), None);
    input.require(action.request);
    (action.run)(cx, input.checked()?.into_inner()).await
}
