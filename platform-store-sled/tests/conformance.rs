//! Runs the conformance suite against the sled store.
use platform_engine::store::conformance::{self, Suite};
use platform_store_sled::SledStore;

fn main() -> std::process::ExitCode {
    conformance::main(Suite::new(async |directory| SledStore::open(directory)))
}
