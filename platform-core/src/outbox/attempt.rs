//! The content of a delivery attempt, for the delivery log: bounded, and without secrets.

use std::{collections::BTreeMap, time::Duration};

use platform_engine::timestamp::Timestamp;

use super::{Outcome, PendingEvent};
use crate::resources::events::{
    Delivery,
    delivery::{MAX_HEADERS, Message},
};

/// The maximum number of bytes of an event's body in the delivery log. Our choice.
pub const MAX_SENT: usize = 8 << 10;

/// The maximum number of bytes of a response's body in the delivery log. Our choice.
pub const MAX_RECEIVED: usize = 2 << 10;

/// The value of a header that is not shown.
const REMOVED: &str = "(removed)";

/// Parts of the names of headers whose values are secrets.
const SECRET: [&str; 9] =
    ["auth", "cookie", "signature", "token", "secret", "password", "credential", "api-key", "apikey"];

/// A delivery attempt, for the delivery log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Attempt {
    /// When it began.
    pub time: Option<Timestamp>,
    /// How long it took.
    pub duration: Duration,
    /// The request and the response.
    pub exchange: Exchange,
}

impl Attempt {
    /// Returns an attempt that began at this time and took this long.
    pub const fn new(time: Timestamp, duration: Duration, exchange: Exchange) -> Self {
        Self { time: Some(time), duration, exchange }
    }
}

/// The request and the response of an attempt, as far as the delivery log shows them. A sink fills it in while it delivers, so that
/// an attempt that is aborted shows how far it got.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exchange {
    sent: Headers,
    received: Headers,
    body: Vec<u8>,
    is_cut: bool,
}

/// Headers by name, up to [`MAX_HEADERS`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Headers {
    values: BTreeMap<String, String>,
    bytes: usize,
    is_cut: bool,
}

impl Headers {
    fn add(&mut self, name: &str, value: &str) {
        let is_secret = SECRET.iter().any(|part| name.contains(part));
        let value = if is_secret { REMOVED } else { value };
        if self.bytes + name.len() + value.len() > MAX_HEADERS {
            self.is_cut = true;
            return;
        }
        self.bytes += name.len() + value.len();
        let all = self.values.entry(name.to_owned()).or_default();
        if !all.is_empty() {
            all.push_str(", ");
        }
        all.extend(value.chars().map(shown));
    }

    fn into_message(self, body: String, is_cut: bool) -> Option<Message> {
        let truncated = self.is_cut || is_cut;
        let message = Message { headers: self.values, body, truncated };
        (message != Message::default()).then_some(message)
    }
}

impl Exchange {
    /// Adds a header of the request. The name is in lower case. The value is not kept if the name is that of a secret,
    /// such as a credential or a signature.
    pub fn sent(&mut self, name: &str, value: &str) {
        self.sent.add(name, value);
    }

    /// Adds a header of the response, as [`Exchange::sent`] does.
    pub fn received(&mut self, name: &str, value: &str) {
        self.received.add(name, value);
    }

    /// Adds bytes of the body of the response, of which the first [`MAX_RECEIVED`] are kept.
    pub fn received_body(&mut self, bytes: &[u8]) {
        let left = MAX_RECEIVED.saturating_sub(self.body.len());
        self.body.extend(bytes.iter().take(left));
        self.is_cut |= bytes.len() > left;
    }
}

/// An event with the outcome of a delivery attempt.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The event.
    pub pending: PendingEvent,
    /// The outcome.
    pub outcome: Outcome,
    /// The attempt; the default for an event that was given up without one.
    pub attempt: Attempt,
}

impl From<(PendingEvent, Outcome)> for Settled {
    fn from((pending, outcome): (PendingEvent, Outcome)) -> Self {
        Self { pending, outcome, attempt: Attempt::default() }
    }
}

/// Adds an attempt to a row of the delivery log, with the body that it sent. A row without an attempt is unchanged.
pub(super) fn show(row: &mut Delivery, attempt: Attempt, body: &str) {
    let Some(time) = attempt.time else { return };
    let Exchange { sent, received, body: reply, is_cut } = attempt.exchange;
    row.attempt_time = Some(time);
    let millis = attempt.duration.as_millis();
    row.duration = format!("{}.{:03}s", millis / 1000, millis % 1000);
    let end = (0..=MAX_SENT.min(body.len())).rev().find(|end| body.is_char_boundary(*end)).unwrap_or_default();
    row.request = sent.into_message(body.get(..end).unwrap_or_default().to_owned(), end < body.len());
    row.response = received.into_message(text(&reply, is_cut), is_cut);
}

/// Returns a body as text. Bytes that are not UTF-8, and control characters other than line breaks and tabs, become U+FFFD; a
/// character that the bound has cut is left out.
fn text(body: &[u8], is_cut: bool) -> String {
    let is_incomplete = |error: std::str::Utf8Error| is_cut && error.error_len().is_none();
    let end = str::from_utf8(body).err().filter(|error| is_incomplete(*error)).map(|error| error.valid_up_to());
    let body = body.get(..end.unwrap_or(body.len())).unwrap_or_default();
    String::from_utf8_lossy(body).chars().map(shown).collect()
}

fn shown(c: char) -> char {
    if c.is_control() && !matches!(c, '\n' | '\t') { char::REPLACEMENT_CHARACTER } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_as(exchange: Exchange, body: &str) -> Delivery {
        let mut row = Delivery::default();
        show(&mut row, Attempt::new(Timestamp::EPOCH, Duration::from_millis(1234), exchange), body);
        row
    }

    #[test]
    fn secrets_are_removed_in_both_directions() {
        let mut exchange = Exchange::default();
        for name in ["authorization", "x-hub-signature-256", "webhook-signature", "x-api-key", "x-vault-token"] {
            exchange.sent(name, "hush");
        }
        exchange.sent("ce-id", "1");
        for name in ["set-cookie", "www-authenticate", "x-client-secret"] {
            exchange.received(name, "hush");
        }
        let row = shown_as(exchange, "{}");
        assert!(!format!("{row:?}").contains("hush"), "{row:?}");
        let sent = row.request.unwrap().headers;
        assert_eq!((sent["authorization"].as_str(), sent["ce-id"].as_str()), (REMOVED, "1"));
    }

    #[test]
    fn a_message_is_bounded_and_says_when_it_is_cut() {
        let mut exchange = Exchange::default();
        for n in 0..1000 {
            exchange.sent(&format!("x-{n}"), "v");
            exchange.received_body("ä".repeat(100).as_bytes());
        }
        exchange.received("x-long", &"v".repeat(MAX_HEADERS));
        let row = shown_as(exchange, &"ö".repeat(MAX_SENT));
        let (request, response) = (row.request.unwrap(), row.response.unwrap());
        let bytes: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes <= MAX_HEADERS && request.truncated && request.body.len() == MAX_SENT, "{request:?}");
        assert!(response.headers.is_empty() && response.truncated && response.body.len() == MAX_RECEIVED);
        assert_eq!(row.duration, "1.234s");
    }

    #[test]
    fn each_part_that_is_cut_is_enough_to_say_so() {
        let truncated = |header: usize, body: usize| {
            let mut exchange = Exchange::default();
            exchange.received("x-a", &"v".repeat(header));
            exchange.received_body(&vec![b'a'; body]);
            shown_as(exchange, "").response.unwrap().truncated
        };
        assert!(!truncated(MAX_HEADERS - 3, MAX_RECEIVED));
        assert!(truncated(MAX_HEADERS - 2, MAX_RECEIVED));
        assert!(truncated(MAX_HEADERS - 3, MAX_RECEIVED + 1));
    }

    #[test]
    fn a_header_that_occurs_twice_has_both_values() {
        let mut exchange = Exchange::default();
        exchange.received("via", "a");
        exchange.received("via", "b");
        assert_eq!(shown_as(exchange, "").response.unwrap().headers["via"], "a, b");
    }

    #[test]
    fn a_body_is_shown_as_text_whatever_it_is() {
        let mut exchange = Exchange::default();
        exchange.received_body(b"a\xff\0\n\t");
        assert_eq!(shown_as(exchange, "").response.unwrap().body, "a\u{fffd}\u{fffd}\n\t");
        // The bound cuts a character of two bytes.
        let mut exchange = Exchange::default();
        exchange.received_body(format!("a{}", "ä".repeat(MAX_RECEIVED)).as_bytes());
        let body = shown_as(exchange, "").response.unwrap().body;
        assert!(body.ends_with('ä') && body.len() == MAX_RECEIVED - 1, "{body}");
        // Bytes that no bound has cut.
        let mut exchange = Exchange::default();
        exchange.received_body(b"a\xc3");
        assert_eq!(shown_as(exchange, "").response.unwrap().body, "a\u{fffd}");
        let mut exchange = Exchange::default();
        exchange.received_body(&[&b"a\xff"[..], &[b'b'; MAX_RECEIVED]].concat());
        assert!(shown_as(exchange, "").response.unwrap().body.starts_with("a\u{fffd}bb"));
    }
}
