//! The file of the audit log, and its rotation.
//!
//! Our own, because none of the crates for rotated files fits: `tracing-appender` rotates by time alone, so that a flood
//! of requests fills the disk, and creates files that others can read; `file-rotate` drops lines without an error while
//! it cannot open a file.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

/// A file of lines that is renamed to `FILE.1` when it has reached its maximum size, `FILE.1` to `FILE.2`, and so on.
#[derive(Debug)]
pub(super) struct Rotated {
    path: PathBuf,
    file: File,
    /// The length of the complete lines in the file.
    len: u64,
    most: u64,
    keep: usize,
}

impl Rotated {
    /// Opens a file, or creates it for its owner alone.
    ///
    /// # Errors
    /// Fails if the file cannot be written, or another process has it open.
    pub(super) fn open(path: &Path, most: u64, keep: usize) -> Result<Self> {
        let (file, len) = open(path).with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{} is the audit log of another server", path.display()),
            Err(TryLockError::Error(error)) => return Err(error).context(format!("cannot lock {}", path.display())),
        }
        Ok(Self { path: path.to_owned(), file, len, most, keep })
    }

    /// Appends a line. A line is written entirely or not at all, unless the process or the machine fails during the write.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.len > 0 && self.len.saturating_add(line.len() as u64) > self.most {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all(line) {
            // A part of a line would be joined with the next one.
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        // The oldest is replaced.
        for number in (1..self.keep).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.numbered(1))?;
        let (file, len) = open(&self.path)?;
        file.try_lock().map_err(io::Error::from)?;
        (self.file, self.len) = (file, len);
        Ok(())
    }

    fn numbered(&self, number: usize) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Opens a file to append to it, and returns its length. A line that a crash has cut off is ended.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let mut len = file.seek(SeekFrom::End(0))?;
    if len > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            len += 1;
        }
    }
    Ok((file, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(directory: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let read =
            |path: PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap());
        let mut files: Vec<_> = entries.map(read).collect();
        files.sort();
        files
    }

    #[test]
    fn a_file_is_renamed_when_it_is_full_and_the_oldest_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut file = Rotated::open(&path, 8, 2).unwrap();
        for number in 0..8 {
            file.write(format!("{number}..\n").as_bytes()).unwrap();
        }
        let names = ["audit.log", "audit.log.1", "audit.log.2"].map(str::to_owned);
        let lines = ["6..\n7..\n", "4..\n5..\n", "2..\n3..\n"].map(str::to_owned);
        assert_eq!(contents(directory.path()), names.into_iter().zip(lines).collect::<Vec<_>>());
        // A line that is longer than a file has one of its own.
        file.write(b"a long line\n").unwrap();
        file.write(b"8\n").unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("audit.log.1")).unwrap(), "a long line\n");
    }

    #[test]
    fn a_file_is_continued_and_a_line_that_was_cut_off_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        fs::write(&path, "one\ntw").unwrap();
        let mut file = Rotated::open(&path, 100, 1).unwrap();
        file.write(b"three\n").unwrap();
        let error = Rotated::open(&path, 100, 1).unwrap_err().to_string();
        assert!(error.contains("another server"), "{error}");
        drop(file);
        Rotated::open(&path, 100, 1).unwrap().write(b"four\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntw\nthree\nfour\n");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_the_files() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().unwrap();
        let mut file = Rotated::open(&directory.path().join("audit.log"), 1, 3).unwrap();
        for _ in 0..3 {
            file.write(b"line\n").unwrap();
        }
        for entry in fs::read_dir(directory.path()).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
