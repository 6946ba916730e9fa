//! Runs the conformance suite on the memory store.

use std::process::ExitCode;

use platform_engine::store::{StoreError, memory::MemoryStore};
use platform_testkit::conformance;

fn main() -> ExitCode {
    let suite = conformance::Suite::new(async |_directory| Ok::<_, StoreError>(MemoryStore::new()));
    let suite = suite.without("reopen", "nothing outlives the process");
    conformance::main(suite.with_variables(|name| std::env::var(name).ok()))
}
