//! The suite of backends finds backends that break one rule, by a case of that rule.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "these are tests")]

mod log;

use std::{
    collections::BTreeSet,
    env,
    path::Path,
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Trial};
use log::{Fault, LogBackend};
use platform_testkit::backend::{self, BackendSuite};

/// The variable with the fault of a process that a case has started.
const FAULT: &str = "PLATFORM_TESTKIT_FAULT";

/// Faults, and a case that finds each.
const FAULTS: &[(Fault, &str)] = &[
    (Fault::LiveRange, "snapshot::a_later_batch_does_not_change_it"),
    (Fault::LiveRange, "snapshot::it_is_of_one_state_of_all_spaces_while_batches_are_written"),
    (Fault::StaleSnapshot, "snapshot::it_has_the_last_batch_that_was_written"),
    (Fault::ClosedWithBackend, "open::a_range_goes_on_when_the_backend_is_dropped_in_it"),
    (Fault::ClosedWithBackend, "open::a_snapshot_outlives_the_backend"),
    (Fault::ErrorIsEnd, "read_errors::an_error_is_never_the_end_of_a_range"),
    (Fault::ErrorIsMissing, "read_errors::an_error_is_never_a_missing_key"),
    (Fault::KeyCutOff, "keys::keys_have_any_length_up_to_the_greatest"),
    (Fault::EmptyValueDeletes, "keys::values_have_any_length_up_to_the_greatest"),
    (Fault::DescendingOffByOne, "ranges::they_have_the_keys_between_all_bounds_in_both_directions"),
    (Fault::InclusiveUpperBound, "ranges::the_lower_bound_is_inclusive_and_the_upper_bound_exclusive"),
    (Fault::ExclusiveLowerBound, "ranges::the_lower_bound_is_inclusive_and_the_upper_bound_exclusive"),
    (Fault::EmptyBound, "ranges::they_have_the_keys_between_all_bounds_in_both_directions"),
    (Fault::IgnoredBreak, "ranges::they_end_when_the_caller_breaks"),
    (Fault::SharedSpaces, "ranges::they_have_the_keys_of_their_space_alone"),
    (Fault::MissingSpace, "batch::spaces_that_were_never_written_are_empty"),
    (Fault::DeleteOfMissing, "batch::keys_that_do_not_exist_can_be_deleted"),
    (Fault::HalfBatch, "batch::a_killed_process_leaves_no_part_of_it"),
    (Fault::NoSync, "durability::a_killed_process_loses_no_synced_batch"),
    (Fault::OnlyLastSynced, "durability::a_synced_batch_makes_earlier_ones_durable_and_others_are_lost_from_the_end"),
    (Fault::ShownBeforeWritten, "group::a_killed_process_loses_no_synced_batch_that_a_snapshot_has_shown"),
    (Fault::FailureIsSuccess, "failed_write::a_failed_write_is_an_error_and_all_of_its_batch_is_written_or_nothing"),
    (Fault::FailureIsSuccess, "failed_write::a_store_writes_no_more_until_it_is_opened_again"),
    (Fault::FullAfterPart, "failed_write::a_failed_write_is_an_error_and_all_of_its_batch_is_written_or_nothing"),
    (Fault::NoLock, "one_process::a_second_opener_in_this_process_is_refused"),
    (Fault::NoLock, "one_process::another_process_is_refused"),
    (Fault::WaitsForLock, "one_process::a_second_opener_in_this_process_is_refused"),
    (Fault::WaitsForLock, "one_process::another_process_is_refused"),
    (Fault::CreatedInPlace, "creation::an_interrupted_creation_leaves_a_directory_that_opens"),
    (Fault::SnapshotsKept, "short_snapshots::files_do_not_grow_with_the_number_of_snapshots"),
    (Fault::OneSnapshot, "threads::a_thread_has_many_snapshots_at_once"),
    (Fault::NoReadInRange, "threads::a_snapshot_is_read_within_a_range_of_it"),
    (Fault::AnyFormat, "format::another_format_is_refused_and_stays"),
    (Fault::DeletedInDescending, "deletes::deleted_keys_do_not_appear_in_either_direction"),
    (Fault::DeletesForgotten, "deletes::deleted_keys_do_not_appear_after_opening_again"),
    (Fault::InclusiveUpperBound, "model::random_batches_and_reads_are_those_of_a_map"),
    (Fault::DeletesForgotten, "model::random_batches_and_reads_are_those_of_a_map"),
];

fn suite(fault: Fault) -> BackendSuite<LogBackend> {
    log::suite(Some(fault)).command(move || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(FAULT, format!("{fault:?}"));
        command
    })
}

fn finds(fault: Fault, case: &'static str) -> Trial {
    Trial::test(format!("{fault:?} is found by {case}"), move || {
        let failures = suite(fault).failures(case);
        if failures.iter().any(|(name, _)| name == case) { Ok(()) } else { Err("the case passes".into()) }
    })
}

fn every_rule_has_a_fault() -> Trial {
    Trial::test("every rule has a fault that is found by one of its cases", || {
        let group = |case: &str| case.split("::").next().unwrap_or_default().to_owned();
        let found: BTreeSet<_> = FAULTS.iter().map(|(_, case)| group(case)).collect();
        let all: BTreeSet<_> = BackendSuite::<LogBackend>::names().iter().map(|case| group(case)).collect();
        if found == all { Ok(()) } else { Err(format!("{found:?} instead of {all:?}").into()) }
    })
}

/// The value of the variable for a suite whose author has supplied no faults.
const UNCHECKED: &str = "unchecked";

fn what_is_not_checked_is_reported() -> Trial {
    Trial::test("cases that need a fault of the author are reported as not checked without it", || {
        let mut command = Command::new(env::current_exe()?);
        let output = command.arg("format").env(FAULT, UNCHECKED).output()?;
        let text = String::from_utf8(output.stdout)?;
        let has = |line: &str| if text.contains(line) { Ok(()) } else { Err(format!("no `{line}` in {text}")) };
        has("NOT RUN: read_errors, for rule 2 of `Backend`: a call of `BackendSuite::failing_reads`")?;
        has("NOT RUN: failed_write, for rule 8 of `Backend`: a call of `BackendSuite::failing_writes`")?;
        has("NOT RUN: format, for rule 13 of `Backend`: a call of `BackendSuite::other_format`")?;
        has("[NOT CHECKED without `BackendSuite::other_format`]")?;
        has("0 passed; 0 failed; 1 ignored")?;
        Ok(())
    })
}

fn main() -> ExitCode {
    if let Ok(name) = env::var(FAULT) {
        if name == UNCHECKED {
            return backend::main(BackendSuite::new(|path: &Path| LogBackend::open(&path.join("store"), None)));
        }
        let (fault, _) = FAULTS.iter().find(|(fault, _)| format!("{fault:?}") == name).unwrap();
        assert!(suite(*fault).run_child());
        return ExitCode::SUCCESS;
    }
    let trials = FAULTS
        .iter()
        .map(|(fault, case)| finds(*fault, case))
        .chain([every_rule_has_a_fault(), what_is_not_checked_is_reported()]);
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
