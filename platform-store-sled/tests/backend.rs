//! Runs the suite of backends.
//!
//! Writes and reads of sled cannot be made to fail from outside, so that the cases about these are not checked here: the
//! tests with power cuts make its syncs fail.

use std::{fs, path::Path, process::ExitCode};

use platform_store_sled::SledStore;
use platform_testkit::backend::{self, BackendSuite};

fn main() -> ExitCode {
    let open = |directory: &Path| SledStore::builder().cache_bytes(4 << 20).open_backend(directory.join("store"));
    let suite = BackendSuite::new(open)
        .other_format(|directory| drop(fs::write(directory.join("store/format"), "sled 0.33, layout 2")));
    backend::main(suite.with_variables(|name| std::env::var(name).ok()))
}
