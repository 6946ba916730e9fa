//! Configuration: flags win over the environment, the environment over the file, the file over defaults.
//!
//! There is one struct for all of them. Clap reads flags and variables; what the file says becomes the default of the
//! option of that name, so that it is parsed and refused by the same rules.

mod events;
mod file;
mod limits;

use std::{convert::Infallible, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use platform_core::{resources::iam::TermsDocument, uid::Uid};

pub(crate) use self::{events::EventOptions, file::read, limits::LimitOptions};

/// What holds.
#[derive(Debug, Args)]
pub(crate) struct Config {
    /// A TOML file with any of these options, by their long names
    #[arg(long, global = true, env = "PLATFORM_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen; port 0 is any free one [default: 127.0.0.1:8080]
    #[arg(long, global = true, env = "PLATFORM_LISTEN", value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// The URL by which clients reach this server, which is the issuer and audience of its tokens
    /// [default: http:// and the address, or https:// with --tls-cert]
    #[arg(long, global = true, env = "PLATFORM_PUBLIC_URL", value_name = "URL", value_parser = without_slash)]
    pub(crate) public_url: Option<String>,
    /// A PEM file of certificates, the server's own first, to speak TLS by; read again when it changes
    #[arg(long, global = true, env = "PLATFORM_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A PEM file of the certificate's private key
    #[arg(long, global = true, env = "PLATFORM_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Where keys and, by default, the store are kept
    #[arg(long, global = true, env = "PLATFORM_DATA_DIR", value_name = "DIR", default_value = Self::DATA_DIR)]
    pub(crate) data_dir: PathBuf,
    /// sqlite, sqlite:PATH, sled, sled:PATH or memory
    #[arg(long, global = true, env = "PLATFORM_STORE", default_value = "sqlite")]
    pub(crate) store: Store,
    /// Whether to go on answering reads when the store writes no more until it is reopened, or to end with code 1, so
    /// that a supervisor starts the server again
    #[arg(long, global = true, env = "PLATFORM_ON_STORE_FAILURE", value_name = "WHAT", default_value = "exit")]
    pub(crate) on_store_failure: OnStoreFailure,
    /// Make keys.json or bootstrap.json again when one is missing from a data directory that was used: all tokens and
    /// sealed secrets are lost by the one, and a second organization is made by the other
    #[arg(long, global = true, env = "PLATFORM_RECREATE_MISSING", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) recreate_missing: bool,
    /// The suffix of error domains and resource types
    #[arg(
        long,
        global = true,
        env = "PLATFORM_SERVICE_DOMAIN",
        value_name = "DOMAIN",
        default_value = "platform.local"
    )]
    pub(crate) service_domain: String,
    /// An OIDC issuer whose tokens are believed, for registered persons; may be repeated
    #[arg(long, global = true, env = "PLATFORM_TRUSTED_ISSUER", value_name = "URL", value_delimiter = ',')]
    pub(crate) trusted_issuer: Vec<String>,
    /// Allow issuers over http, which anybody on the way can forge
    #[arg(long, global = true, env = "PLATFORM_ALLOW_HTTP_ISSUERS", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_http_issuers: bool,
    /// Let identities and identity providers name issuers of private networks, of this machine among them
    #[arg(long, global = true, env = "PLATFORM_ALLOW_PRIVATE_ISSUERS", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_private_issuers: bool,
    /// Another audience that tokens may be for; may be repeated
    #[arg(long, global = true, env = "PLATFORM_AUDIENCE", value_delimiter = ',')]
    pub(crate) audience: Vec<String>,
    /// An identity with the operator's powers, besides the one of the data directory; may be repeated
    #[arg(
        long,
        global = true,
        env = "PLATFORM_OPERATOR",
        value_name = "UID",
        value_delimiter = ',',
        value_parser = Uid::parse
    )]
    pub(crate) operator: Vec<Uid>,
    /// A group whose approved advisories are public at /advisory/v2/documents; may be repeated
    #[arg(
        long,
        global = true,
        env = "PLATFORM_PUBLIC_ADVISORY_GROUP",
        value_name = "UID",
        value_delimiter = ',',
        value_parser = Uid::parse
    )]
    pub(crate) public_advisory_group: Vec<Uid>,
    /// Let every registered person create organisations, and not only the operator
    #[arg(long, global = true, env = "PLATFORM_OPEN_ORGANISATIONS", default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) open_organisations: bool,
    /// A document that groups can accept, as its id, its label and its URL, with commas between; may be repeated
    /// [default: those that the published interface names]
    #[arg(long, global = true, env = "PLATFORM_TERMS_DOCUMENT", value_name = "ID,LABEL,URL",
          value_delimiter = ';', value_parser = terms_document)]
    pub(crate) terms_document: Vec<TermsDocument>,
    /// An origin whose pages may call the API from browsers; may be repeated
    #[arg(long, global = true, env = "PLATFORM_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    pub(crate) cors_origin: Vec<String>,
    /// What to log, in the form of RUST_LOG
    #[arg(long, global = true, env = "PLATFORM_LOG", value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
    /// How to log
    #[arg(long, global = true, env = "PLATFORM_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    #[command(flatten)]
    pub(crate) events: EventOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
}

impl Config {
    /// The data directory that is used when none is named.
    pub(crate) const DATA_DIR: &str = "platform-data";

    /// Returns where to listen.
    pub(crate) fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080)))
    }

    /// Returns where to listen, if that was said and is a certain port.
    pub(crate) fn listen_given(&self) -> Option<SocketAddr> {
        self.listen.filter(|address| address.port() != 0)
    }

    /// Returns the URL of an address on this machine.
    pub(crate) fn url_of(&self, address: SocketAddr) -> String {
        let scheme = if self.tls_cert.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// Refuses what no option by itself shows to be wrong.
    fn checked(&self) -> Result<()> {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            bail!("TLS takes a certificate and its key: give --tls-cert and --tls-key");
        }
        let listen = self.listen();
        if !listen.ip().is_loopback() && self.public_url.is_none() {
            bail!(
                "{listen} can be reached from other machines, so tokens need the name that they know this server by: \
                 give --public-url as well, or listen on 127.0.0.1"
            );
        }
        self.limits.checked()
    }
}

/// Where resources are kept; without a path, in the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
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
            ("postgres" | "postgresql", _) => Err("PostgreSQL is not supported yet".to_owned()),
            _ => Err("must be sqlite, sqlite:PATH, sled, sled:PATH or memory".to_owned()),
        }
    }
}

/// What to do when the store writes no more until it is reopened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnStoreFailure {
    Serve,
    Exit,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Reads a whole number and a unit: `90s`, `15m`, `1h`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let unit = |seconds: u64| (text.get(..text.len().saturating_sub(1)), seconds);
    let (number, seconds) = match text.chars().last() {
        Some('s') => unit(1),
        Some('m') => unit(60),
        Some('h') => unit(60 * 60),
        Some('d') => unit(24 * 60 * 60),
        _ => (None, 0),
    };
    number
        .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|number| number.parse::<u64>().ok())
        .and_then(|number| number.checked_mul(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| "must be a whole number and s, m, h or d, such as 15m".to_owned())
}

/// Reads a whole number of bytes, perhaps in units of 1024: `4096`, `64K`, `16M`, `4G`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let unit = |shift: u32| (text.get(..text.len().saturating_sub(1)).unwrap_or_default(), 1_u64 << shift);
    let (number, unit) = match text.chars().last() {
        Some('K') => unit(10),
        Some('M') => unit(20),
        Some('G') => unit(30),
        _ => (text, 1),
    };
    let number = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let bytes = number.and_then(|number| number.parse::<u64>().ok()).and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| "must be a whole number and perhaps K, M or G, such as 16M".to_owned())
}

/// Reads a document's id, label and URL; the label may have commas.
fn terms_document(text: &str) -> Result<TermsDocument, String> {
    let parts = text.split_once(',').and_then(|(id, rest)| Some((id, rest.rsplit_once(',')?)));
    let (id, (label, url)) = parts.unwrap_or((text, (text, "")));
    let (id, label, url) = (id.trim(), label.trim(), url.trim());
    if id.is_empty() || id.contains(char::is_whitespace) {
        return Err("must be an id without spaces, a label and a URL, with commas between".to_owned());
    }
    Ok(TermsDocument { id: id.to_owned(), label: label.to_owned(), url: url.to_owned() })
}

fn without_slash(url: &str) -> Result<String, Infallible> {
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_sort_and_perhaps_a_path() {
        for (text, store) in [
            ("sqlite", Ok(Store::Sqlite(None))),
            ("sqlite:/var/x.db", Ok(Store::Sqlite(Some("/var/x.db".into())))),
            ("sled:x", Ok(Store::Sled(Some("x".into())))),
            ("memory", Ok(Store::Memory)),
            ("sqlite:", Err("the path after the colon is missing".to_owned())),
            ("postgres://db", Err("PostgreSQL is not supported yet".to_owned())),
            ("memory:x", Err("must be sqlite, sqlite:PATH, sled, sled:PATH or memory".to_owned())),
            ("mysql", Err("must be sqlite, sqlite:PATH, sled, sled:PATH or memory".to_owned())),
        ] {
            assert_eq!(text.parse(), store, "{text}");
        }
    }

    #[test]
    fn bytes_are_a_number_and_perhaps_a_unit() {
        for (text, number) in [("0", 0), ("4096", 4096), ("64K", 65_536), ("16M", 16 << 20), ("4G", 4 << 30)] {
            assert_eq!(bytes(text), Ok(number), "{text}");
        }
        for text in ["", "M", "1.5G", "-1", "+1K", "1 K", "1T", "99999999999G", "1é"] {
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
    fn a_duration_is_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h", 3600), ("7d", 604_800), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "1", "h", "1.5h", "-1h", "+1h", "1 h", "1w", "99999999999999999999d", "1é"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
