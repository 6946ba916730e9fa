//! Snapshot files, which tests compare with and rewrite with `UPDATE_EXPECT=1`.

use std::{env, fs, path::Path};

/// Compares bytes with a file of the package.
#[track_caller]
pub(crate) fn assert_bytes(file: &str, found: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if fs::read(&path).unwrap_or_default() == found {
        return;
    }
    if updates() {
        return fs::write(&path, found).unwrap();
    }
    panic!("{file} is out of date: run the tests with UPDATE_EXPECT=1 and review the diff");
}

/// Returns whether snapshot files are to be rewritten.
pub(crate) fn updates() -> bool {
    env::var_os("UPDATE_EXPECT").is_some()
}
