//! The layout of a database: numbered migrations, and the check that a database has the layout of this release.

use platform_engine::store::StoreError;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{
    citus,
    connection::{Connection, configure},
    error::{Failure, OpenError, cause},
    options::Options,
    primary::Primary,
    schema::{LAYOUT, MIGRATIONS, installation},
    session, shared,
};

/// The table with the number of the layout and the identifier of the installation. All layouts have it.
const LAYOUT_TABLE: &str = "CREATE TABLE IF NOT EXISTS layout (org int8 PRIMARY KEY, version int4 NOT NULL, \
     instance uuid NOT NULL)";
const READ: &str = "SELECT l.version, l.instance FROM layout l WHERE l.org = $1";
const PUT: &str = "INSERT INTO layout (org, version, instance) VALUES ($1, $2, $3) \
     ON CONFLICT (org) DO UPDATE SET version = excluded.version";
/// The key of the lock that one migration holds; a random number.
const MIGRATION: i64 = 0x706c_6174_666f_726d;

/// Runs the migrations that a database lacks, and distributes the tables if it has Citus. Returns the layout that it had,
/// 0 if it was empty.
pub(crate) async fn migrate(url: &str, options: &Options) -> Result<i32, OpenError> {
    let (client, driver) = connect(url, options).await?;
    let result = run(&client).await;
    drop(client);
    // Dropping the client closes the connection, which releases the lock.
    drop(driver.await);
    result
}

/// Returns the layout of a database, 0 if it is empty. Changes nothing.
pub(crate) async fn layout(url: &str, options: &Options) -> Result<i32, OpenError> {
    let (client, _) = connect(url, options).await?;
    let failed = |error| OpenError::Unavailable(cause(error));
    let exists = client.query_one("SELECT to_regclass('layout') IS NOT NULL", &[]).await.map_err(failed)?;
    if exists.try_get(0).map_err(failed)? { found(&client).await } else { Ok(0) }
}

/// Connects to the primary, and drives the connection on a task of its own until the client is dropped.
async fn connect(url: &str, options: &Options) -> Result<(Client, JoinHandle<()>), OpenError> {
    let (config, tls) = configure(url, options)?;
    let primary = Primary::find(&config, &tls).await?;
    let server = primary.state.borrow().server.clone();
    let (client, connection) = server.connect(tls).await.map_err(|error| OpenError::Unavailable(cause(error)))?;
    let driver = tokio::spawn(async { drop(connection.await) });
    session::begin(&client).await.map_err(|error| OpenError::Unavailable(error.into()))?;
    Ok((client, driver))
}

/// Returns the layout of a database that has the table of layouts.
async fn found(client: &Client) -> Result<i32, OpenError> {
    let failed = |error| OpenError::Unavailable(cause(error));
    let found = client.query_opt(READ, &[&installation()]).await.map_err(failed)?;
    let found: i32 = found.map_or(Ok(0), |row| row.try_get(0)).map_err(failed)?;
    if found > LAYOUT { Err(OpenError::Newer { found, known: LAYOUT }) } else { Ok(found) }
}

async fn run(client: &Client) -> Result<i32, OpenError> {
    let failed = |error| OpenError::Unavailable(cause(error));
    client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATION]).await.map_err(failed)?;
    client.batch_execute(LAYOUT_TABLE).await.map_err(failed)?;
    let found = found(client).await?;
    citus::check(client).await?;
    let instance = shared::random().map_err(|error| OpenError::Unavailable(error.into()))?;
    let missing = MIGRATIONS.iter().zip(1..).filter(|(_, version)| *version > found);
    for (sql, version) in missing {
        client.batch_execute("BEGIN").await.map_err(failed)?;
        client.batch_execute(sql).await.map_err(failed)?;
        client.execute(PUT, &[&installation(), &version, &instance]).await.map_err(failed)?;
        client.batch_execute("COMMIT").await.map_err(failed)?;
    }
    citus::distribute(client).await?;
    Ok(found)
}

/// Verifies that the database has the layout of this release, and returns the identifier of the installation.
pub(crate) async fn verify(connection: &Connection) -> Result<Uuid, OpenError> {
    let failed = |failure: Failure| OpenError::Unavailable(StoreError::from(failure).into());
    let exists = connection.query("SELECT to_regclass('layout') IS NOT NULL", &[]).await.map_err(failed)?;
    let exists = exists.first().is_some_and(|row| row.try_get(0).unwrap_or(false));
    if !exists {
        return Err(OpenError::Empty);
    }
    let rows = connection.query(READ, &[&installation()]).await.map_err(failed)?;
    let Some(row) = rows.first() else { return Err(OpenError::Empty) };
    let read = || Ok::<(i32, Uuid), tokio_postgres::Error>((row.try_get(0)?, row.try_get(1)?));
    let (found, instance) = read().map_err(|error| failed(error.into()))?;
    match found {
        LAYOUT => Ok(instance),
        found if found < LAYOUT => Err(OpenError::Older { found, known: LAYOUT }),
        found => Err(OpenError::Newer { found, known: LAYOUT }),
    }
}
