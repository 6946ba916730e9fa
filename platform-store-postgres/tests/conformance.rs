//! Runs the conformance suite against the PostgreSQL store, with a schema for each case.

mod support;

use platform_testkit::conformance;
use platform_testkit::postgres::Cluster;
use tokio::runtime::Runtime;

fn main() -> std::process::ExitCode {
    let Some(_) = Cluster::shared() else { return std::process::ExitCode::SUCCESS };
    let Ok(runtime) = Runtime::new() else { return std::process::ExitCode::FAILURE };
    let schema = async |name: String| Ok(Cluster::shared().ok_or("no cluster")?.schema(&name).await?);
    conformance::main(support::suite(runtime, schema))
}
