//! Runs the conformance suite on the example's store.

use std::process::ExitCode;

use own_store::MapStore;
use platform_engine::store::StoreError;
use platform_testkit::conformance;

fn main() -> ExitCode {
    let suite = conformance::Suite::new(async |_directory| Ok::<_, StoreError>(MapStore::default()));
    conformance::main(suite.without("reopen", "the store is not persistent"))
}
