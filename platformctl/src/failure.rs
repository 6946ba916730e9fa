//! Failures, their exit codes, and how people read them.

use std::{fmt, io};

use serde_json::Value;

/// The result of a part of a command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// The exit code of a failure ([`main_with`](crate::main_with)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Denied = 4,
    TimedOut = 5,
    Unavailable = 6,
    Conflict = 7,
}

/// The beginning of the server's message when a request has no token.
const NO_TOKEN: &str = "A bearer token is required";

/// The names that the server has for the parameter of `--under`, in a text and as a field.
const UNDER: [&str; 2] = ["`uidp.descendants_of`", "uidp.descendants_of"];

/// The failure of a command.
#[derive(Debug)]
pub(crate) struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    exit: Exit,
    message: String,
    /// Lines below the message.
    notes: Vec<String>,
    /// The name of the code of a server's error (`docs/api.md`, Errors), such as `NOT_FOUND`.
    reason: Option<String>,
    is_broken_pipe: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner { exit, message, notes: Vec::new(), reason: None, is_broken_pipe: false }))
    }

    /// Returns a failure of the caller's input, before anything was sent.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Returns a failure of a file.
    pub(crate) fn file(path: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::usage(format!("{path}: {error}"))
    }

    /// Returns the failure of an error in the form of AIP-193, or of a reply of something else than the platform.
    pub(crate) fn of_answer(status: u16, body: &Value, request_id: &str) -> Self {
        let details = || body.get("details").and_then(Value::as_array).into_iter().flatten();
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let reason = details().map(|detail| text(detail, "reason")).find(|reason| !reason.is_empty());
        let reason = reason.unwrap_or_default();
        let mut notes = Vec::new();
        for detail in details() {
            let violations = |key: &str| detail.get(key).and_then(Value::as_array).into_iter().flatten();
            for violation in violations("fieldViolations") {
                let note = format!("{}: {}", text(violation, "field"), text(violation, "description"));
                notes.push(UNDER.iter().fold(note, |note, name| note.replace(name, "--under")));
            }
            for violation in violations("violations") {
                let subject = text(violation, "subject");
                let about = if subject.is_empty() { String::new() } else { format!(" ({subject})") };
                notes.push(format!("{}: {}{about}", text(violation, "type"), text(violation, "description")));
            }
            if let Some(metadata) = detail.get("metadata") {
                notes.extend(taught(metadata));
            }
        }
        let mut message = text(body, "message");
        if message.is_empty() {
            message = format!("the server answered with status {status}");
        } else if !notes.is_empty() && reason == "INVALID_ARGUMENT" {
            // The message repeats the first violation.
            message = "the server rejected the request".to_owned();
        }
        if !reason.is_empty() {
            message = format!("{message} [{reason}]");
        }
        if !request_id.is_empty() {
            notes.push(format!("request id: {request_id}"));
        }
        let exit = match status {
            404 => Exit::NotFound,
            401 | 403 => Exit::Denied,
            412 => Exit::Conflict,
            502..=504 => Exit::Unavailable,
            _ => Exit::Failed,
        };
        if status == 401 {
            let note = if message.starts_with(NO_TOKEN) {
                "no token: run `login`, or set PLATFORM_TOKEN"
            } else {
                "the token has expired or is not of this server: run `login` again"
            };
            notes.push(note.to_owned());
        }
        Self(Box::new(Inner { exit, message, notes, reason: Some(reason), is_broken_pipe: false }))
    }

    /// Adds a line below the message.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.0.notes.push(note.into());
        self
    }

    /// Begins the message with the attempted action.
    pub(crate) fn while_(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    pub(crate) fn exit(&self) -> Exit {
        self.0.exit
    }

    pub(crate) fn is_broken_pipe(&self) -> bool {
        self.0.is_broken_pipe
    }

    /// Returns whether the server answered with this code, such as `NOT_FOUND`.
    pub(crate) fn is(&self, reason: &str) -> bool {
        self.0.reason.as_deref() == Some(reason)
    }
}

/// Returns in words what a denial tells a caller who may see the place (`docs/api.md`, Denials); nothing for other
/// errors.
fn taught(metadata: &Value) -> Vec<String> {
    let list = |key: &str| {
        let text = metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        text.split(',').filter(|item| !item.is_empty()).collect::<Vec<_>>()
    };
    let (missing, place) = (list("capabilities"), list("place").concat());
    if missing.is_empty() {
        return Vec::new();
    }
    let or_none = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
    // The names of the groups of the place, from the top, as far as the caller may see them.
    let names = metadata.get("names").and_then(Value::as_str).unwrap_or_default();
    let names: Vec<_> = names.split('/').collect();
    let named = |uid: &str| {
        let path = names.get(..uid.split('/').count()).unwrap_or(&names);
        let path = path.iter().copied().filter(|name| !name.is_empty()).collect::<Vec<_>>().join("/");
        if path.is_empty() { uid.to_owned() } else { format!("{path} ({uid})") }
    };
    let binding = |one: &str| one.split_once('@').map(|(role, group)| format!("{role} at {}", named(group)));
    let bindings: Vec<_> = list("bindings").into_iter().filter_map(binding).collect();
    let way = if list("narrowed").is_empty() {
        format!("roles that have it: {}", or_none(list("roles").join(", "), "none that you may see"))
    } else {
        "your role bindings give it, but your token does not allow it".to_owned()
    };
    let bindings = or_none(bindings.join(", "), "none");
    vec![
        format!("you lack {} at {}", missing.join(", "), named(&place)),
        way,
        format!("your role bindings that count there: {bindings}"),
    ]
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", printable(&self.0.message))?;
        self.0.notes.iter().try_for_each(|note| writeln!(f, "  {}", printable(note)))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let mut failure = Self::new(Exit::Failed, error.to_string());
        failure.0.is_broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        failure
    }
}

/// Returns a text without control characters, which a terminal would obey, except line breaks.
pub(crate) fn printable(text: &str) -> String {
    let escaped = |c: char| if c.is_control() && c != '\n' { c.escape_default().collect() } else { String::from(c) };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_shows_field_rule_and_request_id() {
        let body = json!({ "code": 3, "message": "Invalid argument: name: is required", "details": [
            { "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_ARGUMENT", "domain": "iam" },
            { "@type": "type.googleapis.com/google.rpc.BadRequest",
              "fieldViolations": [{ "field": "name", "description": "is required" }] },
        ]});
        let failure = Failure::of_answer(400, &body, "r-1");
        let shown =
            "error: the server rejected the request [INVALID_ARGUMENT]\n  name: is required\n  request id: r-1\n";
        assert_eq!(failure.to_string(), shown);
        assert_eq!(failure.exit(), Exit::Failed);
    }

    #[test]
    fn a_denial_says_what_is_missing_and_who_has_it() {
        let shown = |metadata: Value| {
            let details = json!([{ "reason": "PERMISSION_DENIED", "domain": "registry", "metadata": metadata }]);
            let body = json!({ "code": 7, "message": "Permission denied", "details": details });
            Failure::of_answer(403, &body, "").to_string()
        };
        let metadata = json!({
            "capabilities": "repo.delete", "place": "u/1", "roles": "cleaner,owner", "bindings": "viewer@u,editor@u/2",
        });
        assert_eq!(
            shown(metadata),
            "error: Permission denied [PERMISSION_DENIED]\n  you lack repo.delete at u/1\n  \
             roles that have it: cleaner, owner\n  \
             your role bindings that count there: viewer at u, editor at u/2\n"
        );
        let names = json!({
            "capabilities": "repo.delete", "place": "u/1/2", "bindings": "viewer@u,editor@u/1", "names": "/team",
        });
        assert!(shown(names).contains("you lack repo.delete at team (u/1/2)\n"));
        let narrowed = json!({ "capabilities": "repo.delete", "place": "u", "narrowed": "true" });
        assert!(shown(narrowed).contains("your token does not allow it"));
        assert_eq!(shown(json!({})), "error: Permission denied [PERMISSION_DENIED]\n");
    }

    #[test]
    fn an_error_names_options_where_they_differ_from_parameters() {
        let rule = "must select fewer resources; narrow the list with `uidp.descendants_of`";
        let violations = json!([{ "field": "uidp.descendants_of", "description": "is bad" }, { "field": "filter", "description": rule }]);
        let details = json!([{ "reason": "INVALID_ARGUMENT" }, { "fieldViolations": violations }]);
        let shown = Failure::of_answer(400, &json!({ "message": "m", "details": details }), "").to_string();
        assert!(shown.contains("  --under: is bad\n") && shown.ends_with("narrow the list with --under\n"), "{shown}");
    }

    #[test]
    fn a_reply_of_something_else_is_a_failure_too() {
        let failure = Failure::of_answer(502, &Value::Null, "");
        assert_eq!(failure.to_string(), "error: the server answered with status 502\n");
        assert_eq!(failure.exit(), Exit::Unavailable);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let body = json!({ "message": "\u{1b}[2Jgone" });
        assert_eq!(Failure::of_answer(400, &body, "").to_string(), "error: \\u{1b}[2Jgone\n");
    }
}
