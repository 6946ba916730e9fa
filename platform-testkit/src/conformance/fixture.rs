//! The store of one case, and shorthands for frequent calls.

use std::{
    panic::resume_unwind,
    sync::{Arc, Barrier},
    thread,
};

use platform_engine::store::{
    Commit, Committed, Conflict, Delete, Key, KindName, Page, Position, Put, Query, Record, Require, Store, StoreError,
};
use platform_engine::uid::Uid;

use super::{Check, Suite, records::epoch};

/// A store that is initially empty, and its directory.
pub(super) struct Fixture {
    suite: Arc<Suite>,
    // Dropped before the directory, which the store may use until then.
    store: Option<(Arc<dyn Store>, Box<Check>)>,
    directory: tempfile::TempDir,
}

impl Fixture {
    pub(super) async fn create(suite: Arc<Suite>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut fixture = Self { suite, store: None, directory };
        fixture.open().await;
        fixture
    }

    /// Returns another empty store.
    pub(super) async fn another(&self) -> Self {
        Self::create(self.suite.clone()).await
    }

    pub(super) fn suite(&self) -> &Suite {
        &self.suite
    }

    /// Closes the store and opens it again from its directory.
    pub(super) async fn reopen(&mut self) {
        self.close();
        self.open().await;
    }

    /// Checks and closes the store.
    pub(super) fn close(&mut self) {
        let (store, check) = self.store.take().expect("an open store");
        assert_eq!(check().expect("the check succeeds"), []);
        assert_eq!(Arc::strong_count(&store), 1, "a case must drop its clones before it closes the store");
    }

    async fn open(&mut self) {
        let opening = (self.suite.open)(self.directory.path().to_owned());
        self.store = Some(opening.await.expect("the store opens"));
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store.as_ref().expect("an open store").0
    }

    /// Makes a commit that must succeed, and returns its sequence.
    pub(super) async fn commit(&self, commit: Commit) -> u64 {
        let Committed { sequence } = self.store().commit(commit).await.expect("the commit succeeds");
        sequence
    }

    pub(super) async fn put(&self, put: impl IntoIterator<Item = Put>) -> u64 {
        self.commit(Commit { put: put.into_iter().collect(), ..Commit::default() }).await
    }

    pub(super) async fn delete(&self, delete: impl IntoIterator<Item = Delete>) -> u64 {
        self.commit(Commit { delete: delete.into_iter().collect(), ..Commit::default() }).await
    }

    pub(super) async fn raise(&self, epochs: impl IntoIterator<Item = &str>) -> u64 {
        self.commit(Commit { raise: epochs.into_iter().map(epoch).collect(), ..Commit::default() }).await
    }

    /// Makes a commit that must be rejected, and returns the conflict.
    pub(super) async fn rejected(&self, commit: Commit) -> Conflict {
        conflict(self.store().commit(commit).await).expect_err("the commit is rejected")
    }

    /// Returns whether a commit with only this requirement succeeds.
    pub(super) async fn holds(&self, require: Require) -> bool {
        let commit = Commit { require: vec![require], ..Commit::default() };
        match conflict(self.store().commit(commit).await) {
            Ok(_) => true,
            Err(conflict) => {
                assert_eq!(conflict, Conflict::Require(0));
                false
            }
        }
    }

    pub(super) async fn record(&self, kind: KindName, uid: &str) -> Option<Record> {
        let keys = [Key::new(kind, Uid::opaque(uid))];
        let read = self.store().get(&keys, &[]).await.expect("the read succeeds");
        let [record] = <[_; 1]>::try_from(read.records).expect("one record for the one key");
        record
    }

    pub(super) async fn epochs<const N: usize>(&self, epochs: [&str; N]) -> [u64; N] {
        let read = self.store().get(&[], &epochs.map(epoch)).await.expect("the read succeeds");
        read.epochs.try_into().expect("a value for each epoch")
    }

    pub(super) async fn page(&self, query: &Query) -> Page {
        self.store().list(query).await.expect("the list succeeds")
    }

    /// Returns the uids of the query's records.
    pub(super) async fn uids(&self, query: &Query) -> Vec<String> {
        self.page(query).await.items.into_iter().map(|item| item.uid().to_string()).collect()
    }

    pub(super) async fn total(&self, query: &Query) -> u64 {
        let query = Query { count: true, limit: 1, ..query.clone() };
        self.page(&query).await.total.expect("a total, which was requested")
    }

    /// Returns the uids of the query's records, read page by page.
    pub(super) async fn walk(&self, query: &Query, page: usize) -> Vec<String> {
        walk(&**self.store(), query, page).await
    }

    /// Returns the position of the record with this uid in the query's order: the `next` of a page that ends with it.
    pub(super) async fn position(&self, query: &Query, uid: &str) -> Position {
        let page = self.page(query).await;
        let limit = 1 + page.items.iter().position(|item| &*item.uid() == uid).expect("the record is listed");
        let page = self.page(&Query { limit, ..query.clone() }).await;
        page.next.expect("something follows the record")
    }

    /// Runs the work on this many threads, which start simultaneously, and returns their results.
    pub(super) fn together<T: Send>(
        &self,
        threads: usize,
        work: impl AsyncFn(usize, Arc<dyn Store>) -> T + Sync,
    ) -> Vec<T> {
        let (barrier, work) = (Barrier::new(threads), &work);
        let run = |thread| {
            barrier.wait();
            self.suite.run(async |_| work(thread, self.store().clone()).await)
        };
        thread::scope(|scope| {
            let run = &run;
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            let joined = running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            joined.collect()
        })
    }
}

/// Returns the outcome of a commit, which must be a success or a conflict.
pub(super) fn conflict(outcome: Result<Committed, StoreError>) -> Result<u64, Conflict> {
    match outcome {
        Ok(Committed { sequence }) => Ok(sequence),
        Err(StoreError::Conflict(conflict)) => Err(conflict),
        Err(other) => panic!("the commit failed: {other}"),
    }
}

/// Returns a short description of how a page differs from the expected one.
pub(super) fn differ(page: &Page, expected: &Page) -> Option<String> {
    let brief = |page: &Page| {
        let items = page.items.iter().take(10).map(|item| format!("{}@{}", item.uid(), item.revision));
        let (items, Page { next, total, epochs, .. }) = (items.collect::<Vec<_>>().join(" "), page);
        format!("{} records ({items} ..), next {next:?}, total {total:?}, epochs {epochs:?}", page.items.len())
    };
    // A store may not know that a record has no private part.
    let mut known = page.clone();
    for (item, expected) in known.items.iter_mut().zip(&expected.items) {
        item.may_have_private &= expected.may_have_private;
    }
    (known != *expected).then(|| format!("returned {}\nexpected {}", brief(page), brief(expected)))
}

/// Returns the uids of the query's records, read page by page.
pub(super) async fn walk(store: &dyn Store, query: &Query, limit: usize) -> Vec<String> {
    let mut query = Query { limit, ..query.clone() };
    let mut uids = Vec::new();
    loop {
        let page = store.list(&query).await.expect("the list succeeds");
        assert!(page.items.len() <= limit, "a page is longer than its limit");
        uids.extend(page.items.into_iter().map(|item| item.uid().to_string()));
        let Some(next) = page.next else { return uids };
        if let Some(after) = &query.after {
            let (before, after) = ((&after.value, &after.uid), (&next.value, &next.uid));
            let advances = if query.order.descending { before > after } else { before < after };
            // Otherwise the walk would not end.
            assert!(advances, "the page after {before:?} ends at {after:?}, which does not follow it");
        }
        // The cursor is already past the records that the first page skipped.
        query = Query { after: Some(next), skip: 0, ..query };
    }
}
