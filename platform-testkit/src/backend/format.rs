//! Rule 13: a store of another format is refused, and stays as it is.

use std::{collections::BTreeMap, fs, io, path::Path};

use platform_store_kv::Backend;

use super::{
    Case, Outcome, cases,
    fixture::{Fixture, failed, is, write},
    numbered,
};

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    cases![another_format_is_refused_and_stays]
}

/// Reads all files but those with locks, which every opener may write.
fn files(directory: &Path, found: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.display().to_string();
        if path.is_dir() {
            files(&path, found)?;
        } else if !name.contains("lock") {
            found.insert(name, fs::read(&path)?);
        }
    }
    Ok(())
}

fn another_format_is_refused_and_stays<B: Backend>(fixture: &Fixture<'_, B>) -> Outcome {
    write(&fixture.open()?, &numbered::batch(1), true)?;
    fixture.suite.other_format.iter().for_each(|change| change(fixture.directory()));
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    files(fixture.directory(), &mut before).map_err(|error| failed("the files of the backend", error))?;
    for _ in 0..2 {
        is("whether files of another format open", &fixture.open().is_ok(), &false)?;
    }
    files(fixture.directory(), &mut after).map_err(|error| failed("the files of the backend", error))?;
    is("whether files of another format stay as they are", &(before == after), &true)
}
