#!/bin/sh
# redb 4.6.0: dropping a `Database` writes and syncs its last state, and drops the error if that sync fails. There is no
# other way to close one. The next opening succeeds: it repairs the file from what it reads, which the system may still have in
# its cache while the disk has lost it, and later commits build on that.
#
# A program that must notice it wraps the `StorageBackend` and remembers the error of `sync_data`. Needs cargo and crates.io.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
cat > "$work/Cargo.toml" <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2024"
[dependencies]
redb = "=4.6.0"
TOML
cat > "$work/src/main.rs" <<'RUST'
use std::{
    io,
    sync::{Arc, Mutex, atomic::{AtomicBool, AtomicU32, Ordering::SeqCst}},
};

use redb::{Builder, StorageBackend, TableDefinition};

const TABLE: TableDefinition<u64, u64> = TableDefinition::new("t");

/// A file in memory whose syncs fail on request.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<(Mutex<Vec<u8>>, AtomicBool, AtomicU32)>);

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.0.lock().unwrap().len() as u64)
    }
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let at = at as usize;
        out.copy_from_slice(&self.0.0.lock().unwrap()[at..at + out.len()]);
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.0.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
    fn sync_data(&self) -> Result<(), io::Error> {
        if self.0.1.load(SeqCst) {
            self.0.2.fetch_add(1, SeqCst);
            return Err(io::Error::other("the disk is gone"));
        }
        Ok(())
    }
    fn write(&self, at: u64, data: &[u8]) -> Result<(), io::Error> {
        let at = at as usize;
        self.0.0.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn main() {
    let disk = Disk::default();
    let database = Builder::new().create_with_backend(disk.clone()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(TABLE).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    disk.0.1.store(true, SeqCst);
    drop(database);
    let failed = disk.0.2.load(SeqCst);
    disk.0.1.store(false, SeqCst);
    let repaired = Arc::new(AtomicBool::new(false));
    let called = Arc::clone(&repaired);
    let mut builder = Builder::new();
    builder.set_repair_callback(move |_| called.store(true, SeqCst));
    builder.create_with_backend(disk).unwrap();
    println!("failed syncs while it was closed: {failed}; repaired when it was opened: {}", repaired.load(SeqCst));
}
RUST
cd "$work"
cargo build -q
found=$(target/debug/finding)
echo "$found"
[ "$found" = 'failed syncs while it was closed: 1; repaired when it was opened: true' ]
