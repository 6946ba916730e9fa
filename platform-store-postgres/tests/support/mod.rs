//! The conformance suite of the PostgreSQL store, for the tests with and without the statements for Citus.

use std::{path::PathBuf, thread};

use platform_store_postgres::{Options, PostgresStore};
use platform_testkit::conformance::Suite;
use tokio::runtime::{Handle, Runtime};

/// Returns a suite whose cases use a schema each: `schema` creates it under a name, and returns its URL. Every store is
/// checked when its case ends.
pub(crate) fn suite<Made>(runtime: Runtime, schema: impl Fn(String) -> Made + Send + Sync + 'static) -> Suite
where
    Made: Future<Output = Result<String, String>> + 'static,
{
    let open = move |directory: PathBuf| {
        let url = schema(directory.file_name().unwrap_or_default().to_string_lossy().replace('.', "case_"));
        async move {
            let url = url.await?;
            PostgresStore::migrate(&url, &Options::default()).await.map_err(|error| error.to_string())?;
            PostgresStore::open(&url, Options::default().readers(4).lanes(2)).await.map_err(|error| error.to_string())
        }
    };
    let suite = Suite::checked(open, |store: &PostgresStore| {
        let handle = Handle::current();
        thread::scope(|scope| {
            // The case runs on a thread of the runtime, where nothing may block on a future.
            let check = scope.spawn(|| handle.block_on(store.check()));
            check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    let suite = suite.random(1, 1_000).with_variables(|name| std::env::var(name).ok());
    suite.block_on(move |case| runtime.block_on(case))
}
