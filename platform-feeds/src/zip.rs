//! Writes a zip archive as a stream (APPNOTE.TXT 6.3.10), as the readers of OSV records expect them.
//!
//! The libraries for zip archives keep the names of all entries in memory, or write to a file in which they can seek.
//! Here, the directory at the end of the archive grows in a temporary file.

use std::io::{self, Read, Seek, Write};

use flate2::{Compression, Crc, write::DeflateEncoder};
use tempfile::SpooledTempFile;

/// The size of the directory in bytes up to which it stays in memory. Our choice.
const IN_MEMORY: usize = 1 << 20;

/// The version of the format that has ZIP64, and that the entries of DEFLATE need.
const ZIP64: u16 = 45;
const WITH_DEFLATE: u16 = 20;

/// The flag of names in UTF-8.
const UTF_8: u16 = 1 << 11;
const DEFLATED: u16 = 8;

/// 1980-01-01 in the format of MS-DOS: the archive of the same records is the same at any time.
const DATE: u16 = 1 << 5 | 1;

/// A zip archive that is being written.
#[derive(Debug)]
pub(crate) struct Zip<W> {
    out: W,
    written: u64,
    entries: u64,
    directory: SpooledTempFile,
    directory_bytes: u64,
}

impl<W: Write> Zip<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, written: 0, entries: 0, directory: SpooledTempFile::new(IN_MEMORY), directory_bytes: 0 }
    }

    /// Adds a file of less than 4 GiB.
    ///
    /// # Errors
    /// Those of the output and of the temporary file; a name or content that is too long.
    pub(crate) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut compressed = DeflateEncoder::new(Vec::new(), Compression::fast());
        compressed.write_all(content)?;
        let compressed = compressed.finish()?;
        let mut checksum = Crc::new();
        checksum.update(content);
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "an entry of the archive is too long");
        let mut header = Vec::new();
        header.extend(UTF_8.to_le_bytes());
        header.extend(DEFLATED.to_le_bytes());
        header.extend(0_u16.to_le_bytes());
        header.extend(DATE.to_le_bytes());
        header.extend(checksum.sum().to_le_bytes());
        header.extend(u32::try_from(compressed.len()).map_err(too_long)?.to_le_bytes());
        header.extend(u32::try_from(content.len()).map_err(too_long)?.to_le_bytes());
        header.extend(u16::try_from(name.len()).map_err(too_long)?.to_le_bytes());

        // The place of the file needs 64 bits, so the directory always has it in the extra field of ZIP64.
        let mut listed = Vec::from(*b"PK\x01\x02");
        listed.extend(ZIP64.to_le_bytes());
        listed.extend(ZIP64.to_le_bytes());
        listed.extend(&header);
        listed.extend(12_u16.to_le_bytes());
        // No comment, disk 0, no attributes.
        listed.extend([0; 10]);
        listed.extend(u32::MAX.to_le_bytes());
        listed.extend(name.as_bytes());
        listed.extend(1_u16.to_le_bytes());
        listed.extend(8_u16.to_le_bytes());
        listed.extend(self.written.to_le_bytes());
        self.directory.write_all(&listed)?;
        self.directory_bytes += listed.len() as u64;
        self.entries += 1;

        let mut local = Vec::from(*b"PK\x03\x04");
        local.extend(WITH_DEFLATE.to_le_bytes());
        local.extend(header);
        local.extend(0_u16.to_le_bytes());
        local.extend(name.as_bytes());
        self.write(&local)?;
        self.write(&compressed)
    }

    /// Writes the directory.
    ///
    /// # Errors
    /// Those of the output and of the temporary file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let (start, bytes, entries) = (self.written, self.directory_bytes, self.entries);
        self.directory.rewind()?;
        let mut part = vec![0; 64 << 10];
        loop {
            let length = self.directory.read(&mut part)?;
            if length == 0 {
                break;
            }
            self.write(part.get(..length).unwrap_or_default())?;
        }
        let end = self.written;
        let mut last = Vec::from(*b"PK\x06\x06");
        last.extend(44_u64.to_le_bytes());
        last.extend(ZIP64.to_le_bytes());
        last.extend(ZIP64.to_le_bytes());
        last.extend([0; 8]);
        for number in [entries, entries, bytes, start] {
            last.extend(number.to_le_bytes());
        }
        last.extend(b"PK\x06\x07");
        last.extend(0_u32.to_le_bytes());
        last.extend(end.to_le_bytes());
        last.extend(1_u32.to_le_bytes());
        last.extend(b"PK\x05\x06");
        last.extend([0; 4]);
        // Numbers that are in the record of ZIP64.
        last.extend([u8::MAX; 12]);
        last.extend(0_u16.to_le_bytes());
        self.write(&last)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
