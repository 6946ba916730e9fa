//! Acknowledged writes survive power cuts at any moment, and a failed sync is not acknowledged as a success.
//!
//! ```text
//! cargo test -p power-cuts                                       1,000 cuts of each subject
//! POWER_CUTS=100000 cargo test --release -p power-cuts -- sled   another number of cuts
//! POWER_SEED=7 cargo test -p power-cuts                          reproducible random choices
//! ```
//!
//! A seed makes the choices of cuts reproducible, but not the scheduling of the workload's threads. The directory of a
//! failure is not deleted, and its path is printed.

#![cfg(recorder)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "that is how tests fail")]

use std::path::Path;

use power_cuts::{Action, Disk, Fate, Recording, Subject, run, verify};

fn record(subject: Subject, failing_sync: Option<u64>) -> Recording {
    run(Path::new(env!("CARGO_BIN_EXE_workload")), subject, failing_sync).unwrap()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Simulates many power cuts and returns the first violation.
///
/// Half of the cuts are just before a sync, where the most data is pending, and the others at random moments.
fn cut(subject: Subject, recording: &Recording) -> Result<(), String> {
    let seed = number("POWER_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut rng = fastrand::Rng::with_seed(seed);
    let operations = &recording.trace.operations;
    let is_sync = |at: &usize| operations.get(*at).is_some_and(|operation| operation.action == Action::Sync);
    let syncs: Vec<_> = (0..operations.len()).filter(is_sync).collect();
    let cuts = number("POWER_CUTS").unwrap_or(1_000);
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
        let mut home = tempfile::Builder::new().prefix("power-cut-").tempdir().unwrap();
        disk.after_cut(fate, &mut rng, home.path()).unwrap();
        if let Err(error) = verify(subject, home.path(), &recording.ran, end) {
            home.disable_cleanup(true);
            let path = home.path().display();
            return Err(format!("POWER_SEED={seed}, before operation {moment}, {fate:?}, {path}: {error:#}"));
        }
    }
    Ok(())
}

fn survives_power_cuts(subject: Subject) {
    let recording = record(subject, None);
    assert_eq!(recording.ran.errors, [""; 0]);
    assert!(recording.ran.acknowledged.len() > 10);
    cut(subject, &recording).unwrap();
}

#[test]
fn acknowledged_commits_of_sqlite_survive_power_cuts() {
    survives_power_cuts(Subject::Sqlite);
}

#[test]
fn acknowledged_commits_of_sled_survive_power_cuts() {
    survives_power_cuts(Subject::Sled);
}

#[test]
fn acknowledged_files_of_the_data_directory_survive_power_cuts() {
    survives_power_cuts(Subject::DataDirectory);
}

/// Runs the workload once for each of its syncs, and makes this sync fail and lose the data that was pending.
fn reports_failed_syncs(subject: Subject) {
    let syncs = record(subject, None).trace.syncs() as u64;
    for failing in 1..=syncs {
        let Recording { trace, ran } = record(subject, Some(failing));
        let Some(end) = trace.operations.last().map(|operation| operation.end) else { continue };
        let mut disk = Disk::default();
        trace.operations.iter().for_each(|operation| disk.apply(operation).unwrap());
        let home = tempfile::tempdir().unwrap();
        disk.after_cut(Fate::Dropped, &mut fastrand::Rng::with_seed(0), home.path()).unwrap();
        verify(subject, home.path(), &ran, end).unwrap_or_else(|error| {
            panic!("sync {failing} of {syncs} failed; errors reported: {:?}: {error:#}", ran.errors)
        });
    }
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
fn the_data_directory_does_not_acknowledge_files_that_a_failed_sync_lost() {
    reports_failed_syncs(Subject::DataDirectory);
}

// The following tests show that those above can detect lost writes: their programs omit a sync.

#[test]
fn sqlite_without_a_sync_for_each_commit_loses_acknowledged_commits() {
    let recording = record(Subject::SqliteNormal, None);
    assert!(cut(Subject::SqliteNormal, &recording).unwrap_err().contains("was acknowledged"));
}

fn cut_without_syncs(subject: Subject, of: impl Fn(&str) -> bool) -> Result<(), String> {
    let Recording { trace, ran } = record(subject, None);
    cut(subject, &Recording { trace: trace.without_syncs(of), ran })
}

#[test]
fn sled_without_the_additional_sync_of_its_log_loses_acknowledged_commits() {
    cut_without_syncs(Subject::Sled, |path| path == "store/db").unwrap_err();
}

#[test]
fn key_files_that_are_renamed_before_they_are_synced_are_lost() {
    cut_without_syncs(Subject::DataDirectory, |path| path.starts_with("data/")).unwrap_err();
}
