//! The installation: its keys, its first organization and operator, and the store.
//!
//! For a store that one process uses, keys and uids are files of the data directory, with the URL of the last server.
//! For a store that several servers share, they are documents of that store.

use std::{
    fs::{self, File},
    io::{Write, stderr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use platform_core::{
    iam::{self, Iam},
    resources::{
        advisory::PublicAdvisories,
        events::SinkPolicy,
        iam::{GroupSettings, StaticKeyPolicy, Terms},
    },
};
use platform_engine::{
    blob::BlobStore,
    error::Code,
    platform::{Platform, Settings},
    shape::{self, AdoptError},
    store::{Store, StoreError, switched::SwitchedStore},
    uid::Uid,
};
use platform_events::{Wakeups, check_public_sink};
use platform_keys::{ACTIVATION_DELAY, Algorithm, Bootstrap, Directory, Documents, KeyRing, Keys, SealedDocuments};
use platform_oidc::{AccessToken, Issuer, offline_claims};
use platform_system::{Pool, SystemClock, SystemEntropy};
use tokio::runtime::Runtime;

use crate::{
    audit::AuditedStore,
    config::{self, Config},
    key_encryption, settings,
    shared::{self, SharedStore},
    stores::{self, Origin, Purpose, SLED_STORE, SQLITE_STORE, has_contents, open_blobs, store_path},
    transfer,
};

/// Name of the first organization.
const ORGANIZATION: &str = "platform";

/// File from which `env` reads the URL of the last server.
const ADDRESS_FILE: &str = "server-url";

/// The number of times that the first resources are written again when another server writes them at the same time.
const BOOTSTRAP_ATTEMPTS: usize = 10;

/// Files of a data directory that cannot be recreated without loss, because the contents of the store depend on them.
const KEYS_FILE: &str = "keys.json";
const BOOTSTRAP_FILE: &str = "bootstrap.json";

/// The documents of an installation.
pub(crate) const DOCUMENTS: [&str; 4] = ["keys", "bootstrap", settings::DOCUMENT, transfer::DOCUMENT];

/// The keys and uids of an installation. Servers and imports create them if they do not exist.
pub(crate) struct Installation {
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) bootstrap: Bootstrap,
    /// The place of the keys and uids.
    pub(crate) documents: Arc<dyn Documents>,
    /// The same, if they are encrypted.
    pub(crate) sealed: Option<Arc<SealedDocuments>>,
    /// The store, if several servers share it.
    pub(crate) shared: Option<Shared>,
}

/// A store that several servers share, and what they agree on.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn SharedStore>,
    pub(crate) wakeups: Arc<Wakeups>,
    /// The settings of the servers; `None` before the first has started.
    settings: Option<settings::Settings>,
}

/// The platform of an installation, and what backups are made of.
pub(crate) struct Opened {
    pub(crate) platform: Platform,
    pub(crate) origin: Origin,
    pub(crate) blobs: Arc<dyn BlobStore>,
}

/// Blocks on a future, for commands that do nothing else at the time.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    runtime()?.block_on(future)
}

/// Returns a runtime of one thread, for commands.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")
}

/// The place of the keys and uids of a configuration.
struct Place {
    documents: Arc<dyn Documents>,
    sealed: Option<Arc<SealedDocuments>>,
    ring: Arc<KeyRing>,
    shared: Option<Shared>,
}

impl Place {
    async fn open(config: &Config) -> Result<Self> {
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let new_ring = |documents| KeyRing::new(documents, Algorithm::Rs256, clock, entropy);
        // A missing key is reported before the database is reached.
        let keys = config.store.is_shared().then(|| key_encryption::read(config)).transpose()?;
        let (Some(keys), Some(store)) = (keys, shared::open(config).await?) else {
            let sealed = sealed_files(config, &config.data_dir)?;
            let documents: Arc<dyn Documents> = match &sealed {
                Some(sealed) => Arc::clone(sealed) as _,
                None => Arc::new(Directory::new(&config.data_dir)),
            };
            // A single server uses a new key at once.
            let ring = Arc::new(new_ring(Arc::clone(&documents)));
            return Ok(Self { documents, sealed, ring, shared: None });
        };
        let sealed = Arc::new(SealedDocuments::new(store.documents(), keys, Arc::new(SystemEntropy)));
        let documents: Arc<dyn Documents> = Arc::clone(&sealed) as _;
        let ring = Arc::new(new_ring(Arc::clone(&documents)).use_new_keys_after(ACTIVATION_DELAY));
        let settings = settings::Settings::load(&*documents).await?;
        let shared = Shared { store, wakeups: Arc::new(Wakeups::new(shared::random_name())), settings };
        Ok(Self { documents, sealed: Some(sealed), ring, shared: Some(shared) })
    }
}

/// Returns the documents in a directory, encrypted, if there is a key-encryption key.
pub(crate) fn sealed_files(config: &Config, directory: &Path) -> Result<Option<Arc<SealedDocuments>>> {
    if !key_encryption::is_given(config) {
        return Ok(None);
    }
    let (keys, entropy) = (key_encryption::read(config)?, Arc::new(SystemEntropy));
    let sealed = SealedDocuments::new(Arc::new(Directory::new(directory)), keys, entropy);
    // Those who can write to the directory can change the store too, so it does not matter that a plain file is not
    // authenticated.
    Ok(Some(Arc::new(sealed.reading_plain())))
}

impl Installation {
    /// Opens the installation, or creates it if there is none. For a server, whose settings must be those of the other
    /// servers.
    ///
    /// # Errors
    /// Fails if one of its files is missing, unless `--recreate-missing` is set, and if a setting differs from that of
    /// another server.
    pub(crate) async fn open(config: &Config) -> Result<Self> {
        let installation = Self::open_or_create(config).await?;
        if let Some(shared) = &installation.shared {
            if config.public_url.is_none() {
                bail!(
                    "servers that share a database need the URL by which clients reach them, which is the issuer of \
                     their tokens: set --public-url, to the same URL for all servers"
                );
            }
            if let Some(name) = &config.instance {
                shared::claim_name(&shared.store, name).await?;
            }
            settings::Settings::of(config).agree(&*installation.documents, config.replace_settings).await?;
        }
        Ok(installation)
    }

    async fn open_or_create(config: &Config) -> Result<Self> {
        let Place { documents, sealed, ring, shared } = Place::open(config).await?;
        if shared.is_none() {
            if !config.recreate_missing {
                reject_incomplete(config)?;
            }
            if let Some(sealed) = &sealed {
                sealed.reseal(&DOCUMENTS).await?;
            }
        }
        let keys = Arc::new(ring.load_or_create().await?);
        let bootstrap = Bootstrap::load_or_create(&*documents, || Bootstrap::draw(&SystemEntropy)).await?;
        Ok(Self { ring, keys, bootstrap, documents, sealed, shared })
    }

    /// Opens the installation for the import of a store, or creates one with the uids of the exported installation.
    ///
    /// # Errors
    /// Fails if the installation has other uids, or lacks keys with which secrets are sealed.
    pub(crate) async fn open_for_store(config: &Config, uids: &Bootstrap, seal_keys: &[String]) -> Result<Self> {
        let Place { documents, sealed, ring, shared } = Place::open(config).await?;
        if shared.is_none() {
            reject_incomplete(config)?;
        }
        let place = documents.place("bootstrap");
        if Bootstrap::load(&*documents).await?.is_some_and(|own| own != *uids) {
            bail!(
                "{} belongs to another installation than the file: begin with an empty data directory or database, \
                 which --data-dir and --store choose",
                place.display()
            );
        }
        let keys = ring.load().await?;
        let has = |id: &String| keys.iter().flat_map(|keys| keys.sealing()).any(|key| key.id() == id);
        if !seal_keys.iter().all(has) {
            bail!(
                "the secrets in the file are sealed with keys that this installation does not have: begin with an empty \
                 data directory or database, and first run `platform-server keys import` with the keys of the exported \
                 installation"
            );
        }
        let keys = Arc::new(ring.load_or_create().await?);
        let bootstrap = Bootstrap::load_or_create(&*documents, || uids.clone()).await?;
        Ok(Self { ring, keys, bootstrap, documents, sealed, shared })
    }

    /// Opens the configured store as it is.
    pub(crate) fn store(&self, config: &Config, purpose: Purpose) -> Result<Arc<dyn Store>> {
        self.opened(config, purpose).map(|(store, _)| stores::measured(config, store))
    }

    /// Opens the configured store, also in the form in which it can be copied.
    pub(crate) fn opened(&self, config: &Config, purpose: Purpose) -> Result<(Arc<dyn Store>, Origin)> {
        match &self.shared {
            Some(shared) => Ok((shared.store.store(), Origin::Shared)),
            None => stores::open(config, purpose),
        }
    }

    /// Returns the place of the keys and uids of a configuration.
    pub(crate) async fn documents(config: &Config) -> Result<Arc<dyn Documents>> {
        Ok(Place::open(config).await?.documents)
    }

    /// Like [`Installation::open`], for imports: also prints a note if it creates a data directory, since the user may
    /// have meant another one.
    pub(crate) async fn open_to_import(config: &Config) -> Result<Self> {
        let is_new = !config.store.is_shared() && !config.data_dir.exists();
        let installation = Self::open_or_create(config).await?;
        if is_new {
            let dir = config.data_dir.display();
            writeln!(
                stderr(),
                "platform-server: created the new data directory {dir}; choose another with --data-dir"
            )?;
        }
        Ok(installation)
    }

    /// Opens an existing installation, for commands that create nothing. Waits while a server is starting on the
    /// directory.
    ///
    /// # Errors
    /// Fails if there is no installation or one of its files is missing.
    pub(crate) async fn open_existing(config: &Config) -> Result<Self> {
        let dir = &config.data_dir;
        let Place { documents, sealed, ring, shared } = Place::open(config).await?;
        if shared.is_some() {
            let not_found = "no installation in this database: start a server on it with `platform-server serve`";
            let keys = Arc::new(ring.load().await?.context(not_found)?);
            let bootstrap = Bootstrap::load(&*documents).await?.context(not_found)?;
            return Ok(Self { ring, keys, bootstrap, documents, sealed, shared });
        }
        if let Ok(directory) = File::open(dir) {
            // Released at once: acquiring the lock only waits until a starting server has written its URL.
            directory.lock_shared().with_context(|| format!("cannot lock {}", dir.display()))?;
        }
        reject_incomplete(config)?;
        let not_found = || {
            format!(
                "no installation in {}: start a server on it with `platform-server serve{}`, or choose another \
                 directory with --data-dir",
                dir.display(),
                config.data_dir_option()
            )
        };
        let keys = Arc::new(ring.load().await?.with_context(not_found)?);
        let bootstrap = Bootstrap::load(&*documents).await?.with_context(not_found)?;
        Ok(Self { ring, keys, bootstrap, documents, sealed, shared })
    }

    /// Returns the issuer of this server's tokens. `url` is the URL by which clients reach the server.
    pub(crate) fn issuer(&self, url: &str) -> Result<Issuer> {
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let issuer = Issuer::new(url, Arc::clone(&self.keys), clock, entropy);
        let issuer = issuer.with_context(|| format!("invalid public URL `{url}`"))?;
        Ok(issuer.reloading_from(Arc::clone(&self.ring)))
    }

    /// Issues a token for an identity, with the URL of the server as issuer and audience.
    pub(crate) fn token(&self, url: &str, identity: &Uid, ttl: Duration) -> Result<String> {
        let request = AccessToken { subject: identity, audiences: &[url], ttl, claims: offline_claims() };
        Ok(self.issuer(url)?.access_token(&request)?.token)
    }

    /// Returns the issuer of tokens for the servers of this installation: the configured URL, or else that of the
    /// servers that have started.
    ///
    /// # Errors
    /// Fails if neither is known, since a server would reject a token of a guessed issuer.
    pub(crate) fn issuer_url(&self, config: &Config) -> Result<String> {
        let Some(shared) = &self.shared else { return issuer_url(config) };
        let stored = shared.settings.as_ref().and_then(settings::Settings::public_url).map(str::to_owned);
        let url = config.public_url.clone().or(stored);
        url.context("no server has run on this database yet: start one, or set the issuer URL with --public-url")
    }

    /// Like [`Installation::issuer_url`], or else the URL that a server with this configuration would have.
    pub(crate) fn known_url(&self, config: &Config) -> String {
        match &self.shared {
            Some(_) => self.issuer_url(config).unwrap_or_else(|_| config.url_of(config.listen())),
            None => known_url(config),
        }
    }

    /// Builds the platform on the configured store and bootstraps it: a new store gets the first organization and its
    /// operator. `url` is the URL by which clients reach the server.
    pub(crate) async fn platform(&self, config: &Config, url: &str, purpose: Purpose) -> Result<Platform> {
        self.platform_with_origin(config, url, purpose).await.map(|opened| opened.platform)
    }

    /// Like [`Installation::platform`], and also returns that of which backups are made.
    pub(crate) async fn platform_with_origin(&self, config: &Config, url: &str, purpose: Purpose) -> Result<Opened> {
        let is_new = self.shared.is_none() && store_path(config).is_none_or(|path| !has_contents(&path));
        let (store, origin) = self.opened(config, purpose)?;
        let store = stores::measured(config, store);
        let store = if config.audit.audit_log.is_some() { AuditedStore::around(store, config.kinds) } else { store };
        let store = Arc::new(SwitchedStore::new(store, config.read_only));
        let blobs = open_blobs(config)?;
        transfer::reject_unfinished(&*self.documents).await?;
        adopt(config, &*store).await?;
        let operators = std::iter::once(&self.bootstrap.operator).chain(&config.operator);
        let settings = Settings {
            service_domain: config.service_domain.clone(),
            public_url: url.to_owned(),
            operators: operators.cloned().collect(),
            event_type_prefix: config.events.event_type_prefix.clone(),
            ..Settings::default()
        };
        let terms =
            if config.terms_document.is_empty() { Terms::default() } else { Terms(config.terms_document.clone()) };
        let sinks = SinkPolicy::default().allow_http(config.events.allow_http_sinks);
        let sinks = if config.events.allow_private_sinks { sinks } else { sinks.check(check_public_sink) };
        let builder = platform_v1::builder(store.clone(), SystemClock, SystemEntropy);
        let mut builder = config.kinds.add_to(builder);
        if let Some(shared) = &self.shared {
            builder = builder.wake(Arc::clone(&shared.wakeups) as _);
        }
        let platform = builder
            .blobs(Arc::new(store.blobs(Arc::clone(&blobs))))
            .data(store)
            .offload(Pool::default())
            .settings(settings)
            .data(GroupSettings::default().open_organizations(config.open_organisations))
            .data(terms)
            .data(sinks)
            .data(StaticKeyPolicy::default().check(platform_oidc::jwks::check_static_keys))
            .data(PublicAdvisories::of(config.public_advisory_group.iter().cloned()))
            .page_keys(self.keys.page_keys())
            .seal_keys(self.keys.seal_keys())
            .build()?;
        let first = iam::Bootstrap {
            organization: self.bootstrap.organization.clone(),
            organization_name: ORGANIZATION.to_owned(),
            operator: self.bootstrap.operator.clone(),
        };
        let path = store_path(config).unwrap_or_default();
        let place = if self.shared.is_some() { config.store.to_string() } else { path.display().to_string() };
        if is_new && config.store != config::Store::Memory && config.data_dir.join(ADDRESS_FILE).exists() {
            // Only a warning: the operator may have chosen another store on purpose, or the old one may be missing or
            // misnamed.
            tracing::warn!(store = %path.display(), "this installation has no store here: creating an empty one");
        }
        let mut attempts = 0;
        loop {
            match Iam::of(&platform).bootstrap(&first).await {
                // Another server is writing the same.
                Err(error) if error.code() == Code::Aborted && attempts < BOOTSTRAP_ATTEMPTS => attempts += 1,
                // The first resources exist. Roles that this release has changed are written by the next start.
                Err(error) if error.is_read_only() && !is_new => return Ok(Opened { platform, origin, blobs }),
                done => {
                    done.with_context(|| format!("cannot use the store at {place}"))?;
                    return Ok(Opened { platform, origin, blobs });
                }
            }
        }
    }
}

/// Compares the tables of the own kinds with the resources in the store.
///
/// # Errors
/// Fails if a table does not fit them.
async fn adopt(config: &Config, store: &dyn Store) -> Result<()> {
    match shape::adopt(store, config.kinds.own()).await {
        // Nothing has to be rewritten. The next start stores the shapes.
        Ok(()) | Err(AdoptError::Store(StoreError::ReadOnly | StoreError::Full(_))) => Ok(()),
        Err(error @ AdoptError::MustRewrite(_)) => Err(error).context(
            "stop all servers of the store, and run the command `migrate --kinds` of this program, with the same options",
        ),
        Err(error) => Err(error.into()),
    }
}

/// Rejects a data directory with a missing file, for example after an incomplete restore. A new file would not match
/// the remaining ones: new keys invalidate all tokens and cannot decrypt the secrets in the store, and new uids add a
/// second organization with its own operator.
///
/// Files are created in the order keys, bootstrap, store, so that an interrupted first start is not rejected.
fn reject_incomplete(config: &Config) -> Result<()> {
    let dir = &config.data_dir;
    let stores = [store_path(config), Some(dir.join(SQLITE_STORE)), Some(dir.join(SLED_STORE))];
    // Checked in the reverse order of creation, so that files which another process is creating do not count as
    // missing.
    let store = stores.into_iter().flatten().find(|path| has_contents(path));
    let has_bootstrap = dir.join(BOOTSTRAP_FILE).exists();
    let has_keys = dir.join(KEYS_FILE).exists();
    let (missing, loss, existing) = match (has_keys, has_bootstrap, store) {
        (false, _, Some(store)) => {
            (KEYS_FILE, "invalidates all tokens and loses the secrets sealed in the store", store)
        }
        (false, true, None) => (KEYS_FILE, "invalidates all tokens", dir.join(BOOTSTRAP_FILE)),
        (true, false, Some(store)) => {
            (BOOTSTRAP_FILE, "adds a second organization and a second operator to the store", store)
        }
        _ => return Ok(()),
    };
    bail!(
        "{} is missing, but {} depends on it: restore it from the backup that contains both, or create a new one with \
         `serve --recreate-missing`, which {loss}",
        dir.join(missing).display(),
        existing.display()
    )
}

/// Locks the data directory exclusively while a server is starting on it, until the returned file is dropped. Commands
/// that need the server's URL wait for the lock, and so does another server.
pub(crate) fn lock_for_start(config: &Config) -> Result<File> {
    let dir = &config.data_dir;
    let lock = || {
        let directory = File::open(dir)?;
        directory.lock()?;
        Ok::<_, std::io::Error>(directory)
    };
    lock().with_context(|| format!("cannot lock {}", dir.display()))
}

/// Records the issuer URL of this server's tokens for later `env` and `token` commands. A server on a full disk starts
/// without, so that its resources can be read.
pub(crate) fn record_url(config: &Config, url: &str) {
    let path = config.data_dir.join(ADDRESS_FILE);
    if fs::read_to_string(&path).is_ok_and(|recorded| recorded.trim() == url) {
        return;
    }
    // Written to another file and renamed, so that no reader sees a partial URL.
    let new = config.data_dir.join(format!("{ADDRESS_FILE}.new"));
    let write = || {
        fs::write(&new, format!("{url}\n"))?;
        fs::rename(&new, &path)
    };
    if let Err(error) = write() {
        tracing::warn!(path = %path.display(), %error, "cannot record the URL of this server for other commands");
    }
}

/// Returns the configured URL, or else that of the last server on the data directory, or else the URL that a server
/// with this configuration would have.
pub(crate) fn known_url(config: &Config) -> String {
    configured_or_recorded_url(config).unwrap_or_else(|| config.url_of(config.listen()))
}

/// Returns the issuer of tokens for the server of the data directory: the configured URL, or else that of the last
/// server.
///
/// # Errors
/// Fails if neither is known, since the server would reject a token of a guessed issuer.
fn issuer_url(config: &Config) -> Result<String> {
    configured_or_recorded_url(config).with_context(|| {
        let dir = config.data_dir.display();
        format!("no server has run on {dir} yet: start one, or set the issuer URL with --public-url")
    })
}

fn configured_or_recorded_url(config: &Config) -> Option<String> {
    let configured = config.public_url.clone().or_else(|| config.listen_given().map(|address| config.url_of(address)));
    let recorded = || fs::read_to_string(config.data_dir.join(ADDRESS_FILE)).ok();
    let recorded = || recorded().map(|url| url.trim().to_owned()).filter(|url| !url.is_empty());
    configured.or_else(recorded)
}
