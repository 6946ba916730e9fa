//! Prints the cost of a request to every endpoint, and the latency of other clients under its load: `bystander [--all]
//! [NAME...]`. By default, sends each request once, and then the costliest ones in 16 loops; with `--all`, all of them in
//! 16 loops; with names, those whose name contains one of them in 16 loops. Requests are sent by the operator, by the
//! operator with bodies as long as the server reads them, and by an identity without roles.
//!
//! A client sends control requests to `/livez` all the time. The program fails if the 99th percentile of their times
//! under the load of an endpoint is more than three times that under 16 loops of lists of version 2, in three turns of
//! both together. The processor time is that of all threads of the server.
//!
//! `BYSTANDER_SECONDS` is the time of each load, by default 1, and `BYSTANDER_FACTOR` replaces the factor of three.
//! `PLATFORM_SERVER` is the program of the server, by default that of the same profile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measuring program"
)]

use std::{env, process::ExitCode, sync::Arc, time::Duration};

use platform_benches::{
    bystander::{
        self, Found,
        cases::{self, Case, Client},
        data as stored, directory, emulator,
    },
    data,
    measure::variable,
    servers::Server,
};
use platform_engine::store::memory::MemoryStore;
use platform_system::{SystemClock, SystemEntropy};

/// The number of loops of a load.
const LOOPS: usize = 16;
/// The number of endpoints that are measured in loops by default: those that took most processor time, and those during
/// which the control requests waited longest.
const COSTLIEST: usize = 6;
/// The default factor by which an endpoint may delay others more than lists of version 2 do.
const FACTOR: f64 = 3.0;
/// The number of turns after which an endpoint fails that delays others for longer, so that other work of the machine
/// does not fail the run.
const TURNS: usize = 3;
/// The wait in milliseconds that is always allowed: that of pages of the maximum size, 4 MiB, which the server and the
/// client of the load copy on the same processors.
const LEAST: f64 = 20.0;

fn main() -> ExitCode {
    let mut wanted: Vec<_> = env::args().skip(1).collect();
    let is_all = wanted.iter().any(|argument| argument == "--all");
    wanted.retain(|argument| argument != "--all");
    let (_directory, file) = data::copied(&stored::sqlite());
    let organization = data::organization(0).to_string();
    let options = ["--public-advisory-group", &organization];
    let server = Server::platform_with(&format!("sqlite:{}", file.display()), &options);
    let platform = platform_v1::builder(Arc::new(MemoryStore::new()), SystemClock, SystemEntropy);
    let platform = platform.ephemeral_keys().build().unwrap();
    let mut cases = cases::known(&server, &platform);
    for client in
        [Client::operator(&server), Client::operator_with_long_bodies(&server), Client::without_roles(&server)]
    {
        cases.extend(cases::rest(&client));
        cases.extend(cases::grpc(&client, &platform));
    }
    cases.extend(directory::scim(&server));
    let (emulator, of_emulator) = emulator::emulator();
    let mut slow = Vec::new();
    for (server, mut cases) in [(&server, cases), (&emulator, of_emulator)] {
        cases.retain(|case| wanted.is_empty() || wanted.iter().any(|wanted| case.name.contains(wanted)));
        if wanted.is_empty() && !is_all {
            cases = costliest(server, cases);
        }
        slow.extend(in_loops(server, &cases));
    }
    match slow.as_slice() {
        [] => ExitCode::SUCCESS,
        slow => {
            println!("FAILED: others wait more than {} times as long as with lists of version 2: {slow:?}", factor());
            ExitCode::FAILURE
        }
    }
}

/// Measures requests in loops, and returns the names of those that delay others for longer than they may.
fn in_loops(server: &Server, cases: &[Case]) -> Vec<String> {
    let time = Duration::from_secs_f64(variable("BYSTANDER_SECONDS", 1.0));
    let standard = cases::standard(server);
    println!("{} requests in {LOOPS} loops for {time:?} each", cases.len());
    println!("{:72} {HEAD} {:>10}", "request", "lists p99");
    cases.iter().filter(|case| !passes(server, case, &standard, time)).map(|case| case.name.clone()).collect()
}

fn factor() -> f64 {
    variable("BYSTANDER_FACTOR", FACTOR)
}

const HEAD: &str = "status      bytes  replies    cpu ms   p50 ms   p99 ms   max ms";

fn row(found: &Found) -> String {
    let Found { status, bytes, replies, cpu, .. } = found;
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| found.wait(part));
    format!("{status:6} {bytes:10} {replies:8} {cpu:9.2} {p50:8.2} {p99:8.2} {max:8.2}")
}

/// Sends each request once, prints those that cost most, and returns them.
fn costliest(server: &Server, cases: Vec<Case>) -> Vec<Case> {
    let mut found: Vec<_> = cases.into_iter().map(|case| (bystander::once(server, &case.sent), case)).collect();
    println!("{} requests, each once; those with most processor time, and with the longest waits", found.len());
    println!("{:72} {HEAD}", "request");
    let mut costliest = Vec::new();
    for by in [|found: &Found| found.cpu, |found: &Found| found.wait(1.0)] {
        found.sort_by(|(one, _), (other, _)| by(other).total_cmp(&by(one)));
        let some: Vec<_> = found.drain(..COSTLIEST.min(found.len())).collect();
        some.iter().for_each(|(found, case)| println!("{:72} {}", case.name, row(found)));
        costliest.extend(some.into_iter().map(|(_, case)| case));
    }
    costliest
}

/// Measures a request in loops, and returns whether it delays others no more than it may: at once, or in all turns
/// together.
fn passes(server: &Server, case: &Case, standard: &Case, time: Duration) -> bool {
    let [mut beside_lists, mut beside_case] = [Found::default(), Found::default()];
    for _ in 0..TURNS {
        beside_lists.add(bystander::measure(server, &standard.sent, LOOPS, time));
        beside_case.add(bystander::measure(server, &case.sent, LOOPS, time));
        let [most, wait] = [&beside_lists, &beside_case].map(|found| found.wait(0.99));
        let is_short = wait <= factor() * most || wait <= LEAST;
        println!("{:72} {} {most:10.2}{}", case.name, row(&beside_case), if is_short { "" } else { "  slow" });
        if is_short {
            return true;
        }
    }
    false
}
