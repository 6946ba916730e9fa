//! The store: connections to a database, and the lanes that commit; opening and migrating.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use platform_engine::store::{Commit, Committed, Epoch, Key, Page, Query, Read, Store, StoreError, check::Finding};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    check, citus, commit,
    connection::Database,
    documents::Documents,
    error::{Failure, OpenError, unavailable},
    migrate, notify,
    options::Options,
    probe, query, registry,
    schema::{self, LAYOUT},
    shared::{Health, Shared},
    writer::Lanes,
};

/// A store in a PostgreSQL database; see the crate's documentation for its guarantees and limits.
///
/// It must be opened and used within a tokio runtime. When it is dropped, pending commits are completed in the
/// background.
pub struct PostgresStore {
    shared: Arc<Shared>,
    lanes: Arc<Lanes>,
    channel: String,
    probed: probe::Probed,
}

impl PostgresStore {
    /// Opens a database that [`PostgresStore::migrate`] has prepared.
    ///
    /// The URL is a connection string of `tokio-postgres`, such as `postgres://user:password@host:5432/database`. It may
    /// name several hosts, separated by commas, of which the primary is used. Without `sslmode`, connections to other
    /// machines use TLS with a verified certificate, and those to this machine do not use TLS (our choice). `sslmode=require` verifies the certificate and the name of the
    /// host, and so do libpq's `verify-ca` and `verify-full`, which mean the same here.
    ///
    /// # Errors
    /// [`OpenError`], which states the cause and the remedy.
    pub async fn open(url: &str, options: Options) -> Result<Self, OpenError> {
        let database = Database::connect(url, &options).await?;
        let other = |error: StoreError| OpenError::Unavailable(error.into());
        let connection = database.attempts().reader().await.map_err(|failure| other(failure.into()))?;
        let instance = migrate::verify(&connection).await?;
        let client = connection.client().map_err(|failure| other(failure.into()))?;
        database.set_distributed(citus::is_distributed(client).await?);
        let slots = registry::load(&connection).await.map_err(|failure| other(failure.into()))?;
        drop(connection);
        let shared = Arc::new(Shared {
            database,
            slots: ArcSwap::from_pointee(slots),
            salt: instance.as_u64_pair().0,
            health: Health::default(),
        });
        let lanes = Arc::new(Lanes::new(shared.clone(), options.lanes, options.group_commits));
        Ok(Self { shared, lanes, channel: notify::channel(instance), probed: probe::Probed::default() })
    }

    /// Creates the tables of an empty database, or brings those of an earlier release to this release's layout
    /// (currently 1).
    ///
    /// Concurrent calls wait for each other. Each migration is one transaction. Servers refuse a database of another
    /// layout. Returns the layout that the database had, 0 if it was empty.
    ///
    /// # Errors
    /// [`OpenError`]; the database then has the layout of the last migration that succeeded.
    pub async fn migrate(url: &str, options: &Options) -> Result<i32, OpenError> {
        migrate::migrate(url, options).await
    }

    /// Returns the layout of a database, 0 if it is empty. Changes nothing.
    ///
    /// # Errors
    /// [`OpenError::Newer`] if this release does not support the layout, and other errors of the connection.
    pub async fn layout(url: &str, options: &Options) -> Result<i32, OpenError> {
        migrate::layout(url, options).await
    }

    /// The layout that this release reads and writes.
    pub const LAYOUT: i32 = LAYOUT;

    /// Returns the small documents of the installation.
    pub fn documents(&self) -> Documents {
        Documents::new(self.shared.clone())
    }

    /// Sends a text of at most 7,999 bytes to all listeners of the database, those of this store included. It is not
    /// part of any commit, and can be lost when a connection breaks: nothing must depend on it but how soon something
    /// happens.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn notify(&self, payload: &str) -> Result<(), StoreError> {
        notify::notify(&self.shared, &self.channel, payload).await
    }

    /// Returns the notifications that are sent from now on, on a connection of its own that is opened again when it
    /// breaks; see [`Heard`](crate::Heard).
    pub fn listen(&self) -> notify::Listener {
        notify::listen(self.shared.clone(), self.channel.clone())
    }

    /// Takes a name that no other process of the installation may have at the same time, and returns whether it has it.
    /// Waits a few seconds while the database does not answer.
    ///
    /// The name is released when the store is dropped, and within about ten seconds after its process or machine is gone.
    /// When the connection that keeps it breaks, the name is taken again; another process may have been faster. A store
    /// has one name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn claim(&self, name: &str) -> Result<bool, StoreError> {
        // Locks of two numbers are not those of batches, which have one.
        let key = [self.shared.salt, xxh3_64(name.as_bytes())].map(|of| {
            let [a, b, c, d, ..] = of.to_be_bytes();
            i32::from_be_bytes([a, b, c, d])
        });
        self.shared.database.claim(key.into()).await.ok_or_else(|| unavailable("the database does not answer"))
    }

    /// Returns the time of the database's clock, in microseconds since 1970.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn clock(&self) -> Result<u64, StoreError> {
        let mut attempts = self.shared.database.attempts();
        loop {
            let connection = attempts.reader().await?;
            let read = async {
                let rows = connection.query(CLOCK, &[]).await?;
                Ok::<i64, Failure>(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
            };
            match read.await {
                Ok(time) => return Ok(time.cast_unsigned()),
                Err(failure) => {
                    connection.close();
                    attempts.pause(failure).await?;
                }
            }
        }
    }

    /// Reads from the tables that gets and lists read, once, for health checks. On Citus, an error means that no node of
    /// several answers, and not that one of them does not.
    ///
    /// # Errors
    /// The error that reads have now.
    pub async fn probe(&self) -> Result<(), StoreError> {
        probe::probe(&self.shared, &self.probed).await
    }

    /// Verifies index entries, lengths of lists, counted blocks, unique keys and epochs against the records, and returns
    /// every inconsistency: an empty list if the store is consistent.
    ///
    /// Reads every row, one organization after another, each in one snapshot. Reads and commits of all servers can run
    /// concurrently.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the database cannot answer.
    pub async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        // A task is not canceled with its caller, so that no connection is left in a transaction.
        let shared = self.shared.clone();
        let checked = tokio::spawn(async move { check::check(&shared).await });
        checked.await.map_err(unavailable)?
    }
}

pub(crate) const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("database", &self.shared.database).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn get(&self, keys: &[Key], epochs: &[Epoch]) -> Result<Read, StoreError> {
        let uids = keys.iter().map(|key| &key.uid).chain(epochs.iter().map(|epoch| &epoch.uid));
        schema::verify(uids)?;
        let mut attempts = self.shared.database.attempts();
        loop {
            let connection = attempts.reader().await?;
            let read = if connection.is_distributed() {
                query::distributed::get(&connection, keys, epochs).await
            } else {
                query::get(&connection, keys, epochs).await
            };
            match read {
                Ok(read) => return Ok(read),
                Err(failure) => {
                    if matches!(failure, Failure::Lost(_)) {
                        connection.close();
                    }
                    attempts.pause(failure).await?;
                }
            }
        }
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        query::verify(query)?;
        let mut attempts = self.shared.database.attempts();
        loop {
            let connection = attempts.reader().await?;
            let slots = self.shared.slots.load_full();
            let read = async {
                let page = if connection.is_distributed() {
                    query::distributed::list(&connection, &slots, self.shared.salt, query).await?
                } else {
                    query::list(&connection, &slots, self.shared.salt, query).await?
                };
                let is_known = query::knows(&slots, query);
                // Kinds and keys are only added: what is still not registered was not when the page was read.
                let now = if is_known { None } else { Some(registry::load(&connection).await?) };
                Ok((page, now))
            };
            match read.await {
                Ok((page, None)) => return Ok(page),
                Ok((page, Some(now))) => {
                    let is_known = query::knows(&now, query);
                    self.shared.slots.store(Arc::new(now));
                    if !is_known {
                        return Ok(page);
                    }
                }
                Err(failure) => {
                    if matches!(failure, Failure::Lost(_)) {
                        connection.close();
                    }
                    attempts.pause(failure).await?;
                }
            }
        }
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        commit::verify(&commit)?;
        self.lanes.commit(commit).await
    }

    fn health(&self) -> Result<(), StoreError> {
        self.shared.health.check()
    }

    fn lineage(&self) -> u64 {
        self.shared.database.generation()
    }
}

#[cfg(test)]
mod tests {
    use platform_testkit::postgres::Cluster;
    use uuid::Uuid;

    use super::*;
    use crate::batch::Batch;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_batch_that_a_node_has_prepared_is_found_when_the_node_has_committed_it() {
        if Cluster::shared().is_none() {
            return;
        }
        let cluster = Cluster::start_private("max_prepared_transactions=5").unwrap();
        let url = cluster.schema_like_citus("prepared").await.unwrap();
        PostgresStore::migrate(&url, &Options::default()).await.unwrap();
        let store = PostgresStore::open(&url, Options::default()).await.unwrap();
        let id = Uuid::from_u128(7);
        let commits = [Commit::default()];
        let org = Batch::new(&commits, id).org();
        let (shared, outside) = (store.shared.clone(), Uuid::from_u128(8));
        assert!(!shared.is_committed(&Batch::new(&commits, outside)).await.unwrap());
        let prepare = format!("BEGIN; INSERT INTO batch VALUES ({org}, '{id}', 1); PREPARE TRANSACTION 'of a node'");
        cluster.execute(&url, &prepare).await.unwrap();
        let found = tokio::spawn(async move { shared.is_committed(&Batch::new(&[Commit::default()], id)).await });
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        while !found.is_finished() && client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
        client.batch_execute("COMMIT PREPARED 'of a node'").await.unwrap();
        assert!(found.await.unwrap().unwrap());
        // Nothing remains of the one that was not committed.
        let rows = client.query("SELECT id FROM batch", &[]).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<Uuid>>(), [id]);
    }
}
