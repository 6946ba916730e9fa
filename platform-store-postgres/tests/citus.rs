//! Runs the conformance suite with the statements for Citus, in a schema for each case.
//!
//! With `PLATFORM_CITUS_URL`, the database is that of a coordinator. Without it, it is one of PostgreSQL with the catalog
//! of Citus, which shows that the statements are right, but not that Citus accepts them.

mod support;

use std::{collections::HashSet, env, sync::OnceLock};

use platform_store_postgres::testing::{sent, statements_for_citus};
use platform_testkit::conformance;
use platform_testkit::postgres::Cluster;
use tokio::runtime::Runtime;

/// Returns the database, and whether it is one of Citus.
fn cluster() -> Option<(&'static Cluster, bool)> {
    static CITUS: OnceLock<Option<Cluster>> = OnceLock::new();
    let citus = CITUS.get_or_init(Cluster::citus).as_ref();
    citus.map(|citus| (citus, true)).or_else(|| Cluster::shared().map(|cluster| (cluster, false)))
}

fn main() -> std::process::ExitCode {
    let Some(_) = cluster() else { return std::process::ExitCode::SUCCESS };
    let Ok(runtime) = Runtime::new() else { return std::process::ExitCode::FAILURE };
    let schema = async |name: String| match cluster().ok_or("no cluster")? {
        (citus, true) => Ok(citus.schema(&name).await?),
        (cluster, false) => Ok(cluster.schema_like_citus(&name).await?),
    };
    let reason = "each organization is read in a state of its own";
    let suite = support::suite(runtime, schema)
        .without("atomic::a_get_never_sees_part_of_a_commit", reason)
        .without("atomic::a_list_never_sees_part_of_a_commit", reason)
        .without("atomic::an_epoch_is_always_consistent_with_the_records_read_with_it", reason);
    // They take minutes, in `.ci/long`.
    let is_long = env::var("PLATFORM_POSTGRES_RECORDS").is_ok() || env::var("PLATFORM_CITUS_URL").is_ok();
    let suite =
        if is_long { suite } else { suite.without("large", "slow, and the statements are those of other cases") };
    let result = conformance::main(suite);
    // The tests of all statements know those that were sent.
    let known: HashSet<String> = statements_for_citus().into_iter().map(|(_, sql, _)| sql).collect();
    let unknown: Vec<String> =
        sent().into_iter().filter(|sql| !known.contains(sql) && !sql.contains("layout")).collect();
    assert_eq!(unknown, [""; 0], "statements that are missing in `statements_for_citus`");
    result
}
