//! Reads files, folders, archives and lines, with limits on everything that could expand.
//!
//! Never writes or unpacks to disk: the entries of an archive are read one after the other in memory. Does not follow
//! links in folders or archives, and ignores files whose name is not that of a document.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    ops::ControlFlow,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use walkdir::WalkDir;

use crate::Refusal;

pub(crate) mod archive;
mod lines;

pub use lines::{Visit, lines};

/// The maximum depth of a folder. Our choice.
const MAX_DEPTH: usize = 64;

/// The maximum window of a zstd frame, as a power of two: 128 MiB, the default limit of the zstd tools.
const ZSTD_WINDOW: u32 = 27;

/// Limits on reading.
///
/// Fields will be added: write a value as `Limits { …, ..Limits::default() }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a document, an archive entry or a line, in bytes. Default 16 MiB.
    pub document: u64,
    /// The maximum decompressed size of an archive or a compressed file, in bytes. Default 4 GiB.
    pub archive: u64,
    /// The maximum number of entries of an archive. Default 1,000,000.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { document: 16 << 20, archive: 4 << 30, entries: 1_000_000 }
    }
}

/// Something found in a source.
#[derive(Debug)]
pub enum Found<'a> {
    /// A document.
    Document {
        /// The file, followed by the entry's name if it is an archive.
        place: &'a str,
        /// The content.
        bytes: &'a [u8],
    },
    /// A link, or a file whose name is not that of a document.
    Ignored,
    /// Something that cannot be read.
    Refused(Refusal),
}

/// The decision of a visitor whether to continue.
pub type Flow = ControlFlow<()>;

/// Visits the documents of a file, an archive or a folder, in the order of their names or of the archive. `wanted`
/// decides by name whether a file is a document. `read` counts the bytes read from disk, for a progress bar.
pub fn documents(
    path: &Path,
    limits: &Limits,
    read: &AtomicU64,
    wanted: fn(&str) -> bool,
    visit: &mut dyn FnMut(Found<'_>) -> Flow,
) -> Flow {
    let place = path.display().to_string();
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => folder(path, limits, read, wanted, visit),
        Ok(_) if archive::is_archive(&place) => archive::documents(path, limits, read, wanted, visit),
        Ok(_) if wanted(&place) => document(path, limits, read, visit),
        Ok(_) => visit(Found::Refused(Refusal::new(
            place,
            "has an unsupported name: neither a document of this format nor an archive",
        ))),
        Err(error) => visit(Found::Refused(Refusal::new(place, unreadable(&error)))),
    }
}

/// Returns the size on disk of a file or of all files in a folder, in bytes.
pub fn size(path: &Path) -> u64 {
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => {
            let files = walk(path).filter_map(Result::ok).filter(|entry| entry.file_type().is_file());
            files.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
        }
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    }
}

fn walk(path: &Path) -> walkdir::IntoIter {
    WalkDir::new(path).sort_by_file_name().max_depth(MAX_DEPTH).into_iter()
}

fn folder(
    path: &Path,
    limits: &Limits,
    read: &AtomicU64,
    wanted: fn(&str) -> bool,
    visit: &mut dyn FnMut(Found<'_>) -> Flow,
) -> Flow {
    for entry in walk(path) {
        match entry {
            Ok(entry) if entry.file_type().is_dir() => {}
            Ok(entry) if entry.file_type().is_file() && wanted(&entry.file_name().to_string_lossy()) => {
                document(entry.path(), limits, read, visit)?;
            }
            Ok(entry) => {
                let length = entry.metadata().ok().filter(|_| entry.file_type().is_file()).map(|file| file.len());
                read.fetch_add(length.unwrap_or_default(), Ordering::Relaxed);
                visit(Found::Ignored)?;
            }
            Err(error) => {
                let place = error.path().unwrap_or(path).display().to_string();
                let rule = error.io_error().map_or_else(|| "cannot be read".to_owned(), unreadable);
                visit(Found::Refused(Refusal::new(place, rule)))?;
            }
        }
    }
    Flow::Continue(())
}

fn document(path: &Path, limits: &Limits, read: &AtomicU64, visit: &mut dyn FnMut(Found<'_>) -> Flow) -> Flow {
    let place = &path.display().to_string();
    let mut bytes = Vec::new();
    let length = File::open(path).and_then(|file| file.take(limits.document + 1).read_to_end(&mut bytes));
    match length {
        Ok(length) if length as u64 > limits.document => {
            read.fetch_add(size(path), Ordering::Relaxed);
            visit(Found::Refused(Refusal::new(place, too_large(limits.document))))
        }
        Ok(length) => {
            read.fetch_add(length as u64, Ordering::Relaxed);
            visit(Found::Document { place, bytes: &bytes })
        }
        Err(error) => visit(Found::Refused(Refusal::new(place, unreadable(&error)))),
    }
}

/// Opens a file and decompresses it according to its extension, with a limit on the decompressed size.
fn decompressed<'a>(path: &Path, limits: &Limits, read: &'a AtomicU64) -> io::Result<Box<dyn Read + 'a>> {
    let file = Counted { file: File::open(path)?, read };
    let name = path.to_string_lossy().to_ascii_lowercase();
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| name.ends_with(suffix));
    Ok(if ends(&[".zst", ".tzst"]) {
        let mut decoder = zstd::Decoder::new(file)?;
        decoder.window_log_max(ZSTD_WINDOW)?;
        Box::new(Bounded::new(decoder, limits.archive))
    } else if ends(&[".gz", ".tgz"]) {
        let decoder = flate2::bufread::MultiGzDecoder::new(BufReader::new(file));
        Box::new(Bounded::new(decoder, limits.archive))
    } else {
        Box::new(BufReader::new(file))
    })
}

/// Counts the bytes read from a file.
struct Counted<'a> {
    file: File,
    read: &'a AtomicU64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// Fails when more than the maximum is read.
pub(crate) struct Bounded<R> {
    inner: R,
    left: u64,
    max: u64,
}

impl<R> Bounded<R> {
    pub(crate) fn new(inner: R, max: u64) -> Self {
        Self { inner, left: max, max }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(length as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, format!("unpacks to more than {} bytes", self.max))
        })?;
        Ok(length)
    }
}

pub(crate) fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        io::ErrorKind::FileTooLarge => error.to_string(),
        _ => format!("cannot be read: {error}"),
    }
}

fn too_large(max: u64) -> String {
    format!("is larger than {max} bytes")
}
