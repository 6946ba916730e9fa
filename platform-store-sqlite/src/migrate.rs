//! Migrations: changes of the layout of files that earlier versions have written.
//!
//! A file has the number of its layout in `PRAGMA user_version`. When it is opened, all migrations from its layout to
//! [`VERSION`] run in one transaction, so that a crash leaves the file with the old layout or with the new one. A
//! migration must not use code that later versions may change, such as [`TABLES`](crate::schema::TABLES).

use platform_engine::store::StoreError;
use rusqlite::Connection;

use crate::{
    error::{corrupt, store_error},
    schema::{Table, VERSION, checksum},
};

/// A step to the next layout.
type Migration = fn(&Connection) -> Result<(), StoreError>;

/// The steps in order; the first one begins with layout 1.
const MIGRATIONS: [Migration; VERSION as usize - 1] = [add_delta];

/// Migrates a file from a layout to the current one, within the caller's transaction.
pub(crate) fn migrate(connection: &Connection, from: i32) -> Result<(), StoreError> {
    let done = usize::try_from(from - 1).unwrap_or_default();
    MIGRATIONS.iter().skip(done).try_for_each(|migration| migration(connection))
}

/// Layout 2: lists and nodes may be older than the records (see [`crate::delta`]).
fn add_delta(connection: &Connection) -> Result<(), StoreError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(store_error);
    let sequence = number("SELECT sequence FROM state WHERE id = 1")?;
    let digest = number("SELECT digest FROM state WHERE id = 1")?;
    let sum = checksum(Table::State, [&sequence.to_le_bytes(), &digest.to_le_bytes()]);
    if number("SELECT sum FROM state WHERE id = 1")? != sum {
        return Err(corrupt("the `state` row does not match its checksum"));
    }
    let first = 1 + number("SELECT coalesce(max(id), 0) FROM record")?;
    let create = "
        CREATE TABLE replaced (
            id INTEGER PRIMARY KEY,
            record INTEGER NOT NULL,
            kind INTEGER NOT NULL,
            uid TEXT NOT NULL,
            revision INTEGER NOT NULL,
            keys BLOB NOT NULL,
            sum INTEGER NOT NULL
        ) STRICT;
        DROP TABLE state;
        CREATE TABLE state (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            sequence INTEGER NOT NULL,
            digest INTEGER NOT NULL,
            folded INTEGER NOT NULL,
            first INTEGER NOT NULL,
            replaced INTEGER NOT NULL,
            sum INTEGER NOT NULL
        ) STRICT;";
    connection.execute_batch(create).map_err(store_error)?;
    // The old layout wrote lists and nodes with each commit: everything is folded.
    let columns = [sequence, digest, sequence, first, 0].map(i64::to_le_bytes);
    let sum = checksum(Table::State, [columns.as_flattened()]);
    let insert = "INSERT INTO state (id, sequence, digest, folded, first, replaced, sum) VALUES (1, ?, ?, ?, ?, 0, ?)";
    connection.execute(insert, (sequence, digest, sequence, first, sum)).map(drop).map_err(store_error)
}
