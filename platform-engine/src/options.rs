//! The options of a request in addition to its method and its message, over any transport.

use crate::{
    error::{Error, Result},
    etag::{Comparison, Tag, Tags},
    idempotency::{HEADER, IdempotencyKey},
};

/// The options of a request. They are part of its [`Context`](crate::context::Context) and do not change while it runs.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RequestOptions {
    /// The conditions on the resource without which nothing is done.
    pub preconditions: Preconditions,
    /// Whether a write is a preview (AIP-163; `docs/api.md`, Previews): everything is checked, and nothing is changed.
    pub validate_only: bool,
    /// The fields that a get shows (AIP-157; `docs/api.md`, Read masks); empty for all.
    pub read_mask: String,
    /// The key under which the reply of a write is recorded, so that the request can be repeated (AIP-155; `docs/api.md`,
    /// Repeatable writes). A preview and a read ignore it.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// The options of a request that has none.
static NONE: RequestOptions = RequestOptions {
    preconditions: Preconditions { if_match: None, if_none_match: None },
    validate_only: false,
    read_mask: String::new(),
    idempotency_key: None,
};

/// The options of a preview that has no others.
static PREVIEW: RequestOptions = RequestOptions {
    preconditions: Preconditions { if_match: None, if_none_match: None },
    validate_only: true,
    read_mask: String::new(),
    idempotency_key: None,
};

impl RequestOptions {
    /// Returns the options for a part of the request that is about another resource, to which the preconditions do not
    /// apply.
    pub(crate) fn of_part(&self) -> &'static Self {
        if self.validate_only { &PREVIEW } else { &NONE }
    }

    /// Returns the options of a request that has none.
    pub fn none() -> &'static Self {
        &NONE
    }

    /// Sets the preconditions.
    #[must_use]
    pub fn preconditions(self, preconditions: Preconditions) -> Self {
        Self { preconditions, ..self }
    }

    /// Sets whether a write is a preview.
    #[must_use]
    pub fn validate_only(self, validate_only: bool) -> Self {
        Self { validate_only, ..self }
    }

    /// Sets the fields that a get shows.
    #[must_use]
    pub fn read_mask(self, read_mask: String) -> Self {
        Self { read_mask, ..self }
    }

    /// Sets the idempotency key.
    #[must_use]
    pub fn idempotency_key(self, idempotency_key: Option<IdempotencyKey>) -> Self {
        Self { idempotency_key, ..self }
    }

    /// Returns the key under which the reply of a write is recorded. A preview changes nothing, so that it can be repeated
    /// without.
    pub(crate) fn key_of_write(&self) -> Option<&IdempotencyKey> {
        self.idempotency_key.as_ref().filter(|_| !self.validate_only)
    }

    /// Rejects the key of a write whose effect is not one commit: a client that sends one must not believe that a
    /// repetition is safe.
    ///
    /// # Errors
    /// INVALID_ARGUMENT on [`HEADER`].
    pub(crate) fn reject_key(&self) -> Result<()> {
        match self.key_of_write() {
            Some(_) => Err(Error::invalid_field(HEADER, "this method takes no key")),
            None => Ok(()),
        }
    }
}

/// Preconditions of a request (RFC 9110 section 13.1; `docs/api.md`, Conditional requests).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The resource must have one of these tags, by their revisions.
    pub if_match: Option<Tags>,
    /// The resource must have none of these tags. For a read, the representation must have none of them; the transport
    /// decides what the reply is when it has.
    pub if_none_match: Option<Tags>,
}

impl Preconditions {
    /// Returns the precondition that the resource has this revision.
    pub fn of_revision(revision: u64) -> Self {
        let tag = Tag::of_stored(revision).to_string();
        Self { if_match: Tags::parse(tag.as_bytes()).ok(), if_none_match: None }
    }

    /// Returns whether a resource of this revision may be read.
    pub(crate) fn admit_read(&self, revision: u64) -> bool {
        self.if_match.as_ref().is_none_or(|tags| tags.name_revision(revision, Comparison::Strong))
    }

    /// Returns whether a resource of this revision may be changed.
    pub(crate) fn admit_write(&self, revision: u64) -> bool {
        let is_named = |tags: &Tags| tags.name_revision(revision, Comparison::Weak);
        self.admit_read(revision) && !self.if_none_match.as_ref().is_some_and(is_named)
    }

    /// Rejects preconditions that a method does not check, because it does not change one resource: a client that sends
    /// one must not believe that it was checked. `If-Match: *` requires nothing that the method does not require anyway.
    ///
    /// # Errors
    /// FAILED_PRECONDITION of the type CONDITION_NOT_SUPPORTED.
    pub(crate) fn reject(&self) -> Result<()> {
        match (&self.if_match, &self.if_none_match) {
            (None | Some(Tags::Any), None) => Ok(()),
            (Some(Tags::These(_)), _) => Err(Error::unchecked_condition("If-Match")),
            (_, Some(_)) => Err(Error::unchecked_condition("If-None-Match")),
        }
    }
}
