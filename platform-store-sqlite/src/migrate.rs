//! Migrations: changes of the layout of files that earlier versions have written.
//!
//! A file has the number of its layout in `PRAGMA user_version`. When it is opened, all migrations from its layout to
//! [`VERSION`](crate::schema::VERSION) run in one transaction, so that a crash leaves the file with the old layout or with
//! the new one. All but the last one must not use code that later versions may change.

use std::collections::BTreeMap;

use platform_engine::store::StoreError;
use rusqlite::Connection;

use crate::{
    bulk::Pending,
    error::{corrupt, store_error},
    index,
    record::{self, Stored, columns},
    schema::{Table, checksum},
    state::State,
};

/// A step to a later layout.
pub(crate) struct Migration {
    /// The layout that it leads to.
    to: i32,
    /// For the operator: the layout that it leads to, and what it does.
    pub(crate) about: &'static str,
    run: fn(&Connection) -> Result<(), StoreError>,
}

/// The steps in order; the first one begins with layout 1.
const MIGRATIONS: [Migration; 2] = [
    Migration { to: 2, about: "layout 2: adds the table `replaced`, and columns to `state`", run: add_delta },
    Migration { to: 4, about: "layout 4: makes the indexes and lists again, with shorter keys", run: index_again },
];

/// Returns the steps from a layout to the current one.
pub(crate) fn steps(from: i32) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().filter(move |step| step.to > from)
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

/// Layouts 3 and 4 have other indexes, and layout 4 has other keys in trees. All of that is derived from the records: it
/// is deleted, and all records are marked as those of a bulk load that was interrupted, which the store indexes when it
/// is opened ([`crate::bulk`]).
///
/// This writes what the current version reads, so it has to stay the last step: a migration of records comes before it.
fn index_again(connection: &Connection) -> Result<(), StoreError> {
    let run = |sql: &str| connection.execute_batch(sql).map_err(store_error);
    run("
        DROP TABLE IF EXISTS member;
        DROP TABLE IF EXISTS owner;
        DROP INDEX IF EXISTS record_uid;
        DROP TABLE IF EXISTS entry;
        CREATE TABLE entry (key BLOB PRIMARY KEY, record INTEGER NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TEMP TABLE unsorted (key BLOB NOT NULL, record INTEGER NOT NULL) STRICT;")?;
    insert_keys(connection)?;
    run("
        INSERT INTO entry (key, record) SELECT key, record FROM unsorted ORDER BY key;
        DROP TABLE unsorted;
        DROP TABLE IF EXISTS unindexed;
        DELETE FROM list;
        DELETE FROM node;
        DELETE FROM replaced;")?;
    let state = State::load(connection)?;
    let last = connection.query_row("SELECT coalesce(max(id), 0) FROM record", [], |row| row.get::<_, i64>(0));
    // Everything is folded, as if no commit had been made since.
    let first = state.first.max(1 + last.map_err(store_error)?);
    State { folded: state.sequence, first, replaced: 0, ..state }.save(connection)?;
    let mut kinds = connection.prepare("SELECT DISTINCT kind FROM record").map_err(store_error)?;
    let kinds = kinds.query_map([], |row| row.get(0)).and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>);
    Pending::all_of(kinds.map_err(store_error)?).save(connection, &mut BTreeMap::new())
}

/// Collects the keys that the records of a bulk load have in the index: those by uid, and the unique ones.
fn insert_keys(connection: &Connection) -> Result<(), StoreError> {
    let mut insert = connection.prepare("INSERT INTO unsorted (key, record) VALUES (?, ?)").map_err(store_error)?;
    let mut select = connection.prepare_cached(concat!("SELECT ", columns!(), " FROM record")).map_err(store_error)?;
    record::for_each(&mut select, [], |Stored { id, kind, uid, keys, .. }| {
        index::own_keys_of(kind, uid, keys).try_for_each(|key| insert.execute((key, id)).map(drop)).map_err(store_error)
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, sync::Arc};

    use parking_lot::Mutex;

    use crate::{SqliteStore, file::prepare, schema::VERSION};

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
        for old in 1..VERSION as usize {
            kill_at_every_instruction(old);
        }
    }

    fn kill_at_every_instruction(old: usize) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("platform.db");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/layout-{old}.db"));
        fs::copy(file, &path).unwrap();
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

        let mut layouts = [0; VERSION as usize + 1];
        for (file, log) in &states {
            let killed = tempfile::tempdir().unwrap();
            let path = killed.path().join("platform.db");
            fs::write(&path, file).unwrap();
            fs::write(wal(&path), log).unwrap();
            let (layout, steps) = SqliteStore::migrations(&path).unwrap();
            let leads_here = |step: &&str| step.starts_with(&format!("layout {}: ", SqliteStore::LAYOUT));
            assert_eq!(steps.last().map(leads_here), (layout < SqliteStore::LAYOUT).then_some(true), "{steps:?}");
            layouts[layout as usize] += 1;
            let store = SqliteStore::open(&path).unwrap();
            assert_eq!(store.check().unwrap(), [], "layout {layout}");
            drop(store);
            let connection = rusqlite::Connection::open(&path).unwrap();
            let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
            assert_eq!(number("SELECT count(*) FROM record"), records);
            assert_eq!(number("PRAGMA user_version"), SqliteStore::LAYOUT);
        }
        assert!(layouts[old] > 10 && layouts[VERSION as usize] > 1, "{layouts:?}");
        assert_eq!(layouts.iter().sum::<usize>(), layouts[old] + layouts[VERSION as usize]);
    }
}
