//! Options of the command line for fields and parameters of the tables.

use clap::{Arg, ArgAction, ArgMatches, builder::PossibleValuesParser};
use heck::ToKebabCase;
use platform_engine::kind::{Access, Field, Method, Type};
use serde_json::{Map, Value};

use crate::{
    failure::{Failure, Result},
    value,
};

/// The options of all commands. A field of such a name has the prefix `field-` in its option.
pub(crate) const GLOBAL: &[&str] = &["api", "token", "context", "config", "ca-file", "retry-for", "help", "version"];

/// The deepest message whose fields have options of their own; deeper ones are JSON.
const MAX_DEPTH: usize = 4;

/// A field with an option of its own: at the top, or within messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf {
    pub(crate) field: &'static Field,
    /// The fields from the top to the message that contains it.
    parents: [Option<&'static Field>; MAX_DEPTH],
}

impl Leaf {
    /// Returns the dotted path in camelCase.
    pub(crate) fn path(&self) -> String {
        self.names().collect::<Vec<_>>().join(".")
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.parents.iter().flatten().map(|field| field.name).chain([self.field.name])
    }

    /// Returns the name of the option, such as `claim-match.issuer`, which differs from those in `taken`.
    fn long(&self, taken: &[&str]) -> String {
        let name = self.names().map(|name| name.to_kebab_case()).collect::<Vec<_>>().join(".");
        if taken.contains(&name.as_str()) || GLOBAL.contains(&name.as_str()) { format!("field-{name}") } else { name }
    }

    fn id(&self) -> String {
        format!("field:{}", self.path())
    }
}

/// Returns the fields of a table for which `is_wanted` holds, with those of messages in place of the messages.
pub(crate) fn leaves(fields: &'static [Field], is_wanted: fn(&Field) -> bool) -> Vec<Leaf> {
    fn add(
        fields: &'static [Field],
        is_wanted: fn(&Field) -> bool,
        parents: [Option<&'static Field>; MAX_DEPTH],
        leaves: &mut Vec<Leaf>,
    ) {
        for field in fields.iter().filter(|field| is_wanted(field)) {
            let free = parents.iter().position(Option::is_none);
            match (field.ty, free) {
                (Type::Message(inner), Some(depth)) if !inner.is_empty() => {
                    let mut parents = parents;
                    if let Some(parent) = parents.get_mut(depth) {
                        *parent = Some(field);
                    }
                    add(inner, is_wanted, parents, leaves);
                }
                _ => leaves.push(Leaf { field, parents }),
            }
        }
    }
    let mut leaves = Vec::new();
    add(fields, is_wanted, [None; MAX_DEPTH], &mut leaves);
    leaves
}

/// Returns the fields that a create sets.
pub(crate) fn of_create(fields: &'static [Field]) -> Vec<Leaf> {
    leaves(fields, |field| field.access != Access::OutputOnly)
}

/// Returns the fields that an update sets.
pub(crate) fn of_update(fields: &'static [Field]) -> Vec<Leaf> {
    leaves(fields, |field| matches!(field.access, Access::Mutable | Access::InputOnly))
}

/// Returns the own parameters of a list.
pub(crate) fn of_list(list: &'static Method) -> Vec<Leaf> {
    list.params.iter().map(|param| Leaf { field: &param.field, parents: [None; MAX_DEPTH] }).collect()
}

/// Returns the fields of the request of an action.
pub(crate) fn of_request(fields: &'static [Field]) -> Vec<Leaf> {
    leaves(fields, |_| true)
}

/// Returns the option of a field. The names in `taken` belong to other options of the command.
pub(crate) fn arg(leaf: &Leaf, taken: &[&str]) -> Arg {
    let (field, long) = (leaf.field, leaf.long(taken));
    let mut help = field.about.to_owned();
    let mut arg = Arg::new(leaf.id()).long(long).action(ArgAction::Set).allow_hyphen_values(true);
    arg = match field.ty {
        Type::Bool => arg.num_args(0..=1).default_missing_value("true").require_equals(true).value_name("BOOL"),
        Type::Enum(names) => {
            let names = names.iter().skip(1).copied().collect::<Vec<_>>();
            arg.value_parser(PossibleValuesParser::new(names)).ignore_case(true).value_name("NAME")
        }
        Type::List(element) if is_scalar(element) => {
            help.push_str(" May be repeated.");
            arg.action(ArgAction::Append).value_name(value_name(field, element))
        }
        Type::Map(element) if is_scalar(element) => {
            help.push_str(" May be repeated.");
            arg.action(ArgAction::Append).value_name("KEY=VALUE")
        }
        ty => arg.value_name(value_name(field, &ty)),
    };
    arg.help(help.trim().trim_end_matches('.').to_owned())
}

const fn is_scalar(ty: &Type) -> bool {
    !matches!(ty, Type::Message(_) | Type::List(_) | Type::Map(_))
}

fn value_name(field: &Field, ty: &Type) -> &'static str {
    match ty {
        _ if field.uid_of.is_some() => "UID|NAME",
        Type::Message(_) | Type::List(_) | Type::Map(_) => "JSON",
        Type::Int32 | Type::Int64 => "NUMBER",
        Type::Timestamp => "TIME",
        Type::Duration => "SECONDS",
        Type::Bytes => "BASE64",
        Type::Capability => "CAPABILITY",
        _ => "TEXT",
    }
}

/// Returns the values that were given for these fields, as a JSON object.
///
/// # Errors
/// With every option whose value breaks a rule.
pub(crate) fn read(leaves: &[Leaf], matches: &ArgMatches) -> Result<Map<String, Value>> {
    let mut object = Map::new();
    let mut broken = Vec::new();
    for leaf in leaves {
        let id = leaf.id();
        // Options that this command does not have are not set.
        let Ok(Some(texts)) = matches.try_get_many::<String>(&id) else { continue };
        let texts = texts.map(|text| value::text_of(text)).collect::<Result<Vec<_>>>()?;
        match value_of(&leaf.field.ty, &texts) {
            Ok(value) => value::set(&mut object, &leaf.path(), value),
            Err(rule) => broken.push(format!("--{}: {rule}", leaf.long(&[]))),
        }
    }
    if broken.is_empty() {
        Ok(object)
    } else {
        Err(broken.into_iter().fold(Failure::usage("invalid options"), Failure::note))
    }
}

fn value_of(ty: &'static Type, texts: &[String]) -> Result<Value, String> {
    let first = texts.first().map(String::as_str).unwrap_or_default();
    match ty {
        // An empty value clears a list or a map.
        Type::List(element) if is_scalar(element) => {
            let given = texts.iter().filter(|text| !text.is_empty());
            given.map(|text| value::parse(element, text)).collect()
        }
        Type::Map(element) if is_scalar(element) => {
            let given = texts.iter().filter(|text| !text.is_empty());
            let entry = |text: &String| {
                let (key, text) = text.split_once('=').ok_or("must be KEY=VALUE")?;
                Ok::<_, String>((key.to_owned(), value::parse(element, text)?))
            };
            given.map(entry).collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        Type::String | Type::Bool => value::parse(ty, first),
        // An empty value clears a field of any type.
        _ if first.is_empty() => Ok(Value::Null),
        _ => value::parse(ty, first),
    }
}

#[cfg(test)]
mod tests {
    use clap::Command;
    use platform_core::resources::iam::{Identity, Role};
    use platform_engine::kind::Resource;
    use serde_json::json;

    use super::*;

    fn parse(fields: &'static [Field], args: &[&str]) -> Result<Value> {
        let leaves = of_create(fields);
        let command = Command::new("x").args(leaves.iter().map(|leaf| arg(leaf, &[])));
        let matches = command.try_get_matches_from([&["x"], args].concat()).unwrap();
        read(&leaves, &matches).map(Value::from)
    }

    #[test]
    fn fields_of_messages_have_options_of_their_own() {
        let found = parse(Identity::KIND.fields, &["--name", "ci", "--claim-match.issuer=https://a", "--description="]);
        assert_eq!(found.unwrap(), json!({ "name": "ci", "description": "", "claimMatch": { "issuer": "https://a" } }));
    }

    #[test]
    fn a_list_is_an_option_that_is_repeated() {
        let found = parse(Role::KIND.fields, &["--capabilities", "CAP_REPO_LIST", "--capabilities", "CAP_TAG_LIST"]);
        assert_eq!(found.unwrap(), json!({ "capabilities": ["CAP_REPO_LIST", "CAP_TAG_LIST"] }));
        assert_eq!(parse(Role::KIND.fields, &["--capabilities="]).unwrap(), json!({ "capabilities": [] }));
    }

    #[test]
    fn a_field_with_the_name_of_another_option_has_a_prefix() {
        static FIELD: Field = Field::string("apiToken");
        let leaf = Leaf { field: &FIELD, parents: [None; MAX_DEPTH] };
        assert_eq!(leaf.long(&["api-token"]), "field-api-token");
        assert_eq!(leaf.long(&[]), "api-token");
    }
}
