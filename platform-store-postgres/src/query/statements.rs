//! The statements of gets and lists. Each reads one snapshot: records, total and epochs are of one state.
//!
//! All rows of a statement have the same columns. A list's first row has no uid, the total instead of a revision, and the
//! epochs instead of a body, 8 bytes each; the others have the records of the page, and at most one that is not part of
//! it, without a body: the record with which the page would be too long.
//!
//! A subquery with `OFFSET 0` is planned by itself: it looks up one record by its key, or those of one row of what is
//! before it, whatever the statistics of the tables are.

pub(crate) mod everywhere;

use std::{collections::HashMap, sync::LazyLock};

use crate::schema::{Column, SLOTS, in_place};

/// How a list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// The children of one uid: $8 organization, $9 list.
    Children,
    /// The list of roots: $8 organization of the installation, $9 list, $10 kind.
    Roots,
    /// One uid and everything below it: $8 organization, $9 list, $10 kind, $11 uid.
    Subtree,
    /// One of these lists after a skip of $12 records: $8 to $11 as for a subtree; $13 is false for children alone.
    Skip,
    /// Several lists and uids: $8 kind, $9 and $10 lists of children, $11 and $12 lists of further descendants, $13 and
    /// $14 organizations and uids of single records, $15 records to skip.
    Merge,
    /// All records of a kind: $8 kind, $9 records to skip, $10 and $11 the list of roots.
    All,
    /// The records of one place that have a filter value: $8 organization, $9 list of the value, $10 kind, $11 hash of
    /// the value, $12 uid of the place, $13 and $14 range of the uids below it, $15 whether only children count, $16 and
    /// $17 filter key and value, $18 records to skip.
    Filtered,
    /// The records of some scopes that pass filters, by examining all candidates: $8 kind, $9 to $12 scopes, $13 to $16
    /// filters, $17 records to skip, $18 name of the sort key (only if it has no column), $19 (or $18) the filter values
    /// that lead to the candidates.
    Scan {
        /// Whether the scopes may be in any organization.
        everywhere: bool,
        /// Whether a filter leads to the candidates.
        by_member: bool,
    },
}

const SHAPES: [Shape; 11] = [
    Shape::Children,
    Shape::Roots,
    Shape::Subtree,
    Shape::Skip,
    Shape::Merge,
    Shape::All,
    Shape::Filtered,
    Shape::Scan { everywhere: false, by_member: false },
    Shape::Scan { everywhere: false, by_member: true },
    Shape::Scan { everywhere: true, by_member: false },
    Shape::Scan { everywhere: true, by_member: true },
];

impl Shape {
    /// Returns whether the shape has statements for [`Bodies::Short`].
    pub(crate) const fn is_first_page(self) -> bool {
        matches!(self, Self::Children | Self::Roots | Self::Subtree)
    }
}

/// Which bodies a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Bodies {
    /// Those that fit into $5 bytes together.
    Fitting,
    /// Those of at most $5 bytes each, with this number of epochs, at most [`FEW`], which costs less. If another one is
    /// missing, the page is read again.
    Short(usize),
}

/// A statement for lists.
pub(crate) type ListKey = (Shape, Column, bool, Bodies);

/// All statements for lists, by shape, order, whether it is descending, and the bodies of the page.
pub(crate) static LISTS: LazyLock<HashMap<ListKey, String>> = LazyLock::new(|| {
    let mut all = HashMap::new();
    for shape in SHAPES {
        for column in Column::INDEXED.into_iter().chain([Column::Other]) {
            let is_scan = matches!(shape, Shape::Scan { .. });
            let is_sequence_or_uid = matches!(column, Column::Uid | Column::Sequence);
            if column == Column::Other && !is_scan || shape == Shape::All && !is_sequence_or_uid {
                continue;
            }
            for descending in [false, true] {
                let short = (0..=FEW).map(Bodies::Short).filter(|_| shape.is_first_page());
                for bodies in short.chain([Bodies::Fitting]) {
                    let statement = By { column, descending, bodies }.list(shape);
                    all.insert((shape, column, descending, bodies), statement);
                }
            }
        }
    }
    all
});

macro_rules! epochs {
    () => {
        "(SELECT string_agg(int8send(COALESCE((SELECT e.value FROM epoch e WHERE e.org = q.org AND e.name = q.name), 0)), \
         ''::bytea ORDER BY q.place) FROM unnest($1::int8[], $2::text[]) WITH ORDINALITY q(org, name, place))"
    };
}

/// The most epochs that are looked up one by one, which costs less than the rows of a function.
pub(crate) const FEW: usize = 4;

/// Returns the expression of the values of up to [`FEW`] epochs.
fn few_epochs(count: usize) -> String {
    let lookup = |place: usize| {
        format!(
            "int8send(COALESCE((SELECT e.value FROM epoch e WHERE e.org = ($1::int8[])[{place}] AND \
             e.name = ($2::text[])[{place}]), 0))"
        )
    };
    match count {
        // The types of the parameters must be known.
        0 => "CASE WHEN $1::int8[] IS NULL AND $2::text[] IS NULL THEN ''::bytea END".to_owned(),
        _ => (1..=count).map(lookup).collect::<Vec<_>>().join(" || "),
    }
}

/// Reads one record ($1 organization, $2 kind, $3 uid), by the number of epochs, up to [`FEW`], which follow ($4 and $5,
/// $6 and $7, …). Returns one row, in which the record may be missing.
pub(crate) static GET_ONE: LazyLock<Vec<String>> = LazyLock::new(|| {
    let lookup = |epoch: usize| {
        let (org, name) = (2 * epoch + 4, 2 * epoch + 5);
        format!(", COALESCE((SELECT e.value FROM epoch e WHERE e.org = ${org} AND e.name = ${name}), 0)")
    };
    let statement = |count: usize| {
        let epochs: String = (0..count).map(lookup).collect();
        format!(
            "SELECT r.revision, r.rendering, r.body, r.private{epochs} FROM (VALUES (0)) v LEFT JOIN record r ON \
             r.org = $1 AND r.kind = $2 AND r.uid = $3"
        )
    };
    (0..=FEW).map(statement).collect()
});

/// Reads how many records a list ($2) of an organization ($1) has at any depth.
pub(crate) const READ_LENGTH: &str = "SELECT t.deep FROM tally t WHERE t.org = $1 AND t.list = $2";

/// Reads the records with these organizations, kinds and uids, with their places among the keys. The first row has no
/// place, and the epochs ($1, $2) instead of a body.
pub(crate) const GET_MANY: &str = concat!(
    "SELECT NULL::int8, NULL::int8, NULL::int4, ",
    epochs!(),
    ", NULL::bytea UNION ALL SELECT k.place, r.revision, r.rendering, r.body, r.private \
     FROM unnest($3::int8[], $4::text[], $5::text[]) WITH ORDINALITY k(org, kind, uid, place) CROSS JOIN LATERAL \
     (SELECT * FROM record r WHERE r.org = k.org AND r.kind = k.kind AND r.uid = k.uid OFFSET 0) r"
);

/// Whether `r.uid` is in the scope `s`.
const IN_SCOPE: &str = "CASE s.mode WHEN 0 THEN r.uid = s.low \
     WHEN 1 THEN r.uid > s.low AND r.uid < s.high AND strpos(substr(r.uid, length(s.low) + 1), '/') = 0 \
     WHEN 2 THEN r.uid > s.low AND r.uid < s.high WHEN 3 THEN strpos(r.uid, '/') = 0 ELSE true END";

/// Whether `r` passes all filters: filter `f.no` compares the record's values with those of `w`, and a filter with
/// operation 1 (none of) passes if no comparison holds.
const PASSES: &str = "NOT EXISTS (SELECT 1 FROM unnest($13::int4[]) WITH ORDINALITY f(op, no) WHERE (f.op = 1) = EXISTS (\
     SELECT 1 FROM unnest($14::int4[], $15::text[], $16::bytea[]) w(no, key, value), \
     unnest(r.filter_keys, r.filter_values) h(key, value) WHERE w.no = f.no AND w.key = h.key AND \
     CASE f.op WHEN 2 THEN h.value > w.value WHEN 3 THEN position(w.value IN h.value) > 0 ELSE h.value = w.value END))";

/// Whether `r` matches all patterns, which are the values whose numbers are those of the columns, negated.
static LIKE: LazyLock<String> = LazyLock::new(|| {
    matches_all(|slot| {
        format!("ARRAY(SELECT w.value FROM unnest($14::int4[], $16::bytea[]) w(no, value) WHERE w.no = -{slot})")
    })
});

/// Returns the condition that `r` matches all patterns of the columns of sort keys; `patterns` returns the array of those of
/// a column, by the number of the column.
fn matches_all(patterns: impl Fn(usize) -> String) -> String {
    let of_column = |slot: usize| format!("COALESCE(r.s{slot}, '') LIKE ALL ({})", patterns(slot));
    (1..=SLOTS).map(of_column).collect::<Vec<_>>().join(" AND ")
}

const SCOPES: &str = "unnest($9::int8[], $10::int4[], $11::text[], $12::text[]) s(org, mode, low, high)";

/// Returns a table `r` of the record with a key, which may be missing.
fn record(org: &str, kind: &str, uid: &str) -> String {
    format!("(SELECT * FROM record r WHERE r.org = {org} AND r.kind = {kind} AND r.uid = {uid} OFFSET 0) r")
}

/// The order of a list.
#[derive(Debug, Clone, Copy)]
struct By {
    column: Column,
    descending: bool,
    bodies: Bodies,
}

impl By {
    /// Returns the expression of the sort key.
    fn key(self, table: &str) -> String {
        match self.column {
            Column::Uid => "''::bytea".to_owned(),
            Column::Sequence => format!("{table}.revision"),
            Column::Slot(slot) => format!("{table}.s{}", slot + 1),
            Column::Other => format!(
                "COALESCE((SELECT x.value FROM unnest({table}.sort_keys, {table}.sort_values) x(key, value) \
                 WHERE x.key = $18 LIMIT 1), '')"
            ),
        }
    }

    const fn key_type(self) -> &'static str {
        if matches!(self.column, Column::Sequence) { "int8" } else { "bytea" }
    }

    /// Returns the condition that a row of a table comes after a position.
    fn after(self, table: &str, value: &str, uid: &str, or_equal: bool) -> String {
        let operator = match (self.descending, or_equal) {
            (false, false) => ">",
            (false, true) => ">=",
            (true, false) => "<",
            (true, true) => "<=",
        };
        let of_key = |key: String| format!("({key}, {table}.uid) {operator} ({value}, {uid})");
        match self.column {
            // The value is compared too, because the type of an unused parameter is unknown.
            Column::Uid => format!("{table}.uid {operator} {uid} AND {value} IS NOT NULL"),
            Column::Slot(_) => format!("{0} AND {1} IS NOT NULL", of_key(self.key(table)), self.key(table)),
            _ => of_key(self.key(table)),
        }
    }

    fn direction(self) -> &'static str {
        if self.descending { " DESC" } else { "" }
    }

    /// Returns the expressions to order a table by.
    fn order(self, table: &str) -> String {
        let direction = self.direction();
        match self.column {
            Column::Uid => format!("{table}.uid{direction}"),
            _ => format!("{}{direction}, {table}.uid{direction}", self.key(table)),
        }
    }

    /// Returns the expressions to order rows by that have the columns `key` and `uid`.
    fn order_of_rows(self, rows: &str) -> String {
        let direction = self.direction();
        match self.column {
            Column::Uid => format!("{rows}.uid{direction}"),
            _ => format!("{rows}.key{direction}, {rows}.uid{direction}"),
        }
    }

    fn after_of_rows(self, rows: &str) -> String {
        let operator = if self.descending { "<" } else { ">" };
        let value = self.after_value();
        match self.column {
            Column::Uid => format!("{rows}.uid {operator} $7 AND {value} IS NOT NULL"),
            _ => format!("({rows}.key, {rows}.uid) {operator} ({value}, $7)"),
        }
    }

    fn after_value(self) -> String {
        format!("$6::{}", self.key_type())
    }

    /// Returns the statement with this page and total. The page has at most $4 + 1 rows.
    fn list_of(self, with: &str, page: &str, total: &str) -> String {
        let order = self.order_of_rows("p");
        let rows = match self.bodies {
            Bodies::Short(_) => format!(
                "SELECT w.uid, w.revision, w.rendering, CASE WHEN octet_length(w.body) <= $5::int8 THEN w.body END, \
                 w.key FROM ({page}) w"
            ),
            Bodies::Fitting => format!(
                "SELECT w.uid, w.revision, w.rendering, \
                 CASE WHEN w.place <= $4::int8 AND (w.place = 1 OR w.through <= $5::int8) THEN w.body END, w.key \
                 FROM (SELECT p.uid, p.revision, p.rendering, p.body, p.key, row_number() OVER o AS place, \
                 sum(octet_length(p.body)) OVER o AS through FROM ({page}) p \
                 WINDOW o AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)) w \
                 WHERE w.place <= 2 OR w.through - octet_length(w.body) <= $5::int8"
            ),
        };
        format!("{with}{} UNION ALL {rows}", self.header(total))
    }

    /// Returns the query for the first row.
    fn header(self, total: &str) -> String {
        let epochs = match self.bodies {
            Bodies::Short(count) => few_epochs(count),
            Bodies::Fitting => epochs!().to_owned(),
        };
        let key_type = self.key_type();
        format!("SELECT NULL::text, CASE WHEN $3::bool THEN ({total})::int8 END, 0, {epochs}, NULL::{key_type}")
    }

    fn list(self, shape: Shape) -> String {
        match shape {
            Shape::Children => {
                let total = "SELECT COALESCE((SELECT t.direct FROM tally t WHERE t.org = $8 AND t.list = $9), 0)";
                match self.bodies {
                    // Without a subquery, which the rows would pass through.
                    Bodies::Short(_) => {
                        let body = "CASE WHEN octet_length(r.body) <= $5::int8 THEN r.body END";
                        format!("{} UNION ALL ({})", self.header(total), self.direct_with(body))
                    }
                    Bodies::Fitting => self.list_of("", &self.direct(), total),
                }
            }
            Shape::Roots => {
                let total = "SELECT COALESCE((SELECT t.deep FROM tally t WHERE t.org = $8 AND t.list = $9), 0)";
                self.list_of("", &format!("{} ORDER BY {}", self.deep(), self.order_of_rows("e")), total)
            }
            Shape::Subtree => self.subtree(),
            Shape::Skip => self.skip(),
            Shape::Merge => self.merge(),
            Shape::All => self.all(),
            Shape::Filtered => self.filtered(),
            Shape::Scan { everywhere, by_member } => self.scan(everywhere, by_member),
        }
    }

    /// Returns the first children of a uid, with their bodies.
    fn direct(self) -> String {
        self.direct_with("r.body")
    }

    fn direct_with(self, body: &str) -> String {
        let (key, after, order) = (self.key("r"), self.after("r", &self.after_value(), "$7", false), self.order("r"));
        format!(
            "SELECT r.uid, r.revision, r.rendering, {body}, {key} AS key FROM record r \
             WHERE r.org = $8 AND r.list = $9 AND {after} ORDER BY {order} LIMIT $4::int8 + 1"
        )
    }

    /// Returns the first of the other records of a list, with their bodies.
    fn deep(self) -> String {
        let (key, after, order) = (self.key("d"), self.after("d", &self.after_value(), "$7", false), self.order("d"));
        let record = record("e.home", "$10", "e.uid");
        format!(
            "SELECT r.uid, r.revision, r.rendering, r.body, e.key FROM (SELECT d.uid, d.home, {key} AS key FROM deep d \
             WHERE d.org = $8 AND d.list = $9 AND {after} ORDER BY {order} LIMIT $4::int8 + 1) e \
             CROSS JOIN LATERAL {record}"
        )
    }

    fn subtree(self) -> String {
        let (direct, deep, order) = (self.direct(), self.deep(), self.order_of_rows("u"));
        let (key, after) = (self.key("r"), self.after("r", &self.after_value(), "$7", false));
        let top = record("$8", "$10", "$11");
        let page = format!(
            "SELECT * FROM (({direct}) UNION ALL ({deep}) UNION ALL (SELECT r.uid, r.revision, r.rendering, r.body, \
             {key} AS key FROM {top} WHERE {after})) u \
             ORDER BY {order} LIMIT $4::int8 + 1"
        );
        let total = "SELECT COALESCE((SELECT t.direct + t.deep FROM tally t WHERE t.org = $8 AND t.list = $9), 0) + \
             (SELECT count(*) FROM record r WHERE r.org = $8 AND r.kind = $10 AND r.uid = $11)";
        self.list_of("", &page, total)
    }

    /// Returns a statement that finds the block in which the page begins, in two levels. Without blocks, all records
    /// before the page are read.
    fn skip(self) -> String {
        let number = self.column.number();
        let usable = "(SELECT $13::bool OR all_of_list.deep = 0 FROM all_of_list)";
        // In descending order, a page begins at the end of its block, which is the beginning of the next one.
        let (start, start_uid) =
            if self.descending { ("lag(b.low) OVER o", "lag(b.low_uid) OVER o") } else { ("b.low", "b.low_uid") };
        let direction = self.direction();
        let level = |level: i32, from: &str, base: &str, within: &str| {
            format!(
                "SELECT x.low, x.low_uid, x.next, x.next_uid, x.start, x.start_uid, x.before FROM \
                 (SELECT b.low, b.low_uid, b.n, lead(b.low) OVER a AS next, lead(b.low_uid) OVER a AS next_uid, \
                 {start} AS start, {start_uid} AS start_uid, {base} + sum(b.n) OVER o - b.n AS before FROM {from}block b \
                 WHERE b.org = $8 AND b.list = $9 AND b.ord = {number} AND b.level = {level}{within} \
                 WINDOW o AS (ORDER BY b.low{direction}, b.low_uid{direction}), a AS (ORDER BY b.low, b.low_uid)) x \
                 WHERE x.before <= $12::int8 AND $12::int8 < x.before + x.n LIMIT 1"
            )
        };
        let outer = level(2, "", "0", &format!(" AND {usable}"));
        let within = " AND (b.low, b.low_uid) >= (u.low, u.low_uid) AND \
             (u.next IS NULL OR (b.low, b.low_uid) < (u.next, u.next_uid))";
        let inner = level(1, "upper_level u, ", "u.before", within);
        // The last block of the upper block, in descending order, ends where the upper block ends.
        let (default, default_uid) = if self.descending {
            ("(SELECT u.next FROM upper_level u)".to_owned(), "(SELECT u.next_uid FROM upper_level u)".to_owned())
        } else {
            ("NULL::bytea".to_owned(), "NULL::text".to_owned())
        };
        let to_key = |bytes: String| match self.column {
            Column::Sequence => {
                format!("(('x' || encode({bytes}, 'hex'))::bit(64)::int8 # (-9223372036854775808)::int8)")
            }
            _ => bytes,
        };
        let start = to_key(format!("COALESCE((SELECT l.start FROM lower_level l), {default})"));
        let start_uid = format!("COALESCE((SELECT l.start_uid FROM lower_level l), {default_uid}, $7::text)");
        let value = self.after_value();
        let with = format!(
            "WITH all_of_list AS MATERIALIZED (SELECT COALESCE(sum(t.direct), 0)::int8 AS direct, \
             COALESCE(sum(t.deep), 0)::int8 + (SELECT count(*) FROM record r WHERE r.org = $8 AND r.kind = $10 AND \
             r.uid = $11) AS deep FROM tally t WHERE t.org = $8 AND t.list = $9), \
             length AS MATERIALIZED (SELECT direct + CASE WHEN $13::bool THEN deep ELSE 0 END AS n FROM all_of_list), \
             upper_level AS MATERIALIZED ({outer}), lower_level AS MATERIALIZED ({inner}), \
             start AS MATERIALIZED (SELECT COALESCE({start}, {value}) AS key, {start_uid} AS uid, \
             $12::int8 - COALESCE((SELECT l.before FROM lower_level l), 0) AS left_over WHERE $12::int8 < (SELECT n FROM length)) "
        );
        let after = |table: &str| self.after(table, "start.key", "start.uid", !self.descending);
        let branch = |select: &str, table: &str, condition: &str| {
            let (after, key) = (after(table), self.key(table));
            format!("SELECT {table}.uid, {select} AS home, {key} AS key FROM {condition} AND {after}")
        };
        let limited = |branch: String, table: &str| {
            format!("({branch} ORDER BY {} LIMIT start.left_over + $4::int8 + 1)", self.order(table))
        };
        let direct = branch("r.org", "r", "record r WHERE r.org = $8 AND r.list = $9");
        let deep = branch("d.home", "d", "deep d WHERE $13::bool AND d.org = $8 AND d.list = $9");
        let top = branch("r.org", "r", &format!("{} WHERE $13::bool", record("$8", "$10", "$11")));
        let page = format!(
            "SELECT r.uid, r.revision, r.rendering, r.body, h.key FROM start CROSS JOIN LATERAL (SELECT * FROM \
             ({} UNION ALL {} UNION ALL ({top})) u ORDER BY {} OFFSET start.left_over LIMIT $4::int8 + 1) h \
             CROSS JOIN LATERAL {}",
            limited(direct, "r"),
            limited(deep, "d"),
            self.order_of_rows("u"),
            record("h.home", "$10", "h.uid"),
        );
        self.list_of(&with, &page, "SELECT n FROM length")
    }

    fn merge(self) -> String {
        let (value, outer) = (self.after_value(), self.order_of_rows("u"));
        let branch = |home: &str, table: &str, condition: String| {
            let (key, after) = (self.key(table), self.after(table, &value, "$7", false));
            format!("SELECT {table}.uid, {home} AS home, {key} AS key FROM {condition} AND {after}")
        };
        let of_lists = |arrays: &str, home: &str, table: &str, name: &str| {
            let condition = format!("{name} {table} WHERE {table}.org = q.org AND {table}.list = q.list");
            let (branch, order) = (branch(home, table, condition), self.order(table));
            format!(
                "SELECT l.* FROM unnest({arrays}) q(org, list) CROSS JOIN LATERAL \
                 ({branch} ORDER BY {order} LIMIT $4::int8 + $15::int8 + 1) l"
            )
        };
        let direct = of_lists("$9::int8[], $10::uuid[]", "r.org", "r", "record");
        let deep = of_lists("$11::int8[], $12::uuid[]", "d.home", "d", "deep");
        let exact = branch("r.org", "r", format!("{} WHERE true", record("q.org", "$8", "q.uid")));
        let page = format!(
            "SELECT r.uid, r.revision, r.rendering, r.body, h.key FROM (SELECT u.* FROM ({direct} UNION ALL {deep} \
             UNION ALL SELECT l.* FROM unnest($13::int8[], $14::text[]) q(org, uid) CROSS JOIN LATERAL ({exact}) l) u \
             ORDER BY {outer} OFFSET $15::int8 LIMIT $4::int8 + 1) h CROSS JOIN LATERAL {}",
            record("h.home", "$8", "h.uid"),
        );
        let tallies = |arrays: &str, column: &str| {
            format!(
                "SELECT COALESCE(sum((SELECT t.{column} FROM tally t WHERE t.org = q.org AND t.list = q.list)), 0) \
                 FROM unnest({arrays}) q(org, list)"
            )
        };
        let total = format!(
            "SELECT ({}) + ({}) + (SELECT count(*) FROM unnest($13::int8[], $14::text[]) q(org, uid) CROSS JOIN LATERAL \
             {})",
            tallies("$9::int8[], $10::uuid[]", "direct"),
            tallies("$11::int8[], $12::uuid[]", "deep"),
            record("q.org", "$8", "q.uid"),
        );
        self.list_of("", &page, &total)
    }

    fn all(self) -> String {
        let (key, after, order) = (self.key("r"), self.after("r", &self.after_value(), "$7", false), self.order("r"));
        let page = format!(
            "SELECT r.uid, r.revision, r.rendering, r.body, {key} AS key FROM record r \
             WHERE r.kind = $8 AND {after} ORDER BY {order} OFFSET $9::int8 LIMIT $4::int8 + 1"
        );
        let total = "SELECT COALESCE((SELECT sum(t.direct) FROM tally t WHERE t.kind = $8), 0) + \
             COALESCE((SELECT t.deep FROM tally t WHERE t.org = $10 AND t.list = $11), 0)";
        self.list_of("", &page, total)
    }

    /// Returns a statement that reads a kept list of a filter value, or else, if it is not kept, all records of the place
    /// that have the value.
    fn filtered(self) -> String {
        let (key, value) = (self.key("r"), self.after_value());
        let with = format!(
            "WITH kept AS MATERIALIZED (SELECT t.deep AS n FROM tally t WHERE t.org = $8 AND t.list = $9), \
             hits AS MATERIALIZED (SELECT r.uid, {key} AS key FROM (SELECT m.uid FROM member m WHERE m.org = $8 AND \
             m.value = $11 AND m.uid >= $12 AND m.uid < $14 AND NOT EXISTS (SELECT FROM kept)) m CROSS JOIN LATERAL \
             {} WHERE {} AND \
             EXISTS (SELECT FROM unnest(r.filter_keys, r.filter_values) h(key, value) WHERE h.key = $16 AND \
             h.value = $17)) ",
            record("$8", "$10", "m.uid"),
            in_place!("r.uid", "$12", "$13", "$15")
        );
        let page = format!(
            "SELECT r.uid, r.revision, r.rendering, r.body, u.key FROM (SELECT * FROM ((SELECT d.uid, {} AS key \
             FROM deep d WHERE d.org = $8 AND d.list = $9 AND {} ORDER BY {} LIMIT $18::int8 + $4::int8 + 1) UNION ALL \
             (SELECT h.uid, h.key FROM hits h WHERE {} ORDER BY {} LIMIT $18::int8 + $4::int8 + 1)) u ORDER BY {} \
             OFFSET $18::int8 LIMIT $4::int8 + 1) u CROSS JOIN LATERAL {}",
            self.key("d"),
            self.after("d", &value, "$7", false),
            self.order("d"),
            self.after_of_rows("h"),
            self.order_of_rows("h"),
            self.order_of_rows("u"),
            record("$8", "$10", "u.uid"),
        );
        self.list_of(&with, &page, "SELECT COALESCE((SELECT k.n FROM kept k), (SELECT count(*) FROM hits))")
    }

    fn scan(self, everywhere: bool, by_member: bool) -> String {
        let values = if self.column == Column::Other { "$19" } else { "$18" };
        let in_scopes = format!("EXISTS (SELECT 1 FROM {SCOPES} WHERE {IN_SCOPE})");
        let candidates = match (everywhere, by_member) {
            (true, false) => format!("record r WHERE r.kind = $8 AND {in_scopes}"),
            (true, true) => format!(
                "unnest({values}::uuid[]) v(value) CROSS JOIN LATERAL \
                 (SELECT m.org, m.uid FROM member m WHERE m.value = v.value OFFSET 0) m CROSS JOIN LATERAL {} \
                 WHERE {in_scopes}",
                record("m.org", "$8", "m.uid"),
            ),
            (false, false) => format!(
                "{SCOPES} CROSS JOIN LATERAL (SELECT * FROM record r WHERE r.org = s.org AND r.kind = $8 AND \
                 r.uid >= s.low AND r.uid < s.high OFFSET 0) r WHERE {IN_SCOPE}"
            ),
            (false, true) => format!(
                "{SCOPES} CROSS JOIN unnest({values}::uuid[]) v(value) CROSS JOIN LATERAL (SELECT m.uid FROM member m \
                 WHERE m.org = s.org AND m.value = v.value AND m.uid >= s.low AND m.uid < s.high OFFSET 0) m \
                 CROSS JOIN LATERAL {} WHERE {IN_SCOPE}",
                record("s.org", "$8", "m.uid"),
            ),
        };
        let (key, after, order) = (self.key("r"), self.after_of_rows("h"), self.order_of_rows("h"));
        let with = format!(
            "WITH hits AS MATERIALIZED (SELECT DISTINCT r.org, r.uid, {key} AS key FROM {candidates} AND {PASSES} AND {}) ",
            *LIKE
        );
        let page = format!(
            "SELECT r.uid, r.revision, r.rendering, r.body, h.key FROM (SELECT h.* FROM hits h WHERE {after} \
             ORDER BY {order} OFFSET $17::int8 LIMIT $4::int8 + 1) h CROSS JOIN LATERAL {}",
            record("h.org", "$8", "h.uid"),
        );
        self.list_of(&with, &page, "SELECT count(*) FROM hits")
    }
}

/// Returns the statement that finds the positions at which blocks of $7 records begin, among the next $6 records of an
/// order from a position ($4, $5): $1 organization, $2 list, $3 kind, $8 uid of the list. The first position is not
/// among them.
fn boundaries(column: Column) -> String {
    let by = By { column, descending: false, bodies: Bodies::Fitting };
    let value = format!("$4::{}", by.key_type());
    let branch = |table: &str, from: &str| {
        let (key, after, order) = (by.key(table), by.after(table, &value, "$5", true), by.order(table));
        format!("(SELECT {key} AS key, {table}.uid FROM {from} AND {after} ORDER BY {order} LIMIT $6::int8)")
    };
    let order = by.order_of_rows("u");
    format!(
        "SELECT x.key, x.uid FROM (SELECT u.key, u.uid, row_number() OVER (ORDER BY {order}) AS n FROM \
         ({} UNION ALL {} UNION ALL {}) u) x WHERE x.n <= $6 AND x.n > 1 AND x.n % $7::int8 = 1 ORDER BY x.n",
        branch("r", "record r WHERE r.org = $1 AND r.list = $2"),
        branch("d", "deep d WHERE d.org = $1 AND d.list = $2"),
        branch("r", &format!("{} WHERE true", record("$1", "$3", "$8"))),
    )
}

/// The statements of [`boundaries`].
pub(crate) static BOUNDARIES: LazyLock<HashMap<Column, String>> =
    LazyLock::new(|| Column::INDEXED.into_iter().map(|column| (column, boundaries(column))).collect());

/// Returns the statement that counts the records of a list from a position ($4, $5) up to, excluding, another ($6, $7).
fn count_between(column: Column) -> String {
    let by = By { column, descending: false, bodies: Bodies::Fitting };
    let branch = |table: &str, from: &str| {
        let from_low = by.after(table, &format!("$4::{}", by.key_type()), "$5", true);
        let to = By { descending: true, ..by }.after(table, &format!("$6::{}", by.key_type()), "$7", false);
        // In order, for which the planner takes the index of the order even if another one looks as good.
        let order = by.order(table);
        format!("(SELECT count(*) FROM (SELECT FROM {from} AND {from_low} AND {to} ORDER BY {order} OFFSET 0) c)")
    };
    format!(
        "SELECT {} + {} + {}",
        branch("r", "record r WHERE r.org = $1 AND r.list = $2"),
        branch("d", "deep d WHERE d.org = $1 AND d.list = $2"),
        branch("r", &format!("{} WHERE true", record("$1", "$3", "$8"))),
    )
}

/// The statements of [`count_between`].
pub(crate) static COUNTS: LazyLock<HashMap<Column, String>> =
    LazyLock::new(|| Column::INDEXED.into_iter().map(|column| (column, count_between(column))).collect());
