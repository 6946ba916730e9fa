//! The file's tables.
//!
//! A record is a row of `record`; `entry` maps uids, filter values and unique keys to records. A long list has a row in
//! `list` with its counts and the roots of its trees, whose nodes are the rows of `node`. The engine
//! (`platform_store_kv`) decides what is in them, and computes all checksums.

/// Identifies a file as a store, in `PRAGMA application_id`.
pub(crate) const APPLICATION_ID: i32 = 0x706c_6174;
/// The layout version that this code reads and writes, in `PRAGMA user_version`.
pub(crate) const VERSION: i32 = 4;
/// The flag in `PRAGMA user_version` of a file with records that are not indexed.
pub(crate) const UNINDEXED: i32 = 1 << 16;
/// The flag in `PRAGMA user_version` of a file that has, or had, search indexes, which earlier builds would leave behind.
pub(crate) const SEARCHED: i32 = 1 << 17;

/// Creates all tables. Text and blobs compare bytewise: SQLite's default collation is BINARY.
///
/// `record.place` is the record's position among the puts of its commit, ordered by uid, so that (revision, place) is
/// the order by sequence. The rows of `entry`, `list` and `node` are those of the last fold. `docs/sqlite-format.md`
/// describes all columns.
pub(crate) const TABLES: &str = "
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    folded INTEGER NOT NULL,
    first INTEGER NOT NULL,
    replaced INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE replaced (
    id INTEGER PRIMARY KEY,
    record INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    keys BLOB NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE name (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    several INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    place INTEGER NOT NULL,
    rendering INTEGER NOT NULL,
    sum INTEGER NOT NULL,
    keys BLOB NOT NULL,
    body BLOB NOT NULL,
    private BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX record_sequence ON record (kind, revision, place);
CREATE TABLE entry (
    key BLOB PRIMARY KEY,
    record INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE epoch (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE list (
    kind INTEGER NOT NULL,
    place BLOB NOT NULL,
    key INTEGER NOT NULL,
    value BLOB NOT NULL,
    sum INTEGER NOT NULL,
    roots BLOB NOT NULL,
    PRIMARY KEY (kind, place, key, value)
) STRICT, WITHOUT ROWID;
CREATE TABLE node (
    id INTEGER PRIMARY KEY,
    sum INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;
";

/// Creates the table of the records that are not indexed, which exists while there are any.
pub(crate) const CREATE_UNINDEXED: &str =
    "CREATE TABLE unindexed (kind INTEGER PRIMARY KEY, first INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT";
