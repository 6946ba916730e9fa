//! Simulates how Citus spreads organizations of very different sizes over nodes. Deterministic; needs no database.
//!
//! ```sh
//! cargo run --release -p platform-store-postgres --features testing --example citus_shards
//! ```
//!
//! The organizations have the sizes of a Zipf distribution: the n-th largest has a weight of 1 / n^s. Each is assigned
//! to a shard by the hash that Citus uses, and the shards to nodes in turn, as Citus does it. Requests are in proportion
//! to sizes.

#![allow(clippy::print_stdout, clippy::indexing_slicing, clippy::cast_precision_loss, reason = "a simulation")]

use std::env;

use platform_store_postgres::testing::shards::{organization, shard};

/// The number of organizations.
const ORGANIZATIONS: u64 = 100_000;
/// The requests of one second, of which the busiest node is shown.
const REQUESTS: usize = 100_000;
/// The organizations that get shards of their own, placed on the node with the least load.
const ISOLATED: usize = 20;

fn main() {
    let seed = env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let orgs: Vec<i64> =
        (0..ORGANIZATIONS).map(|number| organization(&format!("{:016x}", random(seed, number)))).collect();
    println!("{ORGANIZATIONS} organizations, seed {seed}; load of the busiest node (or shard) / mean\n");
    println!("| skew s | largest | nodes | shards | node | node, in one second | shard | node, {ISOLATED} isolated |");
    println!("|---|---|---|---|---|---|---|---|");
    for skew in [0.0, 0.6, 0.8, 1.0] {
        let weights = weights(skew);
        let cumulative = cumulative(&weights);
        for nodes in [2, 4, 8, 16] {
            for shards in [32, 128, 512] {
                let placed: Vec<u32> = orgs.iter().map(|org| shard(*org, shards)).collect();
                let of_shards = loads(&placed, &weights, shards, |shard| shard);
                let of_nodes = loads(&placed, &weights, nodes, |shard| shard % nodes);
                let second = (0..REQUESTS).fold(vec![0.0; nodes as usize], |mut second, request| {
                    let at = random(seed ^ 0x5eed, request as u64) as f64 / u64::MAX as f64;
                    let org = cumulative.partition_point(|sum| *sum < at).min(placed.len() - 1);
                    second[(placed[org] % nodes) as usize] += 1.0;
                    second
                });
                println!(
                    "| {skew} | {:.2} % | {nodes} | {shards} | {:.2} | {:.2} | {:.2} | {:.2} |",
                    weights[0] * 100.0,
                    greatest(&of_nodes),
                    greatest(&second),
                    greatest(&of_shards),
                    greatest(&isolated(&placed, &weights, nodes)),
                );
            }
        }
    }
}

/// Returns the shares of the organizations, the largest first.
fn weights(skew: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=ORGANIZATIONS).map(|rank| (rank as f64).powf(-skew)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

fn cumulative(weights: &[f64]) -> Vec<f64> {
    let add = |sum: &mut f64, weight: &f64| {
        *sum += weight;
        Some(*sum)
    };
    weights.iter().scan(0.0, add).collect()
}

fn loads(placed: &[u32], weights: &[f64], count: u32, of: impl Fn(u32) -> u32) -> Vec<f64> {
    placed.iter().zip(weights).fold(vec![0.0; count as usize], |mut loads, (shard, weight)| {
        loads[of(*shard) as usize] += weight;
        loads
    })
}

/// Returns the loads of nodes when the largest organizations are moved, one after another, to the node with the least.
fn isolated(placed: &[u32], weights: &[f64], nodes: u32) -> Vec<f64> {
    let mut loads = loads(&placed[ISOLATED..], &weights[ISOLATED..], nodes, |shard| shard % nodes);
    for weight in &weights[..ISOLATED] {
        if let Some(least) = loads.iter_mut().min_by(|left, right| left.total_cmp(right)) {
            *least += weight;
        }
    }
    loads
}

fn greatest(loads: &[f64]) -> f64 {
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    loads.iter().copied().fold(0.0, f64::max) / mean
}

/// Returns a pseudorandom number (SplitMix64).
fn random(seed: u64, number: u64) -> u64 {
    let mut state = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
