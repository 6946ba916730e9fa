//! Reads: each call sees one state of the store, from what is kept of it or from the file.

use std::{
    cell::{Cell, OnceCell},
    ops::ControlFlow,
    path::PathBuf,
    sync::Arc,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use platform_engine::store::{Epoch, StoreError};
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::{
    cache::{Cache, Entry, Row},
    commit,
    error::{store_error, unavailable},
    lists::{List, ListKey},
    nodes::StoredNodes,
    record::{self, Loaded},
    schema::{NameId, Names},
    tree::{Node, Nodes},
    writer::State,
};

/// How many connections are kept open for reading.
const IDLE: usize = 32;

/// Connections that read, and what they keep of what they read.
#[derive(Debug)]
pub(crate) struct Readers {
    pub(crate) path: PathBuf,
    /// How much memory each connection takes for pages, in KiB.
    pub(crate) page_cache: u32,
    pub(crate) names: Arc<ArcSwap<Names>>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// Calls the function with one state of the store, and the names that are in use there; a second time when the
    /// first has come to nothing because a commit came between.
    pub(crate) fn read<T>(&self, read: impl Fn(&View<'_>, &Names) -> Result<T, StoreError>) -> Result<T, StoreError> {
        loop {
            let names = self.names.load();
            let view = View::new(self);
            let result = match read(&view, &names) {
                Err(_) if view.has_moved.take() => read(&view, &names),
                result => result,
            };
            if let Some(connection) = view.connection.into_inner() {
                self.end(connection)?;
            }
            // A name is known before anything that uses it is there: so what was read had no other names.
            if Arc::ptr_eq(&names, &self.names.load()) {
                return result;
            }
        }
    }

    /// Calls the function with one state of the file, and nothing that is kept.
    pub(crate) fn read_file<T>(&self, read: impl Fn(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let connection = self.begin()?;
        let result = read(&connection);
        self.end(connection)?;
        result
    }

    fn begin(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().pop();
        let connection = idle.map_or_else(|| self.connect(), Ok).map_err(store_error)?;
        execute(&connection, "BEGIN")?;
        Ok(connection)
    }

    fn end(&self, connection: Connection) -> Result<(), StoreError> {
        execute(&connection, "COMMIT")?;
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push(connection);
        }
        Ok(())
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.set_prepared_statement_cache_capacity(64);
        keep_plans(&connection)?;
        connection.pragma_update(None, "cache_size", -i64::from(self.page_cache))?;
        Ok(connection)
    }
}

/// Has statements keep the plan that they were prepared with. Otherwise SQLite, as it is built here, prepares a statement
/// with a range anew for each value that it is given, which takes several times as long as to run it.
pub(crate) fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn execute(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    let done = connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
    done.map(drop).map_err(store_error)
}

/// One state of the store: that after the last commit when the view was made, or when it first had to ask the file.
///
/// The file is asked when something is not kept. If its state is then another than that of what was found before,
/// what was read so far is of no use: [`View::connection`] fails, and [`Readers::read`] begins again, with the state
/// of the file.
#[derive(Debug)]
pub(crate) struct View<'a> {
    readers: &'a Readers,
    /// The sequence of the state's last commit.
    seen: Cell<u64>,
    /// In a transaction, once there is one.
    connection: OnceCell<Connection>,
    has_moved: Cell<bool>,
}

impl<'a> View<'a> {
    fn new(readers: &'a Readers) -> Self {
        let seen = Cell::new(readers.cache.committed());
        Self { readers, seen, connection: OnceCell::new(), has_moved: Cell::new(false) }
    }

    /// Returns the file in this state, for what is not kept.
    pub(crate) fn connection(&self) -> Result<&Connection, StoreError> {
        if let Some(connection) = self.connection.get() {
            return Ok(connection);
        }
        let connection = self.readers.begin()?;
        // The first row that is read decides which state the transaction sees.
        let found = State::load(&connection)?.sequence;
        let connection = self.connection.get_or_init(|| connection);
        if self.seen.replace(found) == found {
            return Ok(connection);
        }
        self.has_moved.set(true);
        Err(unavailable("a commit came between"))
    }

    fn kept(&self, row: Row<'_>) -> Option<Entry> {
        self.readers.cache.get(row, self.seen.get())
    }

    fn keep(&self, row: Row<'_>, entry: impl FnOnce() -> Entry) {
        self.readers.cache.insert(row, self.seen.get(), entry);
    }

    /// Returns the record with that key.
    pub(crate) fn find(&self, kind: NameId, uid: &str) -> Result<Option<Arc<Loaded>>, StoreError> {
        let row = Row::At(kind, uid);
        if let Some(Entry::Record(record)) = self.kept(row) {
            return Ok(Some(record));
        }
        let found = record::find(self.connection()?, kind, uid, |stored| Arc::new(stored.to_loaded()))?;
        if let Some(record) = &found {
            self.keep(row, || Entry::Record(record.clone()));
        }
        Ok(found)
    }

    /// Returns the records with those numbers, which an index has, in their order; those alone, at least one, whose
    /// bodies have not many more bytes than that when they must be read from the file.
    pub(crate) fn records(&self, ids: impl Iterator<Item = i64>, bytes: usize) -> Result<Vec<Arc<Loaded>>, StoreError> {
        let kept = |id| match self.kept(Row::Record(id)) {
            Some(Entry::Record(record)) => Ok(record),
            _ => Err(id),
        };
        let found: Vec<Result<_, i64>> = ids.map(kept).collect();
        let missing: Vec<i64> = found.iter().filter_map(|found| found.as_ref().err().copied()).collect();
        let mut read = Vec::with_capacity(missing.len());
        let mut left = Some(bytes);
        if !missing.is_empty() {
            record::each(self.connection()?, &missing, |stored| {
                left = left.and_then(|left| left.checked_sub(stored.body.len()));
                let record = Arc::new(stored.to_loaded());
                self.keep(Row::Record(record.id), || Entry::Record(record.clone()));
                read.push(record);
                left.map_or(ControlFlow::Break(()), |_| ControlFlow::Continue(()))
            })?;
        }
        let mut read = read.into_iter();
        // Without the last that was read, what comes before it fits; so what was not read does not.
        let found = found.into_iter().map(|found| found.or_else(|id| read.next().ok_or(id)));
        let found = found.take_while(|found| found.is_ok() || left.is_some());
        found.map(|found| found.map_err(record::missing)).collect()
    }

    /// Returns the list, if it is one that is kept up.
    pub(crate) fn list(&self, key: &ListKey) -> Result<Option<Arc<(ListKey, List)>>, StoreError> {
        match self.kept(Row::List(key)) {
            Some(Entry::List(list)) => return Ok(Some(list)),
            Some(Entry::NoList(_)) => return Ok(None),
            _ => {}
        }
        let list = key.load(self.connection()?)?.map(|list| Arc::new((key.clone(), list)));
        self.keep(Row::List(key), || list.clone().map_or_else(|| Entry::NoList(key.clone().into()), Entry::List));
        Ok(list)
    }

    /// Returns the value of an epoch.
    pub(crate) fn epoch(&self, epoch: &Epoch) -> Result<u64, StoreError> {
        if let Some(Entry::Epoch(_, value)) = self.kept(Row::Epoch(epoch)) {
            return Ok(value);
        }
        let value = commit::epoch(self.connection()?, epoch)?;
        self.keep(Row::Epoch(epoch), || Entry::Epoch(epoch.clone(), value));
        Ok(value)
    }
}

impl Nodes for View<'_> {
    fn read<T>(&self, id: u64, use_node: impl FnOnce(Node<'_>) -> T) -> Result<T, StoreError> {
        if let Some(Entry::Node(_, bytes)) = self.kept(Row::Node(id)) {
            return Ok(use_node(Node(&bytes)));
        }
        StoredNodes(self.connection()?).read(id, |node| {
            self.keep(Row::Node(id), || Entry::Node(id, node.0.into()));
            use_node(node)
        })
    }
}
