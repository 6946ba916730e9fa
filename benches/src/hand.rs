//! The other side: a program hand-written for this one purpose with rusqlite, without other libraries.
//!
//! It has no tenants, tokens, filters, other orders or other kinds, and uses SQLite as well as possible: a covering
//! index for the list, a counter for the total, statements prepared once, the file mapped into memory, and JSON written
//! from columns into one buffer.

use std::{fmt::Write as _, path::Path};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use platform_core::resources::registry::Repo;
use rusqlite::{Connection, OpenFlags, Row, params};

use crate::data::{Data, organization};

const READ_SCHEMA: &str = "
    CREATE TABLE repo (
        uid TEXT PRIMARY KEY, organisation INTEGER NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
        tier TEXT NOT NULL, bundles TEXT NOT NULL, tags TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE counter (organisation INTEGER PRIMARY KEY, total INTEGER NOT NULL);
";

const COVERING: &str = "
    CREATE INDEX by_name ON repo (organisation, name, uid, description, tier, bundles, tags, created, updated);
    INSERT INTO counter SELECT organisation, count(*) FROM repo GROUP BY organisation;
";

/// A file with the same repos, and the two read operations.
#[derive(Debug)]
pub struct HandReads(Connection);

impl HandReads {
    /// Opens the file of this data, or creates it if it is missing.
    pub fn open(data: Data) -> Self {
        let path = data.cached("hand", |path| make(path, data));
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).unwrap();
        connection.pragma_update(None, "mmap_size", 1_i64 << 32).unwrap();
        Self(connection)
    }

    /// Returns a page of 50 by name as JSON, with the total and the cursor of the next page.
    pub fn list(&self, organization: i64, cursor: Option<&str>) -> Vec<u8> {
        let execute = |sql| self.0.prepare_cached(sql).unwrap().execute([]).unwrap();
        execute("BEGIN");
        let mut total = self.0.prepare_cached("SELECT total FROM counter WHERE organisation = ?").unwrap();
        let total: i64 = total.query_row([organization], |row| row.get(0)).unwrap();
        let after = cursor.map(|cursor| String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).unwrap()).unwrap());
        let (name, uid) = after.as_deref().and_then(|after| after.split_once('\n')).unwrap_or_default();
        let select = "SELECT uid, name, description, tier, bundles, tags, created, updated FROM repo \
                      WHERE organisation = ? AND (name, uid) > (?, ?) ORDER BY name, uid LIMIT 51";
        let mut select = self.0.prepare_cached(select).unwrap();
        let mut rows = select.query(params![organization, name, uid]).unwrap();
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
            render(&mut json, row);
            if count == 49 {
                let text = |column| row.get_ref(column).unwrap().as_str().unwrap();
                last = format!("{}\n{}", text(1), text(0));
            }
            count += 1;
        }
        drop(rows);
        execute("COMMIT");
        let mut tail = String::from("],");
        if let Some(next) = next {
            write!(tail, "\"nextPageToken\":\"{next}\",").unwrap();
        }
        write!(tail, "\"totalCount\":\"{total}\",\"skipped\":0}}").unwrap();
        json.extend_from_slice(tail.as_bytes());
        json
    }

    /// Returns a repo as JSON.
    pub fn get(&self, uid: &str) -> Vec<u8> {
        let select = "SELECT uid, name, description, tier, bundles, tags, created, updated FROM repo WHERE uid = ?";
        let mut select = self.0.prepare_cached(select).unwrap();
        let mut json = Vec::with_capacity(400);
        select
            .query_row([uid], |row| {
                render(&mut json, row);
                Ok(())
            })
            .unwrap();
        json
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

fn make(path: &Path, data: Data) {
    let mut connection = Connection::open(path).unwrap();
    connection.execute_batch(READ_SCHEMA).unwrap();
    let transaction = connection.transaction().unwrap();
    {
        let mut insert = transaction.prepare("INSERT INTO repo VALUES (?1, ?9, ?2, ?3, ?4, ?5, ?6, ?7, ?8)").unwrap();
        for number in 0..data.repos() {
            let organization = if let Data::Many(_) = data { number / 1_000 } else { 0 };
            let [uid, name, description, tier, bundles, tags, created, updated] = columns(&data.repo(number));
            let organization = organization.cast_signed();
            insert
                .execute(params![uid, name, description, tier, bundles, tags, created, updated, organization])
                .unwrap();
        }
    }
    transaction.execute_batch(COVERING).unwrap();
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
