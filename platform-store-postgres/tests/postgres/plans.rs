//! The plans of all statements: no plan reads a whole table, and each order is read from its index.
//!
//! `PLATFORM_POSTGRES_RECORDS` sets the number of records; 10,000 by default.

use std::{collections::HashMap, env, fmt::Write};

use platform_engine::{
    store::{Commit, Epoch, KeyValue, Put, Store},
    uid::Uid,
};
use platform_store_postgres::testing::{joined_statements, statements};
use platform_testkit::postgres::Cluster;
use tokio_postgres::types::Type;

use crate::common::{client, empty, open, puts};

/// The tables that grow with the number of records or of organizations. The others are small, or their statements that
/// read all of a table are named here.
const READ_WHOLE: [&str; 1] = ["load slots"];

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_reads_a_whole_table_and_each_order_is_read_from_its_index() {
    let Some(cluster) = Cluster::shared() else { return };
    let count = env::var("PLATFORM_POSTGRES_RECORDS").map_or(10_000, |count| count.parse().unwrap());
    let url = empty(cluster, "plans").await;
    let store = open(&url).await;
    fill(&store, "a", count / 2).await;
    fill(&store, "b/c", count / 4).await;
    for organization in 0..(count / 4_000).max(1) {
        fill(&store, &format!("o{organization}"), 1_000).await;
    }
    for number in 0..300 {
        let organization = format!("small{number}");
        let raise = vec![Epoch::new("grants", Uid::opaque(&*organization))];
        store.commit(Commit { raise, ..puts([thing(&organization, 0)]) }).await.unwrap();
    }
    assert!(store.health().is_ok());
    let client = client(&url).await;
    client.batch_execute(ANALYZE).await.unwrap();
    assert_plans(&client).await;
}

/// Collects the statistics of this schema only: the other tests' schemas are in the same database, and an empty table
/// with statistics has other plans than one without.
const ANALYZE: &str = "DO $$ DECLARE name name; BEGIN FOR name IN SELECT tablename FROM pg_tables \
     WHERE schemaname = current_schema LOOP EXECUTE format('ANALYZE %I', name); END LOOP; END $$";

/// The plans of a session are made at the first use of its statements, when the tables of a new database are empty and
/// have no statistics, and are used until the first ANALYZE.
#[tokio::test(flavor = "multi_thread")]
async fn the_plans_of_a_new_database_are_those_of_a_large_one() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = empty(cluster, "new_plans").await;
    assert_plans(&client(&url).await).await;
}

/// Returns a record with a value in each column of sort keys, and one of 500 filter values.
fn thing(parent: &str, number: usize) -> Put {
    let mut put = crate::common::thing(&format!("{parent}/{number:08}"));
    put.sort.extend(["size", "weight"].map(|key| (key, KeyValue::integer(number as i64 % 100))));
    put.filter = vec![("color", KeyValue::text(&format!("color {}", number % 500)))];
    put
}

/// Puts children of a uid, in commits of a thousand.
async fn fill(store: &dyn Store, parent: &str, count: usize) {
    for from in (0..count).step_by(1_000) {
        let numbers = from..(from + 1_000).min(count);
        store.commit(puts(numbers.map(|number| thing(parent, number)))).await.unwrap();
    }
}

async fn assert_plans(client: &tokio_postgres::Client) {
    client.batch_execute(SETTINGS).await.unwrap();
    let indexes = indexes(client).await;
    let mut wrong = String::new();
    let single = statements().into_iter().map(|(name, sql)| (name, sql.to_owned()));
    for (name, sql) in single.chain(joined_statements()) {
        let plan = plan(client, &sql).await;
        if let Some(scan) = partial_scan(&indexes, &name, &plan) {
            writeln!(wrong, "{name} reads more of an index than it needs: {scan}:\n{plan}\n").unwrap();
        }
        if plan.contains("Seq Scan") && !READ_WHOLE.contains(&&*name) {
            writeln!(wrong, "{name} reads a whole table:\n{plan}\n").unwrap();
        }
        if name.contains("Filtered") && !plan.contains("One-Time Filter") {
            writeln!(wrong, "{name} reads all matches of a list that is kept:\n{plan}\n").unwrap();
        }
        for (order, index) in ORDERS {
            let is_scan = name.contains("Scan") || name.contains("All");
            // The entries of these lists are in `deep`, whose key is in the order of uids.
            let index = match (index, name.contains("(Roots") || name.contains("(Filtered")) {
                ("_by_uid", true) => "deep_pkey",
                (index, _) => index,
            };
            let is_wrong = name.starts_with("list") && !is_scan && name.contains(order) && !plan.contains(index);
            if is_wrong || is_sorted_whole(&name, order, &plan) {
                writeln!(wrong, "{name} does not read {index}:\n{plan}\n").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Returns the columns of each index of the session's schema.
async fn indexes(client: &tokio_postgres::Client) -> HashMap<String, Vec<String>> {
    let sql = "SELECT c.relname::text, array_agg(a.attname::text ORDER BY k.place) FROM pg_index i \
         JOIN pg_class c ON c.oid = i.indexrelid CROSS JOIN unnest(i.indkey) WITH ORDINALITY k(number, place) \
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number \
         WHERE c.relnamespace = current_schema::regnamespace GROUP BY c.relname";
    client.query(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Returns the scan of a plan whose condition does not name the first columns of its index, so that it reads the entries
/// between those that it looks for, or looks records up by less than their uids.
fn partial_scan(indexes: &HashMap<String, Vec<String>>, name: &str, plan: &str) -> Option<String> {
    let lines: Vec<&str> = plan.lines().map(str::trim).collect();
    lines.iter().zip(lines.iter().skip(1)).find_map(|(scan, next)| {
        let (_, scan) = scan.split_once("Scan using ").or_else(|| scan.split_once("Backward using "))?;
        let mut words = scan.split(' ');
        let (index, table) = (words.next()?, words.nth(1)?);
        let used = used(next.strip_prefix("Index Cond: ").unwrap_or_default());
        let columns = indexes.get(index)?;
        let first = columns.iter().take_while(|column| used.contains(&column.as_str())).count();
        let is_list = ["list", "boundaries", "counts"].iter().any(|kind| name.starts_with(kind));
        let is_by_key = match table {
            "record" => is_list || used.contains(&"uid"),
            "member" => used.contains(&"value"),
            _ => true,
        };
        let is_partial = first == 0 || used.iter().any(|column| !columns.iter().take(first).any(|one| one == column));
        (is_partial || !is_by_key).then(|| format!("{index} by {used:?}"))
    })
}

/// Returns the columns that a condition of an index compares.
fn used(condition: &str) -> Vec<&str> {
    let mut used = Vec::new();
    for comparison in condition.split(" AND ") {
        let comparison = comparison.trim_start_matches('(');
        match comparison.strip_prefix("ROW(") {
            Some(row) => used.extend(row.split(')').next().unwrap_or_default().split(", ")),
            None => used.extend(comparison.split(' ').next()),
        }
    }
    used
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
    plan_of(client, sql, |_, _| "NULL").await.unwrap()
}

/// Returns the plan of a statement with a value for each parameter.
pub(crate) async fn plan_of(
    client: &tokio_postgres::Client,
    sql: &str,
    value: impl Fn(usize, &Type) -> &'static str,
) -> Result<String, tokio_postgres::Error> {
    let statement = client.prepare(sql).await?;
    let values: Vec<&str> = (1..).zip(statement.params()).map(|(number, of)| value(number, of)).collect();
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
