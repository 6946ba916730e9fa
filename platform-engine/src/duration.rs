//! Durations in the format of the API: seconds, as proto3 JSON writes `google.protobuf.Duration`.

/// A duration in seconds and nanoseconds, which have the same sign; at most 10,000 years.
///
/// Written as `3600s` or `-1.5s`, with up to nine digits after the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duration {
    seconds: i64,
    nanos: i32,
}

/// The error for a text that is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a duration in seconds, such as 3600s")]
pub struct InvalidDuration;

/// The most seconds of a duration in protobuf.
const MAX_SECONDS: i64 = 315_576_000_000;

impl Duration {
    /// Parses the text of a duration.
    ///
    /// # Errors
    /// [`InvalidDuration`] when the text has another form, or the duration is longer than 10,000 years.
    pub fn parse(text: &str) -> Result<Self, InvalidDuration> {
        let text = text.strip_suffix('s').ok_or(InvalidDuration)?;
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most| (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole, 12) || !digits(fraction, 9) {
            return Err(InvalidDuration);
        }
        let seconds: i64 = whole.parse().map_err(|_| InvalidDuration)?;
        let nanos: i32 = format!("{fraction:0<9}").parse().map_err(|_| InvalidDuration)?;
        match (seconds > MAX_SECONDS, is_negative) {
            (true, _) => Err(InvalidDuration),
            (false, true) => Ok(Self { seconds: -seconds, nanos: -nanos }),
            (false, false) => Ok(Self { seconds, nanos }),
        }
    }

    /// Returns the whole seconds.
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds in addition to the seconds, with the same sign.
    pub const fn nanos(self) -> i32 {
        self.nanos
    }

    /// Returns the duration in milliseconds, truncated.
    pub const fn millis(self) -> i64 {
        self.seconds * 1_000 + (self.nanos / 1_000_000) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_parsed_into_seconds_and_nanoseconds_of_the_same_sign() {
        for (text, seconds, nanos, millis) in [
            ("0s", 0, 0, 0),
            ("3600s", 3600, 0, 3_600_000),
            ("1.5s", 1, 500_000_000, 1_500),
            ("0.0009s", 0, 900_000, 0),
            ("12.123456789s", 12, 123_456_789, 12_123),
            ("-0.000000001s", 0, -1, 0),
            ("-2.25s", -2, -250_000_000, -2_250),
            ("315576000000s", 315_576_000_000, 0, 315_576_000_000_000),
        ] {
            let read = Duration::parse(text).map(|read| (read.seconds(), read.nanos(), read.millis()));
            assert_eq!(read, Ok((seconds, nanos, millis)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["", "1", "s", "-s", ".5s", "1.s", "1.xs", "--1s", "+1s", "1 s", "1.0000000001s", "315576000001s"] {
            assert_eq!(Duration::parse(text), Err(InvalidDuration), "{text}");
        }
    }
}
