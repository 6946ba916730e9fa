//! Prints resources in the format that was chosen, page by page, so that a list of any length needs little memory.

use std::io::Write;

use platform_engine::kind::Kind;
use serde_json::Value;
use serde_json_path::JsonPath;

use crate::{
    document::{Document, yaml},
    failure::{Result, printable},
};

mod table;

use table::Table;

/// The format of resources.
#[derive(Debug, Clone)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// The server's JSON.
    Json,
    /// Documents for `apply`.
    Yaml,
    /// One uid per line.
    Name,
    /// The values that an expression finds in each resource, one per line.
    JsonPath(JsonPath),
}

impl Format {
    /// Returns the format of an option.
    ///
    /// # Errors
    /// A phrase that states the rule.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Ok(match text {
            "table" => Self::Table,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            "name" => Self::Name,
            _ => match text.strip_prefix("jsonpath=") {
                Some(path) => Self::JsonPath(JsonPath::parse(path).map_err(|error| error.to_string())?),
                None => return Err("must be table, json, yaml, name or jsonpath=EXPRESSION".to_owned()),
            },
        })
    }
}

/// The member of a resource that says how it has changed. No field of a kind has this name.
pub(crate) const CHANGE: &str = "~change";

/// Prints resources of a kind.
pub(crate) struct Printer<'w> {
    kind: &'static Kind,
    format: Format,
    out: &'w mut dyn Write,
    table: Option<Table>,
    printed: u64,
    /// Whether JSON has the envelope of a list.
    is_list: bool,
    /// Whether the resources say how they have changed.
    has_changes: bool,
}

impl<'w> Printer<'w> {
    /// Begins a list; or one resource, whose JSON has no envelope.
    pub(crate) fn new(kind: &'static Kind, format: Format, out: &'w mut dyn Write, is_list: bool) -> Self {
        Self { kind, format, out, table: None, printed: 0, is_list, has_changes: false }
    }

    /// Prints resources that say how they have changed ([`CHANGE`]): in the first column of a table, and in one line of
    /// JSON each. Other formats do not show it, and of a deleted resource only its uid.
    pub(crate) fn of_changes(self) -> Self {
        Self { has_changes: true, ..self }
    }

    /// Writes what is printed.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush()?;
        Ok(())
    }

    /// Prints some resources.
    pub(crate) fn items(&mut self, items: &[Value]) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        match &self.format {
            Format::Table => {
                let first = self.has_changes.then_some(CHANGE);
                let table = self.table.get_or_insert_with(|| Table::new(self.kind, first, items));
                table.rows(items, self.out)?;
            }
            Format::Json if self.is_list => {
                for item in items {
                    match self.printed {
                        0 => write!(self.out, "{{\"{}\":[\n{item}", self.kind.plural)?,
                        _ => write!(self.out, ",\n{item}")?,
                    }
                    self.printed += 1;
                }
                return Ok(());
            }
            Format::Json if self.has_changes => {
                for item in items {
                    let (change, mut resource) = (item.get(CHANGE), item.clone());
                    resource.as_object_mut().and_then(|fields| fields.shift_remove(CHANGE));
                    let change = serde_json::json!({ "type": change, "resource": resource });
                    writeln!(self.out, "{change}")?;
                }
            }
            Format::Json => {
                for item in items {
                    writeln!(self.out, "{item:#}")?;
                }
            }
            Format::Yaml => {
                let is_there = |item: &&Value| item.get(CHANGE).is_none_or(|change| change != "deleted");
                for (index, item) in items.iter().filter(is_there).enumerate() {
                    if self.printed > 0 || index > 0 {
                        writeln!(self.out, "---")?;
                    }
                    self.out.write_all(yaml(&Document::of(self.kind, item))?.as_bytes())?;
                }
            }
            Format::Name => {
                for item in items {
                    writeln!(self.out, "{}", text(item.get("uid").unwrap_or(&Value::Null)))?;
                }
            }
            Format::JsonPath(path) => {
                for item in items {
                    for found in path.query(item).all() {
                        writeln!(self.out, "{}", text(found))?;
                    }
                }
            }
        }
        self.printed += items.len() as u64;
        Ok(())
    }

    /// Ends the output, with the number of resources that match in total.
    pub(crate) fn end(self, total: u64) -> Result<()> {
        if matches!(self.format, Format::Json) && self.is_list {
            if self.printed == 0 {
                write!(self.out, "{{\"{}\":[", self.kind.plural)?;
            }
            writeln!(self.out, "\n],\"totalCount\":\"{total}\"}}")?;
        }
        self.out.flush()?;
        Ok(())
    }
}

/// Returns a value on one line: a text as it is, anything else as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use platform_core::resources::registry::Repo;
    use platform_engine::kind::Resource;
    use serde_json::json;

    use super::*;

    fn printed(format: &str, pages: &[&[Value]]) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(Repo::KIND, Format::parse(format).unwrap(), &mut out, true);
        pages.iter().for_each(|page| printer.items(page).unwrap());
        printer.end(2).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_format_continues_over_pages() {
        let (a, b) = (json!({ "uid": "u/1", "name": "a" }), json!({ "uid": "u/2", "name": "\u{1b}b" }));
        let pages: [&[Value]; 2] = [&[a], &[b]];
        assert_eq!(printed("name", &pages), "u/1\nu/2\n");
        assert_eq!(printed("jsonpath=$.name", &pages), "a\n\\u{1b}b\n");
        let found: Value = serde_json::from_str(&printed("json", &pages)).unwrap();
        assert_eq!((found["repos"].as_array().unwrap().len(), &found["totalCount"]), (2, &json!("2")));
        assert_eq!(printed("yaml", &pages).matches("---\n").count(), 1);
        assert_eq!(printed("table", &pages), "NAME  UID\na     u/1\n\\u{1b}b  u/2\n");
    }

    #[test]
    fn a_list_without_resources_is_valid_json() {
        assert_eq!(printed("json", &[]), "{\"repos\":[\n],\"totalCount\":\"2\"}\n");
    }

    #[test]
    fn an_invalid_format_or_expression_is_rejected() {
        assert!(Format::parse("csv").is_err());
        assert!(Format::parse("jsonpath=$[").is_err());
    }
}
