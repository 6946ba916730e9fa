//! Runs the conformance suite against the PostgreSQL store, with a schema for each case.

use std::{path::PathBuf, thread};

use platform_engine::store::conformance::{self, Suite};
use platform_store_postgres::{Options, PostgresStore, testing::Cluster};
use tokio::runtime::{Handle, Runtime};

fn main() -> std::process::ExitCode {
    let Some(_) = Cluster::shared() else { return std::process::ExitCode::SUCCESS };
    let Ok(runtime) = Runtime::new() else { return std::process::ExitCode::FAILURE };
    let open = async |directory: PathBuf| {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().replace('.', "case_");
        let cluster = Cluster::shared().ok_or("no cluster")?;
        let url = cluster.schema(&name).await?;
        PostgresStore::migrate(&url, &Options::default()).await.map_err(|error| error.to_string())?;
        PostgresStore::open(&url, Options::default().readers(4).lanes(2)).await.map_err(|error| error.to_string())
    };
    let suite = Suite::checked(open, |store: &PostgresStore| {
        let handle = Handle::current();
        thread::scope(|scope| {
            // The case runs on a thread of the runtime, where nothing may block on a future.
            let check = scope.spawn(|| handle.block_on(store.check()));
            check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    conformance::main(suite.block_on(move |case| runtime.block_on(case)))
}
