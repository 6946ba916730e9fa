//! Migrations: changes of the layout of files that earlier versions have written.
//!
//! A file has the number of its layout in `PRAGMA user_version`. When it is opened, all migrations from its layout to
//! [`VERSION`] run in one transaction, so that a crash leaves the file with the old layout or with the new one. A
//! migration must not use code that later versions may change, such as [`TABLES`](crate::schema::TABLES).

use platform_engine::store::StoreError;
use rusqlite::{Connection, types::ValueRef};
use sha2::{Digest as _, Sha256};

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
const MIGRATIONS: [Migration; VERSION as usize - 1] = [
    Migration { about: "layout 2: adds the table `replaced`, and columns to `state`", run: add_delta },
    Migration {
        about: "layout 3: moves the indexes by uid, filter value and unique key to the table `entry`",
        run: add_index,
    },
    Migration {
        about: "layout 4: replaces unique keys in the table `entry` by their digests",
        run: shorten_unique_keys,
    },
];

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

/// Layout 3: one table has the entries of three indexes (see [`crate::index`]).
fn add_index(connection: &Connection) -> Result<(), StoreError> {
    let create = "CREATE TABLE entry (key BLOB PRIMARY KEY, record INTEGER NOT NULL) STRICT, WITHOUT ROWID";
    connection.execute_batch(create).map_err(store_error)?;
    let mut insert = connection.prepare("INSERT INTO entry (key, record) VALUES (?, ?)").map_err(store_error)?;
    // In the order of the new keys.
    for (tag, select) in [
        (b'f', "SELECT record, kind, key, value, uid FROM member ORDER BY kind, key, value, uid"),
        (b'i', "SELECT id, kind, NULL, NULL, uid FROM record ORDER BY kind, uid"),
        (b'u', "SELECT record, space, NULL, NULL, value FROM owner ORDER BY space, value"),
    ] {
        let mut select = connection.prepare(select).map_err(store_error)?;
        let mut rows = select.query([]).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            let mut key = vec![tag];
            for column in [1, 2] {
                match row.get::<_, Option<i64>>(column).map_err(store_error)? {
                    Some(name) if (0..255).contains(&name) => key.push(name as u8),
                    Some(name) => key.extend([&[u8::MAX][..], &name.to_be_bytes()].concat()),
                    None => {}
                }
            }
            let bytes = |column| match row.get_ref(column).map_err(store_error)? {
                ValueRef::Blob(bytes) | ValueRef::Text(bytes) => Ok(Some(bytes)),
                ValueRef::Null => Ok(None),
                _ => Err(corrupt("an index has a column of the wrong type")),
            };
            // The value is terminated by two zero bytes; a zero byte in it is followed by 255.
            if let Some(value) = bytes(3)? {
                for byte in value {
                    key.push(*byte);
                    key.extend((*byte == 0).then_some(u8::MAX));
                }
                key.extend([0, 0]);
            }
            key.extend_from_slice(bytes(4)?.unwrap_or_default());
            let record: i64 = row.get(0).map_err(store_error)?;
            insert.execute((key, record)).map_err(store_error)?;
        }
    }
    connection.execute_batch("DROP TABLE member; DROP TABLE owner; DROP INDEX record_uid").map_err(store_error)
}

/// Layout 4: the entry of a unique key has the first 16 bytes of the SHA-256 digest of its value.
fn shorten_unique_keys(connection: &Connection) -> Result<(), StoreError> {
    // In a table first, from which the entries are inserted in the order of their new keys.
    let create = "CREATE TEMP TABLE digest (key BLOB NOT NULL, record INTEGER NOT NULL) STRICT";
    connection.execute_batch(create).map_err(store_error)?;
    {
        let mut insert = connection.prepare("INSERT INTO digest (key, record) VALUES (?, ?)").map_err(store_error)?;
        let select = "SELECT key, record FROM entry WHERE key > x'75' AND key < x'76'";
        let mut select = connection.prepare(select).map_err(store_error)?;
        let mut rows = select.query([]).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            let key = row.get_ref(0).map_err(store_error)?.as_blob().map_err(|error| corrupt(error.to_string()))?;
            // The tag and the number of the space: one byte, or 255 and eight bytes.
            let prefix = if key.get(1) == Some(&u8::MAX) { 10 } else { 2 };
            let (prefix, value) =
                key.split_at_checked(prefix).ok_or_else(|| corrupt("the entry of a unique key is too short"))?;
            let digest = Sha256::digest(value);
            let key: Vec<u8> = prefix.iter().chain(digest.iter().take(16)).copied().collect();
            insert.execute((key, row.get::<_, i64>(1).map_err(store_error)?)).map_err(store_error)?;
        }
    }
    let replace = "
        DELETE FROM entry WHERE key > x'75' AND key < x'76';
        INSERT INTO entry (key, record) SELECT key, record FROM digest ORDER BY key;
        DROP TABLE digest;";
    connection.execute_batch(replace).map_err(store_error)
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
        assert!(layouts[old] > 10 && layouts[VERSION as usize] > 1, "{layouts:?}");
        assert_eq!(layouts.iter().sum::<usize>(), layouts[old] + layouts[VERSION as usize]);
    }
}
