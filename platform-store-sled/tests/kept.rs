//! The contract again, with lists kept from their second record on: the same cases then run over kept orders.
use platform_core::store::conformance::{self, Suite};
use platform_store_sled::{Options, SledStore};

fn main() -> std::process::ExitCode {
    let mut options = Options::default();
    options.promote_above = 1;
    let suite = Suite::new(move |directory| std::future::ready(SledStore::open_with(directory, &options)));
    conformance::main(suite.without("large", "large lists are kept either way"))
}
