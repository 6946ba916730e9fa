//! Committed text files for reviewers, which tests compare with the generated text.

use std::{env, fs, path::Path};

/// Compares a text with a file in `tests/`, or writes it there if the environment has `UPDATE_EXPECT=1`.
pub(crate) fn assert_snapshot(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    if env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1") {
        fs::write(&path, found).expect("the file is writable");
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let mut lines = expected.lines().zip(found.lines()).enumerate();
    if let Some((line, (expected, found))) = lines.find(|(_, (expected, found))| expected != found) {
        panic!("tests/{file}, line {}:\n  is    {expected}\n  found {found}\nUPDATE_EXPECT=1 accepts it", line + 1);
    }
    let (expected, found) = (expected.lines().count(), found.lines().count());
    assert_eq!(expected, found, "lines of tests/{file}; UPDATE_EXPECT=1 accepts the found text");
}
