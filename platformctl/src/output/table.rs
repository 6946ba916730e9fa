//! Tables with aligned columns. Written here because rows are printed as their pages arrive, which the table crates,
//! that measure all rows first, do not support.

use std::io::{self, Write};

use console::measure_text_width;
use heck::ToShoutySnakeCase;
use platform_engine::kind::{Field, Kind, Type};
use serde_json::Value;

use super::text;

/// The most columns of a table without the uid.
const MAX_COLUMNS: usize = 7;

/// The widest column that later cells are aligned to.
const MAX_WIDTH: usize = 48;

#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    has_header: bool,
}

#[derive(Debug)]
struct Column {
    field: &'static Field,
    /// The field of a message that is shown in place of the message.
    inner: &'static str,
    width: usize,
}

impl Table {
    /// Returns a table for a kind, with columns wide enough for these rows. Columns without any value are left out.
    pub(super) fn new(kind: &'static Kind, rows: &[Value]) -> Self {
        let mut columns: Vec<_> = kind.fields.iter().filter_map(Column::of).collect();
        columns.retain(|column| rows.iter().any(|row| !column.cell(row).is_empty()));
        columns.truncate(MAX_COLUMNS);
        columns.extend(kind.field("uid").map(|field| Column { field, inner: "", width: 0 }));
        for column in &mut columns {
            let cells = rows.iter().map(|row| measure_text_width(&column.cell(row)));
            let widest = cells.max().unwrap_or_default().min(MAX_WIDTH);
            column.width = widest.max(measure_text_width(&column.header()));
        }
        Self { columns, has_header: false }
    }

    /// Prints rows, before the first ones the header.
    pub(super) fn rows(&mut self, rows: &[Value], out: &mut dyn Write) -> io::Result<()> {
        if !self.has_header {
            self.has_header = true;
            self.line(out, Column::header)?;
        }
        rows.iter().try_for_each(|row| self.line(out, |column| column.cell(row)))
    }

    fn line(&self, out: &mut dyn Write, cell: impl Fn(&Column) -> String) -> io::Result<()> {
        let mut line = String::new();
        for column in &self.columns {
            let cell = cell(column);
            let padding = column.width.saturating_sub(measure_text_width(&cell)) + 2;
            line.push_str(&cell);
            line.extend(std::iter::repeat_n(' ', padding));
        }
        writeln!(out, "{}", line.trim_end())
    }
}

impl Column {
    /// Returns the column of a field: of what lists can be ordered by, of required and enumerated values, and of messages
    /// with a name. Not of the times that every resource has, and not of the uid, which is the last column.
    fn of(field: &'static Field) -> Option<Self> {
        let column = |inner| Some(Self { field, inner, width: 0 });
        if ["uid", "createTime", "updateTime"].contains(&field.name) {
            return None;
        }
        match field.ty {
            Type::Message(inner) => inner.iter().find(|inner| inner.name == "name").and_then(|_| column("name")),
            Type::List(_) | Type::Map(_) => None,
            Type::Enum(_) => column(""),
            _ if !field.sort.is_empty() || field.required && field.uid_of.is_none() => column(""),
            _ if field.name == "description" => column(""),
            _ => None,
        }
    }

    fn header(&self) -> String {
        self.field.name.to_shouty_snake_case().replace('_', " ")
    }

    fn cell(&self, row: &Value) -> String {
        let value = row.get(self.field.name).unwrap_or(&Value::Null);
        let value = if self.inner.is_empty() { value } else { value.get(self.inner).unwrap_or(&Value::Null) };
        text(value).replace('\n', " ")
    }
}
