//! Reads tar archives, plain or compressed with zstd or gzip.
//!
//! Reads raw entries, so that the headers that tar writes before an entry with a long name are limited like everything
//! else. The name of an entry appears only in messages and is never used to open a file. An entry whose name points
//! outside the archive is still rejected, since no honest archive contains one.

use std::{
    io::{self, Read},
    path::Path,
    sync::atomic::AtomicU64,
};

use tar::{Archive, EntryType, PaxExtensions};

use super::{Flow, Found, Limits, decompressed, too_large, unreadable};
use crate::Refusal;

/// The maximum size of a header that tar writes before an entry for its name and attributes, in bytes.
const MAX_EXTENSION: u64 = 64 << 10;

/// Returns whether a file is an archive, by its name.
pub(super) fn is_archive(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".tar", ".tar.zst", ".tzst", ".tar.gz", ".tgz"].iter().any(|suffix| name.ends_with(suffix))
}

/// Visits the documents of an archive. Ends at the first damaged entry.
pub(super) fn documents(
    path: &Path,
    limits: &Limits,
    read: &AtomicU64,
    wanted: fn(&str) -> bool,
    visit: &mut dyn FnMut(Found<'_>) -> Flow,
) -> Flow {
    let place = path.display().to_string();
    let refused = |error: io::Error| Found::Refused(Refusal::new(&place, unreadable(&error)));
    match decompressed(path, limits, read) {
        Ok(decompressed) => match entries(decompressed, &place, limits, wanted, visit) {
            Ok(flow) => flow,
            Err(error) => visit(refused(error)),
        },
        Err(error) => visit(refused(error)),
    }
}

/// Visits the documents of a tar stream.
pub(crate) fn entries(
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
                let found = if points_outside(&name) {
                    Found::Refused(Refusal::new(place, "has a name that points outside the archive"))
                } else if !wanted(&name) {
                    Found::Ignored
                } else if size > limits.document {
                    Found::Refused(Refusal::new(place, too_large(limits.document)))
                } else {
                    bytes.clear();
                    (&mut entry).take(size).read_to_end(&mut bytes)?;
                    if (bytes.len() as u64) < size {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive is truncated"));
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

fn points_outside(name: &str) -> bool {
    name.starts_with('/') || name.contains('\0') || name.split(['/', '\\']).any(|part| part == "..")
}
