//! The trace that the recorder writes; see `recorder.c` for its format.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};
use bytes::{Buf as _, Bytes};

/// The operations of a program on the files of a directory, in the order of execution.
#[derive(Debug)]
pub struct Trace {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The trace as the recorder wrote it.
    bytes: Bytes,
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The length of the trace in bytes after the operation was recorded.
    pub end: u64,
    /// The inode number of the file, which can be reused after the file is removed; 0 for operations on names.
    pub inode: u64,
    /// The path of the file at that time, relative to the directory; empty for the directory itself.
    pub path: String,
    /// The action.
    pub action: Action,
}

/// The action of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Creates an empty file.
    Create,
    /// Writes bytes at an offset.
    Write(u64, Bytes),
    /// Sets the length.
    Truncate(u64),
    /// Makes a file's content, or the names in a directory, durable.
    Sync,
    /// A sync that reported an error.
    SyncFailed,
    /// Renames a file to this path, and replaces a file that has it.
    Rename(String),
    /// Gives a file this second path.
    Link(String),
    /// Removes a file's name.
    Unlink,
    /// Creates a directory.
    CreateDirectory,
    /// Removes a directory.
    RemoveDirectory,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// If the file cannot be read or is not a trace.
    pub fn read(path: &Path) -> Result<Self> {
        let file = Bytes::from(fs::read(path)?);
        let mut bytes = file.clone();
        let total = bytes.len();
        let mut operations = Vec::new();
        while bytes.has_remaining() {
            let (code, inode, offset) = (bytes.try_get_u8()?, bytes.try_get_u64_ne()?, bytes.try_get_u64_ne()?);
            let (length, path_length) = (bytes.try_get_u64_ne()?, bytes.try_get_u32_ne()?);
            let mut take = |length: usize| {
                let is_complete = bytes.len() >= length;
                is_complete.then(|| bytes.split_to(length)).context("the trace ends within an operation")
            };
            let path = String::from_utf8(take(path_length as usize)?.into())?;
            let mut data = || take(usize::try_from(length)?);
            let action = match code {
                1 => Action::Create,
                2 => Action::Write(offset, data()?),
                3 => Action::Truncate(length),
                4 => Action::Sync,
                5 => Action::SyncFailed,
                6 => Action::Rename(String::from_utf8(data()?.into())?),
                7 => Action::Link(String::from_utf8(data()?.into())?),
                8 => Action::Unlink,
                9 => Action::CreateDirectory,
                10 => Action::RemoveDirectory,
                other => bail!("unknown operation {other}"),
            };
            let end = (total - bytes.len()) as u64;
            operations.push(Operation { end, inode, path, action });
        }
        Ok(Self { operations, bytes: file })
    }

    /// Writes the trace to a file, as the recorder wrote it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(fs::write(path, &self.bytes)?)
    }

    /// Returns the number of syncs, including failed ones.
    pub fn syncs(&self) -> usize {
        let is_sync = |action: &Action| matches!(action, Action::Sync | Action::SyncFailed);
        self.operations.iter().filter(|operation| is_sync(&operation.action)).count()
    }

    /// Removes the successful syncs of the paths that `of` selects, as if the program had not called them.
    pub fn without_syncs(mut self, of: impl Fn(&str) -> bool) -> Self {
        self.operations.retain(|operation| operation.action != Action::Sync || !of(&operation.path));
        self
    }
}
