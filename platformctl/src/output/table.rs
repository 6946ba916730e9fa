//! Tables with aligned columns. Written here because rows are printed as their pages arrive, which the table crates,
//! that measure all rows first, do not support.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use console::measure_text_width;
use heck::ToShoutySnakeCase;
use platform_engine::kind::{Field, Kind, Type};
use serde_json::Value;

use super::text;
use crate::failure::printable;

/// The most columns of a table without the uid.
const MAX_COLUMNS: usize = 7;

/// The width of a first column that is not a field: that of `modified`.
const FIRST_WIDTH: usize = 8;

/// The widest column that later cells are aligned to.
const MAX_WIDTH: usize = 48;

#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    has_header: bool,
}

#[derive(Debug)]
struct Column {
    /// The path of a field with dots, or the name of a computed text.
    name: Cow<'static, str>,
    compute: Option<fn(&Value) -> String>,
    width: usize,
}

impl Table {
    /// Returns a table for a kind, perhaps with a first column of its own, and with columns wide enough for these rows.
    /// Columns without any value are left out, unless there is a first column.
    pub(super) fn new(kind: &'static Kind, first: Option<&'static str>, rows: &[Value]) -> Self {
        let mut columns: Vec<Column> = match kind.columns {
            [] => kind.fields.iter().filter_map(path_of).map(Column::at).collect(),
            declared => {
                declared.iter().map(|of| Column { compute: of.compute, ..Column::at(of.name.into()) }).collect()
            }
        };
        // A later change may give a value to any of them.
        columns.retain(|column| first.is_some() || rows.iter().any(|row| !column.cell(row).is_empty()));
        columns.truncate(MAX_COLUMNS);
        columns.splice(0..0, first.map(|name| Column { width: FIRST_WIDTH, ..Column::at(name.into()) }));
        columns.extend(kind.field("uid").map(|field| Column::at(field.name.into())));
        for column in &mut columns {
            let cells = rows.iter().map(|row| measure_text_width(&column.cell(row)));
            let widest = cells.max().unwrap_or_default().min(MAX_WIDTH);
            column.width = column.width.max(widest).max(measure_text_width(&column.header()));
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

/// Returns the path of a field that is a column of a kind without columns in its table: what lists can be ordered by,
/// required and enumerated values, and the names of messages. Not the times that every resource has, and not the uid,
/// which is the last column.
fn path_of(field: &'static Field) -> Option<Cow<'static, str>> {
    if ["uid", "createTime", "updateTime"].contains(&field.name) {
        return None;
    }
    match field.ty {
        Type::Message(inner) => {
            let has_name = inner.iter().any(|inner| inner.name == "name");
            has_name.then(|| format!("{}.name", field.name).into())
        }
        Type::List(_) | Type::Map(_) => None,
        Type::Enum(_) => Some(field.name.into()),
        _ if !field.sort.is_empty() || field.required && field.uid_of.is_none() => Some(field.name.into()),
        _ if field.name == "description" => Some(field.name.into()),
        _ => None,
    }
}

impl Column {
    fn at(name: Cow<'static, str>) -> Self {
        Self { name, compute: None, width: 0 }
    }

    fn header(&self) -> String {
        self.name.strip_suffix(".name").unwrap_or(&self.name).to_shouty_snake_case().replace('_', " ")
    }

    fn cell(&self, row: &Value) -> String {
        let found = match self.compute {
            Some(compute) => return printable(&compute(row)).replace('\n', " "),
            None => self.name.split('.').try_fold(row, |value, name| value.get(name)),
        };
        match found {
            Some(Value::Array(values)) => values.iter().map(text).collect::<Vec<_>>().join(", "),
            found => text(found.unwrap_or(&Value::Null)),
        }
        .replace('\n', " ")
    }
}
