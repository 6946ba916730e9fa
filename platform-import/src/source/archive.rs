//! Archives: tar, as it is or packed by zstd or gzip.
//!
//! Entries are taken raw, so that the headers which tar writes before an entry for a long name are bounded like all
//! else. An entry's name is for its reader: nothing is opened by it. One that would lead elsewhere is refused all the
//! same, as no honest archive has one.

use std::{
    io::{self, Read},
    path::Path,
    sync::atomic::AtomicU64,
};

use tar::{Archive, EntryType, PaxExtensions};

use super::{Flow, Found, Limits, too_large, unpacked, unreadable};
use crate::Refusal;

/// The most bytes of what tar writes before an entry for its name and attributes.
const MAX_EXTENSION: u64 = 64 << 10;

/// Tells whether a file is an archive by its name.
pub(super) fn is_one(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".tar", ".tar.zst", ".tzst", ".tar.gz", ".tgz"].iter().any(|suffix| name.ends_with(suffix))
}

/// Visits the documents of an archive. What is damaged ends it.
pub(super) fn documents(
    path: &Path,
    limits: &Limits,
    read: &AtomicU64,
    wanted: fn(&str) -> bool,
    visit: &mut dyn FnMut(Found<'_>) -> Flow,
) -> Flow {
    let place = path.display().to_string();
    let refused = |error: io::Error| Found::Refused(Refusal::new(&place, unreadable(&error)));
    match unpacked(path, limits, read) {
        Ok(unpacked) => match entries(unpacked, &place, limits, wanted, visit) {
            Ok(flow) => flow,
            Err(error) => visit(refused(error)),
        },
        Err(error) => visit(refused(error)),
    }
}

/// Visits the documents of a tar stream.
fn entries(
    stream: impl Read,
    archive: &str,
    limits: &Limits,
    wanted: fn(&str) -> bool,
    visit: &mut dyn FnMut(Found<'_>) -> Flow,
) -> io::Result<Flow> {
    let mut long_name: Option<Vec<u8>> = None;
    let mut bytes = Vec::new();
    for (count, entry) in (0_u64..).zip(Archive::new(stream).entries()?.raw(true)) {
        let mut entry = entry?;
        if count >= limits.entries {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("has more than {} entries", limits.entries),
            ));
        }
        let size = entry.header().entry_size()?;
        match entry.header().entry_type() {
            EntryType::GNULongName => {
                let mut name = extension(&mut entry, size)?;
                name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
                long_name = Some(name);
                continue;
            }
            EntryType::XHeader => {
                let header = extension(&mut entry, size)?;
                let path = PaxExtensions::new(&header).filter_map(Result::ok).find(|one| one.key_bytes() == b"path");
                long_name = path.map(|path| path.value_bytes().to_vec()).or(long_name);
                continue;
            }
            EntryType::GNULongLink | EntryType::XGlobalHeader | EntryType::Directory => {}
            EntryType::Regular | EntryType::Continuous => {
                let name = long_name.take().unwrap_or_else(|| entry.header().path_bytes().into_owned());
                let name = String::from_utf8_lossy(&name);
                let place = &format!("{archive}: {name}");
                let found = if leads_out(&name) {
                    Found::Refused(Refusal::new(place, "has a name that leads out of the archive"))
                } else if !wanted(&name) {
                    Found::Ignored
                } else if size > limits.document {
                    Found::Refused(Refusal::new(place, too_large(limits.document)))
                } else {
                    bytes.clear();
                    (&mut entry).take(size).read_to_end(&mut bytes)?;
                    if (bytes.len() as u64) < size {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends before it should"));
                    }
                    Found::Document { place, bytes: &bytes }
                };
                if visit(found).is_break() {
                    return Ok(Flow::Break(()));
                }
            }
            _ => {
                if visit(Found::Ignored).is_break() {
                    return Ok(Flow::Break(()));
                }
            }
        }
        if !matches!(entry.header().entry_type(), EntryType::GNULongLink | EntryType::XGlobalHeader) {
            long_name = None;
        }
    }
    Ok(Flow::Continue(()))
}

fn extension(entry: &mut impl Read, size: u64) -> io::Result<Vec<u8>> {
    if size > MAX_EXTENSION {
        let rule = format!("has a name or attributes of more than {MAX_EXTENSION} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, rule));
    }
    let mut bytes = Vec::new();
    entry.take(size).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn leads_out(name: &str) -> bool {
    name.starts_with('/') || name.contains('\0') || name.split(['/', '\\']).any(|part| part == "..")
}
