//! The rules of Citus, held against every statement that the store sends to it, and the distribution of the tables.
//!
//! Citus runs a statement on one node if the planner of PostgreSQL finds, for each table, that the organization is equal
//! to one value. These tests read the same from the plans of PostgreSQL, so that they need no Citus.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use platform_engine::{
    store::{Commit, Epoch, Key, Query, Scope, Store, StoreError},
    uid::Uid,
};
use platform_store_postgres::testing::{
    Reach,
    shards::{hashint8, organization, shard},
    statements, statements_for_citus,
};
use platform_store_postgres::{OpenError, Options, PostgresStore};
use platform_testkit::postgres::Cluster;
use tokio_postgres::{Client, types::Type};

use crate::{
    common::{client, open, puts, thing},
    plans::{SETTINGS, plan, plan_of},
};

pub(crate) async fn like_citus(cluster: &Cluster, name: &str) -> String {
    let url = cluster.schema_like_citus(name).await.unwrap();
    PostgresStore::migrate(&url, &Options::default()).await.unwrap();
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn each_statement_for_citus_compares_the_organization_of_every_table_with_one_parameter() {
    let Some(cluster) = Cluster::shared() else { return };
    let client = client(&like_citus(cluster, "citus_plans").await).await;
    client.batch_execute(SETTINGS).await.unwrap();
    let mut checked = 0;
    for (name, sql, reach) in statements_for_citus() {
        let Reach::Organization(org) = reach else { continue };
        if sql.starts_with("INSERT") && sql.contains(" VALUES ") {
            assert_rows_of_one_organization(&name, &sql);
            continue;
        }
        let plan = plan(&client, &sql).await;
        let mut lines = plan.lines().peekable();
        while let Some(line) = lines.next() {
            let is_distributed = DISTRIBUTED.iter().any(|table| line.contains(&format!(" on {table} ")));
            if !is_distributed || !line.contains("Scan") {
                continue;
            }
            checked += 1;
            let conditions =
                std::iter::from_fn(|| lines.next_if(|line| line.contains("Cond: ") || line.contains("Filter: ")));
            let conditions: Vec<&str> = conditions.collect();
            let is_equal = |line: &&str| line.contains(&format!("org = ${org})"));
            assert!(conditions.iter().any(is_equal), "{name}: {line} is not about ${org}:\n{sql}\n{plan}");
        }
    }
    assert!(checked > 500, "{checked} tables were found in plans");
}

/// The tables with a column `org` that is compared.
const DISTRIBUTED: [&str; 9] = ["head", "epoch", "record", "deep", "member", "owner", "tally", "block", "batch"];

fn assert_rows_of_one_organization(name: &str, sql: &str) {
    let (into, values) = sql.split_once(" VALUES ").unwrap_or_else(|| panic!("{name} has no list of values"));
    assert!(into.contains("(org, "), "{name} does not insert the organization first");
    let rows = values.split(" ON CONFLICT ").next().unwrap();
    assert!(rows.split("), (").all(|row| row.trim_start_matches('(').starts_with("$1")), "{name}: {sql}");
    // A subquery, or a column that an update moves to another organization.
    assert!(!values.contains("SELECT") && !values.contains("SET org"), "{name}: {sql}");
}

fn is_write(sql: &str) -> bool {
    ["INSERT INTO ", "UPDATE ", "DELETE FROM "].iter().any(|verb| sql.replace("FOR UPDATE", "").contains(verb))
}

#[test]
fn no_statement_for_citus_has_a_construct_that_it_refuses() {
    for (name, sql, reach) in statements_for_citus() {
        if is_write(&sql) {
            // The organization of a row does not change.
            assert!(!sql.contains("SET org"), "{name}: {sql}");
        }
        for writing in ["AS (INSERT", "AS (UPDATE", "AS (DELETE", "AS MATERIALIZED (UPDATE"] {
            assert!(!sql.contains(writing), "{name} writes in a common table expression: {sql}");
        }
        if reach == Reach::Everywhere {
            // These would have to be computed on one node, or are refused.
            assert_functions_run_on_the_nodes(&name, &sql);
            let sql = sql.replace("WITH ORDINALITY", "");
            for word in ["WITH ", " OVER ", "FOR UPDATE", "FOR NO KEY UPDATE", "UNION ALL", "DISTINCT ON"] {
                assert!(!sql.contains(word), "{name} runs on all nodes with {word}: {sql}");
            }
            for select in sql.split(" UNION ") {
                // Rows of different tables are on the same node if they are of the same organization.
                let joined = tables(select).count().saturating_sub(1);
                assert!(on_organization(select) >= joined, "{name} joins rows of different nodes: {sql}");
            }
            for subquery in subqueries(&sql) {
                let of_functions = tables(subquery).next().is_none();
                let has_subquery = subquery.contains("(SELECT");
                assert!(!of_functions || !has_subquery, "{name} has a subquery in one of functions: {sql}");
            }
        }
    }
}

/// Citus runs a function on the coordinator that is joined with something, unless it is `LATERAL` or has ordinal numbers.
/// If it has a column of an outer query, the process of the coordinator crashes, and with it all others.
fn assert_functions_run_on_the_nodes(name: &str, sql: &str) {
    for select in subqueries(sql).chain([sql]) {
        let nested = subqueries(select).map(str::to_owned).collect::<Vec<_>>();
        let own = nested.iter().fold(select.to_owned(), |own, nested| own.replace(nested, ""));
        let functions = own.matches("unnest(").count();
        let of_nodes = own.matches("LATERAL unnest(").count() + own.matches(" WITH ORDINALITY ").count();
        let joined = functions + tables(&own).count();
        assert!(joined < 2 || of_nodes == functions, "{name} has a function that Citus runs elsewhere: {own}");
    }
}

/// Returns the tables that a statement names, in the order of the text.
fn tables(sql: &str) -> impl Iterator<Item = &str> {
    let words = sql.split(|char: char| !char.is_ascii_alphanumeric() && char != '_').filter(|word| !word.is_empty());
    let after = words.clone().skip(1).zip(words);
    let is_named = |before: &str| ["FROM", "JOIN", "USING", "UPDATE", "INTO"].contains(&before);
    after.filter(move |(word, before)| is_named(before) && DISTRIBUTED.contains(word)).map(|(word, _)| word)
}

/// Returns the number of comparisons of the organizations of two tables.
fn on_organization(sql: &str) -> usize {
    let is_column = |text: &str| {
        let name = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '.').next().unwrap_or_default();
        name.ends_with(".org")
    };
    sql.split(".org = ").skip(1).filter(|rest| is_column(rest)).count()
}

/// Returns the texts in parentheses that begin with `SELECT`.
fn subqueries(sql: &str) -> impl Iterator<Item = &str> {
    sql.match_indices("(SELECT").map(|(at, _)| {
        let inner = &sql[at + 1..];
        let mut depth = 1;
        let end = inner.find(|char| {
            depth += i32::from(char == '(') - i32::from(char == ')');
            depth == 0
        });
        &inner[..end.unwrap_or(inner.len())]
    })
}

/// The statements of checks that are not made on Citus, by their beginnings.
const NOT_FOR_CITUS: [&str; 4] = [
    "SELECT r.kind, r.uid FROM record r WHERE strpos",
    "SELECT d.kind, d.uid FROM deep d WHERE",
    "SELECT o.org, o.space, o.value, o.kind, o.uid, EXISTS",
    "SELECT (SELECT count(*) FROM (SELECT DISTINCT r.kind",
];

#[test]
fn every_statement_about_tables_in_the_source_is_among_those_that_the_rules_are_held_against() {
    let known: Vec<String> = statements_for_citus()
        .into_iter()
        .map(|(_, sql, _)| sql)
        .chain(statements().into_iter().map(|(_, sql)| sql.to_owned()))
        .collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = 0;
    for file in files(&source).into_iter().filter(|file| !file.ends_with("testing.rs")) {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("\nmod tests {").next().unwrap();
        for literal in literals(code) {
            let is_statement = ["SELECT", "(SELECT", "INSERT", "UPDATE", "DELETE", "WITH"]
                .iter()
                .any(|verb| literal.strip_prefix(verb).is_some_and(|rest| rest.starts_with(' ')));
            let names_table = tables(&literal).next().is_some()
                || ["UPDATE {table}", " slot", " document"].iter().any(|table| literal.contains(table));
            if !is_statement || !names_table || NOT_FOR_CITUS.iter().any(|other| literal.starts_with(other)) {
                continue;
            }
            found += 1;
            let parts: Vec<&str> = literal
                .split('{')
                .enumerate()
                .map(|(index, part)| if index == 0 { part } else { after_brace(part) })
                .collect();
            let is_known = known.iter().any(|sql| contains_in_order(sql, &parts)) || known.contains(&of_one(&literal));
            assert!(is_known, "{} has a statement that is not listed: {literal}", file.display());
        }
    }
    assert!(found > 70, "{found} statements were found");
}

/// Returns the statement about one organization of one about a set of them.
fn of_one(sql: &str) -> String {
    sql.replace("ANY($1::int8[])", "$1")
}

fn after_brace(part: &str) -> &str {
    part.split_once('}').map_or(part, |(_, rest)| rest)
}

fn contains_in_order(text: &str, parts: &[&str]) -> bool {
    parts.iter().try_fold(text, |rest, part| Some(&rest[rest.find(part)? + part.len()..])).is_some()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the string literals of a source text, without the breaks of their lines.
fn literals(code: &str) -> Vec<String> {
    let mut literals = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '/' if chars.peek() == Some(&'/') => drop(chars.by_ref().find(|char| *char == '\n')),
            // A character, and not a lifetime.
            '\'' if chars.peek() == Some(&'"') => drop(chars.next()),
            '"' => {
                let mut literal = String::new();
                while let Some(char) = chars.next().filter(|char| *char != '"') {
                    match char {
                        '\\' if chars.next_if(|next| *next == '\n').is_some() => {
                            while chars.next_if(|next| next.is_whitespace()).is_some() {}
                        }
                        '\\' => literal.extend(chars.next()),
                        _ => literal.push(char),
                    }
                }
                literals.push(literal);
            }
            _ => {}
        }
    }
    literals
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_for_citus_writes_the_result_of_a_volatile_function_or_of_a_stable_one_of_a_row() {
    let Some(cluster) = Cluster::shared() else { return };
    let client = client(cluster.url()).await;
    let of = async |volatility: &str| {
        let sql = format!("SELECT DISTINCT proname::text FROM pg_proc WHERE provolatile = '{volatility}'");
        client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect::<BTreeSet<String>>()
    };
    let (volatile, mut stable) = (of("v").await, of("s").await);
    // Some names have a stable variant for other arguments: `length` of text in an encoding that is a column.
    let immutable = of("i").await;
    stable.retain(|name| !immutable.contains(name));
    assert!(volatile.contains("random") && stable.contains("now"));
    for (name, sql, reach) in statements_for_citus() {
        if reach == Reach::None {
            continue;
        }
        for function in functions(&sql) {
            assert!(!volatile.contains(function), "{name} calls {function}: {sql}");
            // The functions of the clock have no argument that is a column.
            let is_clock = ["put batch", "everywhere"].contains(&&*name) && ["now", "extract"].contains(&function);
            assert!(!is_write(&sql) || !stable.contains(function) || is_clock, "{name} calls {function}: {sql}");
        }
    }
}

/// Returns the names before parentheses.
fn functions(sql: &str) -> impl Iterator<Item = &str> {
    let before = sql.match_indices('(').map(|(at, _)| &sql[..at]);
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    before.map(move |before| &before[before.trim_end_matches(is_name).len()..]).filter(|name| !name.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_unique_index_of_a_distributed_table_contains_the_organization() {
    let Some(cluster) = Cluster::shared() else { return };
    let client = client(&like_citus(cluster, "citus_unique").await).await;
    let sql = "SELECT p.logicalrelid::text, i.indexrelid::regclass::text FROM pg_dist_partition p JOIN pg_index i ON \
         i.indrelid = p.logicalrelid WHERE p.partmethod = 'h' AND i.indisunique AND NOT EXISTS (SELECT FROM \
         pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) AND a.attname = 'org')";
    let wrong: Vec<String> = client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(1)).collect();
    assert_eq!(wrong, [""; 0]);
    let count: i64 = client.query_one("SELECT count(*) FROM pg_dist_partition", &[]).await.unwrap().get(0);
    assert_eq!(count, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_distributes_all_tables_once_and_refuses_half_distributed_ones() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = like_citus(cluster, "citus_half").await;
    PostgresStore::migrate(&url, &Options::default()).await.unwrap();
    let store = open(&url).await;
    store.commit(puts([thing("a/b")])).await.unwrap();
    drop(store);
    let client = client(&url).await;
    let count: i64 = client.query_one("SELECT count(*) FROM pg_dist_partition", &[]).await.unwrap().get(0);
    assert_eq!(count, 11);

    let refused = async |change: &str, what: &str| {
        client.batch_execute(change).await.unwrap();
        for error in [
            PostgresStore::migrate(&url, &Options::default()).await.err(),
            PostgresStore::open(&url, Options::default()).await.err(),
        ] {
            let Some(error @ OpenError::Distribution(_)) = error else { panic!("{change}: {error:?}") };
            assert!(error.to_string().contains(what) || what.is_empty(), "{error}");
        }
    };
    refused("DELETE FROM pg_dist_partition WHERE logicalrelid = 'record'::regclass", "").await;
    let error = PostgresStore::migrate(&url, &Options::default()).await.unwrap_err().to_string();
    assert!(error.contains("but record are not: run `SELECT undistribute_table('TABLE')`"), "{error}");
    refused("INSERT INTO pg_dist_partition VALUES ('record', 'h', 7)", "record is distributed in another way").await;
    refused("UPDATE pg_dist_local_group SET groupid = 3", "give the address of the coordinator").await;
    client.batch_execute("UPDATE pg_dist_local_group SET groupid = 0; DELETE FROM pg_dist_partition").await.unwrap();
    // A database that was used before Citus was installed.
    let error = PostgresStore::open(&url, Options::default()).await.unwrap_err().to_string();
    assert!(error.contains("run `platform-server migrate`"), "{error}");
    client.batch_execute("UPDATE pg_dist_node SET isactive = false").await.unwrap();
    let error = PostgresStore::migrate(&url, &Options::default()).await.unwrap_err().to_string();
    assert!(error.contains("citus_add_node"), "{error}");
    client.batch_execute("UPDATE pg_dist_node SET isactive = true").await.unwrap();
    PostgresStore::migrate(&url, &Options::default()).await.unwrap();
    open(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_for_citus_of_one_organization_sees_no_part_of_a_commit() {
    let Some(cluster) = Cluster::shared() else { return };
    let store = Arc::new(open(&like_citus(cluster, "citus_atomic").await).await);
    let [grants, other] = ["a", "b"].map(|uid| Epoch::new("grants", Uid::opaque(uid)));
    let writer = {
        let (store, raise) = (store.clone(), vec![grants.clone(), other.clone()]);
        tokio::spawn(async move {
            for _ in 0..100 {
                let commit = Commit { raise: raise.clone(), ..puts([thing("a/left"), thing("a/right")]) };
                store.commit(commit).await.unwrap();
            }
        })
    };
    let keys = ["a/left", "a/right"].map(|uid| Key::new("Thing", Uid::opaque(uid)));
    while !writer.is_finished() {
        let read = store.get(&keys, &[other.clone(), grants.clone()]).await.unwrap();
        let revisions: Vec<u64> =
            read.records.iter().map(|record| record.as_ref().map_or(0, |of| of.revision)).collect();
        assert_eq!(revisions, [read.epochs[1]; 2]);
        // The epoch of the other organization was read after the records that it guards.
        assert!(read.epochs[0] >= read.epochs[1]);
        let query = Query {
            epochs: [other.clone(), grants.clone()].into(),
            ..Query::new("Thing", Scope::Children(Uid::opaque("a")))
        };
        let page = store.list(&query).await.unwrap();
        assert!(page.items.iter().all(|item| item.revision == page.epochs[1]) && page.epochs[0] >= page.epochs[1]);
    }
    writer.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_all_organizations_that_takes_too_long_is_refused_and_one_of_an_organization_is_answered() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = like_citus(cluster, "citus_costly").await;
    let options = Options::default().readers(1).everywhere(Duration::from_millis(20));
    let store = PostgresStore::open(&url, options).await.unwrap();
    store.commit(puts([thing("a/b")])).await.unwrap();
    // No list can be answered in time while another session has the table locked.
    let other = client(&url).await;
    other.batch_execute("BEGIN; LOCK TABLE record IN ACCESS EXCLUSIVE MODE").await.unwrap();
    for _ in 0..5 {
        let refused = store.list(&Query::new("Thing", Scope::All)).await;
        assert!(matches!(refused, Err(StoreError::TooCostly(_))), "{refused:?}");
    }
    other.batch_execute("ROLLBACK").await.unwrap();
    let page = store.list(&Query::new("Thing", Scope::Children(Uid::opaque("a")))).await.unwrap();
    assert_eq!(page.items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_of_shards_is_that_of_the_database() {
    let Some(cluster) = Cluster::shared() else { return };
    let client = client(cluster.url()).await;
    let mut numbers = vec![0, 1, -1, 42, i64::MIN, i64::MAX, i64::from(i32::MIN), i64::from(u32::MAX), 1 << 32];
    numbers.extend((0..1_000).map(|number| organization(&number.to_string())));
    for row in client.query("SELECT n, hashint8(n) FROM unnest($1::int8[]) n", &[&numbers]).await.unwrap() {
        assert_eq!(hashint8(row.get(0)), row.get::<_, i32>(1), "{}", row.get::<_, i64>(0));
    }
    // The shards of a table with four begin at the least hash, and each has a quarter of them.
    for number in numbers {
        assert_eq!(shard(number, 4), (i64::from(hashint8(number)) + (1 << 31)) as u32 >> 30);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_citus_each_statement_about_one_organization_is_one_task() {
    let Some(cluster) = Cluster::citus() else { return };
    let url = crate::common::empty(&cluster, "one_task").await;
    let store = open(&url).await;
    // The organizations, and the unique keys, are on several nodes.
    for organization in 0..20 {
        crate::common::fill(&store, &format!("o{organization}"), 50).await;
    }
    store.commit(puts([thing("o1/both"), thing("o2/both")])).await.unwrap();
    assert_eq!(store.check().await.unwrap(), []);
    let client = client(&url).await;
    let mut wrong = Vec::new();
    for (name, sql, reach) in statements_for_citus() {
        let explained = match reach {
            Reach::Organization(org) => explain(&client, &sql, org).await,
            Reach::Everywhere => explain(&client, &sql, 0).await,
            Reach::Copies | Reach::None => continue,
        };
        let is_right =
            explained.as_ref().is_ok_and(|plan| reach == Reach::Everywhere || plan.contains("Task Count: 1\n"));
        if !is_right {
            wrong.push(format!("{name}: {sql}\n{explained:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "{} statements:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the plan of a statement about the organization with this parameter. A comparison with null needs no task.
async fn explain(client: &Client, sql: &str, org: usize) -> Result<String, tokio_postgres::Error> {
    let value = |number, of: &Type| match *of {
        _ if number == org => "42",
        Type::BOOL => "true",
        Type::INT4 | Type::INT8 => "1",
        Type::UUID => "'00000000-0000-0000-0000-000000000001'",
        // Some texts are those of arrays.
        Type::TEXT | Type::BYTEA | Type::TEXT_ARRAY | Type::BYTEA_ARRAY => "'{a}'",
        Type::INT4_ARRAY | Type::INT8_ARRAY => "'{1}'",
        Type::UUID_ARRAY => "'{00000000-0000-0000-0000-000000000001}'",
        Type::BOOL_ARRAY => "'{true}'",
        _ => "NULL",
    };
    plan_of(client, sql, value).await.map(|plan| plan + "\n")
}
