//! Random operations, whose every answer must be the model's.

mod operation;
mod random;

use std::time::{Duration, Instant};

use self::{operation::Operation, random::Random};
use super::{super::model::Model, Case, Fixture, cases};

pub(super) const CASES: &[Case] = cases![ten_thousand_random_operations_agree_with_the_model];

/// How long to look for fewer operations that fail as well.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most operations of a failed run that are printed.
const PRINTED: usize = 40;

async fn ten_thousand_random_operations_agree_with_the_model(fixture: &mut Fixture) {
    let (seed, count) = fixture.suite().random;
    let mut random = Random::new(seed);
    let seeds: Vec<u64> = (0..count).map(|_| random.next()).collect();
    let Err(failure) = run(fixture, &seeds).await else { return };
    let failure = shrink(fixture, &seeds, failure).await;
    let from = failure.told.len().saturating_sub(PRINTED);
    let (last, total) = (failure.told[from..].join("\n"), failure.told.len());
    panic!("with seed {seed}, after these operations (the last of {total}):\n{last}\n{}", failure.complaint);
}

/// A run that ended with a wrong answer.
struct Failure {
    /// The operations up to the one that failed.
    told: Vec<String>,
    complaint: String,
}

/// Runs the operations on a new store and a new model. Each is made from its seed and what the model then holds, so
/// that any selection of seeds is a run of its own.
async fn run(fixture: &mut Fixture, seeds: &[u64]) -> Result<(), Failure> {
    let (mut model, mut told) = (Model::default(), Vec::new());
    let mut last = 0;
    for seed in seeds {
        let operation = Operation::random(&mut Random::new(*seed), &model);
        let outcome = operation.check(fixture, &mut model, &mut last).await;
        told.push(format!("{operation:?}"));
        outcome.map_err(|complaint| Failure { told: std::mem::take(&mut told), complaint })?;
    }
    Ok(())
}

/// Leaves out what is not needed for a failure, larger and then smaller runs of operations.
async fn shrink(fixture: &Fixture, seeds: &[u64], mut failure: Failure) -> Failure {
    let begun = Instant::now();
    let mut needed = seeds[..failure.told.len()].to_vec();
    let mut length = needed.len().div_ceil(2);
    while length > 0 {
        let mut start = 0;
        while start < needed.len() && begun.elapsed() < PATIENCE {
            let end = (start + length).min(needed.len());
            let fewer = [&needed[..start], &needed[end..]].concat();
            match run(&mut fixture.another().await, &fewer).await {
                Ok(()) => start = end,
                Err(smaller) => {
                    needed = fewer[..smaller.told.len()].to_vec();
                    failure = smaller;
                }
            }
        }
        length /= 2;
    }
    failure
}
