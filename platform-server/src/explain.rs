//! `config explain` and `config schema`: the effective options with their sources, and a JSON Schema of the file.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{Write, stderr, stdout},
    process::ExitCode,
};

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    cli::ConfigCommand,
    config::{Given, Store, command, similar},
};

/// An option with its value and the source of the value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Setting {
    /// The long name.
    pub(crate) name: String,
    /// The value, as it is written on the command line; several are separated by commas. `None` if there is none.
    /// Secrets are replaced.
    pub(crate) value: Option<String>,
    /// `default`, `file`, `environment` or `flag`.
    pub(crate) source: &'static str,
    /// The file, the variable or the flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
}

/// Returns all options of a command line, in the order of the help text.
///
/// # Errors
/// As [`parse`](crate::config::parse).
pub(crate) fn settings(arguments: &[OsString]) -> Result<Vec<Setting>> {
    let given = Given::of(arguments)?;
    Ok(options(&command()).map(|argument| setting(argument, &given)).collect())
}

/// Runs `platform-server config …`.
pub(crate) fn run(arguments: &[OsString], command: &ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Schema => writeln!(stdout(), "{:#}", schema())?,
        ConfigCommand::Explain { json } => {
            let settings = settings(arguments)?;
            if *json {
                writeln!(stdout(), "{}", serde_json::to_string_pretty(&settings)?)?;
            } else {
                write!(stdout(), "{}", table(&settings))?;
            }
            let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            for note in unknown_variables(variables) {
                writeln!(stderr(), "platform-server: {note}")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| argument.get_long().is_some())
}

fn setting(argument: &Arg, given: &Given) -> Setting {
    let name = argument.get_long().unwrap_or_default().to_owned();
    let (source, place) = source(argument, &name, given);
    let value = value(argument, &given.matches).or_else(|| documented_default(argument));
    Setting { name, value, source, place }
}

fn source(argument: &Arg, name: &str, given: &Given) -> (&'static str, Option<String>) {
    match given.matches.value_source(argument.get_id().as_str()) {
        Some(ValueSource::CommandLine) => ("flag", Some(format!("--{name}"))),
        Some(ValueSource::EnvVariable) => {
            ("environment", argument.get_env().map(|variable| variable.to_string_lossy().into_owned()))
        }
        Some(_) if given.keys.contains(name) => ("file", given.file.as_ref().map(|path| path.display().to_string())),
        _ => ("default", None),
    }
}

/// Returns the value of an option without secrets.
fn value(argument: &Arg, matches: &ArgMatches) -> Option<String> {
    let raw: Vec<_> = matches.get_raw(argument.get_id().as_str())?.map(|raw| raw.to_string_lossy()).collect();
    let text = raw.join(",");
    Some(match argument.is_hide_env_values_set() {
        false => text,
        // Printed without user and password.
        true if argument.get_long() == Some("store") => {
            text.parse::<Store>().map_or(text.clone(), |store| if store.is_shared() { store.to_string() } else { text })
        }
        true => "(hidden)".to_owned(),
    })
}

/// Returns the default that the help text of an option documents, because it depends on other options or is the
/// library's.
fn documented_default(argument: &Arg) -> Option<String> {
    let help = argument.get_help()?.to_string();
    let (_, default) = help.rsplit_once("[default: ")?;
    let default = default.split(']').next()?;
    Some(default.to_owned()).filter(|default| default != "none")
}

/// Returns a line for each option: its name, value and source.
fn table(settings: &[Setting]) -> String {
    let width = |text: fn(&Setting) -> usize| settings.iter().map(text).max().unwrap_or_default();
    let names = width(|setting| setting.name.len());
    let values = width(|setting| setting.value.as_ref().map_or(0, |value| value.chars().count())).min(40);
    let line = |Setting { name, value, source, place }: &Setting| {
        let value = value.as_deref().unwrap_or("-");
        let place = place.as_ref().map_or_else(String::new, |place| format!(" {place}"));
        format!("{name:names$}  {value:values$}  {source}{place}\n")
    };
    settings.iter().map(line).collect()
}

/// Returns a note for each variable that has the prefix of ours and is not the variable of any option.
fn unknown_variables(variables: impl Iterator<Item = String>) -> Vec<String> {
    fn add(command: &Command, known: &mut BTreeSet<String>) {
        let names = command.get_arguments().filter_map(Arg::get_env);
        known.extend(names.map(|name| name.to_string_lossy().into_owned()));
        command.get_subcommands().for_each(|command| add(command, known));
    }
    let mut known = BTreeSet::new();
    add(&command(), &mut known);
    let unknown = variables.filter(|name| name.starts_with("PLATFORM_") && !known.contains(name));
    let mut notes: Vec<_> = unknown
        .map(|name| {
            let key = name.trim_start_matches("PLATFORM_").replace('_', "-").to_lowercase();
            let near = similar(command(), &key);
            let near = near.map(|near| format!("; did you mean PLATFORM_{}?", near.replace('-', "_").to_uppercase()));
            format!("no option has the variable {name}{}", near.unwrap_or_default())
        })
        .collect();
    notes.sort();
    notes
}

/// Returns the JSON Schema of the configuration file.
fn schema() -> Value {
    let command = command();
    let in_file = options(&command).filter(|argument| argument.get_long() != Some("config"));
    let properties: Map<String, Value> =
        in_file.map(|argument| (argument.get_long().unwrap_or_default().to_owned(), property(argument))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration file of platform-server",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn property(argument: &Arg) -> Value {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let one = value_schema(argument);
    let mut property = match argument.get_value_delimiter() {
        Some(_) => Map::from_iter([("anyOf".to_owned(), json!([one, { "type": "array", "items": one }]))]),
        None => one,
    };
    if let [default] = argument.get_default_values()
        && let Some(default) = default.to_str()
    {
        let default = match property.get("type").and_then(Value::as_str) {
            Some("boolean") => (default == "true").into(),
            Some("string") => default.into(),
            // An integer, or a number of bytes with or without a unit.
            _ => default.parse::<u64>().map_or_else(|_| default.into(), Value::from),
        };
        property.insert("default".to_owned(), default);
    }
    property.insert("description".to_owned(), help.into());
    property.into()
}

/// Returns the schema of one value of an option.
fn value_schema(argument: &Arg) -> Map<String, Value> {
    let possible: Vec<_> = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let unit = argument.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    let (ty, limit) = match (possible.as_slice(), unit) {
        ([first, second], _) if first == "true" && second == "false" => (json!("boolean"), None),
        ([_, ..], _) => (json!("string"), Some(("enum", json!(possible)))),
        (_, "BYTES") => (json!(["integer", "string"]), Some(("minimum", json!(0)))),
        (_, "NUMBER" | "LEVELS" | "LINES" | "EVENTS") => (json!("integer"), Some(("minimum", json!(0)))),
        _ => (json!("string"), None),
    };
    let limit = limit.map(|(name, limit)| (name.to_owned(), limit));
    std::iter::once(("type".to_owned(), ty)).chain(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(file: &str, arguments: &[&str]) -> Vec<Setting> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("platform.toml");
        std::fs::write(&path, file).unwrap();
        let all = [&["platform-server", "--config", path.to_str().unwrap()], arguments].concat();
        settings(&all.iter().map(OsString::from).collect::<Vec<_>>()).unwrap()
    }

    fn one(settings: &[Setting], name: &str) -> (Option<String>, &'static str, Option<String>) {
        let found = settings.iter().find(|setting| setting.name == name).unwrap();
        let place = found.place.as_ref().map(|place| place.rsplit('/').next().unwrap().to_owned());
        (found.value.clone(), found.source, place)
    }

    #[test]
    fn each_option_is_explained_with_its_value_and_where_it_comes_from() {
        let file = "log = 'debug'\naudience = ['a', 'b']\nmax-body = 7\nlisten = '127.0.0.1:1'\n";
        let settings = explained(file, &["serve", "--max-body", "8"]);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(one(&settings, "log"), (some("debug"), "file", some("platform.toml")));
        assert_eq!(one(&settings, "audience"), (some("a,b"), "file", some("platform.toml")));
        assert_eq!(one(&settings, "max-body"), (some("8"), "flag", some("--max-body")));
        assert_eq!(one(&settings, "data-dir"), (some("platform-data"), "default", None));
        assert_eq!(one(&settings, "request-timeout"), (some("30s"), "default", None), "the default of the library");
        assert_eq!(one(&settings, "public-url").1, "default");
        assert_eq!(one(&settings, "metrics-listen"), (None, "default", None));
        assert_eq!(settings.len(), options(&command()).count());
        let table = table(&settings);
        let line = table.lines().find(|line| line.starts_with("log ")).unwrap();
        assert!(line.contains(" debug ") && line.contains("file ") && line.ends_with("platform.toml"), "{line}");
    }

    #[test]
    fn secrets_are_not_printed() {
        let options = ["--store", "postgres://me:canary@db/platform", "--key-encryption-key", "canary"];
        let settings = explained("", &options);
        assert!(!format!("{settings:?}").contains("canary"), "{settings:?}");
        assert_eq!(one(&settings, "store").0.as_deref(), Some("postgres://db:5432/platform"));
        assert_eq!(one(&explained("", &["--store", "sqlite:x.db"]), "store").0.as_deref(), Some("sqlite:x.db"));
    }

    #[test]
    fn unknown_variables_are_named_with_the_most_similar_one() {
        let variables = ["PLATFORM_LISTN", "PLATFORM_LISTEN", "PLATFORM_TOKEN", "PATH", "PLATFORM_QQQQQQ"];
        let notes = unknown_variables(variables.map(str::to_owned).into_iter());
        assert_eq!(
            notes,
            [
                "no option has the variable PLATFORM_LISTN; did you mean PLATFORM_LISTEN?",
                "no option has the variable PLATFORM_QQQQQQ"
            ]
        );
    }

    #[test]
    fn the_schema_describes_each_key_of_the_file() {
        let schema = schema();
        let properties = schema["properties"].as_object().unwrap();
        assert_eq!(properties.len(), options(&command()).count() - 1, "all except --config");
        for (key, property) in properties {
            assert!(property["description"].as_str().is_some_and(|text| !text.is_empty()), "{key}");
            assert!(property["type"].is_string() || property["type"].is_array() || property["anyOf"].is_array());
        }
        for (key, schema) in [
            ("listen", json!("string")),
            ("max-body", json!(["integer", "string"])),
            ("max-depth", json!("integer")),
            ("limit-loopback", json!("boolean")),
        ] {
            assert_eq!(properties[key]["type"], schema, "{key}");
        }
        assert_eq!(properties["log-format"]["enum"], json!(["text", "json"]));
        assert_eq!(properties["audience"]["anyOf"][1], json!({ "type": "array", "items": { "type": "string" } }));
        assert_eq!(properties["max-backlog"]["default"], json!(10_000));
        assert_eq!(properties["limit-loopback"]["default"], json!(false));
    }
}
