//! The plans of all statements: no plan reads a whole table, and each order is read from its index.
//!
//! `PLATFORM_POSTGRES_RECORDS` sets the number of records; 10,000 by default.

use std::{env, fmt::Write};

use platform_engine::store::Store;
use platform_store_postgres::testing::{Cluster, joined_statements, statements};

/// The tables that grow with the number of records or of organizations. The others are small, or their statements that
/// read all of a table are named here.
const READ_WHOLE: [&str; 1] = ["load slots"];

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_reads_a_whole_table_and_each_order_is_read_from_its_index() {
    let Some(cluster) = Cluster::shared() else { return };
    let count = env::var("PLATFORM_POSTGRES_RECORDS").map_or(10_000, |count| count.parse().unwrap());
    let url = crate::common::empty(cluster, "plans").await;
    let store = crate::common::open(&url).await;
    crate::common::fill(&store, "a", count / 2).await;
    crate::common::fill(&store, "b/c", count / 4).await;
    for organization in 0..(count / 4_000).max(1) {
        crate::common::fill(&store, &format!("o{organization}"), 1_000).await;
    }
    assert!(store.health().is_ok());
    let client = crate::common::client(&url).await;
    client.batch_execute("ANALYZE").await.unwrap();
    client.batch_execute(SETTINGS).await.unwrap();
    let mut wrong = String::new();
    let single = statements().into_iter().map(|(name, sql)| (name, sql.to_owned()));
    for (name, sql) in single.chain(joined_statements()) {
        let plan = plan(&client, &sql).await;
        if plan.contains("Seq Scan") && !READ_WHOLE.contains(&&*name) {
            writeln!(wrong, "{name} reads a whole table:\n{plan}\n").unwrap();
        }
        if name.contains("Filtered") && !plan.contains("One-Time Filter") {
            writeln!(wrong, "{name} reads all matches of a list that is kept:\n{plan}\n").unwrap();
        }
        for (order, index) in ORDERS {
            let is_scan = name.contains("Scan") || name.contains("All");
            let is_wrong = name.starts_with("list") && !is_scan && name.contains(order) && !plan.contains(index);
            if is_wrong || is_sorted_whole(&name, order, &plan) {
                writeln!(wrong, "{name} does not read {index}:\n{plan}\n").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn no_statement_has_a_volatile_function() {
    // A distributed database refuses them in writes, and sequences are computed under a lock. `now()` is stable: the node
    // that receives a statement evaluates it.
    for (name, sql) in statements() {
        for volatile in ["random", "nextval", "clock_timestamp", "uuid("] {
            assert!(!sql.contains(volatile), "{name} contains {volatile}");
        }
    }
}

/// The settings of the store's own sessions.
pub(crate) const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; \
     SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
     SET max_parallel_workers_per_gather = 0";

const ORDERS: [(&str, &str); 6] = [
    (" Uid,", "_by_uid"),
    (" Sequence,", "_by_sequence"),
    ("Slot(0)", "_by_s1"),
    ("Slot(1)", "_by_s2"),
    ("Slot(2)", "_by_s3"),
    ("Slot(3)", "_by_s4"),
];

/// Returns whether a list of children sorts its records instead of reading them in order.
fn is_sorted_whole(name: &str, order: &str, plan: &str) -> bool {
    name.contains("Children") && name.contains(order) && plan.contains("Sort Key")
}

/// Returns the generic plan of a statement.
pub(crate) async fn plan(client: &tokio_postgres::Client, sql: &str) -> String {
    plan_of(client, sql, |_| "NULL").await.unwrap()
}

/// Returns the plan of a statement with a value for each parameter.
pub(crate) async fn plan_of(
    client: &tokio_postgres::Client,
    sql: &str,
    value: impl Fn(usize) -> &'static str,
) -> Result<String, tokio_postgres::Error> {
    let statement = client.prepare(sql).await?;
    let values: Vec<&str> = (1..=statement.params().len()).map(value).collect();
    let values = values.join(", ");
    let types: Vec<String> = statement.params().iter().map(|of| of.name().to_owned()).collect();
    let types: Vec<String> =
        types.iter().map(|of| of.strip_prefix('_').map_or(of.clone(), |of| format!("{of}[]"))).collect();
    let types = if types.is_empty() { String::new() } else { format!("({})", types.join(", ")) };
    client.batch_execute(&format!("PREPARE planned {types} AS {sql}")).await?;
    let arguments = if values.is_empty() { String::new() } else { format!("({values})") };
    let rows = client.simple_query(&format!("EXPLAIN (COSTS off) EXECUTE planned {arguments}")).await;
    client.batch_execute("DEALLOCATE planned").await?;
    let rows = rows?;
    let lines = rows.iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}
