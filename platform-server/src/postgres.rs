//! The PostgreSQL store as one that several servers share.

use std::{path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use async_trait::async_trait;
use platform_engine::{
    store::{Store, StoreError},
    timestamp::Timestamp,
};
use platform_keys::{DataDirError, Document, Documents};
use platform_store_postgres::{Heard, Listener, OpenError, Options, PostgresStore};
use zeroize::Zeroizing;

use crate::{
    config::{Config, DatabaseUrl},
    shared::{Message, Messages, SharedStore},
};

/// A PostgreSQL database.
#[derive(Debug)]
pub(crate) struct Postgres(Arc<PostgresStore>);

impl Postgres {
    /// Opens a database that has the layout of this release.
    pub(crate) async fn open(url: &DatabaseUrl, config: &Config) -> Result<Self> {
        let store = PostgresStore::open(url.expose(), options(config)?).await;
        let store = store.map_err(advised).with_context(|| format!("cannot use the database {url} of --store"))?;
        Ok(Self(Arc::new(store)))
    }
}

fn options(config: &Config) -> Result<Options> {
    let options = Options::default();
    let options = config.store_connections.map_or(options.clone(), |most| options.connections(most.into()));
    let Some(path) = &config.store_ca else { return Ok(options) };
    let place = || format!("cannot use {} of --store-ca", path.display());
    let pem = std::fs::read(path).with_context(place)?;
    options.root_certificates_pem(&pem).with_context(place)
}

/// Adds what to do about an error that is due to the options of this server.
fn advised(error: OpenError) -> anyhow::Error {
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let advice = match &error {
        OpenError::Unavailable(_) if text.contains("UnknownIssuer") || text.contains("CaUsedAsEndEntity") => {
            "name the certification authority of the database with --store-ca"
        }
        OpenError::Unavailable(_) if text.contains("TLS") && text.contains("not supported") => {
            "the database has no TLS: enable it, or add ?sslmode=disable to --store on a trusted network"
        }
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(advice)
}

/// Creates the tables, or changes them to the layout of this release. Returns the layout that was found, 0 for an empty
/// database, and the steps from it. A dry run changes nothing.
pub(crate) async fn migrate(url: &DatabaseUrl, config: &Config, dry_run: bool) -> Result<(u32, Vec<String>)> {
    let options = options(config)?;
    let found = if dry_run {
        PostgresStore::layout(url.expose(), &options).await
    } else {
        PostgresStore::migrate(url.expose(), &options).await
    };
    let found = found.map_err(advised).with_context(|| format!("cannot migrate the database {url} of --store"))?;
    let step = |layout| format!("layout {layout}: platform-store-postgres/migrations/{layout:04}.sql");
    Ok((u32::try_from(found)?, (found + 1..=PostgresStore::LAYOUT).map(step).collect()))
}

#[async_trait]
impl SharedStore for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0) as _
    }

    fn documents(&self) -> Arc<dyn Documents> {
        Arc::new(Table(self.0.documents()))
    }

    async fn now(&self) -> Result<Timestamp> {
        let micros = self.0.clock().await?;
        Ok(Timestamp::from_millis(i64::try_from(micros / 1000)?))
    }

    async fn probe(&self) -> Result<()> {
        Ok(self.0.probe().await?)
    }

    async fn claim(&self, name: &str) -> Result<bool> {
        Ok(self.0.claim(name).await?)
    }

    async fn notify(&self, message: &str) -> Result<()> {
        Ok(self.0.notify(message).await?)
    }

    async fn listen(&self) -> Result<Box<dyn Messages>> {
        Ok(Box::new(Notifications(self.0.listen())))
    }

    async fn check(&self) -> Result<Vec<String>> {
        let found = self.0.check().await.context("the check could not be completed")?;
        Ok(found.iter().map(ToString::to_string).collect())
    }
}

/// The notifications of the database.
struct Notifications(Listener);

#[async_trait]
impl Messages for Notifications {
    async fn next(&mut self) -> Option<Message> {
        Some(match self.0.next().await? {
            Heard::Notification(text) => Message::Text(text),
            // A gap, and whatever else a later release of the store reports.
            _ => Message::Missed,
        })
    }
}

/// The table of documents.
#[derive(Debug)]
struct Table(platform_store_postgres::Documents);

impl Table {
    fn failed(&self, action: &'static str, name: &str, error: StoreError) -> DataDirError {
        DataDirError::Documents { action, path: self.place(name), source: error.into() }
    }
}

#[async_trait]
impl Documents for Table {
    async fn read(&self, name: &str) -> Result<Option<Document>, DataDirError> {
        let read = self.0.read(name).await.map_err(|error| self.failed("read", name, error))?;
        Ok(read.map(|(bytes, revision)| Document { contents: Zeroizing::new(bytes.to_vec()), revision }))
    }

    async fn write(&self, name: &str, expected: u64, contents: &[u8]) -> Result<bool, DataDirError> {
        match self.0.write(name, expected, contents).await {
            // The connection broke, so the document may have been written: it is read to find out.
            Err(StoreError::Unknown(_)) => match self.read(name).await? {
                // Another write, which waits for the synchronous standbys: they may not have the first one.
                Some(stored) if *stored.contents == contents => {
                    let again = self.0.write(name, stored.revision, contents).await;
                    again.map(|_| true).map_err(|error| self.failed("write", name, error))
                }
                _ => Ok(false),
            },
            written => written.map_err(|error| self.failed("write", name, error)),
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("document {name} of the database"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use platform_core::{
        iam::{Bootstrap, Iam},
        resources::registry::repo::Repo,
    };
    use platform_engine::{
        access::Caller,
        platform::{Platform, Settings},
        request::ListRequest,
        uid::Uid,
        watch::{WatchEvent, WatchRequest, Watcher},
    };
    use platform_events::Wakeups;
    use platform_testkit::{SeededEntropy, TestClock, postgres::Cluster};

    use super::*;
    use crate::shared::carry_wakeups;

    /// A server, as far as a watch needs it.
    struct Member {
        platform: Arc<Platform>,
        shared: Arc<dyn SharedStore>,
        wakeups: Arc<Wakeups>,
    }

    async fn member(url: &str, number: u64, bootstrap: &Bootstrap) -> Member {
        let store = Arc::new(PostgresStore::open(url, Options::default()).await.unwrap());
        let wakeups = Arc::new(Wakeups::new(format!("member-{number}")));
        let clock = TestClock::at(Timestamp::from_millis(1_700_000_000_000));
        let settings = Settings { operators: [bootstrap.operator.clone()].into(), ..Settings::default() };
        let platform = platform_core::builder(Arc::clone(&store) as _, clock, SeededEntropy::new(number))
            .settings(settings)
            .wake(Arc::clone(&wakeups) as _)
            .ephemeral_keys()
            .build()
            .unwrap();
        Member { platform: Arc::new(platform), shared: Arc::new(Postgres(store)), wakeups }
    }

    async fn event(watcher: &mut Watcher<Arc<Platform>>) -> WatchEvent {
        let event = tokio::time::timeout(Duration::from_secs(60), watcher.next()).await;
        event.expect("a message wakes the watch").expect("the watch goes on")
    }

    /// Nothing calls `tick`, which looks for changes whose messages were lost, so that only messages wake the watch.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_change_at_one_server_wakes_the_watches_of_another() {
        let Some(cluster) = Cluster::shared() else { return };
        let url = cluster.empty_schema("server_messages").await.unwrap();
        PostgresStore::migrate(&url, &Options::default()).await.unwrap();
        let bootstrap = Bootstrap {
            organization: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7"),
            organization_name: "acme".to_owned(),
            operator: Uid::opaque("7f0c2b1d44617e3f2603851537be0123af4a57d8"),
        };
        let (one, other) = (member(&url, 1, &bootstrap).await, member(&url, 2, &bootstrap).await);
        Iam::of(&one.platform).bootstrap(&bootstrap).await.unwrap();
        for member in [&one, &other] {
            carry_wakeups(&member.shared, &member.wakeups, &member.platform);
        }
        let caller = Caller::new(bootstrap.operator.clone());
        let repos = other.platform.registered().iter().find(|one| one.kind.name == "Repo").unwrap();
        let within = ("uidp.descendants_of".to_owned(), bootstrap.organization.to_string());
        let list = ListRequest::from_query(repos.kind, &[within]).unwrap();
        let request = WatchRequest { list, names: false, initial_state: false, resume: None };
        let mut watcher = Watcher::open(Arc::clone(&other.platform), &caller, repos, request).await.unwrap();
        assert_eq!(event(&mut watcher).await.what.name(), "bookmark");
        // At the first, the other server may be about to listen, and then takes it for a message that it has missed.
        for number in 0..5 {
            let repo = Repo { name: format!("repo-{number}"), ..Repo::default() };
            let made = one.platform.create(&caller, &bootstrap.organization, &repo).await.unwrap();
            let json = event(&mut watcher).await.what.to_json();
            let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert_eq!((&json["type"], &json["resource"]["uid"]), (&"added".into(), &made.uid.as_str().into()));
        }
    }
}
