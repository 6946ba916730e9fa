//! Contexts: servers and tokens in a file that only its owner can read.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ArgMatches;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::{
    api::{Api, REPEAT_FOR},
    cli::NAME,
    failure::{Failure, Result},
};

/// The name of the context of a login that does not name one.
const DEFAULT: &str = "default";

/// The file of the contexts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Config {
    /// The name of the context that commands use.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) current: String,
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// A server and a token for it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Context {
    /// The URL of the server.
    pub(crate) api: String,
    pub(crate) token: String,
    /// When the token expires, in RFC 3339.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) expiry: String,
    /// A PEM file with the authorities that verify the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// The token is a secret.
impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("api", &self.api).field("expiry", &self.expiry).finish_non_exhaustive()
    }
}

impl Config {
    /// Reads the file; a missing one has no contexts.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::file(path.display(), error)),
        };
        check_mode(path)?;
        toml::from_str(&text).map_err(|error| Failure::file(path.display(), error.message()))
    }

    /// Replaces the file in one step. It is readable by its owner only.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = toml::to_string(self).map_err(|error| Failure::file(path.display(), error))?;
        replace(path, text.as_bytes())
    }

    /// Returns the name of the context to use.
    pub(crate) fn name(&self, matches: &ArgMatches) -> String {
        let named = matches.get_one::<String>("context").cloned();
        let current = Some(self.current.clone()).filter(|current| !current.is_empty());
        named.or(current).unwrap_or_else(|| DEFAULT.to_owned())
    }
}

/// Writes a file of mode 600 in place of an old one, creating its directory.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| Failure::file(path.display(), error);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    // Temporary files have the mode 600.
    let mut file = NamedTempFile::new_in(directory).map_err(failed)?;
    file.write_all(content).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    file.persist(path).map(drop).map_err(|error| failed(error.error))
}

/// Rejects a file that others can read.
#[cfg(unix)]
fn check_mode(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).map_err(|error| Failure::file(path.display(), error))?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(Failure::file(path.display(), format!("has the mode {:o}, so others can read tokens", mode & 0o777))
            .note("run `chmod 600` on it")),
    }
}

#[cfg(not(unix))]
fn check_mode(_: &Path) -> Result<()> {
    Ok(())
}

/// Returns the file of the contexts.
pub(crate) fn file(matches: &ArgMatches) -> Result<PathBuf> {
    match matches.get_one::<String>("config").filter(|path| !path.is_empty()) {
        Some(path) => Ok(path.into()),
        None => Ok(directory("XDG_CONFIG_HOME", ".config")?.join("config.toml")),
    }
}

/// Returns the program's directory below one of the XDG directories.
pub(crate) fn directory(variable: &str, in_home: &str) -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set(variable).or_else(|| set("HOME").map(|home| home.join(in_home)));
    base.map(|base| base.join(NAME)).ok_or_else(|| Failure::usage(format!("set HOME or {variable}")))
}

/// Returns the time for which requests are repeated.
pub(crate) fn repeat_for(matches: &ArgMatches) -> Duration {
    matches.get_one::<Duration>("retry-for").copied().unwrap_or(REPEAT_FOR)
}

/// Returns the authorities of the command line.
pub(crate) fn ca_file(matches: &ArgMatches) -> Option<PathBuf> {
    matches.get_one::<String>("ca-file").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns the server and the token that a command uses: those of the command line and the environment, or else those of
/// the context. The token of a context is never sent to another server.
pub(crate) fn api(matches: &ArgMatches) -> Result<Api> {
    let given = |name: &str| matches.get_one::<String>(name).filter(|value| !value.is_empty()).cloned();
    let (url, token) = (given("api"), given("token"));
    let repeat_for = repeat_for(matches);
    if let (Some(url), Some(token)) = (&url, &token) {
        return Api::new(url, Some(token.clone()), ca_file(matches).as_deref(), repeat_for);
    }
    let config = Config::read(&file(matches)?)?;
    let name = config.name(matches);
    let context = config.contexts.get(&name);
    let (Some(url), context) = (url.clone().or_else(|| context.map(|context| context.api.clone())), context) else {
        return Err(
            Failure::usage(format!("there is no context `{name}`")).note("run `login`, or give --api and --token")
        );
    };
    let is_of_context = |context: &&Context| context.api.trim_end_matches('/') == url.trim_end_matches('/');
    let stored = context.filter(is_of_context);
    let token = token.or_else(|| stored.map(|context| context.token.clone()));
    let ca = ca_file(matches).or_else(|| stored.and_then(|context| context.ca_file.clone()));
    Api::new(&url, token, ca.as_deref(), repeat_for)
}
