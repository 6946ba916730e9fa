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
pub(crate) struct Migration {
    /// For the operator: the layout that it leads to, and what it does.
    pub(crate) about: &'static str,
    run: fn(&Connection) -> Result<(), StoreError>,
}

/// The steps in order; the first one begins with layout 1.
const MIGRATIONS: [Migration; VERSION as usize - 1] =
    [Migration { about: "layout 2: adds the table `replaced`, and columns to `state`", run: add_delta }];

/// Returns the steps from a layout to the current one.
pub(crate) fn steps(from: i32) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().skip(usize::try_from(from - 1).unwrap_or_default())
}

/// Migrates a file from a layout to the current one, within the caller's transaction.
pub(crate) fn migrate(connection: &Connection, from: i32) -> Result<(), StoreError> {
    steps(from).try_for_each(|step| (step.run)(connection))
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

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, sync::Arc};

    use parking_lot::Mutex;

    use crate::{SqliteStore, file::prepare};

    /// What a process that is killed leaves: the file and its WAL. (The WAL's index is computed again.)
    type Files = (Vec<u8>, Vec<u8>);

    fn read(path: &Path) -> Files {
        (fs::read(path).unwrap(), fs::read(wal(path)).unwrap_or_default())
    }

    fn wal(path: &Path) -> std::path::PathBuf {
        path.with_extension("db-wal")
    }

    #[test]
    fn a_migration_that_is_killed_at_any_instruction_leaves_the_old_layout_or_the_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("platform.db");
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layout-1.db"), &path).unwrap();
        let mut connection = rusqlite::Connection::open(&path).unwrap();
        let records = connection.query_row("SELECT count(*) FROM record", [], |row| row.get::<_, u32>(0)).unwrap();
        let states = Arc::new(Mutex::new(vec![read(&path)]));
        let observe = {
            let (path, states) = (path.clone(), Arc::clone(&states));
            move || {
                let (files, mut states) = (read(&path), states.lock());
                if states.last() != Some(&files) {
                    states.push(files);
                }
                false
            }
        };
        // Called before every instruction of SQLite's virtual machine, of which each statement has several.
        connection.progress_handler(1, Some(observe)).unwrap();
        prepare(&path, &connection).unwrap();
        connection.progress_handler(0, None::<fn() -> bool>).unwrap();
        // COMMIT is one instruction, which appends to the WAL.
        let (file, log) = read(&path);
        assert!(log.len() > 2 * 4096, "the migration is in the WAL: {}", log.len());
        let mut states = states.lock().clone();
        states.extend((0..=log.len()).step_by(256).map(|len| (file.clone(), log[..len].to_vec())));
        states.push((file, log));
        drop(connection);
        states.push(read(&path));

        let mut layouts = [0; 3];
        for (file, log) in &states {
            let killed = tempfile::tempdir().unwrap();
            let path = killed.path().join("platform.db");
            fs::write(&path, file).unwrap();
            fs::write(wal(&path), log).unwrap();
            let (layout, steps) = SqliteStore::migrations(&path).unwrap();
            assert_eq!(steps.len(), SqliteStore::LAYOUT as usize - layout as usize);
            layouts[layout as usize] += 1;
            let store = SqliteStore::open(&path).unwrap();
            assert_eq!(store.check().unwrap(), [], "layout {layout}");
            drop(store);
            let connection = rusqlite::Connection::open(&path).unwrap();
            let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
            assert_eq!(number("SELECT count(*) FROM record"), records);
            assert_eq!(number("PRAGMA user_version"), SqliteStore::LAYOUT);
        }
        assert!(layouts[1] > 10 && layouts[2] > 1, "{layouts:?}");
    }
}
