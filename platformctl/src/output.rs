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

/// Prints resources of a kind.
pub(crate) struct Printer<'w> {
    kind: &'static Kind,
    format: Format,
    out: &'w mut dyn Write,
    table: Option<Table>,
    printed: u64,
    /// Whether JSON has the envelope of a list.
    is_list: bool,
}

impl<'w> Printer<'w> {
    /// Begins a list; or one resource, whose JSON has no envelope.
    pub(crate) fn new(kind: &'static Kind, format: Format, out: &'w mut dyn Write, is_list: bool) -> Self {
        Self { kind, format, out, table: None, printed: 0, is_list }
    }

    /// Prints some resources.
    pub(crate) fn items(&mut self, items: &[Value]) -> Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        match &self.format {
            Format::Table => {
                let table = self.table.get_or_insert_with(|| Table::new(self.kind, items));
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
            Format::Json => {
                for item in items {
                    writeln!(self.out, "{item:#}")?;
                }
            }
            Format::Yaml => {
                for (index, item) in items.iter().enumerate() {
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
