//! Ordering (AIP-132; `docs/api.md`, Lists): one field and a direction.

use crate::{
    fields::path::is_named,
    kind::Field,
    store::{Order, OrderBy},
};

/// Parses an `order_by`: the name of a sortable field in camelCase or snake_case, optionally followed by ` asc` or
/// ` desc`.
///
/// # Errors
/// The rule that the text breaks, with the names of all sortable fields.
pub fn parse(text: &str, fields: &'static [Field]) -> Result<Order, String> {
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let (name, direction, rest) = (words.next().unwrap_or_default(), words.next(), words.next());
    let descending = match direction {
        None | Some("asc") => Some(false),
        Some("desc") => Some(true),
        Some(_) => None,
    };
    let field = fields.iter().find(|field| field.sort.iter().any(|sort| is_named(name, sort)));
    match (field, descending, rest) {
        (Some(field), Some(descending), None) => {
            let by = if field.name == "uid" { OrderBy::Uid } else { OrderBy::Key(field.name) };
            Ok(Order { by, descending })
        }
        _ => {
            let names: Vec<_> = fields.iter().filter_map(|field| field.sort.first().copied()).collect();
            Err(format!("must be one of {}, then optionally `asc` or `desc`", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] =
        &[Field::UID, Field::string("name").sort(&["name"]), Field::string("description"), Field::CREATE_TIME];

    #[test]
    fn a_sortable_field_is_accepted_by_each_of_its_names() {
        let by = |by, descending| Ok(Order { by, descending });
        for (text, order) in [
            ("name", by(OrderBy::Key("name"), false)),
            ("name asc", by(OrderBy::Key("name"), false)),
            ("name desc", by(OrderBy::Key("name"), true)),
            ("  name   desc ", by(OrderBy::Key("name"), true)),
            ("uid desc", by(OrderBy::Uid, true)),
            ("created_at desc", by(OrderBy::Key("createTime"), true)),
            ("createdAt", by(OrderBy::Key("createTime"), false)),
            ("create_time", by(OrderBy::Key("createTime"), false)),
            ("createTime", by(OrderBy::Key("createTime"), false)),
        ] {
            assert_eq!(parse(text, FIELDS), order, "{text}");
        }
    }

    #[test]
    fn anything_else_is_rejected_with_the_names_of_all_sortable_fields() {
        for text in [
            "description",
            "desc",
            "name DESC",
            "name,uid",
            "name desc uid",
            "-name",
            "name;drop",
            "Name",
            "name\tdesc",
        ] {
            let rule = parse(text, FIELDS).unwrap_err();
            assert_eq!(rule, "must be one of uid, name, createTime, then optionally `asc` or `desc`", "{text}");
        }
    }
}
