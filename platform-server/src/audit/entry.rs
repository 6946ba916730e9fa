//! The lines of the audit log.

use platform_core::resources::iam::Identity;
use platform_engine::{kind::Resource, timestamp::Timestamp, uid::Uid};
use serde::Serialize;

/// The event that an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Event {
    /// A write, successful or not.
    Write,
    /// An upstream token was exchanged for a token of this server.
    Exchange,
    /// A refresh token was exchanged for the next tokens.
    Refresh,
    /// A person has signed in with a browser.
    SignIn,
    /// The request had no valid token, or its caller lacks a capability.
    Denied,
}

/// Records that a commit has changed.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Changed {
    /// One that was created or updated: its kind and uid.
    Put(&'static str, Uid),
    /// One that was deleted: its kind and uid.
    Deleted(&'static str, Uid),
    /// All below this uid, which were deleted.
    DeletedBelow(Uid),
}

impl Changed {
    /// Returns whether this is the registration of a person, which persons change by themselves.
    pub(super) fn is_registration(&self) -> bool {
        matches!(self, Self::Put(kind, uid) | Self::Deleted(kind, uid) if *kind == Identity::KIND.name && uid.is_root())
    }
}

/// A token that was issued.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Issued {
    #[serde(skip)]
    pub(super) event: Event,
    /// The identity that the token is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identity: Option<String>,
    /// The id of the token, its claim `jti`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    /// The upstream token that was exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream: Option<Upstream>,
}

/// An upstream token: the claims that identify it.
#[derive(Debug, Serialize)]
pub(super) struct Upstream {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) iss: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sub: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jti: Option<String>,
}

/// A line of the log.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry<'a> {
    pub(super) time: Timestamp,
    pub(super) event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<&'a str>,
    pub(super) transport: &'static str,
    pub(super) method: &'a str,
    /// The HTTP method and the path.
    pub(super) request: String,
    /// The group to which an import writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<&'a str>,
    pub(super) code: &'static str,
    /// Whether the client went away before the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) client_gone: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identity: Option<&'a str>,
    /// The id of the caller's token, its claim `jti`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) issued: Option<&'a Issued>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) changed: &'a [Changed],
    /// The number of further records that were changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) more_changed: Option<usize>,
    /// The sequence of the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sequence: Option<u64>,
    /// Whether the store did not report that it has made a part of the changes, and may have made it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) uncertain: bool,
}
