//! Reads the files of a layout and checks their digests and sizes.

use std::{
    fmt::Debug,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use platform_core::resources::registry;
use sha2::{Digest, Sha256};

use super::manifest::Descriptor;
use crate::Refusal;

/// Access to the files of a layout.
pub trait Blobs: Debug {
    /// Opens a file by its path in the layout, such as `index.json`, and returns it with its length in bytes. Paths are
    /// names separated by `/`, and never contain `..`.
    ///
    /// # Errors
    /// NotFound for a missing file; other I/O errors.
    fn open(&self, path: &str) -> io::Result<(Box<dyn Read>, u64)>;
}

impl dyn Blobs + '_ {
    /// Reads a file of at most `largest` bytes.
    pub(super) fn file(&self, path: &str, largest: u64) -> Result<Vec<u8>, Refusal> {
        let (file, length) = self.open(path).map_err(|error| unreadable(&error))?;
        if length > largest {
            return Err(Refusal::whole(format!("is larger than {largest} bytes")));
        }
        let mut bytes = Vec::new();
        file.take(largest).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
        Ok(bytes)
    }
}

/// The directory of a layout. Does not follow symbolic links in it.
#[derive(Debug, Clone)]
pub struct Directory(
    /// The path of the directory.
    pub PathBuf,
);

impl Blobs for Directory {
    fn open(&self, path: &str) -> io::Result<(Box<dyn Read>, u64)> {
        let mut place = self.0.clone();
        for name in path.split('/') {
            place.push(name);
            if place.symlink_metadata()?.is_symlink() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a symbolic link"));
            }
        }
        let file = File::open(place)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
        }
        Ok((Box::new(file), metadata.len()))
    }
}

/// Reads the blob of a descriptor.
pub(super) fn read(blobs: &dyn Blobs, descriptor: &Descriptor, largest: u64) -> Result<Vec<u8>, Refusal> {
    if descriptor.size > largest {
        return Err(Refusal::whole(format!("is larger than {largest} bytes")));
    }
    let mut bytes = Vec::new();
    read_checked(blobs, descriptor, |chunk| bytes.extend_from_slice(chunk))?;
    Ok(bytes)
}

/// Reads the blob of a descriptor only to check its digest.
pub(super) fn verify(blobs: &dyn Blobs, descriptor: &Descriptor) -> Result<(), Refusal> {
    read_checked(blobs, descriptor, |_| ())
}

/// Reads the blob of a descriptor only to check its digest, if the layout has it.
pub(super) fn verify_if_present(blobs: &dyn Blobs, descriptor: &Descriptor) -> Result<(), Refusal> {
    match blobs.open(&path(descriptor)?) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => verify(blobs, descriptor),
    }
}

/// Returns the digest of a file that a layout has within another blob.
pub(super) fn digest_of(content: &[u8]) -> registry::Digest {
    registry::Digest::opaque(format!("sha256:{}", hex::encode(Sha256::digest(content))))
}

/// Returns the path of the blob of a descriptor.
fn path(descriptor: &Descriptor) -> Result<String, Refusal> {
    match descriptor.digest.parts() {
        ("sha256", hex) => Ok(format!("blobs/sha256/{hex}")),
        (algorithm, _) => Err(Refusal::whole(format!("has a {algorithm} digest; only sha256 is supported"))),
    }
}

fn read_checked(blobs: &dyn Blobs, descriptor: &Descriptor, mut visit: impl FnMut(&[u8])) -> Result<(), Refusal> {
    let path = path(descriptor)?;
    let (mut file, length) = blobs.open(&path).map_err(|error| unreadable(&error))?;
    if length != descriptor.size {
        return Err(Refusal::whole(format!("has {length} bytes, but its descriptor says {}", descriptor.size)));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut left = length;
    loop {
        let read = file.read(&mut buffer).map_err(|error| unreadable(&error))?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else { break };
        left = left.saturating_sub(read as u64);
        hash.update(chunk);
        visit(chunk);
        if left == 0 {
            break;
        }
    }
    if path.ends_with(&hex::encode(hash.finalize())) {
        Ok(())
    } else {
        Err(Refusal::whole("does not match its digest"))
    }
}

fn unreadable(error: &io::Error) -> Refusal {
    Refusal::whole(match error.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        io::ErrorKind::InvalidInput => error.to_string(),
        _ => format!("cannot be read: {error}"),
    })
}
