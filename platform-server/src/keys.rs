//! `platform-server keys`: lists, rotates, revokes and moves the keys of an installation.

use std::{
    fmt,
    fs::File,
    io::{Read, Write, stdin, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use axum::{Router, extract::Request, routing::post};
use platform_engine::{
    error::{Code, Error},
    timestamp::Timestamp,
};
use platform_keys::{Algorithm, DataDirError, Document, Documents, KeyRing};
use platform_oidc::Issuer;
use platform_system::{SystemClock, SystemEntropy};
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::{
    cli::{self, At},
    config::Config,
    installation::{DOCUMENTS, Installation, block_on},
    operator::{Json, Operators, read_json},
    running::{bearer, send},
    transfer,
};

/// The document of the keys.
const DOCUMENT: &str = "keys";
/// The path of the endpoint that revokes a key.
const REVOKE: &str = "/operator/keys/revoke";
/// The maximum length of the body of a request to it.
const MAX_BODY: usize = 1024;
/// The maximum length of a file of keys.
const MAX_FILE: u64 = 1 << 20;

pub(crate) fn run(config: &Config, command: &cli::Keys) -> Result<ExitCode> {
    match command {
        cli::Keys::Export { to } => return export(config, to),
        cli::Keys::Import { file } => return import(config, file),
        cli::Keys::Revoke { id, at } => return revoke(config, id, at),
        cli::Keys::List | cli::Keys::Rotate => {}
    }
    let keys = block_on(async {
        let Installation { keys, ring, sealed, .. } = Installation::open_existing(config).await?;
        match command {
            cli::Keys::Rotate => {
                let keys = ring.rotate().await.context("cannot rotate the keys")?;
                if let Some(sealed) = sealed {
                    // The keys are sealed with the first key-encryption key now, so the other documents must be too.
                    sealed.reseal(&DOCUMENTS).await.context("cannot seal the documents of the installation again")?;
                }
                Ok(Arc::new(keys))
            }
            _ => Ok(keys),
        }
    })?;
    let mut out = stdout().lock();
    for (usage, keys) in
        [("signing", keys.signing_keys().collect::<Vec<_>>()), ("webhook", keys.webhook_keys().collect())]
    {
        let in_use = keys.first().map(|(_, created)| *created);
        for (position, (key, created)) in keys.into_iter().enumerate() {
            let (algorithm, kid) = (key.algorithm().name(), key.kid().unwrap_or_default());
            writeln!(out, "{usage}  {:<7}  {created}  {algorithm}  {kid}", state(position, created, in_use))?;
        }
    }
    for (usage, keys) in [("page", keys.page_tokens()), ("seal", keys.sealing())] {
        let in_use = keys.first().map(|key| key.created());
        for (position, key) in keys.iter().enumerate() {
            let created = key.created();
            writeln!(out, "{usage:<7}  {:<7}  {created}  {}", state(position, created, in_use), key.id())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Revokes a key, by a running server or in the place of the keys.
fn revoke(config: &Config, id: &str, at: &At) -> Result<ExitCode> {
    match at.url() {
        Some(url) => {
            let token = bearer(config, at.token.as_ref())?;
            send(at, &format!("{url}{REVOKE}"), &token, &json!({ "id": id }))?;
        }
        None => block_on(async { Ok(Installation::open_existing(config).await?.ring.revoke(id).await.map(drop)?) })?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the route that revokes a key.
pub(crate) fn routes(operators: &Operators, ring: &Arc<KeyRing>, issuer: &Arc<Issuer>) -> Router {
    let (operators, ring, issuer) = (operators.clone(), Arc::clone(ring), Arc::clone(issuer));
    let revoke = post(move |request: Request| {
        let platform = Arc::clone(&operators.platform);
        operators.answer(request, None, async move |_, _, body| {
            let Revocation { id } = read_json(body, MAX_BODY).await?;
            let keys = ring.revoke(&id).await.map_err(|error| match error {
                DataDirError::NotRevoked { reason, .. } => Error::invalid_field("id", reason),
                error => {
                    tracing::error!(%error, "cannot revoke a key");
                    Error::new(Code::Unavailable, "cannot write the keys")
                }
            })?;
            issuer.use_keys(&Arc::new(keys), &platform);
            tracing::info!(id, "an operator has revoked a key");
            Ok(Json(json!({})))
        })
    });
    Router::new().route(REVOKE, revoke)
}

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Revocation {
    id: String,
}

/// Writes the document of the keys to a file or to standard output.
fn export(config: &Config, to: &Path) -> Result<ExitCode> {
    let document = block_on(async {
        let installation = Installation::open_existing(config).await?;
        let document = installation.documents.read(DOCUMENT).await?;
        document.with_context(|| format!("{} does not exist", installation.documents.place(DOCUMENT).display()))
    })?;
    if to.as_os_str() == "-" {
        stdout().write_all(&document.contents).context("cannot write the keys")?;
    } else {
        let mut file = transfer::create_secret(to)?;
        let written = file.write_all(&document.contents).and_then(|()| file.sync_all());
        written.with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the document of the keys of an installation that has none.
fn import(config: &Config, path: &Path) -> Result<ExitCode> {
    let mut contents = Zeroizing::new(Vec::new());
    let read = if path.as_os_str() == "-" {
        stdin().lock().take(MAX_FILE).read_to_end(&mut contents)
    } else {
        File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut contents))
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    block_on(async {
        // Loaded from memory first, so that no file is written that cannot be used.
        let given: Arc<dyn Documents> = Arc::new(Given(path.to_owned(), contents.clone()));
        let ring = KeyRing::new(given, Algorithm::Rs256, Arc::new(SystemClock), Arc::new(SystemEntropy));
        ring.load().await?;
        let documents = Installation::documents(config).await?;
        if !documents.write(DOCUMENT, 0, &contents).await? {
            bail!(
                "{} exists: keys can only be given to an installation that has none, so begin with an empty data \
                 directory or database",
                documents.place(DOCUMENT).display()
            );
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A file of keys as the only document.
struct Given(PathBuf, Zeroizing<Vec<u8>>);

/// Omits the keys.
impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Given").field(&self.0).finish_non_exhaustive()
    }
}

#[async_trait]
impl Documents for Given {
    async fn read(&self, _: &str) -> Result<Option<Document>, DataDirError> {
        Ok(Some(Document { contents: self.1.clone(), revision: 1 }))
    }

    async fn write(&self, _: &str, _: u64, _: &[u8]) -> Result<bool, DataDirError> {
        Ok(false)
    }

    fn place(&self, _: &str) -> PathBuf {
        self.0.clone()
    }
}

/// Returns the state of a key: the first of each use is in use, and newer ones will be as soon as all servers have read
/// them.
fn state(position: usize, created: Timestamp, in_use: Option<Timestamp>) -> &'static str {
    match position {
        0 => "in use",
        _ if in_use.is_some_and(|in_use| created > in_use) => "next",
        _ => "old",
    }
}
