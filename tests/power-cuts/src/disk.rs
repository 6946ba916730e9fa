//! A simulated disk with a volatile write cache, which distinguishes durable data from pending operations.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;

use crate::trace::{Action, Operation};

/// The unit that a disk writes atomically, in bytes.
const SECTOR: usize = 512;

/// A directory with its files, and the part of them that is durable.
#[derive(Debug)]
pub struct Disk {
    /// Files and directories. Number 0 is the root directory. Removed ones stay, because they may survive a power cut.
    nodes: Vec<Node>,
    /// The file that each inode number belongs to at this point of the trace.
    inodes: HashMap<u64, usize>,
}

#[derive(Debug)]
enum Node {
    File {
        /// The content as of the last sync.
        durable: Vec<u8>,
        /// The operations since then.
        pending: Vec<Change>,
    },
    Directory {
        /// The current names.
        names: BTreeMap<String, usize>,
        /// The names as of the last sync.
        durable: BTreeMap<String, usize>,
        /// The operations since then.
        pending: Vec<Naming>,
    },
}

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Bytes),
    Truncate(u64),
}

/// A change of the names in one directory. File systems apply such changes atomically and in order.
#[derive(Debug, Clone)]
enum Naming {
    Set(String, usize),
    Remove(String),
    Rename(String, String, usize),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Set(name, node) => drop(names.insert(name.clone(), *node)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to, node) => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// The fate of pending operations in a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// All are lost.
    Dropped,
    /// All survive.
    Kept,
    /// For each file, a random prefix survives, and the operation after it is torn.
    InOrder,
    /// A random subset survives; some of these are torn.
    AnyOrder,
    /// For each file, all but one random operation survive.
    AllButOne,
}

impl Fate {
    /// All fates.
    pub const ALL: [Self; 5] = [Self::Dropped, Self::Kept, Self::InOrder, Self::AnyOrder, Self::AllButOne];
}

impl Default for Disk {
    fn default() -> Self {
        let root = Node::Directory { names: BTreeMap::new(), durable: BTreeMap::new(), pending: Vec::new() };
        Self { nodes: vec![root], inodes: HashMap::new() }
    }
}

impl Disk {
    /// Applies an operation.
    ///
    /// # Errors
    /// If the operation contradicts the earlier ones.
    pub fn apply(&mut self, operation: &Operation) -> Result<()> {
        let Operation { inode, path, action, .. } = operation;
        match action {
            Action::Create => {
                let node = self.add(Node::File { durable: Vec::new(), pending: Vec::new() });
                self.inodes.insert(*inode, node);
                self.rename(path, |name| Naming::Set(name, node))
            }
            Action::CreateDirectory => {
                let empty = Node::Directory { names: BTreeMap::new(), durable: BTreeMap::new(), pending: Vec::new() };
                let node = self.add(empty);
                self.rename(path, |name| Naming::Set(name, node))
            }
            Action::Write(offset, bytes) => self.change(*inode, Change::Write(*offset, bytes.clone())),
            Action::Truncate(length) => self.change(*inode, Change::Truncate(*length)),
            Action::Rename(to) => {
                let node = self.find(path)?;
                ensure!(split(path).0 == split(to).0, "moving `{path}` to another directory, `{to}`, is not supported");
                self.rename(path, |name| Naming::Rename(name, split(to).1.to_owned(), node))
            }
            Action::Link(to) => {
                let node = self.find(path)?;
                self.rename(to, |name| Naming::Set(name, node))
            }
            Action::Unlink | Action::RemoveDirectory => self.rename(path, Naming::Remove),
            Action::Sync | Action::SyncFailed => self.sync(*inode, path, *action == Action::Sync),
        }
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn find(&self, path: &str) -> Result<usize> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(0, |node, name| match self.nodes.get(node) {
            Some(Node::Directory { names, .. }) => {
                names.get(name).copied().with_context(|| format!("`{path}` does not exist"))
            }
            _ => bail!("`{path}` is not in a directory"),
        })
    }

    fn rename(&mut self, path: &str, naming: impl FnOnce(String) -> Naming) -> Result<()> {
        let (directory, name) = split(path);
        let node = self.find(directory)?;
        let Some(Node::Directory { names, pending, .. }) = self.nodes.get_mut(node) else {
            bail!("`{directory}` is not a directory");
        };
        let naming = naming(name.to_owned());
        naming.apply(names);
        pending.push(naming);
        Ok(())
    }

    fn change(&mut self, inode: u64, change: Change) -> Result<()> {
        let node = self.inodes.get(&inode).and_then(|node| self.nodes.get_mut(*node));
        let Some(Node::File { pending, .. }) = node else { bail!("a write to a file that was not created") };
        pending.push(change);
        Ok(())
    }

    /// Makes pending operations durable, or, if the sync failed, drops them: the system does not retry failed writes.
    fn sync(&mut self, inode: u64, path: &str, succeeded: bool) -> Result<()> {
        let node = match self.find(path) {
            Ok(node) if matches!(self.nodes.get(node), Some(Node::Directory { .. })) => node,
            _ => *self.inodes.get(&inode).with_context(|| format!("a sync of `{path}`, which does not exist"))?,
        };
        match self.nodes.get_mut(node).context("no such file")? {
            Node::File { durable, pending } => {
                let changes = std::mem::take(pending);
                changes.iter().filter(|_| succeeded).for_each(|change| change.apply(durable));
            }
            Node::Directory { durable, pending, .. } => {
                let changes = std::mem::take(pending);
                changes.iter().filter(|_| succeeded).for_each(|change| change.apply(durable));
            }
        }
        Ok(())
    }

    /// Builds, in the empty directory `to`, the directory as it can be found after a power cut.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn after_cut(&self, fate: Fate, rng: &mut fastrand::Rng, to: &Path) -> Result<()> {
        self.build(0, fate, rng, to)
    }

    fn build(&self, node: usize, fate: Fate, rng: &mut fastrand::Rng, to: &Path) -> Result<()> {
        match self.nodes.get(node).context("no such file")? {
            Node::File { durable, pending } => {
                let mut content = durable.clone();
                survivors(pending, fate, rng, |change, torn, rng| {
                    if torn { change.apply_torn(&mut content, rng) } else { change.apply(&mut content) }
                });
                fs::write(to, content)?;
                fs::set_permissions(to, fs::Permissions::from_mode(0o600))?;
            }
            Node::Directory { durable, pending, .. } => {
                let mut names = durable.clone();
                // Journaling file systems keep the order of metadata operations.
                let (fate, of_names) = match fate {
                    Fate::AnyOrder => (Fate::InOrder, Fate::InOrder),
                    Fate::AllButOne => (fate, Fate::Kept),
                    _ => (fate, fate),
                };
                survivors(pending, of_names, rng, |naming, torn, _| {
                    if !torn {
                        naming.apply(&mut names);
                    }
                });
                if !to.is_dir() {
                    fs::create_dir(to)?;
                }
                for (name, node) in names {
                    self.build(node, fate_of(fate, rng), rng, &to.join(name))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns a fate for a file in a directory. Names and contents do not have to survive together.
fn fate_of(directory: Fate, rng: &mut fastrand::Rng) -> Fate {
    match directory {
        Fate::InOrder => *rng.choice(&Fate::ALL).unwrap_or(&directory),
        _ => directory,
    }
}

/// Calls the function with each pending operation that survives, and whether it is torn.
fn survivors<T>(
    pending: &[T],
    fate: Fate,
    rng: &mut fastrand::Rng,
    mut survivor: impl FnMut(&T, bool, &mut fastrand::Rng),
) {
    match fate {
        Fate::Dropped => {}
        Fate::Kept => pending.iter().for_each(|operation| survivor(operation, false, rng)),
        Fate::InOrder => {
            let complete = rng.usize(..=pending.len());
            for (index, operation) in pending.iter().enumerate().take(complete + 1) {
                survivor(operation, index == complete, rng);
            }
        }
        Fate::AllButOne => {
            let lost = rng.usize(..=pending.len().saturating_sub(1));
            for (index, operation) in pending.iter().enumerate() {
                if index != lost {
                    survivor(operation, false, rng);
                }
            }
        }
        Fate::AnyOrder => {
            for operation in pending {
                if rng.bool() {
                    let torn = rng.u8(..4) == 0;
                    survivor(operation, torn, rng);
                }
            }
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Truncate(length) => content.resize(*length as usize, 0),
            Self::Write(offset, bytes) => write_at(content, *offset as usize, bytes),
        }
    }

    /// Writes a random subset of the sectors. A torn change of the length has no effect.
    fn apply_torn(&self, content: &mut Vec<u8>, rng: &mut fastrand::Rng) {
        let Self::Write(offset, bytes) = self else { return };
        let (mut offset, mut rest) = (*offset as usize, &bytes[..]);
        while !rest.is_empty() {
            let (sector, after) = rest.split_at(rest.len().min(SECTOR - offset % SECTOR));
            if rng.bool() {
                write_at(content, offset, sector);
            }
            offset += sector.len();
            rest = after;
        }
    }
}

fn write_at(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(range) = content.get_mut(offset..end) {
        range.copy_from_slice(bytes);
    }
}

/// Splits a path into its directory and its name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
