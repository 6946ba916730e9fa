//! The distribution of the tables over the nodes of a database with Citus: by organization, so that each organization is
//! on one node.

use platform_engine::store::StoreError;
use tokio_postgres::Client;

use crate::error::{OpenError, cause};

/// The tables that are distributed by the column `org`. The rows of an organization are on one node, because all tables
/// are distributed like the first.
const DISTRIBUTED: [&str; 9] = ["head", "epoch", "record", "deep", "member", "owner", "tally", "block", "batch"];
/// The tables that each node has a copy of: small, and rarely written. The table `layout` is only on the coordinator.
const REFERENCE: [&str; 2] = ["slot", "document"];

/// Lets the planner see the parameters of statements in a session of a database with Citus, which finds their nodes by
/// them, except those of the simplest statements.
pub(crate) const PLANS: &str =
    "SELECT set_config('plan_cache_mode', 'auto', false) WHERE to_regclass('pg_dist_partition') IS NOT NULL";
/// Whether the extension is in the database.
const IS_INSTALLED: &str = "SELECT to_regclass('pg_dist_partition') IS NOT NULL";
/// The coordinator has the group 0.
const GROUP: &str = "SELECT groupid FROM pg_dist_local_group";
const NODES: &str = "SELECT count(*) FROM pg_dist_node WHERE isactive AND shouldhaveshards AND noderole = 'primary'";
/// How each table ($1) is distributed: by hash (`h`) or as copies (`n`).
const STATE: &str = "SELECT t.name, to_regclass(t.name) IS NOT NULL, p.partmethod::text, p.colocationid \
     FROM unnest($1::text[]) t(name) LEFT JOIN pg_dist_partition p ON p.logicalrelid = to_regclass(t.name)";

/// A table of the store.
#[derive(Debug, Clone)]
struct Table {
    name: String,
    exists: bool,
    /// The method of distribution, and the group of tables that are distributed alike.
    distribution: Option<(String, i32)>,
}

/// Returns whether a database is distributed.
///
/// # Errors
/// [`OpenError::Distribution`] if the database has Citus, but the tables are not, or not all, distributed as they must
/// be, or if the server is not the coordinator.
pub(crate) async fn is_distributed(client: &Client) -> Result<bool, OpenError> {
    if !is_installed(client).await? {
        return Ok(false);
    }
    check_coordinator(client).await?;
    let tables = tables(client).await?;
    if undistributed(&tables)?.is_empty() {
        Ok(true)
    } else {
        Err(wrong("they are not distributed: stop all servers, and run `platform-server migrate`"))
    }
}

/// Verifies, before migrations, that either none or all of the tables are distributed.
pub(crate) async fn check(client: &Client) -> Result<(), OpenError> {
    if !is_installed(client).await? {
        return Ok(());
    }
    check_coordinator(client).await?;
    let nodes: i64 = client.query_one(NODES, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    if nodes == 0 {
        let how = "the coordinator has no nodes for them: add each with `SELECT citus_add_node('HOST', 5432)`";
        return Err(wrong(how));
    }
    let tables = tables(client).await?;
    let missing = undistributed(&tables)?;
    let existing = tables.iter().filter(|table| table.exists).count();
    if missing.is_empty() || missing.len() == existing {
        return Ok(());
    }
    let done = tables.iter().filter(|table| table.distribution.is_some()).map(|table| table.name.as_str());
    Err(wrong(format!(
        "{} are, but {} are not: run `SELECT undistribute_table('TABLE')` for the former, and then `platform-server \
         migrate` again",
        done.collect::<Vec<_>>().join(", "),
        missing.join(", "),
    )))
}

/// Distributes the tables that are not distributed yet, with their rows, in one transaction.
pub(crate) async fn distribute(client: &Client) -> Result<(), OpenError> {
    if !is_installed(client).await? {
        return Ok(());
    }
    let tables = tables(client).await?;
    let missing = undistributed(&tables)?;
    if missing.is_empty() {
        return Ok(());
    }
    // The nodes are written to one after another, because a transaction cannot use a table that is on all of them, and
    // then several connections to one of them.
    let mut script = String::from("BEGIN; SET LOCAL citus.multi_shard_modify_mode TO 'sequential'; ");
    let mut after = String::new();
    for table in missing {
        script.push_str(&match (table, REFERENCE.contains(&table)) {
            (_, true) => format!("SELECT create_reference_table('{table}'); "),
            ("head", _) => format!("SELECT create_distributed_table('{table}', 'org', colocate_with => 'none'); "),
            _ => format!("SELECT create_distributed_table('{table}', 'org', colocate_with => 'head'); "),
        });
        // The rows have been copied to the nodes.
        after.push_str(&format!("SELECT truncate_local_data_after_distributing_table('{table}'); "));
    }
    script.push_str("COMMIT");
    client.batch_execute(&script).await.map_err(failed)?;
    client.batch_execute(&after).await.map_err(failed)
}

async fn is_installed(client: &Client) -> Result<bool, OpenError> {
    client.query_one(IS_INSTALLED, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)
}

async fn check_coordinator(client: &Client) -> Result<(), OpenError> {
    let group: i32 = client.query_one(GROUP, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    match group {
        // The locks of commits are those of one server.
        0 => Ok(()),
        _ => Err(wrong("this server is a worker: give the address of the coordinator")),
    }
}

async fn tables(client: &Client) -> Result<Vec<Table>, OpenError> {
    let names: Vec<&str> = DISTRIBUTED.into_iter().chain(REFERENCE).collect();
    let rows = client.query(STATE, &[&names]).await.map_err(failed)?;
    let table = |row: &tokio_postgres::Row| {
        let method: Option<String> = row.try_get(2)?;
        let group: Option<i32> = row.try_get(3)?;
        Ok(Table { name: row.try_get(0)?, exists: row.try_get(1)?, distribution: method.zip(group) })
    };
    rows.iter().map(table).collect::<Result<_, _>>().map_err(failed)
}

/// Returns the existing tables that are not distributed.
///
/// # Errors
/// [`OpenError::Distribution`] if a table is distributed in another way than this store needs.
fn undistributed(tables: &[Table]) -> Result<Vec<&'static str>, OpenError> {
    let of = |name: &str| tables.iter().find(|table| table.name == name);
    let head = of("head").and_then(|head| head.distribution.clone());
    let mut missing = Vec::new();
    for name in DISTRIBUTED.into_iter().chain(REFERENCE) {
        let Some(table) = of(name).filter(|table| table.exists) else { continue };
        let Some((method, group)) = &table.distribution else {
            missing.push(name);
            continue;
        };
        let is_right = if REFERENCE.contains(&name) {
            method == "n"
        } else {
            method == "h" && head.as_ref().is_some_and(|(_, head)| head == group)
        };
        if !is_right {
            return Err(wrong(format!(
                "{name} is distributed in another way: run `SELECT undistribute_table('{name}')`, and then \
                 `platform-server migrate` again"
            )));
        }
    }
    Ok(missing)
}

fn wrong(how: impl Into<String>) -> OpenError {
    OpenError::Distribution(how.into())
}

fn failed(error: tokio_postgres::Error) -> OpenError {
    match error.as_db_error() {
        Some(_) => OpenError::Unavailable(cause(error)),
        None => OpenError::Unavailable(StoreError::Unavailable(error.into()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, distribution: Option<(&str, i32)>) -> Table {
        let distribution = distribution.map(|(method, group)| (method.to_owned(), group));
        Table { name: name.to_owned(), exists: true, distribution }
    }

    #[test]
    fn every_table_is_distributed_or_a_copy_or_only_on_the_coordinator() {
        let tables = crate::schema::MIGRATIONS.iter().flat_map(|sql| sql.split("CREATE TABLE ").skip(1));
        let names: Vec<&str> = tables.filter_map(|table| table.split_whitespace().next()).collect();
        let mut known: Vec<&str> = DISTRIBUTED.into_iter().chain(REFERENCE).collect();
        for name in names {
            assert!(known.contains(&name), "{name} is neither distributed nor a reference table");
            known.retain(|known| *known != name);
        }
        assert_eq!(known, [""; 0]);
    }

    #[test]
    fn tables_that_are_distributed_otherwise_are_refused() {
        let head = table("head", Some(("h", 1)));
        assert_eq!(undistributed(&[head.clone(), table("record", None)]).unwrap(), ["record"]);
        for other in [Some(("h", 2)), Some(("n", 1))] {
            assert!(undistributed(&[head.clone(), table("record", other)]).is_err());
        }
        assert!(undistributed(&[head, table("slot", Some(("h", 1)))]).is_err());
        assert!(undistributed(&[table("record", Some(("h", 1))), table("head", None)]).is_err());
    }
}
