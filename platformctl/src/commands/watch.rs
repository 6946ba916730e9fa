//! `get --watch`: prints the changes of a list as they come (`docs/api.md`, Watches).
//!
//! The events are parsed here: of Server-Sent Events, this needs four fields of a stream that the platform writes, and
//! the crates for them bring an asynchronous runtime or a client of their own.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    mem,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use platform_engine::kind::Kind;
use serde_json::Value;

use crate::{
    api::Api,
    failure::{Exit, Failure, Result},
    output::{CHANGE, Format, Printer},
    session::say,
};

/// The time without a line after which the connection counts as lost. The server writes one every 3 seconds.
const SILENCE: Duration = Duration::from_secs(15);

/// The pause before a reconnection if the server names none.
const PAUSE: Duration = Duration::from_secs(1);

/// The most rows whose widths determine the columns of a table.
const FIRST_ROWS: usize = 50;

/// An event of a stream.
#[derive(Debug, Default, PartialEq)]
struct Event {
    data: String,
    id: String,
    retry: Option<Duration>,
}

/// The end of a connection.
enum End {
    /// The server or the network ended it: resume.
    Lost,
    /// The changes since the last event are no longer known: begin again.
    Expired,
}

/// Prints the resources of a list, and then each of its changes, until the process is ended.
pub(super) fn run(
    api: &Api,
    kind: &'static Kind,
    mut query: Vec<(String, String)>,
    format: Format,
    out: &mut dyn Write,
) -> Result<()> {
    query.push(("watch".to_owned(), "true".to_owned()));
    let mut watch = Watch {
        printer: Printer::new(kind, format, out, false).of_changes(),
        rows: Vec::new(),
        has_printed: false,
        last_id: None,
        pause: PAUSE,
        shown: BTreeMap::new(),
        before: BTreeMap::new(),
    };
    let (begin, mut is_connected, mut was_connected) = (Instant::now(), false, false);
    loop {
        let mut query = query.clone();
        if watch.last_id.is_none() {
            query.push(("initial_state".to_owned(), "true".to_owned()));
        }
        match api.stream(kind, query, watch.last_id.as_deref()) {
            Ok(stream) => {
                (is_connected, was_connected) = (true, true);
                if matches!(watch.read(&lines(stream))?, End::Expired) {
                    say("changes were missed: listing again");
                    watch.list_again();
                    continue;
                }
            }
            // A watch that has begun waits for the server without end.
            Err(failure)
                if failure.exit() == Exit::Unavailable && (was_connected || begin.elapsed() < api.repeat_for()) =>
            {
                if mem::take(&mut is_connected) {
                    say("the server does not answer: waiting for it");
                }
            }
            Err(failure) => return Err(failure),
        }
        thread::sleep(watch.pause);
    }
}

/// Reads the lines of a stream in a thread of its own, so that a connection that is silent can be given up.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(64);
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

struct Watch<'w> {
    printer: Printer<'w>,
    /// The first rows, which are not printed yet.
    rows: Vec<Value>,
    has_printed: bool,
    last_id: Option<String>,
    pause: Duration,
    /// The uids of the resources that are in the list, as far as it was printed, with their tags.
    shown: BTreeMap<String, Value>,
    /// Those from before the list was read again which the new state has not shown yet.
    before: BTreeMap<String, Value>,
}

impl Watch<'_> {
    /// Prints the events of a connection until it ends.
    fn read(&mut self, lines: &Receiver<String>) -> Result<End> {
        let end = self.read_events(lines);
        // The next connection goes on after them.
        self.print_first()?;
        end
    }

    fn read_events(&mut self, lines: &Receiver<String>) -> Result<End> {
        let mut event = Event::default();
        loop {
            let line = match lines.recv_timeout(SILENCE) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(End::Lost),
            };
            if let Some(event) = event.add(&line)
                && let Some(end) = self.event(event)?
            {
                return Ok(end);
            }
        }
    }

    /// Prints an event. Returns the end of the connection if it is one.
    fn event(&mut self, event: Event) -> Result<Option<End>> {
        self.pause = event.retry.unwrap_or(self.pause);
        let data: Value = serde_json::from_str(&event.data)
            .map_err(|error| Failure::new(Exit::Failed, format!("an event that is not JSON: {error}")))?;
        let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "expired" => return Ok(Some(End::Expired)),
            "closing" if data.get("retryable") == Some(&Value::Bool(true)) => return Ok(Some(End::Lost)),
            "closing" => {
                let exit = if text("code") == "NOT_FOUND" { Exit::NotFound } else { Exit::Denied };
                return Err(Failure::new(exit, format!("{} [{}]", text("message"), text("code"))));
            }
            "bookmark" => {
                if data.get("endsState") == Some(&Value::Bool(true)) {
                    for (uid, _) in mem::take(&mut self.before) {
                        self.row(serde_json::json!({ "uid": uid }), "deleted")?;
                    }
                }
                self.print_first()?;
            }
            ty => {
                let resource = data.get("resource").cloned().unwrap_or_default();
                let uid = resource.get("uid").and_then(Value::as_str).unwrap_or_default();
                let tag = data.get("etag").cloned().unwrap_or_default();
                if let Some(change) = self.change(uid, ty, tag) {
                    self.row(resource, change)?;
                }
            }
        }
        self.last_id = Some(event.id).filter(|id| !id.is_empty());
        Ok(None)
    }

    /// Begins a list that is read again.
    fn list_again(&mut self) {
        self.last_id = None;
        self.before.append(&mut self.shown);
    }

    /// Returns what an event changes in the printed list; `None` for nothing: a resource that the list did not have is
    /// deleted, which a watch with a filter reports too, or one is as it was before the list was read again.
    fn change(&mut self, uid: &str, ty: &str, tag: Value) -> Option<&'static str> {
        let before = self.before.remove(uid);
        if ty == "deleted" {
            return self.shown.remove(uid).or(before).map(|_| "deleted");
        }
        let known = self.shown.insert(uid.to_owned(), tag.clone());
        match known.or(before) {
            None => Some("added"),
            Some(old) if ty == "added" && old == tag && !tag.is_null() => None,
            Some(_) => Some("modified"),
        }
    }

    fn row(&mut self, mut resource: Value, change: &str) -> Result<()> {
        if let Value::Object(fields) = &mut resource {
            fields.insert(CHANGE.to_owned(), change.into());
        }
        self.rows.push(resource);
        if self.has_printed || self.rows.len() >= FIRST_ROWS { self.print_first() } else { Ok(()) }
    }

    fn print_first(&mut self) -> Result<()> {
        self.has_printed = true;
        let rows = mem::take(&mut self.rows);
        self.printer.items(&rows)?;
        self.printer.flush()
    }
}

impl Event {
    /// Adds a line. Returns the event that it ends.
    fn add(&mut self, line: &str) -> Option<Self> {
        if line.is_empty() {
            let event = mem::take(self);
            return (!event.data.is_empty()).then_some(event);
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" => value.clone_into(&mut self.id),
            "retry" => self.retry = value.parse().ok().map(Duration::from_millis),
            // A comment, or the name, which the data repeats.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<Event> {
        let mut event = Event::default();
        text.lines().filter_map(|line| event.add(line)).collect()
    }

    #[test]
    fn an_event_ends_with_an_empty_line_and_comments_are_none() {
        let found = events(":\nretry: 1000\nevent: added\ndata: {\"a\":\ndata: 1}\nid: x-1\n\n:\n\ndata: cut");
        let expected =
            Event { data: "{\"a\":\n1}".to_owned(), id: "x-1".to_owned(), retry: Some(Duration::from_secs(1)) };
        assert_eq!(found, [expected]);
    }
}
