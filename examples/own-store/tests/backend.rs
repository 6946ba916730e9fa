//! Runs the suite of backends on that of the example, over a disk that can fail.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    fs::{self, OpenOptions},
    io,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use own_store::{RedbBackend, RedbSnapshot};
use platform_engine::store::StoreError;
use platform_store_kv::{Backend, backend::Change};
use platform_testkit::backend::{self, BackendSuite};
use redb::{StorageBackend, backends::FileBackend};

/// Whether the disk fails.
#[derive(Debug, Default)]
struct Faults {
    writes: AtomicBool,
    reads: AtomicBool,
}

fn check(is_failing: &AtomicBool) -> io::Result<()> {
    if is_failing.load(Ordering::Acquire) { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
}

/// The file of a database.
#[derive(Debug)]
struct FailingFile {
    file: FileBackend,
    faults: Arc<Faults>,
}

impl StorageBackend for FailingFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        check(&self.faults.reads)?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        check(&self.faults.writes)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        check(&self.faults.writes)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check(&self.faults.writes)?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// The backend of the example, over such a file.
#[derive(Debug)]
struct Failing {
    backend: RedbBackend,
    faults: Arc<Faults>,
}

impl Failing {
    fn open(directory: &Path) -> Result<Self, StoreError> {
        let faults = Arc::new(Faults::default());
        let backend = RedbBackend::open_with(&directory.join("store"), |builder, path| {
            let file = FileBackend::new(OpenOptions::new().read(true).write(true).open(path)?)?;
            builder.create_with_backend(FailingFile { file, faults: Arc::clone(&faults) })
        })?;
        Ok(Self { backend, faults })
    }
}

impl Backend for Failing {
    const MAX_KEY: usize = RedbBackend::MAX_KEY;
    const MAX_VALUE: usize = RedbBackend::MAX_VALUE;
    type Snapshot = RedbSnapshot;

    fn snapshot(&self) -> Result<RedbSnapshot, StoreError> {
        self.backend.snapshot()
    }

    fn write<'b>(&self, batch: impl Iterator<Item = Change<'b>>, sync: bool) -> Result<(), StoreError> {
        self.backend.write(batch, sync)
    }
}

fn main() -> ExitCode {
    let suite = BackendSuite::new(Failing::open)
        .failing_writes(|backend: &Failing| backend.faults.writes.store(true, Ordering::Release))
        .failing_reads(|backend: &Failing| backend.faults.reads.store(true, Ordering::Release))
        .other_format(|directory| fs::write(directory.join("store/format"), "redb 2").unwrap());
    backend::main(suite.with_variables(|name| std::env::var(name).ok()))
}
