//! Points in time in the format of the API: RFC 3339 in UTC with milliseconds.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};
use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

/// A point in time, in whole milliseconds since 1970-01-01T00:00:00Z; years 0001 to 9999.
///
/// Written as `2026-01-02T03:04:05.678Z`, always with three decimals and `Z`. Any RFC 3339 form is parsed, and
/// truncated to milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The error for a text that is not a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an RFC 3339 timestamp, such as 2026-01-02T03:04:05.678Z")]
pub struct InvalidTimestamp;

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// 0001-01-01T00:00:00Z.
    pub const MIN: Self = Self(-62_135_596_800_000);
    /// 9999-12-31T23:59:59.999Z.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// Returns the time this many milliseconds after the epoch, clamped to [`Timestamp::MIN`] and [`Timestamp::MAX`].
    pub const fn from_millis(millis: i64) -> Self {
        if millis < Self::MIN.0 {
            Self::MIN
        } else if millis > Self::MAX.0 {
            Self::MAX
        } else {
            Self(millis)
        }
    }

    /// Returns the milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Returns the seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Returns the time this many milliseconds later, clamped to [`Timestamp::MIN`] and [`Timestamp::MAX`].
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_add(millis))
    }

    /// Parses RFC 3339 text.
    ///
    /// # Errors
    /// [`InvalidTimestamp`] when the text is not RFC 3339, or the time is outside the years 0001 to 9999.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| InvalidTimestamp)?;
        let millis = at.to_offset(UtcOffset::UTC).unix_timestamp_nanos().div_euclid(1_000_000);
        let millis = i64::try_from(millis).map_err(|_| InvalidTimestamp)?;
        if (Self::MIN.0..=Self::MAX.0).contains(&millis) { Ok(Self(millis)) } else { Err(InvalidTimestamp) }
    }

    /// Returns the text. Every resource has several timestamps, and formatting them with `fmt` takes several times as
    /// long.
    fn written(self) -> [u8; 24] {
        let at = OffsetDateTime::from_unix_timestamp(self.seconds()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = at.to_calendar_date();
        let (hour, minute, second) = at.to_hms();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        // The template has a zero for each digit, to which the digits of the number are added from the right.
        let mut write = |digits: Range<usize>, mut number: u32| {
            for digit in text.get_mut(digits).into_iter().flatten().rev() {
                *digit += (number % 10) as u8;
                number /= 10;
            }
        };
        write(0..4, year.unsigned_abs());
        write(5..7, u8::from(month).into());
        write(8..10, day.into());
        write(11..13, hour.into());
        write(14..16, minute.into());
        write(17..19, second.into());
        write(20..23, self.0.rem_euclid(1000) as u32);
        text
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.written()).unwrap_or_default())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.written()).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

/// Parses a borrowed text, so that deserialization does not copy it.
struct Text;

impl Visitor<'_> for Text {
    type Value = Timestamp;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an RFC 3339 timestamp")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
        Timestamp::parse(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_in_utc_with_milliseconds() {
        for (read, written) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
            ("2026-01-02T03:04:05.6789Z", "2026-01-02T03:04:05.678Z"),
            ("2026-01-02T03:04:05.678+02:00", "2026-01-02T01:04:05.678Z"),
            ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::parse(read).map(|t| t.to_string()).as_deref(), Ok(written));
        }
    }

    #[test]
    fn other_texts_and_times_outside_the_bounds_are_rejected() {
        for bad in ["", "now", "2026-01-02", "2026-13-02T00:00:00Z", "0000-01-01T00:00:00Z", "2026-01-02T03:04:05"] {
            assert_eq!(Timestamp::parse(bad), Err(InvalidTimestamp), "{bad}");
        }
    }
}
