//! Rule 11: many short snapshots keep nothing.

use std::{fs, io, path::Path};

use platform_store_kv::{Backend, backend::Space};

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, failed, get, is, put, snapshot, write},
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![files_do_not_grow_with_the_number_of_snapshots]
}

/// The growth that counts as none, as libraries write in pieces of some size.
const ALLOWED: u64 = 4 << 20;

/// Returns the length of all files, some of which may be deleted at the same time.
fn size(directory: &Path) -> io::Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        size += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => self::size(&entry.path())?,
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(size)
}

/// Replaces the same keys again and again, and returns the size of the files before the backend is closed.
fn replace<B: Backend>(fixture: &Fixture<'_, B>, snapshots: usize) -> Result<u64, String> {
    let backend = fixture.open()?;
    for round in 0..200_u8 {
        let keys = (0..50_u8).map(|key| put(Space::Nodes, [key], vec![round; 2_000]));
        write(&backend, &keys.collect::<Vec<_>>(), round % 10 == 0)?;
        for _ in 0..snapshots {
            let found = get(&snapshot(&backend)?, Space::Nodes, &[7])?;
            is("a value that was just written", &found.and_then(|value| value.first().copied()), &Some(round))?;
        }
    }
    size(fixture.directory()).map_err(|error| failed("the files of the backend", error))
}

fn files_do_not_grow_with_the_number_of_snapshots<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    let (with, without) = (replace(fixture, 10)?, replace(&Fixture::new(fixture.suite)?, 0)?);
    if with <= 2 * without + ALLOWED {
        return Ok(());
    }
    Err(format!("the files have {with} bytes after 200 batches and 2,000 short snapshots, and {without} without these"))
}
