//! A data directory: keys, the first organisation and operator, the address of the last server, and the store.

use std::{
    fs,
    io::{Write, stderr},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use platform_core::{
    aip::page_token::PageKeys,
    platform::{self, Platform, Settings},
    resources::iam::TermsDocument,
    seal::SealKeys,
    store::{Store, memory::MemoryStore},
};
use platform_http::{Pool, SystemClock, SystemEntropy};
use platform_oidc::{Algorithm, Bootstrap, Issuer, Keys, SecretKey};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use crate::config::{self, Config};

/// The name of the first organisation.
const ORGANISATION: &str = "platform";

/// The file that tells `env` where the last server listened.
const ADDRESS_FILE: &str = "server-url";

/// What stands in a data directory besides the store; made when it is missing, by whichever command comes first.
pub(crate) struct Installation {
    pub(crate) keys: Arc<Keys>,
    pub(crate) bootstrap: Bootstrap,
}

impl Installation {
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let dir = &config.data_dir;
        let keys = Keys::read_or_create(dir, Algorithm::Rs256, &SystemClock, &SystemEntropy)?;
        let bootstrap = Bootstrap::read_or_create(dir, || Bootstrap::draw(&SystemEntropy))?;
        Ok(Self { keys: Arc::new(keys), bootstrap })
    }

    /// Opens the directory for a command that has no server to start; tells the user when there was none before, as
    /// that may mean the wrong directory.
    pub(crate) fn open_standing(config: &Config) -> Result<Self> {
        let is_new = !config.data_dir.exists();
        let installation = Self::open(config)?;
        if is_new {
            let dir = config.data_dir.display();
            writeln!(stderr(), "platform-server: made {dir}, which no server has used yet; --data-dir names another")?;
        }
        Ok(installation)
    }

    /// Returns the issuer of this server's own tokens, under the URL that clients know it by.
    pub(crate) fn issuer(&self, url: &str) -> Result<Issuer> {
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        Issuer::new(url, Arc::clone(&self.keys), clock, entropy).with_context(|| format!("the public URL `{url}`"))
    }

    /// Puts the platform together over the configured store and writes what a new installation begins with.
    /// `url` is how clients know the server.
    pub(crate) async fn platform(&self, config: &Config, url: &str) -> Result<Platform> {
        let store = open_store(config)?;
        let operators = std::iter::once(&self.bootstrap.operator).chain(&config.operator);
        let settings = Settings {
            service_domain: config.service_domain.clone(),
            public_url: url.to_owned(),
            operators: operators.cloned().collect(),
            open_organisations: config.open_organisations,
            event_type_prefix: config.events.event_type_prefix.clone(),
            allow_http_sinks: config.events.allow_http_sinks,
            terms: match config.terms_document.is_empty() {
                true => TermsDocument::published(),
                false => config.terms_document.clone(),
            },
            public_advisory_groups: config.public_advisory_group.iter().cloned().collect(),
            ..Settings::default()
        };
        let platform = Platform::builder(store, SystemClock, SystemEntropy)
            .offload(Pool::default())
            .settings(settings)
            .page_keys(PageKeys::new(self.keys.page_tokens().iter().map(numbered)))
            .seal_keys(SealKeys::new(self.keys.sealing().iter().map(numbered)))
            .build();
        let first = platform::Bootstrap {
            organisation: self.bootstrap.organization.clone(),
            organisation_name: ORGANISATION.to_owned(),
            operator: self.bootstrap.operator.clone(),
        };
        let path = store_path(config).unwrap_or_default();
        platform.bootstrap(&first).await.with_context(|| format!("cannot use the store at {}", path.display()))?;
        Ok(platform)
    }
}

pub(crate) fn numbered(key: &SecretKey) -> (u64, [u8; 32]) {
    (u64::from_str_radix(key.id(), 16).unwrap_or_default(), *key.secret())
}

fn open_store(config: &Config) -> Result<Arc<dyn Store>> {
    let path = store_path(config);
    if let Some(path) = &path
        && let Some(directory) = path.parent()
        && !directory.as_os_str().is_empty()
        && !directory.is_dir()
    {
        // One that is made for a mistyped path would hide the mistake.
        bail!("cannot put a store at {}: there is no directory {}", path.display(), directory.display());
    }
    Ok(match (&config.store, path) {
        (config::Store::Sqlite(_), Some(path)) => Arc::new(SqliteStore::open(path)?),
        (config::Store::Sled(_), Some(path)) => Arc::new(SledStore::open(path)?),
        _ => Arc::new(MemoryStore::new()),
    })
}

/// Returns the file or directory of the configured store, by default in the data directory; none for memory.
pub(crate) fn store_path(config: &Config) -> Option<PathBuf> {
    match &config.store {
        config::Store::Sqlite(path) => Some(path.clone().unwrap_or_else(|| config.data_dir.join("platform.sqlite"))),
        config::Store::Sled(path) => Some(path.clone().unwrap_or_else(|| config.data_dir.join("platform.sled"))),
        config::Store::Memory => None,
    }
}

/// Tells later `env` and `token` commands by which URL this server's tokens go.
pub(crate) fn record_url(config: &Config, url: &str) -> Result<()> {
    let path = config.data_dir.join(ADDRESS_FILE);
    let new = config.data_dir.join(format!("{ADDRESS_FILE}.new"));
    let write = || {
        fs::write(&new, format!("{url}\n"))?;
        fs::rename(&new, &path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the URL that this configuration says, or else that of the last server of the data directory.
pub(crate) fn known_url(config: &Config) -> String {
    let said = config.public_url.clone().or_else(|| config.listen_given().map(|address| config.url_of(address)));
    let recorded = || fs::read_to_string(config.data_dir.join(ADDRESS_FILE)).ok();
    let recorded = || recorded().map(|url| url.trim().to_owned()).filter(|url| !url.is_empty());
    said.or_else(recorded).unwrap_or_else(|| config.url_of(config.listen()))
}
