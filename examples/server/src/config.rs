//! Configuration: flags win over the environment, the environment over the file, the file over defaults.
//!
//! There is one struct for all three, so that every flag `--some-thing` is `PLATFORM_SOME_THING` and `some-thing` in
//! the file, and there is no second list of them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use platform_core::uid::Uid;
use serde::Deserialize;

/// What was given, in any of the ways; none for what was not.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Options {
    /// A TOML file with any of these options, by their long names
    #[arg(long, global = true, env = "PLATFORM_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, global = true, env = "PLATFORM_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The URL by which clients reach this server, which is the issuer and audience of its tokens
    /// [default: http:// and the address]
    #[arg(long, global = true, env = "PLATFORM_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Where keys and, by default, the store are kept [default: ./platform-data]
    #[arg(long, global = true, env = "PLATFORM_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// sqlite, sqlite:PATH, sled, sled:PATH or memory [default: sqlite]
    #[arg(long, global = true, env = "PLATFORM_STORE")]
    store: Option<Store>,
    /// The suffix of error domains and resource types [default: platform.local]
    #[arg(long, global = true, env = "PLATFORM_SERVICE_DOMAIN", value_name = "DOMAIN")]
    service_domain: Option<String>,
    /// An OIDC issuer whose tokens are believed, for registered persons; may be repeated
    #[arg(
        long = "trusted-issuer",
        global = true,
        env = "PLATFORM_TRUSTED_ISSUERS",
        value_name = "URL",
        value_delimiter = ','
    )]
    trusted_issuers: Vec<String>,
    /// Another audience that tokens may be for; may be repeated
    #[arg(
        long = "audience",
        global = true,
        env = "PLATFORM_AUDIENCES",
        value_name = "AUDIENCE",
        value_delimiter = ','
    )]
    audiences: Vec<String>,
    /// An identity with the operator's powers, besides the one of the data directory; may be repeated
    #[arg(long = "operator", global = true, env = "PLATFORM_OPERATORS", value_name = "UID", value_delimiter = ',')]
    operators: Vec<String>,
    /// An origin that browsers may call from; may be repeated [default: none]
    #[arg(
        long = "cors-origin",
        global = true,
        env = "PLATFORM_CORS_ORIGINS",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    cors_origins: Vec<String>,
    /// Let every registered person create organisations, and not only the operator
    #[arg(long, global = true, env = "PLATFORM_OPEN_ORGANISATIONS", num_args = 0..=1, default_missing_value = "true")]
    open_organisations: Option<bool>,
    /// Allow trusted issuers over http, which anybody on the way can forge
    #[arg(long, global = true, env = "PLATFORM_ALLOW_HTTP_ISSUERS", num_args = 0..=1, default_missing_value = "true")]
    allow_http_issuers: Option<bool>,
    /// The most bytes of a request's body [default: 1048576]
    #[arg(long, global = true, env = "PLATFORM_MAX_BODY", value_name = "BYTES")]
    max_body: Option<usize>,
    /// The most connections at once [default: 4096]
    #[arg(long, global = true, env = "PLATFORM_MAX_CONNECTIONS", value_name = "NUMBER")]
    max_connections: Option<u32>,
    /// The most seconds that a request may take [default: 30]
    #[arg(long, global = true, env = "PLATFORM_REQUEST_TIMEOUT", value_name = "SECONDS")]
    request_timeout: Option<u64>,
    /// What to log, in the form of RUST_LOG [default: info]
    #[arg(long, global = true, env = "PLATFORM_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How to log: text or json [default: text]
    #[arg(long, global = true, env = "PLATFORM_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

/// What holds, all defaults filled in.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: Option<String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) store: Store,
    pub(crate) service_domain: String,
    pub(crate) trusted_issuers: Vec<String>,
    pub(crate) audiences: Vec<String>,
    pub(crate) operators: Vec<Uid>,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) open_organisations: bool,
    pub(crate) allow_http_issuers: bool,
    pub(crate) max_body: Option<usize>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) request_timeout: Option<u64>,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    /// Whether the address was given, rather than the default.
    pub(crate) listen_given: bool,
}

/// Where resources are kept; without a path, in the data directory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Store {
    Sqlite(Option<PathBuf>),
    Sled(Option<PathBuf>),
    Memory,
}

impl FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once(':').map_or((text, None), |(name, path)| (name, Some(path)));
        let path = path.map(PathBuf::from);
        match (name, path) {
            (_, Some(path)) if path.as_os_str().is_empty() => Err("the path after the colon is missing".to_owned()),
            ("sqlite", path) => Ok(Self::Sqlite(path)),
            ("sled", path) => Ok(Self::Sled(path)),
            ("memory", None) => Ok(Self::Memory),
            ("postgres" | "postgresql", Some(_)) => Err("PostgreSQL is not supported yet".to_owned()),
            _ => Err("must be sqlite, sqlite:PATH, sled, sled:PATH or memory".to_owned()),
        }
    }
}

impl TryFrom<String> for Store {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

impl Options {
    /// Puts file and defaults behind what the command line and the environment gave.
    pub(crate) fn resolve(self) -> Result<Config> {
        let file = self.config.as_deref().map(Self::read).transpose()?.unwrap_or_default();
        let many = |given: Vec<String>, filed: Vec<String>| if given.is_empty() { filed } else { given };
        let listen = self.listen.or(file.listen);
        let operators = many(self.operators, file.operators);
        let operators = operators
            .iter()
            .map(|text| Uid::parse(text).with_context(|| format!("the operator `{text}` of the configuration")));
        let config = Config {
            listen: listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080))),
            listen_given: listen.is_some(),
            public_url: self.public_url.or(file.public_url).map(|url| url.trim_end_matches('/').to_owned()),
            data_dir: self.data_dir.or(file.data_dir).unwrap_or_else(|| "platform-data".into()),
            store: self.store.or(file.store).unwrap_or(Store::Sqlite(None)),
            service_domain: self.service_domain.or(file.service_domain).unwrap_or_else(|| "platform.local".to_owned()),
            trusted_issuers: many(self.trusted_issuers, file.trusted_issuers),
            audiences: many(self.audiences, file.audiences),
            operators: operators.collect::<Result<_>>()?,
            cors_origins: many(self.cors_origins, file.cors_origins),
            open_organisations: self.open_organisations.or(file.open_organisations).unwrap_or_default(),
            allow_http_issuers: self.allow_http_issuers.or(file.allow_http_issuers).unwrap_or_default(),
            max_body: self.max_body.or(file.max_body),
            max_connections: self.max_connections.or(file.max_connections),
            request_timeout: self.request_timeout.or(file.request_timeout),
            log: self.log.or(file.log).unwrap_or_else(|| "info".to_owned()),
            log_format: self.log_format.or(file.log_format).unwrap_or_default(),
        };
        if !config.listen.ip().is_loopback() && config.public_url.is_none() {
            bail!(
                "{} can be reached from other machines, so tokens need the name that they know this server by: give \
                 --public-url as well, or listen on 127.0.0.1",
                config.listen
            );
        }
        Ok(config)
    }

    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is no configuration", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn resolved(arguments: &[&str]) -> Result<Config> {
        let arguments = ["platform-server"].iter().chain(arguments);
        Cli::try_parse_from(arguments)?.options.resolve()
    }

    #[test]
    fn a_store_is_named_by_its_sort_and_perhaps_a_path() {
        for (text, store) in [
            ("sqlite", Ok(Store::Sqlite(None))),
            ("sqlite:/var/x.db", Ok(Store::Sqlite(Some("/var/x.db".into())))),
            ("sled:x", Ok(Store::Sled(Some("x".into())))),
            ("memory", Ok(Store::Memory)),
            ("sqlite:", Err("the path after the colon is missing".to_owned())),
            ("postgres://db", Err("PostgreSQL is not supported yet".to_owned())),
            ("mysql", Err("must be sqlite, sqlite:PATH, sled, sled:PATH or memory".to_owned())),
        ] {
            assert_eq!(text.parse(), store, "{text}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("platform.toml");
        std::fs::write(&file, "listen = \"127.0.0.1:1\"\nstore = \"memory\"\nopen-organisations = true\n").unwrap();
        let file = file.to_str().unwrap();
        let config = resolved(&["--config", file, "--listen", "127.0.0.1:2"]).unwrap();
        assert_eq!((config.listen.port(), config.store, config.open_organisations), (2, Store::Memory, true));
        assert_eq!(config.data_dir, PathBuf::from("platform-data"));
    }

    #[test]
    fn an_unknown_key_of_the_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("platform.toml");
        std::fs::write(&file, "lisen = \"127.0.0.1:1\"\n").unwrap();
        let error = resolved(&["--config", file.to_str().unwrap()]).unwrap_err();
        assert!(format!("{error:#}").contains("unknown field `lisen`"), "{error:#}");
    }

    #[test]
    fn a_server_for_other_machines_must_be_told_its_name() {
        assert!(resolved(&["--listen", "0.0.0.0:80"]).is_err());
        assert!(resolved(&["--listen", "0.0.0.0:80", "--public-url", "https://api.example.com"]).is_ok());
    }
}
