//! Acknowledged writes survive power cuts at any moment, and a failed sync is not acknowledged as a success.
//!
//! ```text
//! cargo test -p power-cuts                                       200 cuts of each subject
//! POWER_CUTS=100000 cargo test --release -p power-cuts -- sled   another number of cuts, and each sync fails once
//! POWER_SEED=7 cargo test -p power-cuts                          reproducible random choices
//! ```
//!
//! A seed makes the choices of cuts reproducible, but not the scheduling of the workload's threads. A failure prints
//! the path of a directory, which contains the files after the cut (the verification has opened them since) and a
//! recording of the workload. The seed and the recording together reproduce the cut:
//!
//! ```text
//! POWER_SEED=7 POWER_RECORDING=/tmp/power-cut-a1b2c3/recording cargo test -p power-cuts -- commits_of_sled_survive
//! ```

#![cfg(recorder)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

use std::{panic, path::Path};

use power_cuts::{Action, Disk, Fate, Operation, Recording, Subject, run, verify};
use tempfile::TempDir;

fn record(subject: Subject, failing_sync: Option<u64>) -> Recording {
    run(Path::new(env!("CARGO_BIN_EXE_workload")), subject, failing_sync).unwrap()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// A violation after a cut.
struct Violation {
    text: String,
    home: TempDir,
}

impl Violation {
    /// Keeps the files and the recording, so that the cut can be reproduced.
    fn keep(mut self, recording: &Recording) -> String {
        self.home.disable_cleanup(true);
        let directory = self.home.path().join("recording");
        std::fs::create_dir(&directory).unwrap();
        recording.keep(&directory).unwrap();
        self.text
    }
}

/// Simulates many power cuts and returns the first violation.
///
/// Half of the cuts are just before a sync, where the most data is pending, and the others at random moments.
fn cut(subject: Subject, recording: &Recording, cuts: u64) -> Result<(), Violation> {
    let seed = number("POWER_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut rng = fastrand::Rng::with_seed(seed);
    let operations = &recording.trace.operations;
    let is_sync = |at: &usize| operations.get(*at).is_some_and(|operation| operation.action == Action::Sync);
    let syncs: Vec<_> = (0..operations.len()).filter(is_sync).collect();
    let mut moments: Vec<_> = (0..cuts)
        .map(|number| match number % 2 {
            0 if !syncs.is_empty() => *rng.choice(&syncs).unwrap(),
            _ => rng.usize(..=operations.len()),
        })
        .collect();
    moments.sort_unstable();
    let mut disk = Disk::default();
    let (mut done, mut end) = (0, 0);
    for (number, moment) in moments.into_iter().enumerate() {
        for operation in operations.get(done..moment).into_iter().flatten() {
            disk.apply(operation).unwrap();
            end = operation.end;
        }
        done = done.max(moment);
        let fate = *Fate::ALL.get(number % Fate::ALL.len()).unwrap();
        let home = tempfile::Builder::new().prefix("power-cut-").tempdir().unwrap();
        disk.after_cut(fate, &mut rng, home.path()).unwrap();
        if let Err(error) = verify(subject, home.path(), &recording.ran, end) {
            let path = home.path().display();
            let text = format!("POWER_SEED={seed}, before operation {moment}, {fate:?}, {path}: {error:#}");
            return Err(Violation { text, home });
        }
    }
    Ok(())
}

fn survives_power_cuts(subject: Subject) {
    let kept = std::env::var_os("POWER_RECORDING").map(|directory| Recording::read(Path::new(&directory)).unwrap());
    let recording = kept.unwrap_or_else(|| record(subject, None));
    assert_eq!(recording.ran.errors, [""; 0]);
    assert!(recording.ran.acknowledged.len() > 10);
    if let Err(violation) = cut(subject, &recording, number("POWER_CUTS").unwrap_or(100)) {
        panic!("{}", violation.keep(&recording));
    }
}

#[test]
fn acknowledged_commits_of_sqlite_survive_power_cuts() {
    survives_power_cuts(Subject::Sqlite);
}

/// Cuts are also in the middle of folds.
#[test]
fn acknowledged_commits_of_sqlite_survive_power_cuts_during_folds() {
    survives_power_cuts(Subject::SqliteFolds);
}

#[test]
fn acknowledged_commits_of_sled_survive_power_cuts() {
    survives_power_cuts(Subject::Sled);
}

#[test]
fn acknowledged_long_commits_of_sled_survive_power_cuts() {
    survives_power_cuts(Subject::SledLong);
}

#[test]
fn acknowledged_commits_of_redb_survive_power_cuts() {
    survives_power_cuts(Subject::Redb);
}

/// sled assumes that the position in a segment header is durable, and drops its whole log if the segment of that
/// position is missing. So a header must be synced before sled writes one with a later position.
#[test]
fn sled_writes_a_segment_header_with_a_new_position_only_after_a_sync() {
    const SEGMENT_LEN: u64 = 512 * 1024;
    for subject in [Subject::Sled, Subject::SledLong, Subject::SledLoad] {
        let trace = record(subject, None).trace;
        let is_blob = |operation: &Operation| {
            matches!(operation.action, Action::Create | Action::Write(..)) && operation.path.starts_with("store/blobs/")
        };
        assert!(!trace.operations.iter().any(is_blob), "{subject}");
        let is_of_log = |operation: &&Operation| operation.path == "store/db";
        let log: Vec<_> = trace.operations.iter().filter(is_of_log).collect();
        let position = |operation: &&Operation| match &operation.action {
            Action::Write(at, bytes) if at.is_multiple_of(SEGMENT_LEN) && bytes.iter().any(|byte| *byte != 0) => {
                bytes.get(12..20).map(<[u8]>::to_vec)
            }
            _ => None,
        };
        let mut headers = 0;
        for unsynced in log.split(|operation| operation.action == Action::Sync) {
            let mut positions: Vec<_> = unsynced.iter().filter_map(position).collect();
            headers += positions.len();
            positions.dedup();
            assert!(positions.len() <= 1, "{subject}: {} headers with different positions", positions.len());
        }
        assert!(headers > 5, "{subject}: {headers} segment headers were written");
    }
}

#[test]
fn acknowledged_files_of_the_data_directory_survive_power_cuts() {
    survives_power_cuts(Subject::DataDirectory);
}

#[test]
fn acknowledged_blobs_survive_power_cuts() {
    survives_power_cuts(Subject::Blobs);
}

/// Runs the workload once for every sixth of its syncs, or for each with `POWER_CUTS`, and makes this sync fail and lose the
/// data that was pending.
fn reports_failed_syncs(subject: Subject) {
    let syncs = record(subject, None).trace.syncs() as u64;
    let step = if number("POWER_CUTS").is_some() { 1 } else { 6 };
    let mut tried = 0;
    for failing in (1 + fastrand::u64(..step)..=syncs).step_by(step as usize) {
        let recording = record(subject, Some(failing));
        let Recording { trace, ran } = &recording;
        // redb 4.6 drops the error of a sync that fails while it closes its file. The workload opens the file again, and builds
        // on what only the cache of the system has.
        if subject == Subject::Redb && ran.errors.is_empty() {
            continue;
        }
        tried += 1;
        let Some(end) = trace.operations.last().map(|operation| operation.end) else { continue };
        let mut disk = Disk::default();
        trace.operations.iter().for_each(|operation| disk.apply(operation).unwrap());
        let home = tempfile::tempdir().unwrap();
        disk.after_cut(Fate::Dropped, &mut fastrand::Rng::with_seed(0), home.path()).unwrap();
        // redb 4.6 can panic when it opens a file that lacks some of its writes.
        let verified = panic::catch_unwind(|| verify(subject, home.path(), ran, end));
        if let Err(error) = verified.unwrap_or_else(|_| Err(anyhow::anyhow!("the store panicked"))) {
            let (errors, path) = (&ran.errors, home.path().display());
            let text = format!("sync {failing} of {syncs} failed; errors reported: {errors:?}; {path}: {error:#}");
            panic!("{}", Violation { text, home }.keep(&recording));
        }
    }
    assert!(tried > 0, "{subject}: no sync failed");
}

#[test]
fn sqlite_does_not_acknowledge_commits_that_a_failed_sync_lost() {
    reports_failed_syncs(Subject::Sqlite);
}

#[test]
fn sled_does_not_acknowledge_commits_that_a_failed_sync_lost() {
    reports_failed_syncs(Subject::Sled);
}

#[test]
fn redb_does_not_acknowledge_commits_that_a_failed_sync_lost() {
    reports_failed_syncs(Subject::Redb);
}

#[test]
fn the_data_directory_does_not_acknowledge_files_that_a_failed_sync_lost() {
    reports_failed_syncs(Subject::DataDirectory);
}

#[test]
fn the_directory_does_not_acknowledge_blobs_that_a_failed_sync_lost() {
    reports_failed_syncs(Subject::Blobs);
}

// The following tests show that those above can detect lost writes: their programs omit a sync.

/// The number of cuts that lose a write with near certainty.
const ENOUGH: u64 = 1_000;

#[test]
fn sqlite_without_a_sync_for_each_commit_loses_acknowledged_commits() {
    let recording = record(Subject::SqliteNormal, None);
    let violation = cut(Subject::SqliteNormal, &recording, ENOUGH).map_err(|violation| violation.text);
    assert!(violation.is_err_and(|text| text.contains("was acknowledged")));
}

fn loses_writes_without_syncs(subject: Subject, of: impl Fn(&str) -> bool) -> bool {
    let Recording { trace, ran } = record(subject, None);
    let recording = Recording { trace: trace.without_syncs(of), ran };
    // redb 4.6 can panic when it opens a file that lacks some of its writes.
    let cut = panic::catch_unwind(|| cut(subject, &recording, ENOUGH));
    cut.is_err() || cut.is_ok_and(|cut| cut.is_err())
}

#[test]
fn sled_without_the_additional_sync_of_its_log_loses_acknowledged_commits() {
    assert!(loses_writes_without_syncs(Subject::Sled, |path| path == "store/db"));
}

#[test]
fn redb_without_its_syncs_loses_acknowledged_commits() {
    assert!(loses_writes_without_syncs(Subject::Redb, |path| path == "store/data"));
}

/// redb syncs neither the directory of its file nor the name of that directory.
#[test]
fn a_store_over_redb_whose_creation_is_not_synced_is_lost() {
    assert!(loses_writes_without_syncs(Subject::Redb, |path| path != "store/data"));
}

#[test]
fn key_files_that_are_renamed_before_they_are_synced_are_lost() {
    assert!(loses_writes_without_syncs(Subject::DataDirectory, |path| path.starts_with("data/")));
}

#[test]
fn blobs_that_are_renamed_before_they_are_synced_are_lost() {
    assert!(loses_writes_without_syncs(Subject::Blobs, |path| path.starts_with("blobs/")));
}
