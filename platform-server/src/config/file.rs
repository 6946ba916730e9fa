//! The configuration file: its keys are the long names of the options.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use anyhow::{Context, Result, anyhow, bail};
use clap::{
    ArgMatches, CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue},
};

use crate::{Kinds, cli::Cli};

/// Reads the command line, the environment, and the file given with `--config`, if any.
///
/// # Errors
/// Returns a [`clap::Error`] when flags or variables are invalid or help is requested, and another error when the file
/// is invalid.
pub(crate) fn parse(arguments: Vec<OsString>, kinds: Kinds) -> Result<Cli> {
    let given = Given::of(&arguments)?;
    let mut cli = Cli::from_arg_matches(&given.matches).map_err(|error| given.named(error))?;
    (cli.config.arguments, cli.config.kinds) = (arguments, kinds);
    if !cli.is_emulator() {
        cli.config.checked()?;
    }
    Ok(cli)
}

/// The options of a command line, the environment, and the file.
pub(crate) struct Given {
    pub(crate) matches: ArgMatches,
    pub(crate) file: Option<PathBuf>,
    /// The keys of the file.
    pub(crate) keys: BTreeSet<String>,
}

impl Given {
    pub(crate) fn of(arguments: &[OsString]) -> Result<Self> {
        let matches = parser().try_get_matches_from(arguments)?;
        let Some(path) = Cli::from_arg_matches(&matches)?.config.config else {
            return Ok(Self { matches, file: None, keys: BTreeSet::new() });
        };
        let (command, keys) = with_defaults_of(&path)?;
        let mut given = Self { matches, file: Some(path), keys };
        // Flags and variables were parsed without error above, so an error now comes from the file.
        given.matches = command.try_get_matches_from(arguments).map_err(|error| given.named(error))?;
        Ok(given)
    }

    /// Adds the name of the file to an error.
    fn named(&self, error: clap::Error) -> anyhow::Error {
        let Some(path) = &self.file else { return error.into() };
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        anyhow!("{}: {}", path.display(), line.trim_start_matches("error: "))
    }
}

/// The default values, by the long names of the options (see `defaults.toml`).
static DEFAULTS: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
    let table: toml::Table = include_str!("defaults.toml").parse().unwrap_or_default();
    table.into_iter().filter_map(|(key, value)| Some((key, values(value).ok()?))).collect()
});

/// Returns the command line with its default values.
pub(crate) fn command() -> clap::Command {
    Cli::command().mut_args(|argument| match argument.get_long().and_then(|name| DEFAULTS.get(name)) {
        // Options that always have a value are required in their declaration.
        Some(values) => argument.required(false).default_values(values.clone()),
        None => argument,
    })
}

/// Returns the command line parser. Ignores variables set to the empty string, as shells and compose files do.
fn parser() -> clap::Command {
    command().mut_args(|argument| {
        let value = argument.get_env().and_then(std::env::var_os);
        if value.is_some_and(|value| value.is_empty()) { argument.env(None::<&str>) } else { argument }
    })
}

/// Returns the command line parser with the values of the file as defaults, and the keys of the file.
fn with_defaults_of(path: &Path) -> Result<(clap::Command, BTreeSet<String>)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let table: toml::Table = text.parse().with_context(|| format!("{} is not valid TOML", path.display()))?;
    let (mut command, mut keys) = (parser(), BTreeSet::new());
    for (key, value) in table {
        let named = |argument: &&clap::Arg| argument.get_long() == Some(&key) && key != "config";
        let Some(id) = command.get_arguments().find(named).map(|argument| argument.get_id().clone()) else {
            let near = similar(command, &key).map(|near| format!("; did you mean `{near}`?"));
            bail!("{}: unknown option `{key}`{}", path.display(), near.unwrap_or_default());
        };
        let values = values(value).with_context(|| format!("{}: option `{key}`", path.display()))?;
        command = command.mut_arg(id, |argument| argument.default_values(values));
        keys.insert(key);
    }
    Ok((command, keys))
}

/// Returns the option with the most similar name.
pub(crate) fn similar(command: clap::Command, key: &str) -> Option<String> {
    let refused = command.try_get_matches_from(["platform-server", &format!("--{key}")]).err();
    match refused.as_ref().and_then(|error| error.get(ContextKind::SuggestedArg)) {
        Some(ContextValue::String(name)) => Some(name.trim_start_matches('-').to_owned()),
        _ => None,
    }
}

/// Converts a TOML value to the form that it has on the command line.
fn values(value: toml::Value) -> Result<Vec<String>> {
    Ok(match value {
        toml::Value::String(text) => vec![text],
        toml::Value::Integer(number) => vec![number.to_string()],
        toml::Value::Boolean(truth) => vec![truth.to_string()],
        toml::Value::Array(several) => several.into_iter().map(values).collect::<Result<Vec<_>>>()?.concat(),
        _ => bail!("must be a string, an integer, a boolean, or an array of these"),
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use platform_http::Limits;

    use super::*;
    use crate::{
        cli::{Command, Keys},
        config::{Config, LogFormat, OnStoreFailure, Store},
    };

    fn read_with(arguments: &[&str]) -> Result<Config> {
        let arguments = ["platform-server"].iter().chain(arguments).map(OsString::from).collect();
        parse(arguments, Kinds::default()).map(|cli| cli.config)
    }

    fn read_file(text: &str, arguments: &[&str]) -> Result<Config> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("platform.toml");
        std::fs::write(&file, text).unwrap();
        read_with(&[&["--config", file.to_str().unwrap()], arguments].concat())
    }

    #[test]
    fn every_option_has_the_variable_of_its_name() {
        for argument in Cli::command().get_arguments() {
            let long = argument.get_long().unwrap_or_else(|| panic!("{argument} has no long name"));
            let variable = format!("PLATFORM_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(argument.get_env(), Some(std::ffi::OsStr::new(&variable)), "--{long}");
            assert!(argument.is_global_set(), "--{long} is accepted before and after the command");
            assert_eq!(argument.get_short(), None);
        }
    }

    #[test]
    fn every_option_except_config_is_a_key_of_the_file() {
        let some = |long: &str| match long {
            "listen" | "metrics-listen" => "'127.0.0.1:1'",
            "store" => "'memory'",
            "operator" | "public-advisory-group" | "metrics-organization" => {
                "['00000000000000000000000000000000000000aa']"
            }
            "log-format" => "'json'",
            "on-store-failure" => "'serve'",
            "trusted-issuer" | "audience" | "cors-origin" => "['a', 'b']",
            "trusted-proxies" => "['10.0.0.0/8', '::1/128']",
            "limit-loopback" | "proxy-protocol" => "true",
            "identity-rate" | "organization-rate" => "['7', '00000000000000000000000000000000000000aa=7:70']",
            name if name.ends_with("-rate") => "'7:70'",
            name if name.starts_with("max-") => "7",
            "store-connections" => "7",
            "backup-keep" | "audit-log-size" | "audit-log-keep" => "7",
            "backup-every" => "'7s'",
            name if name.ends_with("-timeout") || name.ends_with("-delay") => "'7s'",
            "slow-request" => "'7s'",
            "cache-size" => "'64M'",
            "trace-ratio" => "'0.5'",
            "terms-document" => "['a,b,c']",
            "open-organisations" | "recreate-missing" | "replace-settings" | "read-only" | "console"
            | "otlp-metrics" => "true",
            name if name.starts_with("allow-") => "true",
            _ => "'text'",
        };
        // Options that another one requires.
        let required = |long: &str| match long {
            "tls-cert" => "tls-key = 'text'",
            "tls-key" => "tls-cert = 'text'",
            "proxy-protocol" => "trusted-proxies = '10.0.0.0/8'",
            "sign-in-issuer" => "sign-in-client-id = 'text'",
            "sign-in-client-id" => "sign-in-issuer = 'text'",
            "store-ca" | "store-connections" => "store = 'postgres://db/platform'",
            "sign-in-client-secret-file" => "sign-in-issuer = 'text'\nsign-in-client-id = 'text'",
            _ => "",
        };
        for argument in Cli::command().get_arguments() {
            let long = argument.get_long().unwrap();
            let read = read_file(&format!("{long} = {}\n{}", some(long), required(long)), &[]);
            assert_eq!(read.is_ok(), long != "config", "{long}: {read:?}");
        }
    }

    #[test]
    fn flags_override_the_file_and_the_file_overrides_defaults() {
        let file = "listen = '127.0.0.1:1'\nstore = 'memory'\nopen-organisations = true\naudience = ['a', 'b']\n\
                    request-timeout = '2m'\n";
        let config = read_file(file, &["--listen", "127.0.0.1:2"]).unwrap();
        assert_eq!((config.listen().port(), &config.store, config.open_organisations), (2, &Store::Memory, true));
        assert_eq!((config.data_dir, config.audience), (PathBuf::from("platform-data"), vec!["a".into(), "b".into()]));
        assert_eq!(config.limits.limits().request_time.as_secs(), 120);
        let config = read_file(file, &["env", "--audience", "c", "--open-organisations=false"]).unwrap();
        assert_eq!((config.audience, config.open_organisations), (vec!["c".into()], false));
    }

    #[test]
    fn defaults_are_as_documented() {
        let config = read_with(&[]).unwrap();
        assert_eq!(config.listen().to_string(), "127.0.0.1:8080");
        assert_eq!((config.store, config.log_format), (Store::Sqlite(None), LogFormat::Text));
        assert_eq!(config.limits.limits(), Limits::default());
        assert!(!config.open_organisations && !config.allow_http_issuers && !config.allow_private_issuers);
        assert_eq!(config.on_store_failure, OnStoreFailure::Exit);
        let tokens = Limits::default().of_tokens();
        assert_eq!((tokens.body, tokens.body_time.as_secs()), (16 << 10, 5));
    }

    #[test]
    fn the_default_configuration_is_the_only_source_of_defaults() {
        let table: toml::Table = include_str!("defaults.toml").parse().unwrap();
        assert_eq!(table.keys().collect::<Vec<_>>().len(), DEFAULTS.len(), "every value can be used");
        for argument in Cli::command().get_arguments() {
            let declared: Vec<_> = argument.get_default_values().iter().filter(|value| *value != "false").collect();
            assert!(declared.is_empty(), "{:?}: {declared:?}", argument.get_id());
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            // Other defaults are described in words, because they depend on other options. Commands have to know whether
            // an address was given, so it has no default value.
            let is_literal = help.split_once("[default: ").is_some_and(|(_, rest)| rest.starts_with(char::is_numeric))
                && argument.get_long() != Some("listen");
            assert!(!is_literal, "{:?}: {help}", argument.get_id());
        }
        let command = command();
        let names: BTreeSet<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let unknown = DEFAULTS.keys().filter(|key| !names.contains(key.as_str()));
        let expected: &[&str] = if cfg!(feature = "otlp") { &[] } else { &["otlp-metrics", "trace-ratio"] };
        assert_eq!(unknown.collect::<Vec<_>>(), expected);
        // A copy of it as a configuration file changes nothing.
        let known =
            include_str!("defaults.toml").lines().filter(|line| !expected.iter().any(|key| line.starts_with(key)));
        let copied = read_file(&known.collect::<Vec<_>>().join("\n"), &[]).unwrap();
        let arguments = |mut config: Config| {
            config.arguments.clear();
            format!("{config:?}").replace(|c: char| !c.is_ascii(), "")
        };
        let without_file = |text: String| text.split_once(", listen: ").unwrap().1.to_owned();
        assert_eq!(without_file(arguments(copied)), without_file(arguments(read_with(&[]).unwrap())));
        assert_eq!(read_with(&[]).unwrap().data_dir.as_os_str(), Config::DATA_DIR);
    }

    #[test]
    fn errors_in_the_file_name_the_file() {
        for (text, expected) in [
            ("lisen = '127.0.0.1:1'", "unknown option `lisen`; did you mean `listen`?"),
            ("config = 'other.toml'", "unknown option `config`"),
            ("listen = 'here'", "invalid value 'here' for '--listen <IP:PORT>'"),
            ("listen = 1.5", "option `listen`: must be a string"),
            ("max-body = -1", "invalid value '-1' for '--max-body <BYTES>'"),
            ("listen", "is not valid TOML"),
        ] {
            let error = read_file(text, &[]).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected) && error.contains("platform.toml"), "{error}");
        }
    }

    #[test]
    fn a_rate_applies_to_all_callers_or_to_the_named_one() {
        let uid = "00000000000000000000000000000000000000aa";
        let file = format!("identity-rate = ['50:500', '{uid}=5', '{uid}/0123456789abcdef=6:7']");
        let limits = read_file(&file, &["--organization-rate", &format!("{uid}=9")]).unwrap().limits.limits();
        let rate = |text: &str| text.parse::<platform_http::Rate>().unwrap();
        assert_eq!((limits.identity_rate, limits.organization_rate), (Some(rate("50:500")), None));
        let own: std::collections::HashMap<_, _> =
            limits.identity_rates.iter().map(|(uid, rate)| (uid.as_str(), *rate)).collect();
        assert_eq!(own, [(uid, rate("5")), (&format!("{uid}/0123456789abcdef"), rate("6:7"))].into());
        assert_eq!(limits.organization_rates.values().collect::<Vec<_>>(), [&rate("9")]);
        for wrong in ["nobody=5", "=5", &format!("{uid}="), &format!("{uid}=0")] {
            assert!(read_with(&["--identity-rate", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_proxy_protocol_requires_trusted_proxies() {
        let error = read_with(&["--proxy-protocol"]).unwrap_err();
        assert!(error.to_string().contains("set --trusted-proxies"), "{error}");
        let config = read_with(&["--proxy-protocol", "--trusted-proxies", "10.0.0.0/8"]).unwrap();
        assert!(config.limits.limits().proxy_protocol);
    }

    #[test]
    fn the_id_of_a_key_may_begin_with_a_hyphen() {
        // Ids are thumbprints in base64url.
        for id in ["-9t_ab", "--t_ab", "-hab", "9t-ab"] {
            let arguments = ["platform-server", "keys", "revoke", id, "--api", "http://127.0.0.1:1"];
            let parsed = parse(arguments.map(OsString::from).into(), Kinds::default()).unwrap();
            let Some(Command::Keys(Keys::Revoke { id: read, at })) = parsed.command else { panic!("{id}") };
            assert_eq!((read.as_str(), at.url()), (id, Some("http://127.0.0.1:1")));
        }
    }

    #[test]
    fn a_server_for_other_machines_requires_a_public_url() {
        assert!(read_with(&["--listen", "0.0.0.0:80"]).is_err());
        let config = read_with(&["--listen", "0.0.0.0:80", "--public-url", "https://api.example.com/"]).unwrap();
        assert_eq!(config.public_url.as_deref(), Some("https://api.example.com"));
    }
}
