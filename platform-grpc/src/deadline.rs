//! Parses the deadline of a client from `grpc-timeout`: at most eight digits and a unit.

use std::time::Duration;

use http::HeaderMap;

/// Returns the client's timeout; None when the header is missing or malformed.
pub(crate) fn of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_valid = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_valid)?;
    match unit {
        "H" => Some(Duration::from_secs(number * 60 * 60)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_timeout_is_digits_followed_by_a_unit() {
        for (text, millis) in [
            ("1S", Some(1_000)),
            ("250m", Some(250)),
            ("2M", Some(120_000)),
            ("1H", Some(3_600_000)),
            ("5000u", Some(5)),
            ("99999999n", Some(99)),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("123456789S", None),
            ("1é", None),
        ] {
            let value = HeaderValue::from_bytes(text.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-timeout"), value)]);
            assert_eq!(of(&headers).map(|time| time.as_millis()), millis, "{text}");
        }
    }
}
