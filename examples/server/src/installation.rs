//! A data directory: keys, the first organisation and operator, the address of the last server, and the store.

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use platform_core::{
    aip::page_token::PageKeys,
    platform::{self, Platform, Settings},
    store::{Store, memory::MemoryStore},
};
use platform_http::{SystemClock, SystemEntropy};
use platform_oidc::{Algorithm, Bootstrap, Issuer, Keys};
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

    /// Returns the issuer of this server's own tokens, under the URL that clients know it by.
    pub(crate) fn issuer(&self, url: &str) -> Result<Issuer> {
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let issuer = Issuer::new(url, Arc::clone(&self.keys), clock, entropy);
        issuer.map_err(|rule| anyhow::anyhow!("the public URL `{url}`: {rule}"))
    }

    /// Puts the platform together over the configured store and writes what a new installation begins with.
    pub(crate) async fn platform(&self, config: &Config) -> Result<Platform> {
        let store = open_store(config)?;
        let mut operators: std::collections::HashSet<_> = config.operators.iter().cloned().collect();
        operators.insert(self.bootstrap.operator.clone());
        let settings = Settings {
            service_domain: config.service_domain.clone(),
            operators,
            open_organisations: config.open_organisations,
            ..Settings::default()
        };
        let page_keys = self
            .keys
            .page_tokens()
            .iter()
            .map(|key| (u64::from_str_radix(key.id(), 16).unwrap_or_default(), *key.secret()));
        let platform = Platform::builder(store, SystemClock, SystemEntropy)
            .settings(settings)
            .page_keys(PageKeys::new(page_keys))
            .build();
        let first = platform::Bootstrap {
            organisation: self.bootstrap.organization.clone(),
            organisation_name: ORGANISATION.to_owned(),
            operator: self.bootstrap.operator.clone(),
        };
        platform.bootstrap(&first).await.context("cannot write the first organisation")?;
        Ok(platform)
    }
}

fn open_store(config: &Config) -> Result<Arc<dyn Store>> {
    Ok(match &config.store {
        config::Store::Sqlite(_) => Arc::new(SqliteStore::open(store_path(config))?),
        config::Store::Sled(_) => Arc::new(SledStore::open(store_path(config))?),
        config::Store::Memory => Arc::new(MemoryStore::new()),
    })
}

/// Returns the file or directory of the configured store; the data directory's own for a store without a path.
pub(crate) fn store_path(config: &Config) -> PathBuf {
    match &config.store {
        config::Store::Sqlite(Some(path)) | config::Store::Sled(Some(path)) => path.clone(),
        config::Store::Sqlite(None) => config.data_dir.join("platform.sqlite"),
        config::Store::Sled(None) => config.data_dir.join("platform.sled"),
        config::Store::Memory => PathBuf::new(),
    }
}

/// Tells later `env` and `token` commands by which URL this server's tokens go.
pub(crate) fn record_url(config: &Config, url: &str) -> Result<()> {
    let path = config.data_dir.join(ADDRESS_FILE);
    let new = config.data_dir.join(format!("{ADDRESS_FILE}.new"));
    fs::write(&new, url)
        .and_then(|()| fs::rename(&new, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the URL that this configuration says, or else that of the last server of the data directory.
pub(crate) fn known_url(config: &Config) -> String {
    let said = config.public_url.clone().or_else(|| config.listen_given.then(|| url_of(config.listen)));
    let recorded = || fs::read_to_string(config.data_dir.join(ADDRESS_FILE)).ok();
    said.or_else(recorded).unwrap_or_else(|| url_of(config.listen))
}

/// Returns the URL of an address on this machine.
pub(crate) fn url_of(address: std::net::SocketAddr) -> String {
    format!("http://{address}")
}
