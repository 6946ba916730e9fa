//! Columns of tables for people.

use serde_json::Value;

/// A column of a kind in tables for people, such as those of `platformctl get`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Column {
    /// The name in camelCase: of a computed column, or the path of a field with dots, such as `role.name`.
    pub name: &'static str,
    /// Returns the text of a resource in a computed column, from its JSON.
    pub compute: Option<fn(&Value) -> String>,
}

impl Column {
    /// Returns the column of a field.
    pub const fn field(path: &'static str) -> Self {
        Self { name: path, compute: None }
    }

    /// Returns the columns of fields.
    #[allow(clippy::indexing_slicing, reason = "the index is below the length of both")]
    pub const fn fields<const N: usize>(paths: [&'static str; N]) -> [Self; N] {
        let mut columns = [Self::field(""); N];
        let mut at = 0;
        while at < N {
            columns[at] = Self::field(paths[at]);
            at += 1;
        }
        columns
    }

    /// Returns a column of texts that no field has.
    pub const fn computed(name: &'static str, compute: fn(&Value) -> String) -> Self {
        Self { name, compute: Some(compute) }
    }
}
