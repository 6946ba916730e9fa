//! Watches of lists: every change of the resources that a list shows, in commit order, with tokens that resume
//! (`docs/api.md`, Watches).
//!
//! A deleted record is in no list, so changes are read from a *change log*: one record for each commit and
//! organization, written in the commit of the change. Only an organization with a lease has one: the first
//! watch registers it and raises the epoch `watched/<organization>`, which every commit that changes a resource requires.
//! So writers know exactly, and not only eventually, whether to write the log, and nobody pays who does not watch: a
//! commit to another organization has one more requirement.
//!
//! The watches of a process share what they read of a log (`tail`). A watch has no queue: it is a position in
//! what is shared, so that a slow reader uses no memory and no writer waits for it. One that falls behind what is shared
//! is ended, and resumes from the store.
//!
//! Organizations may have no common order ([`Store`](crate::store::Store)), so a token has a position for each.
//!
//! Rejected: one log for the installation, which would serialize the writers of all organizations; a log that is always
//! written, which everybody pays for; a queue for each watch, whose bound is either too short for a burst or too much
//! memory for 5,000 watches; [`EventStream`](crate::event::EventStream), which has only the events of its process and
//! nothing to resume from.

pub(crate) mod hub;
pub(crate) mod lease;
pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod tail;
pub(crate) mod token;
mod watcher;

use bytes::Bytes;

pub use watcher::{ResumeFrom, WatchRequest, Watcher};

use crate::{
    error::{Code, Error},
    etag::Tag,
    kind::{Kind, Parent, Verb},
    uid::Uid,
};

/// The maximum number of organizations of one watch. Our choice: each has a position in the token.
pub const MAX_ORGANIZATIONS: usize = 8;

/// Returns whether the lists of a kind can be watched: it has a list that needs a token, of resources with parents. Each
/// resource of a kind without parents, such as a public advisory, is an organization of its own.
pub fn is_watchable(kind: &Kind) -> bool {
    kind.method(Verb::List).is_some_and(|list| !list.open) && !matches!(kind.parent, Parent::None)
}

/// The content of an event of a watch.
///
/// Exhaustive, so that transports encode every case.
#[derive(Debug, Clone)]
pub enum What {
    /// A resource was created; at the beginning of a watch with the state, one that exists.
    Added(Changed),
    /// A resource was changed.
    Modified(Changed),
    /// A resource was deleted.
    Deleted(Changed),
    /// Nothing has changed. `ends_state` is whether the state has been sent completely.
    Bookmark {
        /// Whether this follows the last resource of the state.
        ends_state: bool,
    },
    /// Changes after the token are no longer known: list again. The watch goes on from the present.
    Expired,
    /// The watch ends.
    Closing(Closing),
}

/// A resource that a watch reports.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The uid.
    pub uid: Uid,
    /// The resource as a list shows it; `None` if it was deleted, and in a watch of names.
    pub resource: Option<Bytes>,
    /// The tag that a get returned after the change; `None` if it was deleted.
    pub tag: Option<Tag>,
}

/// Why a watch ends.
#[derive(Debug, Clone)]
pub struct Closing {
    /// The code of the error with which a request would fail now; UNAVAILABLE for an end without one.
    pub code: Code,
    /// The reason, for people.
    pub message: String,
    /// Whether the watch can be resumed with the token of the event.
    pub retryable: bool,
}

impl Closing {
    /// Returns an end after which the client resumes.
    pub fn retryable(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: true }
    }

    /// Returns the end of a watch because of an error. Errors of the caller are final; others can be retried.
    pub fn because(error: &Error) -> Self {
        let retryable = !matches!(error.code(), Code::PermissionDenied | Code::Unauthenticated | Code::NotFound);
        Self { code: error.code(), message: error.message().to_owned(), retryable }
    }
}

/// An event of a watch.
#[derive(Debug, Clone)]
pub struct WatchEvent {
    /// What it reports.
    pub what: What,
    /// The token that resumes the watch after this event: printable ASCII, without spaces.
    pub token: String,
}

impl What {
    /// Returns the name of the event: `added`, `modified`, `deleted`, `bookmark`, `expired` or `closing`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Added(_) => "added",
            Self::Modified(_) => "modified",
            Self::Deleted(_) => "deleted",
            Self::Bookmark { .. } => "bookmark",
            Self::Expired => "expired",
            Self::Closing(_) => "closing",
        }
    }

    /// Returns the JSON object of the event, in one line: `type`, and depending on it `etag` and `resource`, or `code`,
    /// `message` and `retryable`.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = format!("{{\"type\":\"{}\"", self.name()).into_bytes();
        match self {
            Self::Added(changed) | Self::Modified(changed) | Self::Deleted(changed) => {
                if let Some(tag) = &changed.tag {
                    push_member(&mut json, "etag", &tag.to_string());
                }
                json.extend_from_slice(b",\"resource\":");
                match &changed.resource {
                    Some(resource) => json.extend_from_slice(resource),
                    None => {
                        json.push(b'{');
                        push_string(&mut json, "uid");
                        json.push(b':');
                        push_string(&mut json, &changed.uid);
                        json.push(b'}');
                    }
                }
            }
            Self::Bookmark { ends_state: true } => json.extend_from_slice(b",\"endsState\":true"),
            Self::Bookmark { ends_state: false } => {}
            Self::Expired => push_member(&mut json, "message", "the token is too old: list again"),
            Self::Closing(closing) => {
                push_member(&mut json, "code", closing.code.reason());
                push_member(&mut json, "message", &closing.message);
                let retryable = if closing.retryable { "true" } else { "false" };
                json.extend_from_slice(b",\"retryable\":");
                json.extend_from_slice(retryable.as_bytes());
            }
        }
        json.push(b'}');
        json
    }
}

fn push_member(json: &mut Vec<u8>, name: &str, value: &str) {
    json.push(b',');
    push_string(json, name);
    json.push(b':');
    push_string(json, value);
}

fn push_string(json: &mut Vec<u8>, text: &str) {
    // Writing a string into a vector does not fail.
    let _ = serde_json::to_writer(json, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_json_whose_type_is_its_name() {
        let changed = |resource: Option<&'static str>, tag| Changed {
            uid: Uid::opaque("a/b"),
            resource: resource.map(|text| Bytes::from_static(text.as_bytes())),
            tag,
        };
        let stored = Some(Tag::of_stored(26));
        let closing = Closing::retryable(Code::Unavailable, "the \"server\"\nstops");
        for (what, json) in [
            (
                What::Added(changed(Some(r#"{"uid":"a/b"}"#), stored)),
                r#"{"type":"added","etag":"\"1a\"","resource":{"uid":"a/b"}}"#,
            ),
            (What::Modified(changed(None, stored)), r#"{"type":"modified","etag":"\"1a\"","resource":{"uid":"a/b"}}"#),
            (What::Deleted(changed(None, None)), r#"{"type":"deleted","resource":{"uid":"a/b"}}"#),
            (What::Bookmark { ends_state: false }, r#"{"type":"bookmark"}"#),
            (What::Bookmark { ends_state: true }, r#"{"type":"bookmark","endsState":true}"#),
            (What::Expired, r#"{"type":"expired","message":"the token is too old: list again"}"#),
            (
                What::Closing(closing),
                r#"{"type":"closing","code":"UNAVAILABLE","message":"the \"server\"\nstops","retryable":true}"#,
            ),
        ] {
            assert_eq!(String::from_utf8(what.to_json()).unwrap(), json);
        }
    }

    #[test]
    fn an_end_because_of_the_caller_is_final() {
        assert!(!Closing::because(&Error::denied()).retryable);
        assert!(!Closing::because(&Error::revoked_token()).retryable);
        assert!(Closing::because(&Error::busy()).retryable);
    }
}
