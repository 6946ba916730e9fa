//! The other side: a program hand-written for this one purpose with rusqlite, without other libraries.
//!
//! It has no tenants, tokens, filters, other orders or other kinds, and uses SQLite as well as possible: a counter for the
//! total, statements prepared once, and JSON written into one buffer. [`Layout`] has the ways to store the repos.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::resources::registry::Repo;
use rusqlite::{Connection, OpenFlags, Row, ToSql, params, params_from_iter, types::Value};

use crate::data::{Data, organization, repo_put};

/// How the hand-written program stores repos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Columns in a table by uid, and once more in an index by name, which covers the list. The file is mapped into
    /// memory.
    Covering,
    /// Columns in a table by number, with an index by organization, name and uid. Read without a map.
    Columns,
    /// JSON in a table by number, with an index by organization, name and uid. Read without a map.
    Json,
}

const COUNTER: &str = "
    CREATE TABLE counter (organisation INTEGER PRIMARY KEY, total INTEGER NOT NULL);
    INSERT INTO counter SELECT organisation, count(*) FROM repo GROUP BY organisation;
";

/// The number of repos in a block of [`HandReads::skip`], and of blocks in a block of blocks.
const BLOCK: i64 = 64;

/// The first repo of each block in the order by name, and the number of repos in it; and the sums of 64 blocks. A service
/// that changes the data would change one count of each.
const BLOCKS: &str = "
    CREATE TABLE block (
        organisation INTEGER NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
        total INTEGER NOT NULL, PRIMARY KEY (organisation, number)
    ) WITHOUT ROWID;
    CREATE TABLE blocks (
        organisation INTEGER NOT NULL, number INTEGER NOT NULL, total INTEGER NOT NULL,
        PRIMARY KEY (organisation, number)
    ) WITHOUT ROWID;
    INSERT INTO block SELECT organisation, (place - 1) / 64, name, uid, total FROM (
        SELECT organisation, name, uid, row_number() OVER place AS place,
            count(*) OVER (PARTITION BY organisation ORDER BY name, uid ROWS BETWEEN CURRENT ROW AND 63 FOLLOWING) AS total
        FROM repo WINDOW place AS (PARTITION BY organisation ORDER BY name, uid)
    ) WHERE place % 64 = 1;
    INSERT INTO blocks SELECT organisation, number / 64, sum(total) FROM block GROUP BY organisation, number / 64;
";

impl Layout {
    const fn schema(self) -> &'static str {
        match self {
            Self::Covering => {
                "CREATE TABLE repo (
                    uid TEXT PRIMARY KEY, organisation INTEGER NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
                    tier TEXT NOT NULL, bundles TEXT NOT NULL, tags TEXT NOT NULL, created TEXT NOT NULL,
                    updated TEXT NOT NULL
                ) WITHOUT ROWID;"
            }
            Self::Columns => {
                "CREATE TABLE repo (
                    id INTEGER PRIMARY KEY, uid TEXT NOT NULL, organisation INTEGER NOT NULL, name TEXT NOT NULL,
                    description TEXT NOT NULL, tier TEXT NOT NULL, bundles TEXT NOT NULL, tags TEXT NOT NULL,
                    created TEXT NOT NULL, updated TEXT NOT NULL
                );"
            }
            Self::Json => {
                "CREATE TABLE repo (
                    id INTEGER PRIMARY KEY, uid TEXT NOT NULL, organisation INTEGER NOT NULL, name TEXT NOT NULL,
                    body TEXT NOT NULL
                );"
            }
        }
    }

    const fn indexes(self) -> &'static str {
        match self {
            Self::Covering => {
                "CREATE INDEX by_name ON repo (organisation, name, uid, description, tier, bundles, tags, created, updated);"
            }
            Self::Columns | Self::Json => {
                "CREATE UNIQUE INDEX by_uid ON repo (uid); CREATE INDEX by_name ON repo (organisation, name, uid);"
            }
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Covering => "hand",
            Self::Columns => "hand-columns",
            Self::Json => "hand-json",
        }
    }

    const fn selected(self) -> &'static str {
        match self {
            Self::Json => "uid, name, body",
            Self::Covering | Self::Columns => "uid, name, description, tier, bundles, tags, created, updated",
        }
    }

    /// Creates a file with this data.
    pub fn make(self, path: &Path, data: Data) {
        make(path, data, self);
    }

    /// Returns the file of this data, and creates it if it is missing.
    pub fn file(self, data: Data) -> PathBuf {
        data.cached(self.suffix(), |path| self.make(path, data))
    }
}

/// A file with the same repos, and the read operations.
#[derive(Debug)]
pub struct HandReads {
    connection: Connection,
    layout: Layout,
}

impl HandReads {
    /// Opens the file of this data in the covering layout, or creates it if it is missing.
    pub fn open(data: Data) -> Self {
        Self::with(data, Layout::Covering, 2_048)
    }

    /// Opens the file of this data, or creates it if it is missing, with a page cache of this number of KiB.
    pub fn with(data: Data, layout: Layout, cache: u32) -> Self {
        Self::read(&layout.file(data), layout, cache)
    }

    /// Opens a file, with a page cache of this number of KiB.
    pub fn read(path: &Path, layout: Layout, cache: u32) -> Self {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).unwrap();
        connection.pragma_update(None, "mmap_size", if layout == Layout::Covering { 1_i64 << 40 } else { 0 }).unwrap();
        connection.pragma_update(None, "cache_size", -i64::from(cache)).unwrap();
        Self { connection, layout }
    }

    /// Returns a page of 50 by name as JSON, with the total and the cursor of the next page.
    pub fn list(&self, organization: i64, cursor: Option<&str>) -> Vec<u8> {
        let execute = |sql| self.connection.prepare_cached(sql).unwrap().execute([]).unwrap();
        execute("BEGIN");
        let mut total = self.connection.prepare_cached("SELECT total FROM counter WHERE organisation = ?").unwrap();
        let total: i64 = total.query_row([organization], |row| row.get(0)).unwrap();
        let after = cursor.map(|cursor| String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).unwrap()).unwrap());
        let (name, uid) = after.as_deref().and_then(|after| after.split_once('\n')).unwrap_or_default();
        let json = self.page(params![organization, name, uid, 0], ">", total, 0);
        execute("COMMIT");
        json
    }

    /// Returns the page of 50 by name after this number of repos, which it finds by the counts of `BLOCKS`.
    pub fn skip(&self, organization: i64, skip: i64) -> Vec<u8> {
        let execute = |sql| self.connection.prepare_cached(sql).unwrap().execute([]).unwrap();
        execute("BEGIN");
        let mut total = self.connection.prepare_cached("SELECT total FROM counter WHERE organisation = ?").unwrap();
        let total: i64 = total.query_row([organization], |row| row.get(0)).unwrap();
        let mut left = skip;
        // The number of the last row that begins before the place, and what is left to skip in it.
        let mut down = |sql: &str, from: i64| {
            let mut select = self.connection.prepare_cached(sql).unwrap();
            let mut rows = select.query([organization, from]).unwrap();
            let mut found = from;
            while let Some(row) = rows.next().unwrap() {
                found = row.get(0).unwrap();
                let total: i64 = row.get(1).unwrap();
                if left < total {
                    break;
                }
                left -= total;
            }
            found
        };
        let of_blocks =
            down("SELECT number, total FROM blocks WHERE organisation = ? AND number >= ? ORDER BY number", 0);
        let block = down(
            "SELECT number, total FROM block WHERE organisation = ? AND number >= ? ORDER BY number",
            of_blocks * BLOCK,
        );
        let mut first = self
            .connection
            .prepare_cached("SELECT name, uid FROM block WHERE organisation = ? AND number = ?")
            .unwrap();
        let (name, uid): (String, String) =
            first.query_row([organization, block], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let json = self.page(params![organization, name, uid, left], ">=", total, skip);
        execute("COMMIT");
        json
    }

    /// Reads a page with parameters organization, name, uid and offset.
    fn page(&self, parameters: &[&dyn ToSql], compared: &str, total: i64, skipped: i64) -> Vec<u8> {
        let select = format!(
            "SELECT {} FROM repo WHERE organisation = ? AND (name, uid) {compared} (?, ?) ORDER BY name, uid \
             LIMIT 51 OFFSET ?",
            self.layout.selected()
        );
        let mut select = self.connection.prepare_cached(&select).unwrap();
        let mut rows = select.query(parameters).unwrap();
        let mut json = Vec::with_capacity(20_000);
        json.extend_from_slice(b"{\"repos\":[");
        let (mut count, mut next, mut last) = (0, None, String::new());
        while let Some(row) = rows.next().unwrap() {
            if count == 50 {
                next = Some(URL_SAFE_NO_PAD.encode(&last));
                break;
            }
            if count > 0 {
                json.push(b',');
            }
            self.render(&mut json, row);
            if count == 49 {
                let text = |column| row.get_ref(column).unwrap().as_str().unwrap();
                last = format!("{}\n{}", text(1), text(0));
            }
            count += 1;
        }
        drop(rows);
        let mut tail = String::from("],");
        if let Some(next) = next {
            write!(tail, "\"nextPageToken\":\"{next}\",").unwrap();
        }
        write!(tail, "\"totalCount\":\"{total}\",\"skipped\":{skipped}}}").unwrap();
        json.extend_from_slice(tail.as_bytes());
        json
    }

    /// Returns a repo as JSON.
    pub fn get(&self, uid: &str) -> Vec<u8> {
        let select = format!("SELECT {} FROM repo WHERE uid = ?", self.layout.selected());
        let mut select = self.connection.prepare_cached(&select).unwrap();
        let mut json = Vec::with_capacity(400);
        select
            .query_row([uid], |row| {
                self.render(&mut json, row);
                Ok(())
            })
            .unwrap();
        json
    }

    /// Reads the bodies of an organization in the order by name in one statement. Returns their number and length.
    pub fn scan(&self, organization: i64) -> (u64, u64) {
        let select = format!("SELECT {} FROM repo WHERE organisation = ? ORDER BY name, uid", self.layout.selected());
        let mut select = self.connection.prepare_cached(&select).unwrap();
        let mut rows = select.query([organization]).unwrap();
        let (mut json, mut count, mut bytes) = (Vec::new(), 0, 0);
        while let Some(row) = rows.next().unwrap() {
            json.clear();
            self.render(&mut json, row);
            count += 1;
            bytes += std::hint::black_box(&json).len() as u64;
        }
        (count, bytes)
    }

    fn render(&self, json: &mut Vec<u8>, row: &Row<'_>) {
        match self.layout {
            Layout::Json => json.extend_from_slice(row.get_ref(2).unwrap().as_str().unwrap().as_bytes()),
            Layout::Covering | Layout::Columns => render(json, row),
        }
    }
}

fn render(json: &mut Vec<u8>, row: &Row<'_>) {
    let text = |column| row.get_ref(column).unwrap().as_str().unwrap();
    // Only texts of users may need escaping.
    let escaped = |json: &mut Vec<u8>, column| serde_json::to_writer(json, text(column)).unwrap();
    let plain = |json: &mut Vec<u8>, column| json.extend_from_slice(text(column).as_bytes());
    json.extend_from_slice(b"{\"uid\":\"");
    plain(json, 0);
    json.extend_from_slice(b"\",\"name\":");
    escaped(json, 1);
    json.extend_from_slice(b",\"description\":");
    escaped(json, 2);
    json.extend_from_slice(b",\"catalogTier\":\"");
    plain(json, 3);
    json.extend_from_slice(b"\",\"bundles\":");
    plain(json, 4);
    json.extend_from_slice(b",\"activeTags\":");
    plain(json, 5);
    json.extend_from_slice(b",\"createTime\":\"");
    plain(json, 6);
    json.extend_from_slice(b"\",\"updateTime\":\"");
    plain(json, 7);
    json.extend_from_slice(b"\"}");
}

/// Returns the columns of a repo: uid, name, description, tier, bundles, tags, created, updated.
fn columns(repo: &Repo) -> [String; 8] {
    let json = |value: &dyn Fn() -> serde_json::Result<serde_json::Value>| value().unwrap();
    let text = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    [
        repo.uid.to_string(),
        repo.name.clone(),
        repo.description.clone(),
        text(json(&|| serde_json::to_value(repo.catalog_tier))),
        serde_json::to_string(&repo.bundles).unwrap(),
        serde_json::to_string(&repo.active_tags).unwrap(),
        text(json(&|| serde_json::to_value(repo.create_time))),
        text(json(&|| serde_json::to_value(repo.update_time))),
    ]
}

fn make(path: &Path, data: Data, layout: Layout) {
    let mut connection = Connection::open(path).unwrap();
    connection.execute_batch(layout.schema()).unwrap();
    let transaction = connection.transaction().unwrap();
    {
        let insert = match layout {
            Layout::Json => "INSERT INTO repo (uid, name, organisation, body) VALUES (?, ?, ?, ?)",
            Layout::Covering | Layout::Columns => {
                "INSERT INTO repo (uid, name, organisation, description, tier, bundles, tags, created, updated) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            }
        };
        let mut insert = transaction.prepare(insert).unwrap();
        for number in 0..data.repos() {
            let repo = data.repo(number);
            let organization = data.organization_of(number).cast_signed();
            let [uid, name, description, tier, bundles, tags, created, updated] = columns(&repo);
            match layout {
                Layout::Json => {
                    let body = repo_put(&repo).body;
                    let body = std::str::from_utf8(&body).unwrap();
                    insert.execute(params![uid, name, organization, body]).unwrap();
                }
                Layout::Covering | Layout::Columns => {
                    let texts = [description, tier, bundles, tags, created, updated];
                    let values = [uid.into(), name.into(), organization.into()].into_iter();
                    let values = values.chain(texts.map(Value::from));
                    insert.execute(params_from_iter(values)).unwrap();
                }
            }
        }
    }
    transaction.execute_batch(layout.indexes()).unwrap();
    transaction.execute_batch(COUNTER).unwrap();
    if layout == Layout::Json {
        transaction.execute_batch(BLOCKS).unwrap();
    }
    transaction.commit().unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); ANALYZE").unwrap();
}

/// Maintains the same orders, unique name and counts as the platform's store.
const WRITE_SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE IF NOT EXISTS repo (
        id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, organisation TEXT NOT NULL, parent TEXT NOT NULL,
        name TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, body TEXT NOT NULL
    );
    CREATE UNIQUE INDEX IF NOT EXISTS once ON repo (parent, name);
    CREATE INDEX IF NOT EXISTS by_name ON repo (organisation, name, uid);
    CREATE INDEX IF NOT EXISTS by_created ON repo (organisation, created, uid);
    CREATE INDEX IF NOT EXISTS by_updated ON repo (organisation, updated, uid);
    CREATE TABLE IF NOT EXISTS counter (place TEXT PRIMARY KEY, total INTEGER NOT NULL) WITHOUT ROWID;
";

/// Creates repos in one transaction each, which is synced when the call returns.
#[derive(Debug)]
pub struct HandCreates(Connection);

impl HandCreates {
    /// Opens the file, or creates it if it is missing.
    pub fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch(WRITE_SCHEMA).unwrap();
        Self(connection)
    }

    /// Creates a repo in the first organization, and returns its JSON.
    pub fn create(&mut self, number: u64, name: &str, now: i64) -> String {
        let parent = organization(0);
        let uid = format!("{parent}/{:016x}", crate::data::mix(number));
        let body = serde_json::json!({ "uid": uid, "name": name, "createTime": now, "updateTime": now }).to_string();
        let transaction = self.0.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
        let insert = "INSERT INTO repo (uid, organisation, parent, name, created, updated, body) \
                      VALUES (?1, ?2, ?2, ?3, ?4, ?4, ?5)";
        let mut statement = transaction.prepare_cached(insert).unwrap();
        statement.execute(params![uid, &*parent, name, now, body]).unwrap();
        drop(statement);
        let count = "INSERT INTO counter VALUES (?, 1) ON CONFLICT DO UPDATE SET total = total + 1";
        for place in ["all", &format!("below {parent}"), &format!("in {parent}")] {
            transaction.prepare_cached(count).unwrap().execute([place]).unwrap();
        }
        transaction.commit().unwrap();
        body
    }
}
