//! Values of requests that need more than their field's type says.

use std::time::Duration as StdDuration;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_engine::{duration::Duration, fields::Input, timestamp::Timestamp};
use serde_json::{Map, Value};

/// The maximum length of a token that is looked into.
const MAX_TOKEN: usize = 16 << 10;

/// Returns a part of a token, which is not verified: 0 is its header, and 1 its claims.
pub(crate) fn token_part(token: &str, number: usize) -> Option<Map<String, Value>> {
    let part = Some(token).filter(|token| token.len() <= MAX_TOKEN)?.split('.').nth(number)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

/// Returns a text that is not empty.
pub(crate) fn text(input: &Input, name: &str) -> Option<String> {
    input.value(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns a number in these bounds, and adds a violation for another one.
pub(crate) fn number(input: &mut Input, name: &str, least: i32, most: i32) -> Option<i32> {
    let number = i32::try_from(input.value(name)?.as_i64()?).ok()?;
    if !(least..=most).contains(&number) {
        input.violations.add(name, format!("must be a number from {least} to {most}"));
    }
    Some(number)
}

/// Returns a duration from zero to this one, and adds a violation for another one.
pub(crate) fn duration(input: &mut Input, name: &str, most: StdDuration) -> Option<StdDuration> {
    let millis = Duration::parse(input.value(name)?.as_str()?).ok()?.millis();
    let found = u64::try_from(millis).ok().map(StdDuration::from_millis).filter(|found| *found <= most);
    if found.is_none() {
        input.violations.add(name, format!("must be a duration from 0s to {}s", most.as_secs()));
    }
    found
}

/// Returns a time.
pub(crate) fn time(input: &Input, name: &str) -> Option<Timestamp> {
    Timestamp::parse(input.value(name)?.as_str()?).ok()
}
