//! `platform-server export` and `platform-server import store`: the content of a store as a file.
//!
//! The file is described in `docs/how-to/move.md`. An import reads it twice: the first time it verifies the whole file
//! and writes nothing. A document of the installation says that an import is in progress, so that no server uses a part
//! of a store, and that the same command continues an import that was interrupted.

mod export;
mod format;
mod import;
#[cfg(test)]
mod tests;
mod unfinished;

pub(crate) use self::{
    export::{create_secret, export, write},
    format::{Header, VERSION, hex},
    import::{import, write as read_into},
    unfinished::{DOCUMENT, reject_unfinished},
};

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use platform_engine::{
    blob::{self, BlobStore},
    store::{Store, StoreError},
};

use crate::Kinds;

/// The number of records that are read or written at once.
pub(crate) const BATCH: usize = 500;
/// The number of bytes in the bodies that are read or written at once, unless the first is longer.
pub(crate) const BATCH_BYTES: usize = 4 << 20;
/// The number of resources of a kind that are named in a message.
const NAMED: usize = 20;

/// The resources that need new secrets, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct NeedSecrets(BTreeMap<&'static str, (u64, Vec<String>)>);

impl NeedSecrets {
    fn add(&mut self, kind: &'static str, uid: &str) {
        let (count, named) = self.0.entry(kind).or_default();
        *count += 1;
        if named.len() < NAMED {
            named.push(uid.to_owned());
        }
    }

    /// Returns the lines for the operator.
    fn lines(&self) -> String {
        let mut lines = String::new();
        for (kind, (count, named)) in &self.0 {
            let what = match *kind {
                "SignIn" => "have ended, so that these persons sign in again",
                "GroupInvite" => "have no code any longer, so that new ones are needed",
                "IdempotencyRecord" => "have no reply any longer, so that repetitions of these requests fail",
                _ => "need new secrets",
            };
            // Writing to a text does not fail.
            let _ = write!(lines, "\n  {count} of the kind {kind} {what}: {}", named.join(" "));
            if *count > named.len() as u64 {
                let _ = write!(lines, " and {} more", count - named.len() as u64);
            }
        }
        lines
    }
}

/// Returns the number of blobs that resources of the store name, and how many of them are not in a place.
async fn count_blobs(
    kinds: Kinds,
    store: &dyn Store,
    blobs: Option<&dyn BlobStore>,
) -> Result<(usize, usize), StoreError> {
    let mut named = std::collections::HashSet::new();
    let kinds = kinds.stored().map(|registered| registered.kind);
    blob::named(store, kinds, |one| {
        named.insert(one.id);
    })
    .await?;
    let all = named.len();
    for id in blobs.map(BlobStore::list).transpose()?.unwrap_or_default() {
        named.remove(&id);
    }
    Ok((all, named.len()))
}

/// The unit of a progress bar.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Progress {
    /// Bytes of this length, if it is known.
    Bytes(Option<u64>),
    Records,
    /// Nothing: it shows that the command works.
    Nothing,
}

/// Returns a progress bar on standard error, which is hidden if that is not a terminal.
pub(crate) fn progress(action: &'static str, counted: Progress) -> Result<ProgressBar> {
    let (length, template) = match counted {
        Progress::Bytes(Some(length)) => (Some(length), "{msg} {bar:40} {bytes}/{total_bytes} {eta} left"),
        Progress::Bytes(None) => (None, "{spinner} {msg} {bytes}, {bytes_per_sec}"),
        Progress::Records => (None, "{spinner} {msg} {human_pos} records, {per_sec}"),
        Progress::Nothing => (None, "{spinner} {msg}"),
    };
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.set_style(ProgressStyle::with_template(template)?);
    bar.set_message(action);
    bar.enable_steady_tick(Duration::from_millis(250));
    Ok(bar)
}
