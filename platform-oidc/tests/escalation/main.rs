//! A random walk over every operation that grants access: no caller ever holds a capability that was not granted to
//! them.
//!
//! ```text
//! cargo test -p platform-oidc --test escalation
//! ESCALATION_STEPS=1000000 ESCALATION_SEED=7 cargo test --release -p platform-oidc --test escalation
//! ESCALATION_WORLD=7:3,15,40 cargo test -p platform-oidc --test escalation
//! ```
//!
//! The last command repeats some steps of one world, as a failure prints them.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test that cannot go on fails"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../sts/fixture.rs"]
#[allow(dead_code, reason = "shared with the tests of the token service")]
mod fixture;
#[path = "../../../platform-core/tests/kinds/guarded.rs"]
mod guarded;
mod oracle;
mod walk;

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use walk::{Statistics, World};

/// The number of steps in a world: few enough to keep it small, and enough for late steps to use the results of early
/// ones.
const STEPS: u64 = 120;

/// Runs these steps in a new world; returns the statistics, or a description of the failure.
fn run(seed: u64, steps: &[u64]) -> Result<Statistics, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed).await;
        for step in steps {
            world.step(seed, *step).await.map_err(|why| format!("{why}\n{}", world.log.join("\n")))?;
        }
        Ok(world.statistics)
    })
}

/// Removes every step that is not needed to reproduce a failure.
fn shrink(seed: u64, mut steps: Vec<u64>) -> Vec<u64> {
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let without: Vec<_> =
            steps.iter().copied().enumerate().filter(|(n, _)| *n != at).map(|(_, step)| step).collect();
        if run(seed, &without).is_err() {
            steps = without;
        }
    }
    steps
}

fn fail(seed: u64, steps: Vec<u64>) -> ! {
    let steps = shrink(seed, steps);
    let why = run(seed, &steps).unwrap_err();
    let named: Vec<_> = steps.iter().map(u64::to_string).collect();
    panic!("ESCALATION_WORLD={seed}:{} repeats this: {why}", named.join(","));
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

#[test]
fn no_caller_holds_a_capability_that_was_not_granted() {
    if let Ok(world) = env::var("ESCALATION_WORLD") {
        let (seed, steps) = world.split_once(':').expect("a seed, a colon and steps");
        let steps: Vec<_> = steps.split(',').map(|step| step.parse().unwrap()).collect();
        let seed = seed.parse().unwrap();
        run(seed, &steps).unwrap_or_else(|why| panic!("{why}"));
        return;
    }
    let worlds = number("ESCALATION_STEPS", 20_000).div_ceil(STEPS);
    let first = number("ESCALATION_SEED", 1);
    let next = AtomicU64::new(0);
    let walk = || {
        let mut statistics = Statistics::default();
        loop {
            let world = next.fetch_add(1, Ordering::SeqCst);
            if world >= worlds {
                return statistics;
            }
            let (seed, steps): (_, Vec<_>) = (first.wrapping_add(world), (0..STEPS).collect());
            match run(seed, &steps) {
                Ok(of_world) => statistics.add(&of_world),
                Err(_) => fail(seed, steps),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut statistics = Statistics::default();
    thread::scope(|scope| {
        let walks: Vec<_> = (0..threads).map(|_| scope.spawn(walk)).collect();
        for walk in walks {
            match walk.join() {
                Ok(of_thread) => statistics.add(&of_thread),
                Err(why) => std::panic::resume_unwind(why),
            }
        }
    });
    println!("{statistics}");
    // Each attack must have succeeded and failed at least once.
    if worlds * STEPS >= 20_000 {
        statistics.assert_all_attacks();
    }
}
