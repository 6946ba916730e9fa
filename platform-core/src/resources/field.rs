//! Fields that several kinds share.

use platform_engine::{kind::Field, uid::Uid};

use super::{check, registry::Digest};

/// A required name, which lists can be ordered by and which is searched by part. Each kind adds its own `about`.
pub(super) const NAME: Field = Field::string("name").required().sort(&["name"]).searched().check(check::name);

/// A description for people.
pub(super) const DESCRIPTION: Field = Field::string("description")
    .about("A description for people, of at most 512 characters on one line.")
    .max_len(check::MAX_DESCRIPTION)
    .check(check::description);

/// A uid of the resource hierarchy.
pub(super) const fn uid(name: &'static str) -> Field {
    Field::string(name).check(check::uid).documented_pattern(Uid::PATTERN)
}

/// A digest of an image.
pub const fn digest(name: &'static str) -> Field {
    Field::string(name).check(Digest::check).documented_pattern(Digest::PATTERN)
}
