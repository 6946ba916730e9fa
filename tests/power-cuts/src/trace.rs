//! What the recorder wrote.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};
use bytes::{Buf as _, Bytes};

/// The operations of a program on the files of a directory, in the order in which they were done.
#[derive(Debug)]
pub struct Trace {
    /// The operations.
    pub operations: Vec<Operation>,
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// How many bytes the trace had when the operation was recorded.
    pub end: u64,
    /// The number of the file, which is used again when a file is removed; 0 for what is done to names.
    pub inode: u64,
    /// The file's name when it was done, relative to the directory; empty for the directory itself.
    pub path: String,
    /// What was done.
    pub action: Action,
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Creates an empty file.
    Create,
    /// Writes bytes at an offset.
    Write(u64, Bytes),
    /// Sets the length.
    Truncate(u64),
    /// Makes what was done to a file, or to the names in a directory, outlast a power cut.
    Sync,
    /// Would have done so, and reported an error.
    SyncFailed,
    /// Gives a file another name, and takes that from the file that has it.
    Rename(String),
    /// Gives a file a second name.
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
    /// When the file cannot be read or is not a trace.
    pub fn read(path: &Path) -> Result<Self> {
        let mut bytes = Bytes::from(fs::read(path)?);
        let total = bytes.len();
        let mut operations = Vec::new();
        while bytes.has_remaining() {
            let (code, inode, offset) = (bytes.try_get_u8()?, bytes.try_get_u64_ne()?, bytes.try_get_u64_ne()?);
            let (length, path_length) = (bytes.try_get_u64_ne()?, bytes.try_get_u32_ne()?);
            let mut take = |length: usize| {
                let whole = bytes.len() >= length;
                whole.then(|| bytes.split_to(length)).context("the trace ends within an operation")
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
        Ok(Self { operations })
    }

    /// Returns how many syncs were done, failed ones included.
    pub fn syncs(&self) -> usize {
        let is_sync = |action: &Action| matches!(action, Action::Sync | Action::SyncFailed);
        self.operations.iter().filter(|operation| is_sync(&operation.action)).count()
    }

    /// Returns the trace of a program that had not done these syncs.
    pub fn without_syncs(mut self, of: impl Fn(&str) -> bool) -> Self {
        self.operations.retain(|operation| operation.action != Action::Sync || !of(&operation.path));
        self
    }
}
