//! Checks that are not run, because something that they need is missing.

use std::io::{Write, stdout};

/// Prints a line that begins with `NOT RUN`, for a test that returns early because `needs` is not available. Scripts
/// repeat such lines at the end of a run, so that no check is left out in silence.
///
/// Writes to standard output itself: the test harness shows what `println!` prints only of tests that fail. The line
/// before is ended, as the harness may have begun it.
pub fn not_run(check: &str, needs: &str) {
    // A test whose output is closed has no other place to say it.
    let _ = writeln!(stdout(), "\nNOT RUN: {check}: {needs}");
}
