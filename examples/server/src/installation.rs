//! A data directory: keys, the first organisation and operator, the address of the last server, and the store.

use std::{
    fs::{self, File},
    io::{Write, stderr},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use platform_core::{
    aip::page_token::PageKeys,
    iam::{self, Iam},
    platform::{Platform, Settings},
    resources::{
        advisory::PublicAdvisories,
        events::SinkPolicy,
        iam::{GroupSettings, Terms},
    },
    seal::SealKeys,
    store::{Store, memory::MemoryStore},
};
use platform_events::check_public_sink;
use platform_http::{Pool, SystemClock, SystemEntropy};
use platform_oidc::{Algorithm, Bootstrap, Issuer, Keys, SecretKey};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;

use crate::{
    config::{self, Config},
    env::word,
};

/// The name of the first organisation.
const ORGANISATION: &str = "platform";

/// The stores that are kept in the data directory by default.
const SQLITE_STORE: &str = "platform.sqlite";
const SLED_STORE: &str = "platform.sled";

/// The file that tells `env` where the last server listened.
const ADDRESS_FILE: &str = "server-url";

/// The files of a data directory that cannot be made a second time: what the store holds belongs to them.
const KEYS_FILE: &str = "keys.json";
const BOOTSTRAP_FILE: &str = "bootstrap.json";

/// What a data directory has besides the store. Servers and imports make it where there is none.
pub(crate) struct Installation {
    pub(crate) keys: Arc<Keys>,
    pub(crate) bootstrap: Bootstrap,
}

impl Installation {
    /// Opens the installation in the data directory, and makes it when there is none.
    ///
    /// # Errors
    /// When a file of it is missing, unless the configuration says that it is to be made again.
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let dir = &config.data_dir;
        if !config.recreate_missing {
            refuse_incomplete(config)?;
        }
        let keys = Keys::read_or_create(dir, Algorithm::Rs256, &SystemClock, &SystemEntropy)?;
        let bootstrap = Bootstrap::read_or_create(dir, || Bootstrap::draw(&SystemEntropy))?;
        Ok(Self { keys: Arc::new(keys), bootstrap })
    }

    /// As [`Installation::open`], for a command that brings data in; tells the user when there was no installation, as
    /// that may mean the wrong directory.
    pub(crate) fn open_to_import(config: &Config) -> Result<Self> {
        let is_new = !config.data_dir.exists();
        let installation = Self::open(config)?;
        if is_new {
            let dir = config.data_dir.display();
            writeln!(stderr(), "platform-server: made {dir}, which no server has used yet; --data-dir names another")?;
        }
        Ok(installation)
    }

    /// Opens the installation in the data directory for a command that makes nothing. Waits while a server starts on
    /// it.
    ///
    /// # Errors
    /// When there is none, or a file of it is missing.
    pub(crate) fn open_existing(config: &Config) -> Result<Self> {
        let dir = &config.data_dir;
        if let Ok(directory) = File::open(dir) {
            // Let go at once: it is only to be seen that no server is about to write its URL.
            directory.lock_shared().with_context(|| format!("cannot lock {}", dir.display()))?;
        }
        refuse_incomplete(config)?;
        let none = || {
            let start = match dir.to_string_lossy() {
                name if name == Config::DATA_DIR => String::new(),
                name => format!(" --data-dir {}", word(&name)),
            };
            format!(
                "there is no installation in {}: start a server on it with `platform-server serve{start}`, or name \
                 another directory with --data-dir",
                dir.display()
            )
        };
        let keys = Keys::read(dir)?.with_context(none)?;
        let bootstrap = Bootstrap::read(dir)?.with_context(none)?;
        Ok(Self { keys: Arc::new(keys), bootstrap })
    }

    /// Returns the issuer of this server's own tokens, under the URL that clients know it by.
    pub(crate) fn issuer(&self, url: &str) -> Result<Issuer> {
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        Issuer::new(url, Arc::clone(&self.keys), clock, entropy).with_context(|| format!("the public URL `{url}`"))
    }

    /// Puts the platform together over the configured store and writes what a new installation begins with.
    /// `url` is how clients know the server.
    pub(crate) async fn platform(&self, config: &Config, url: &str) -> Result<Platform> {
        let is_new = store_path(config).is_none_or(|path| !has_contents(&path));
        let store = open_store(config)?;
        let operators = std::iter::once(&self.bootstrap.operator).chain(&config.operator);
        let settings = Settings {
            service_domain: config.service_domain.clone(),
            public_url: url.to_owned(),
            operators: operators.cloned().collect(),
            event_type_prefix: config.events.event_type_prefix.clone(),
            ..Settings::default()
        };
        let terms = match config.terms_document.is_empty() {
            true => Terms::default(),
            false => Terms(config.terms_document.clone()),
        };
        let sinks = SinkPolicy::default().allow_http(config.events.allow_http_sinks);
        let sinks = if config.events.allow_private_sinks { sinks } else { sinks.check(check_public_sink) };
        let platform = platform_core::builder(store, SystemClock, SystemEntropy)
            .offload(Pool::default())
            .settings(settings)
            .data(GroupSettings::default().open_organizations(config.open_organisations))
            .data(terms)
            .data(sinks)
            .data(PublicAdvisories::of(config.public_advisory_group.iter().cloned()))
            .page_keys(PageKeys::new(self.keys.page_tokens().iter().map(numbered)))
            .seal_keys(SealKeys::new(self.keys.sealing().iter().map(numbered)))
            .build();
        let first = iam::Bootstrap {
            organization: self.bootstrap.organization.clone(),
            organization_name: ORGANISATION.to_owned(),
            operator: self.bootstrap.operator.clone(),
        };
        let path = store_path(config).unwrap_or_default();
        if is_new && config.store != config::Store::Memory && config.data_dir.join(ADDRESS_FILE).exists() {
            // It may be another store on purpose, or the old one may be missing or be misnamed.
            tracing::warn!(store = %path.display(), "this installation had no store here: an empty one is made");
        }
        Iam::of(&platform)
            .bootstrap(&first)
            .await
            .with_context(|| format!("cannot use the store at {}", path.display()))?;
        Ok(platform)
    }
}

/// Refuses a data directory from which a file went missing, as by an incomplete restore. What would be made in its place
/// would not fit what is still there: new keys cannot open the secrets in the store and end all tokens, and new uids are
/// a second organization with an operator of its own.
///
/// Files are made in the order keys, bootstrap, store, so that a first start that was cut off is not refused.
fn refuse_incomplete(config: &Config) -> Result<()> {
    let dir = &config.data_dir;
    let stores = [store_path(config), Some(dir.join(SQLITE_STORE)), Some(dir.join(SLED_STORE))];
    // Looked at in the reverse order, so that another process that is just making them is not mistaken for a loss.
    let store = stores.into_iter().flatten().find(|path| has_contents(path));
    let has_bootstrap = dir.join(BOOTSTRAP_FILE).exists();
    let has_keys = dir.join(KEYS_FILE).exists();
    let (missing, loss, kept) = match (has_keys, has_bootstrap, store) {
        (false, _, Some(store)) => {
            (KEYS_FILE, "all tokens and the secrets that are sealed in the store are lost", store)
        }
        (false, true, None) => (KEYS_FILE, "all tokens are lost", dir.join(BOOTSTRAP_FILE)),
        (true, false, Some(store)) => {
            (BOOTSTRAP_FILE, "the store gets a second organization and a second operator", store)
        }
        _ => return Ok(()),
    };
    bail!(
        "{} is missing, and there is {} that belongs to it: restore it from the backup that has both; or make a new one \
         with `serve --recreate-missing`, by which {loss}",
        dir.join(missing).display(),
        kept.display()
    )
}

/// Tells whether there is more than an empty file or directory, which is no store yet.
fn has_contents(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()),
        Ok(metadata) => metadata.len() > 0,
        Err(_) => false,
    }
}

/// Marks the data directory as one on which a server is starting, until the file is dropped. Commands that need the
/// server's URL wait for that, and so does another server.
pub(crate) fn starting(config: &Config) -> Result<File> {
    let dir = &config.data_dir;
    let lock = || {
        let directory = File::open(dir)?;
        directory.lock()?;
        Ok::<_, std::io::Error>(directory)
    };
    lock().with_context(|| format!("cannot lock {}", dir.display()))
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
        config::Store::Sqlite(path) => Some(path.clone().unwrap_or_else(|| config.data_dir.join(SQLITE_STORE))),
        config::Store::Sled(path) => Some(path.clone().unwrap_or_else(|| config.data_dir.join(SLED_STORE))),
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

/// Returns the URL that this configuration says, or else that of the last server of the data directory, or else that of
/// a server with this configuration.
pub(crate) fn known_url(config: &Config) -> String {
    said_or_recorded_url(config).unwrap_or_else(|| config.url_of(config.listen()))
}

/// Returns the issuer of a token for the server of the data directory: the URL that this configuration says, or else
/// that of the last server.
///
/// # Errors
/// When neither is known: a token of a guessed issuer is refused by the server.
pub(crate) fn issuer_url(config: &Config) -> Result<String> {
    said_or_recorded_url(config).with_context(|| {
        let dir = config.data_dir.display();
        format!("no server has listened on {dir} yet: start one, or give the URL of its tokens with --public-url")
    })
}

fn said_or_recorded_url(config: &Config) -> Option<String> {
    let said = config.public_url.clone().or_else(|| config.listen_given().map(|address| config.url_of(address)));
    let recorded = || fs::read_to_string(config.data_dir.join(ADDRESS_FILE)).ok();
    let recorded = || recorded().map(|url| url.trim().to_owned()).filter(|url| !url.is_empty());
    said.or_else(recorded)
}
