//! The statements for lists of any organization in a database of several nodes.

use std::{collections::HashMap, sync::LazyLock};

use super::{Bodies, By, IN_SCOPE, SCOPES, matches_all};
use crate::schema::Column;

/// The part of the passing records that a statement returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// The first after a position, of which the nodes return as many each.
    Page,
    /// The last of those that are skipped, without its body.
    Position,
    /// Their number.
    Count,
}

/// An order, whether it is descending, whether a filter leads to the candidates, and what the statement returns.
type Key = (Column, bool, bool, Part);

/// The number of all records of a kind ($1) that are not roots.
pub(crate) const COUNT_OF_KIND: &str = "SELECT COALESCE(sum(t.direct), 0)::int8 FROM tally t WHERE t.kind = $1";

/// As [`super::PASSES`]: no filter with operation 1 has a match, and all others have one. Citus refuses a subquery of
/// functions that has a subquery. It runs functions that are joined on the coordinator instead of on the nodes, unless
/// they are `LATERAL` or have ordinal numbers; with a column of `r`, the process of the coordinator crashes (Citus 13.2).
const PASSES: &str = "(SELECT count(DISTINCT f.no) = cardinality(array_remove($13::int4[], 1)) AND \
     COALESCE(bool_and(f.op <> 1), true) FROM unnest($13::int4[]) WITH ORDINALITY f(op, no), \
     LATERAL unnest($14::int4[], $15::text[], $16::bytea[]) w(no, key, value), \
     LATERAL unnest(r.filter_keys, r.filter_values) h(key, value) WHERE w.no = f.no AND w.key = h.key AND \
     CASE f.op WHEN 2 THEN h.value > w.value WHEN 3 THEN position(w.value IN h.value) > 0 ELSE h.value = w.value END)";

/// The statements for lists of any organization in a database of several nodes, by order, whether it is descending,
/// whether a filter leads to the candidates, and what they return; with the numbers of their parameters in the
/// statement for the same scan ([`super::Shape::Scan`]).
///
/// Citus runs them on all nodes and merges the results, for which they have no subquery without a table.
pub(crate) static EVERYWHERE: LazyLock<HashMap<Key, (String, Vec<usize>)>> = LazyLock::new(|| {
    let mut all = HashMap::new();
    for column in Column::INDEXED.into_iter().chain([Column::Other]) {
        for [descending, by_member] in [[false, false], [false, true], [true, false], [true, true]] {
            let by = By { column, descending, bodies: Bodies::Fitting };
            for part in [Part::Page, Part::Position, Part::Count] {
                let statement = renumbered(&by.everywhere(by_member, part));
                all.insert((column, descending, by_member, part), statement);
            }
        }
    }
    all
});

/// Numbers the parameters of a statement from 1 on, and returns their numbers before.
fn renumbered(sql: &str) -> (String, Vec<usize>) {
    let mut parts = sql.split('$');
    let (mut statement, mut used) = (parts.next().unwrap_or_default().to_owned(), Vec::new());
    for part in parts {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        let number = digits.parse().unwrap_or(0);
        let place = used.iter().position(|used| *used == number).unwrap_or_else(|| {
            used.push(number);
            used.len() - 1
        });
        statement.push_str(&format!("${}{}", place + 1, part.trim_start_matches(|char: char| char.is_ascii_digit())));
    }
    (statement, used)
}

impl By {
    fn everywhere(self, by_member: bool, part: Part) -> String {
        let values = if self.column == Column::Other { "$19" } else { "$18" };
        let member = if by_member {
            format!(
                " AND EXISTS (SELECT FROM member m WHERE m.org = r.org AND m.uid = r.uid AND m.value = \
                 ANY({values}::uuid[]))"
            )
        } else {
            String::new()
        };
        // Citus writes the parameters into the statement, so that the nodes leave out conditions that all records meet: a
        // scope of all records, and no filters.
        let candidates = format!(
            "record r WHERE r.kind = $8 AND (4 = ANY($10::int4[]) OR EXISTS (SELECT 1 FROM {SCOPES} WHERE {IN_SCOPE})) AND \
             (cardinality($13::int4[]) = 0 OR {PASSES}) AND {}{member}",
            matches_all(|slot| format!("${}::bytea[]", 19 + slot))
        );
        let (key, order) = (self.key("r"), self.order("r"));
        let after = self.after("r", &self.after_value(), "$7", false);
        let select = |columns, rows| {
            format!("SELECT r.uid, {columns}, {key} AS key FROM {candidates} AND {after} ORDER BY {order} {rows}")
        };
        let skipped = "OFFSET $17::int8 - 1 LIMIT 1";
        match part {
            Part::Page => select("r.revision, r.rendering, r.body", "LIMIT $4::int8 + 1"),
            // Only an order by sequences needs the row.
            Part::Position if self.column == Column::Sequence => select("r.revision, 0 AS n, 0 AS b", skipped),
            Part::Position => select("0 AS r, 0 AS n, 0 AS b", skipped),
            Part::Count => format!("SELECT count(*) FROM {candidates}"),
        }
    }
}
