//! The columns of advisories in tables for people.

use platform_engine::kind::Column;
use serde_json::Value;

use super::{
    super::severity,
    filters::{form, latest},
};

pub(super) const COLUMNS: &[Column] = &[
    Column::computed("severity", severity::highest_of),
    Column::field("aliases"),
    Column::field("artifactName"),
    Column::field("componentName"),
    Column::computed("state", state),
    Column::field("updateTime"),
];

/// Returns the type of the most recent approved event, with the version that it names: `fixed 3.0.7-r1`.
fn state(body: &Value) -> String {
    let Some((event, form)) = latest(body).and_then(|event| Some((event, form(event)?))) else { return String::new() };
    let version = event.pointer("/fixed/fixedVersion").and_then(Value::as_str).unwrap_or_default();
    let words = form.filter_name().trim_start_matches("EVENT_TYPE_FILTER_").to_lowercase().replace('_', " ");
    format!("{words} {version}").trim_end().to_owned()
}
