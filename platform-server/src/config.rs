//! Configuration: flags override the environment, the environment overrides the file, the file overrides defaults.
//!
//! One struct holds all options. Clap reads flags and variables; each key of the file becomes the default of the option
//! of that name, so that its value is parsed and validated by the same rules.

mod audit;
mod backup;
mod console;
mod events;
mod file;
mod limits;
mod network;
mod observe;
mod sign_in;

use std::{convert::Infallible, ffi::OsString, fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use platform_core::resources::iam::TermsDocument;
use platform_engine::uid::Uid;
use platform_oidc::AwsHost;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

#[cfg(feature = "otlp")]
pub(crate) use self::observe::OtlpOptions;
use crate::{
    Error, Kinds,
    cli::{Cli, Command},
    shell::word,
};

pub(crate) use self::{
    audit::AuditOptions,
    backup::BackupOptions,
    console::ConsoleOptions,
    events::EventOptions,
    file::{Given, command, parse, similar},
    limits::LimitOptions,
    network::NetworkOptions,
    observe::ObserveOptions,
    sign_in::SignInOptions,
};

/// The effective configuration.
///
/// A program that embeds the server reads it with [`Config::read`], from the same flags, variables and file as the
/// binary.
#[derive(Debug, Args)]
pub struct Config {
    /// TOML file with any of these options, by their long names
    #[arg(long, global = true, env = "PLATFORM_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free port [default: 127.0.0.1:8080]
    #[arg(long, global = true, env = "PLATFORM_LISTEN", value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// URL by which clients reach this server; it is the issuer and audience of its tokens
    /// [default: http:// and the address, or https:// with --tls-cert]
    #[arg(long, global = true, env = "PLATFORM_PUBLIC_URL", value_name = "URL", value_parser = without_slash)]
    pub(crate) public_url: Option<String>,
    /// PEM file with the TLS certificate chain, the server's own certificate first; reloaded when it changes
    #[arg(long, global = true, env = "PLATFORM_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's private key
    #[arg(long, global = true, env = "PLATFORM_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Directory of the keys and, by default, of the store
    #[arg(long, global = true, env = "PLATFORM_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Store to use: sqlite, sqlite:PATH, sled, sled:PATH, memory, or postgres://USER@HOST/DATABASE, which any number of
    /// servers can share
    #[arg(long, global = true, env = "PLATFORM_STORE", hide_env_values = true)]
    pub(crate) store: Store,
    /// PEM file with the certification authority of the database, which is trusted besides the public ones
    #[arg(long, global = true, env = "PLATFORM_STORE_CA", value_name = "FILE")]
    pub(crate) store_ca: Option<PathBuf>,
    /// Maximum number of connections of this server to the database, at least 6 [default: that of the store, 23]
    #[arg(long, global = true, env = "PLATFORM_STORE_CONNECTIONS", value_name = "NUMBER",
          value_parser = clap::value_parser!(u16).range(6..))]
    pub(crate) store_connections: Option<u16>,
    /// Memory for the caches of the store and, with sqlite, for changes that are not in its tables yet; at least 1M
    /// [default: an eighth of the memory that the process may use, from 16M to 128M; with sled, 256M]
    #[arg(long, global = true, env = "PLATFORM_CACHE_SIZE", value_name = "BYTES", value_parser = cache_size)]
    pub(crate) cache_size: Option<u64>,
    /// File with the key that encrypts the keys of the installation, in a database or the data directory: the Base64 of
    /// 32 bytes; the variable may contain the key itself
    #[arg(long, global = true, env = "PLATFORM_KEY_ENCRYPTION_KEY", value_name = "FILE", hide_env_values = true)]
    pub(crate) key_encryption_key: Option<String>,
    /// Command that prints this key, such as the client of a secrets manager; run by sh at the start
    #[arg(long, global = true, env = "PLATFORM_KEY_ENCRYPTION_COMMAND", value_name = "COMMAND")]
    pub(crate) key_encryption_command: Option<String>,
    /// Name of this server among those that share a database, which no other running server has; one that restarts with
    /// its name continues its deliveries of events at once [default: random]
    #[arg(long, global = true, env = "PLATFORM_INSTANCE", value_name = "NAME", value_parser = instance)]
    pub(crate) instance: Option<String>,
    /// Replace the settings on which the servers that share a database have agreed by those of this server
    #[arg(long, global = true, env = "PLATFORM_REPLACE_SETTINGS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) replace_settings: bool,
    /// Directory of the blobs: bills of materials, configurations and charts of imported images. It belongs to the
    /// store; servers that share a database share it too [default: the path of the store followed by .blobs, or the
    /// directory blobs in the data directory]
    #[arg(long, global = true, env = "PLATFORM_BLOBS", value_name = "DIR")]
    pub(crate) blobs: Option<PathBuf>,
    /// Reaction to a store that accepts no more writes until it is reopened: `serve` keeps answering reads, `exit` ends
    /// the server with code 1, so that a supervisor restarts it
    #[arg(long, global = true, env = "PLATFORM_ON_STORE_FAILURE", value_name = "ACTION")]
    pub(crate) on_store_failure: OnStoreFailure,
    /// Refuse all writes, also those of background jobs; reads are served. PUT /operator/read-only switches writes on
    /// and off while the server runs
    #[arg(long, global = true, env = "PLATFORM_READ_ONLY",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) read_only: bool,
    /// Create keys.json or bootstrap.json again if one is missing from a data directory that was in use. New keys
    /// invalidate all tokens and lose all sealed secrets; a new bootstrap.json adds a second organization
    #[arg(long, global = true, env = "PLATFORM_RECREATE_MISSING",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) recreate_missing: bool,
    /// Suffix of error domains and resource types
    #[arg(long, global = true, env = "PLATFORM_SERVICE_DOMAIN", value_name = "DOMAIN")]
    pub(crate) service_domain: String,
    /// OIDC issuer whose tokens are accepted for registered persons; may be repeated
    #[arg(long, global = true, env = "PLATFORM_TRUSTED_ISSUER", value_name = "URL", value_delimiter = ',')]
    pub(crate) trusted_issuer: Vec<String>,
    /// Allow issuers over http, whose keys anyone on the network path can forge
    #[arg(long, global = true, env = "PLATFORM_ALLOW_HTTP_ISSUERS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_http_issuers: bool,
    /// Allow identities and identity providers to name issuers in private networks, including this machine
    #[arg(long, global = true, env = "PLATFORM_ALLOW_PRIVATE_ISSUERS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_private_issuers: bool,
    /// Host of the STS of AWS that signed requests of AWS identities are sent to, with the partition that it belongs to
    /// (aws if there is none); may be repeated. It may be in a private network
    /// [default: the public endpoints of aws, aws-us-gov, aws-cn and aws-eusc]
    #[arg(long, global = true, env = "PLATFORM_AWS_STS_HOST", value_name = "HOST[=PARTITION]", value_delimiter = ',')]
    pub(crate) aws_sts_host: Vec<AwsHost>,
    /// Additional audience to accept in tokens; may be repeated
    #[arg(long, global = true, env = "PLATFORM_AUDIENCE", value_delimiter = ',')]
    pub(crate) audience: Vec<String>,
    /// Identity with operator rights, in addition to the operator of the data directory; may be repeated
    #[arg(
        long,
        global = true,
        env = "PLATFORM_OPERATOR",
        value_name = "UID",
        value_delimiter = ',',
        value_parser = Uid::parse
    )]
    pub(crate) operator: Vec<Uid>,
    /// Group whose approved advisories are public at /advisory/v2/documents; may be repeated
    #[arg(
        long,
        global = true,
        env = "PLATFORM_PUBLIC_ADVISORY_GROUP",
        value_name = "UID",
        value_delimiter = ',',
        value_parser = Uid::parse
    )]
    pub(crate) public_advisory_group: Vec<Uid>,
    /// Let every registered person create organizations, not only operators
    #[arg(long, global = true, env = "PLATFORM_OPEN_ORGANISATIONS",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) open_organisations: bool,
    /// Document that groups can accept, as its id, label and URL separated by commas; may be repeated
    /// [default: the documents of the published API]
    #[arg(long, global = true, env = "PLATFORM_TERMS_DOCUMENT", value_name = "ID,LABEL,URL",
          value_delimiter = ';', value_parser = terms_document)]
    pub(crate) terms_document: Vec<TermsDocument>,
    /// Origin whose pages may call the API from browsers (CORS); may be repeated
    #[arg(long, global = true, env = "PLATFORM_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    pub(crate) cors_origin: Vec<String>,
    /// Log filter, in the syntax of RUST_LOG
    #[arg(long, global = true, env = "PLATFORM_LOG", value_name = "FILTER")]
    pub(crate) log: String,
    /// Log format
    #[arg(long, global = true, env = "PLATFORM_LOG_FORMAT", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) sign_in: SignInOptions,
    #[command(flatten)]
    pub(crate) network: NetworkOptions,
    #[command(flatten)]
    pub(crate) console: ConsoleOptions,
    #[command(flatten)]
    pub(crate) events: EventOptions,
    #[command(flatten)]
    pub(crate) observe: ObserveOptions,
    #[command(flatten)]
    pub(crate) audit: AuditOptions,
    #[command(flatten)]
    pub(crate) backups: BackupOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// The kinds that the program has.
    #[arg(skip)]
    pub(crate) kinds: Kinds,
    /// The command line, which is read again at SIGHUP.
    #[arg(skip)]
    pub(crate) arguments: Vec<OsString>,
}

impl Config {
    /// Reads the configuration from a command line, whose first argument is the name of the program, from the
    /// environment, and from the file that `--config` names.
    ///
    /// # Errors
    /// Fails if an option is invalid or unknown, and for a command other than `serve`.
    pub fn read<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        let arguments = arguments.into_iter().map(Into::into).collect();
        let Cli { command, config } = parse(arguments, Kinds::default())?;
        match command {
            None | Some(Command::Serve) => Ok(config),
            Some(_) => Err(anyhow!("this program has no commands: pass options of `serve` only").into()),
        }
    }

    /// The default data directory.
    pub(crate) const DATA_DIR: &str = "platform-data";

    /// Returns the option that makes a command work on this data directory, with a space before it; empty if it is the
    /// default one.
    pub(crate) fn data_dir_option(&self) -> String {
        match self.data_dir.to_string_lossy() {
            name if name == Self::DATA_DIR => String::new(),
            name => format!(" --data-dir {}", word(&name)),
        }
    }

    /// Returns the address to listen on.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080)))
    }

    /// Returns the configured listen address, unless its port is 0 and so not known yet.
    pub(crate) fn listen_given(&self) -> Option<SocketAddr> {
        self.listen.filter(|address| address.port() != 0)
    }

    /// Returns the URL of an address on this machine.
    pub(crate) fn url_of(&self, address: SocketAddr) -> String {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// Returns the memory for the caches of an SQLite store, in bytes.
    pub(crate) fn cache_size(&self) -> u64 {
        self.cache_size.unwrap_or_else(|| default_cache_size(memory_limit()))
    }

    /// Rejects invalid combinations of options.
    fn checked(&self) -> Result<()> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            bail!("TLS needs both a certificate and its key: set --tls-cert and --tls-key");
        }
        let listen = self.listen();
        if !listen.ip().is_loopback() && self.public_url.is_none() {
            bail!(
                "{listen} is reachable from other machines, so tokens need the URL by which those know this server: \
                 set --public-url as well, or listen on 127.0.0.1"
            );
        }
        if self.store_ca.is_some() && !self.store.is_shared() {
            bail!("--store-ca is for a database: set --store postgres://USER@HOST/DATABASE, or remove it");
        }
        if self.store_connections.is_some() && !self.store.is_shared() {
            bail!("--store-connections is for a database: set --store postgres://USER@HOST/DATABASE, or remove it");
        }
        if self.cache_size.is_some() && (self.store.is_shared() || self.store == Store::Memory) {
            bail!("--cache-size is for a store on disk: set --store sqlite or sled, or remove it");
        }
        self.sign_in.checked()?;
        self.limits.checked()
    }
}

/// The kind of store and its path, by default in the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite(Option<PathBuf>),
    #[cfg(feature = "sled")]
    Sled(Option<PathBuf>),
    #[cfg(feature = "postgres")]
    Postgres(DatabaseUrl),
    Memory,
}

impl Store {
    /// Returns whether several servers can use the store at the same time.
    pub(crate) const fn is_shared(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
            _ => false,
        }
    }
}

/// The URL of a database. Displayed without user and password.
#[derive(Clone, PartialEq, Eq)]
#[cfg(feature = "postgres")]
pub(crate) struct DatabaseUrl(String);

#[cfg(feature = "postgres")]
impl DatabaseUrl {
    /// Returns the URL with the password.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

#[cfg(feature = "postgres")]
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&platform_store_postgres::without_credentials(&self.0))
    }
}

#[cfg(feature = "postgres")]
impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(_) => f.write_str("sqlite"),
            #[cfg(feature = "sled")]
            Self::Sled(_) => f.write_str("sled"),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => url.fmt(f),
            Self::Memory => f.write_str("memory"),
        }
    }
}

impl FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            #[cfg(feature = "postgres")]
            return Ok(Self::Postgres(DatabaseUrl(text.to_owned())));
            #[cfg(not(feature = "postgres"))]
            return Err("this server was built without the feature `postgres`".to_owned());
        }
        let (name, path) = text.split_once(':').map_or((text, None), |(name, path)| (name, Some(path)));
        let path = path.map(PathBuf::from);
        match (name, path) {
            (_, Some(path)) if path.as_os_str().is_empty() => Err("missing path after the colon".to_owned()),
            ("sqlite", path) => Ok(Self::Sqlite(path)),
            #[cfg(feature = "sled")]
            ("sled", path) => Ok(Self::Sled(path)),
            #[cfg(not(feature = "sled"))]
            ("sled", _) => Err("this server was built without the feature `sled`".to_owned()),
            ("memory", None) => Ok(Self::Memory),
            ("postgres" | "postgresql", _) => Err("must be postgres://USER@HOST/DATABASE".to_owned()),
            _ => {
                Err("must be sqlite, sqlite:PATH, sled, sled:PATH, memory or postgres://USER@HOST/DATABASE".to_owned())
            }
        }
    }
}

/// Reaction to a store that accepts no more writes until it is reopened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnStoreFailure {
    Serve,
    Exit,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Parses numbers with units: `90s`, `15m`, `1h 30m`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("must be a number and a unit, such as 30s or 15m: {error}"))
}

/// Parses a number of bytes, optionally in units of 1024: `4096`, `64K`, `16M`, `4G`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let parsed = parse_size::Config::new().with_binary().parse_size(text);
    parsed.map_err(|error| format!("must be a number of bytes, such as 4096 or 16M: {error}"))
}

/// Returns an eighth of this memory, within bounds: a store needs some, and more than it needs belongs to the system's
/// cache of files, which costs nothing when other programs need memory.
fn default_cache_size(memory: u64) -> u64 {
    (memory / 8).clamp(16 << 20, 128 << 20)
}

/// Returns the bytes of memory that this process may use: the limit of its container, or else the memory of the machine;
/// 0 if the system does not say, such as in a container without `/proc`.
fn memory_limit() -> u64 {
    let system =
        System::new_with_specifics(RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram()));
    // `cgroup_limits` panics without the memory of the machine, which it returns where there is no limit.
    let limits = if system.total_memory() == 0 { None } else { system.cgroup_limits() };
    limits.map_or(system.total_memory(), |limits| limits.total_memory)
}

fn cache_size(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        bytes if bytes < 1 << 20 => Err("must be at least 1M".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses a document's id, label and URL. The label may contain commas.
fn terms_document(text: &str) -> Result<TermsDocument, String> {
    let parts = text.split_once(',').and_then(|(id, rest)| Some((id, rest.rsplit_once(',')?)));
    let (id, (label, url)) = parts.unwrap_or((text, (text, "")));
    let (id, label, url) = (id.trim(), label.trim(), url.trim());
    if id.is_empty() || id.contains(char::is_whitespace) {
        return Err("must be an id without spaces, a label and a URL, separated by commas".to_owned());
    }
    Ok(TermsDocument { id: id.to_owned(), label: label.to_owned(), url: url.to_owned() })
}

/// Checks the name of a server: it is part of records and messages.
fn instance(name: &str) -> Result<String, String> {
    match name {
        name if name.is_empty() || name.len() > 100 => Err("must have 1 to 100 bytes".to_owned()),
        name if name.chars().any(char::is_control) => Err("must not contain control characters".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn without_slash(url: &str) -> Result<String, Infallible> {
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORES: &str = "sqlite, sqlite:PATH, sled, sled:PATH, memory or postgres://USER@HOST/DATABASE";

    #[cfg(feature = "postgres")]
    #[test]
    fn the_password_of_a_database_is_not_displayed() {
        for (url, shown) in [
            ("postgres://me:secret@db:5432/platform", "postgres://db:5432/platform"),
            ("postgresql://db/platform?password=secret", "postgres://db:5432/platform"),
            ("postgres://me:sec%40ret@db", "postgres://db:5432"),
        ] {
            let store: Store = url.parse().unwrap();
            assert!(store.is_shared());
            assert_eq!(store.to_string(), shown);
            assert!(!format!("{store:?}").contains("sec"), "{store:?}");
        }
    }

    #[test]
    fn a_store_is_a_name_and_an_optional_path() {
        for (text, store) in [
            ("sqlite", Ok(Store::Sqlite(None))),
            ("sqlite:/var/x.db", Ok(Store::Sqlite(Some("/var/x.db".into())))),
            #[cfg(feature = "sled")]
            ("sled:x", Ok(Store::Sled(Some("x".into())))),
            ("memory", Ok(Store::Memory)),
            ("sqlite:", Err("missing path after the colon".to_owned())),
            ("postgres:db", Err("must be postgres://USER@HOST/DATABASE".to_owned())),
            ("memory:x", Err(format!("must be {STORES}"))),
            ("mysql", Err(format!("must be {STORES}"))),
        ] {
            assert_eq!(text.parse(), store, "{text}");
        }
    }

    #[test]
    fn the_default_size_of_caches_is_an_eighth_of_the_memory_within_bounds() {
        for (memory, size) in [(0, 16), (64, 16), (256, 32), (512, 64), (1_024, 128), (65_536, 128)] {
            assert_eq!(default_cache_size(memory << 20), size << 20, "{memory}");
        }
        assert!(memory_limit() > 0);
    }

    #[test]
    fn bytes_are_a_number_and_an_optional_unit_of_1024() {
        for (text, number) in [("0", 0), ("4096", 4096), ("64K", 65_536), ("16M", 16 << 20), ("4G", 4 << 30)] {
            assert_eq!(bytes(text), Ok(number), "{text}");
        }
        for text in ["", "M", "-1", "+1K", "1X", "99999999999G", "1é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_document_is_an_id_a_label_and_a_url() {
        let read = |text| terms_document(text).map(|document| [document.id, document.label, document.url]);
        for (text, parts) in [
            (
                "tos.v1,Terms of Service,https://example.com/tos",
                ["tos.v1", "Terms of Service", "https://example.com/tos"],
            ),
            ("dpa, Data, Privacy & more ,https://a", ["dpa", "Data, Privacy & more", "https://a"]),
            ("tos", ["tos", "tos", ""]),
        ] {
            assert_eq!(read(text), Ok(parts.map(str::to_owned)), "{text}");
        }
        assert!(read("").is_err() && read("a b,c,d").is_err() && read(",c,d").is_err());
    }

    #[test]
    fn a_duration_is_numbers_with_units() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3600), ("7d", 604_800), ("1h 30m", 5400), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "1", "h", "-1h", "+1h", "1x", "99999999999999999999d", "1é"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
