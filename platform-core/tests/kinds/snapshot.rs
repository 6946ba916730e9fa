//! Committed files for reviewers, which tests compare with newly generated ones. The tests of other crates include this
//! file too.
//!
//! The failure shows only the first line that differs, because a diff of the OpenAPI document is too long to be read.

use std::{env, fs, path::Path};

/// Compares a file of the package with its generated content, or writes it if the environment has `UPDATE_EXPECT=1`.
#[track_caller]
pub(crate) fn assert_snapshot(file: &str, found: impl AsRef<[u8]>) {
    let (path, found) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(file), found.as_ref());
    if updates() {
        return fs::write(&path, found).expect("the file is writable");
    }
    let expected = fs::read(&path).unwrap_or_default();
    if expected == found {
        return;
    }
    let (Ok(expected), Ok(found)) = (str::from_utf8(&expected), str::from_utf8(found)) else {
        panic!("{file} is out of date; UPDATE_EXPECT=1 accepts the new content");
    };
    let line = expected.lines().zip(found.lines()).take_while(|(expected, found)| expected == found).count();
    let shown = |text: &str| text.lines().nth(line).unwrap_or("(the end of the file)").to_owned();
    let (expected, found) = (shown(expected), shown(found));
    panic!("{file}, line {}:\n  is    {expected}\n  found {found}\nUPDATE_EXPECT=1 accepts it", line + 1);
}

/// Returns whether snapshots are to be written.
pub(crate) fn updates() -> bool {
    env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1")
}
