//! The contract again, with lists kept from their second record on: the same cases then run over kept orders.
use platform_engine::store::conformance::{self, Suite};
use platform_store_sled::SledStore;

fn main() -> std::process::ExitCode {
    let suite = Suite::new(async |directory| SledStore::builder().promote_above(1).open(directory));
    conformance::main(suite.without("large", "large lists are kept either way"))
}
