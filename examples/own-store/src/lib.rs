#![doc = include_str!("docs.md")]

use std::{
    fmt,
    ops::{Bound, ControlFlow},
    path::Path,
    sync::Arc,
};

use platform_engine::store::StoreError;
use platform_store_kv::{
    Backend, KvOptions, KvStore,
    backend::{Change, KEY_LEN, KeyRange, Snapshot, Space},
    directory::Directory,
    unavailable,
};
use redb::{Builder, Database, Durability, ReadOnlyTable, ReadableDatabase as _, TableDefinition};

/// One table for all spaces: each snapshot opens it once.
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("store");
/// The format of redb's files (rule 13). redb 2 had another one.
const FORMAT: &str = "redb 3";
/// The memory of redb's cache, in bytes; its own default is 1 GiB.
const CACHE: usize = 64 << 20;

/// Opens a store in a directory, and creates it if the directory is missing or empty.
///
/// # Errors
/// [`StoreError::Unavailable`] if another process has it open or if it cannot be read, and those of [`KvStore::open`].
pub fn open(directory: &Path) -> Result<KvStore<RedbBackend>, StoreError> {
    let backend = RedbBackend::open(directory)?;
    let options = KvOptions::new("redb", backend.0.directory.path().to_owned());
    KvStore::open(backend, options)
}

/// A database of redb in a directory.
#[derive(Debug)]
pub struct RedbBackend(Arc<Opened>);

/// The state that a snapshot keeps open (rule 2). The database is closed before its directory is unlocked.
struct Opened {
    database: Database,
    directory: Directory,
}

/// A read transaction of redb.
pub struct RedbSnapshot {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    _opened: Arc<Opened>,
}

impl RedbBackend {
    /// Opens the database in a directory, and creates it if the directory is missing or empty (rules 9 and 10).
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if another process has it open, or if redb cannot read it.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        Self::open_with(directory, |builder, file| builder.open(file))
    }

    /// As [`RedbBackend::open`]; the function opens the file of the database, for tests whose disk fails.
    ///
    /// # Errors
    /// Those of [`RedbBackend::open`], and any of the function.
    pub fn open_with(
        directory: &Path,
        open: impl FnOnce(&Builder, &Path) -> Result<Database, redb::DatabaseError>,
    ) -> Result<Self, StoreError> {
        let directory = Directory::open(directory, FORMAT, |new| create(&new.join("data")).map_err(refused));
        let directory = directory.map_err(|error| StoreError::Unavailable(error.into()))?;
        let mut builder = Builder::new();
        let opened = open(builder.set_cache_size(CACHE), &directory.path().join("data"));
        Ok(Self(Arc::new(Opened { database: opened.map_err(refused)?, directory })))
    }
}

/// Creates a database with its table, as a table that was never written is an error for readers (rule 5).
fn create(file: &Path) -> Result<(), redb::Error> {
    let database = Database::create(file)?;
    let transaction = database.begin_write()?;
    transaction.open_table(TABLE)?;
    Ok(transaction.commit()?)
}

impl Backend for RedbBackend {
    const MAX_KEY: usize = KEY_LEN;
    /// Our choice; redb has values of up to 3 GiB.
    const MAX_VALUE: usize = 64 << 20;
    type Snapshot = RedbSnapshot;

    fn snapshot(&self) -> Result<RedbSnapshot, StoreError> {
        let table = || Ok::<_, redb::Error>(self.0.database.begin_read()?.open_table(TABLE)?);
        Ok(RedbSnapshot { table: table().map_err(refused)?, _opened: Arc::clone(&self.0) })
    }

    fn write<'b>(&self, batch: impl Iterator<Item = Change<'b>>, sync: bool) -> Result<(), StoreError> {
        let write = || {
            let mut transaction = self.0.database.begin_write()?;
            transaction.set_durability(if sync { Durability::Immediate } else { Durability::None })?;
            let mut table = transaction.open_table(TABLE)?;
            for Change { space, key, value } in batch {
                let key = prefixed(space, key);
                match value {
                    Some(value) => drop(table.insert(key.as_slice(), value)?),
                    None => drop(table.remove(key.as_slice())?),
                }
            }
            drop(table);
            Ok::<_, redb::Error>(transaction.commit()?)
        };
        // The outcome is not known (rule 8).
        write().map_err(refused)
    }
}

impl Snapshot for RedbSnapshot {
    fn get<T>(&self, space: Space, key: &[u8], use_value: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        let found = self.table.get(prefixed(space, key).as_slice()).map_err(refused)?;
        Ok(found.map(|value| use_value(value.value())))
    }

    fn range(
        &self,
        KeyRange { space, from, to, descending }: KeyRange<'_>,
        mut take: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let from = prefixed(space, from);
        // The end of a space is the beginning of the next one.
        let to = to.map_or_else(|| vec![space.number() + 1], |to| prefixed(space, to));
        let bounds = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
        let mut pairs = self.table.range::<&[u8]>(bounds).map_err(refused)?;
        while let Some(pair) = if descending { pairs.next_back() } else { pairs.next() } {
            let (key, value) = pair.map_err(refused)?;
            let Some((_, key)) = key.value().split_first() else { continue };
            if take(key, value.value()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the key in the table: it begins with the number of its space.
fn prefixed(space: Space, key: &[u8]) -> Vec<u8> {
    [&[space.number()], key].concat()
}

fn refused(error: impl fmt::Display) -> StoreError {
    unavailable(format!("redb: {error}"))
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl fmt::Debug for RedbSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbSnapshot").finish_non_exhaustive()
    }
}
