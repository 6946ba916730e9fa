//! Field tables applied to JSON: reads requests, validates and writes bodies, and computes index keys.

mod bounds;
mod checked;
mod evolve;
mod form;
mod keys;
pub(crate) mod path;
pub(crate) mod pattern;
mod prune;
mod read;
mod validate;
mod write;

pub(crate) use checked::validate;
pub use checked::{Checked, times};
pub(crate) use evolve::evolve;
pub(crate) use form::has_form_of;
pub(crate) use keys::{Keys, sort_keys};
pub(crate) use path::{covers, is_named, named};
pub(crate) use prune::{is_costly, is_empty, remove_fields, without};
pub use prune::{prune, prune_empty};
pub(crate) use read::read_with;
pub use read::{Input, Values, read};
pub(crate) use write::to_bytes;
