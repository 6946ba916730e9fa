//! Random operations, of which every result must equal that of the model.

mod operation;
mod random;

use std::time::{Duration, Instant};

use self::{operation::Operation, random::Random};
use super::{Case, Fixture, cases};
use crate::model::Model;

pub(super) const CASES: &[Case] = cases![random_operations_agree_with_the_model];

/// The time limit for shrinking a failure.
const SHRINK_TIME: Duration = Duration::from_secs(20);
/// The maximum number of printed operations of a failed run.
const PRINTED: usize = 40;

async fn random_operations_agree_with_the_model(fixture: &mut Fixture) {
    let (seed, count) = fixture.suite().random;
    let mut random = Random::new(seed);
    let seeds: Vec<u64> = (0..count).map(|_| random.next()).collect();
    let Err(failure) = run(fixture, &seeds).await else { return };
    let failure = shrink(fixture, &seeds, failure).await;
    let from = failure.operations.len().saturating_sub(PRINTED);
    let (last, total) = (failure.operations[from..].join("\n"), failure.operations.len());
    panic!("with seed {seed}, after these operations (the last of {total}):\n{last}\n{}", failure.message);
}

/// Runs random operations on the store, and returns the content that it then has.
pub(super) async fn random_content(fixture: &mut Fixture) -> Model {
    let mut random = Random::new(fixture.suite().random.0);
    let mut model = Model::default();
    for _ in 0..1_000 {
        let operation = Operation::random(&mut random, &model);
        operation.check(fixture, &mut model).await.expect("the result is that of the model");
    }
    model
}

/// A run that ended with a wrong result.
struct Failure {
    /// The operations up to the failed one.
    operations: Vec<String>,
    message: String,
}

/// Runs the operations on a new store and a new model. Each operation derives from its seed and the current content of
/// the model, so that any subset of the seeds is a valid run.
async fn run(fixture: &mut Fixture, seeds: &[u64]) -> Result<(), Failure> {
    let (mut model, mut operations) = (Model::default(), Vec::new());
    for seed in seeds {
        let operation = Operation::random(&mut Random::new(*seed), &model);
        let outcome = operation.check(fixture, &mut model).await;
        operations.push(format!("{operation:?}"));
        outcome.map_err(|message| Failure { operations: std::mem::take(&mut operations), message })?;
    }
    Ok(())
}

/// Removes operations that are not needed for the failure: first long sequences, then shorter ones.
async fn shrink(fixture: &Fixture, seeds: &[u64], mut failure: Failure) -> Failure {
    let started = Instant::now();
    let mut needed = seeds[..failure.operations.len()].to_vec();
    let mut length = needed.len().div_ceil(2);
    while length > 0 {
        let mut start = 0;
        while start < needed.len() && started.elapsed() < SHRINK_TIME {
            let end = (start + length).min(needed.len());
            let fewer = [&needed[..start], &needed[end..]].concat();
            match run(&mut fixture.another().await, &fewer).await {
                Ok(()) => start = end,
                Err(smaller) => {
                    needed = fewer[..smaller.operations.len()].to_vec();
                    failure = smaller;
                }
            }
        }
        length /= 2;
    }
    failure
}
