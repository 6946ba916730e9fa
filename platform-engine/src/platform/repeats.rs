//! Writes that a client can repeat ([`idempotency`](crate::idempotency)).

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::Platform;
use crate::{
    BoxFuture,
    access::Caller,
    context::Context,
    error::{Code, Error, Result},
    etag::Reply,
    idempotency::{
        HEADER, IdempotencyKey, MAX_REPLY,
        record::{RECORDS, Recorded, Request},
    },
    options::RequestOptions,
    store::{Commit, Conflict, Delete, Key, Order, OrderBy, Query, Require, Scope, StoreError},
    write::{Deferred, Write},
};

/// The maximum number of expired records that one commit deletes. Our choice.
const SWEPT_AT_ONCE: usize = 500;

impl Platform {
    /// Runs a method of a caller as [`Platform::with_options`] does. If its options have an idempotency key, it is carried
    /// out once, and a repetition gets its reply. `request` returns the request by which repetitions are recognized.
    ///
    /// # Errors
    /// Those of the method; INVALID_ARGUMENT with the reason `IDEMPOTENCY_KEY_REUSED` for a key that the caller has used
    /// for another request, and if the reply is longer than [`MAX_REPLY`], in which case nothing was changed.
    pub(super) async fn once_per_key<'a>(
        &'a self,
        caller: &'a Caller,
        options: &'a RequestOptions,
        request: impl FnOnce(&IdempotencyKey) -> Request,
        method: impl for<'c> Fn(&'c Context<'a>) -> BoxFuture<'c, Result<Reply>>,
    ) -> Result<Reply> {
        let Some(key) = options.key_of_write() else { return self.with_options(caller, options, method).await };
        let request = request(key);
        let attempts = Arc::new(Attempts { request, replaced: AtomicU64::new(0), is_check: AtomicBool::new(false) });
        let deferred = || Some(Deferred::new(attempts.is_check.swap(false, Ordering::Relaxed)));
        self.with_context(caller, options, deferred, |cx| {
            let (attempts, done) = (Arc::clone(&attempts), method(cx));
            Box::pin(async move { attempts.finish(cx, done.await).await })
        })
        .await
    }

    /// Deletes records of idempotency keys that are older than [`KEPT_MILLIS`](crate::idempotency::KEPT_MILLIS), the oldest first and at most
    /// 500 of them. Returns whether there may be more. Call it from time to time: an expired record has no effect, and
    /// only takes space.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete_expired_replies(&self) -> Result<bool> {
        let order = Order { by: OrderBy::Sequence, descending: false };
        let query = Query { order, limit: SWEPT_AT_ONCE, ..Query::new(RECORDS.kind.name, Scope::All) };
        let mut commit = Commit::default();
        for item in self.store().list(&query).await?.items {
            // Sequences rise with time, so that those after it have not expired either.
            if !Recorded::read(&item.body)?.has_expired(self.now()) {
                break;
            }
            let key = Key::new(RECORDS.kind.name, item.uid());
            // A request may replace an expired record at the same time.
            commit.require.push(Require::Revision(key.clone(), item.revision));
            commit.delete.push(Delete::Key(key));
        }
        let count = commit.delete.len();
        if count == 0 {
            return Ok(false);
        }
        match self.store().commit(commit).await {
            Ok(_) => Ok(count == SWEPT_AT_ONCE),
            // It was replaced, or another server deletes expired records too.
            Err(StoreError::Conflict(Conflict::Require(_))) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The attempts of one request with a key.
#[derive(Debug)]
struct Attempts {
    request: Request,
    /// The revision of the expired record that the next attempt replaces; 0 for none.
    replaced: AtomicU64,
    /// Whether the next attempt only finds out how the method names the fields of its error.
    is_check: AtomicBool,
}

/// A record of the key.
enum Found {
    Live(Result<Reply>),
    /// With its revision.
    Expired(u64),
    Nothing,
}

impl Attempts {
    /// Commits the write of a method that has returned this reply, or returns the recorded reply.
    async fn finish(&self, cx: &Context<'_>, done: Result<Reply>) -> Result<Reply> {
        let reply = match done {
            Ok(reply) if reply.body.len() > MAX_REPLY => {
                let rule =
                    format!("the reply is longer than {MAX_REPLY} bytes, so that the method takes no key for it");
                return Err(Error::invalid_field(HEADER, rule));
            }
            Ok(reply) => reply,
            Err(error) if error.is_stale() || is_final(&error) => return Err(error),
            // A delete may delete the binding that has allowed it. Its reply tells nothing, so that it is given again; other
            // replies are only for callers with access.
            Err(error) if error.code() == Code::PermissionDenied => {
                return match self.find(cx).await? {
                    Found::Live(Ok(reply)) if reply.is_empty() => Ok(reply),
                    _ => Err(error),
                };
            }
            // Such as NOT_FOUND, for the repetition of a delete.
            Err(error) => {
                return match self.find(cx).await? {
                    Found::Live(reply) => reply,
                    Found::Expired(_) | Found::Nothing => Err(error),
                };
            }
        };
        let error = match self.commit(cx, &reply).await {
            Ok(sequence) => return Ok(reply.committed(sequence)),
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => error,
        };
        match self.find(cx).await? {
            Found::Live(reply) => reply,
            Found::Expired(revision) if self.replaced.swap(revision, Ordering::Relaxed) != revision => {
                Err(Error::stale())
            }
            // Another server has deleted the expired record.
            Found::Nothing if self.replaced.swap(0, Ordering::Relaxed) != 0 => Err(Error::stale()),
            // A conversion names the fields of the errors of its commit, which it has not seen.
            _ if !error.violations().is_empty() => {
                self.is_check.store(true, Ordering::Relaxed);
                Err(Error::stale())
            }
            _ => Err(error),
        }
    }

    /// Commits the write that the method has left, which is empty for one that changes nothing, with the record.
    async fn commit(&self, cx: &Context<'_>, reply: &Reply) -> Result<u64> {
        let (key, platform) = (self.key(cx)?, cx.platform());
        let mut write = Write::default();
        // First, so that a repetition does not report the conflict of its own write.
        write.require_or_retry(match self.replaced.load(Ordering::Relaxed) {
            0 => Require::Absent(key.clone()),
            revision => Require::Revision(key.clone(), revision),
        });
        write.append(cx.take_deferred());
        let seal = (&*platform.seal_keys(), platform.entropy());
        let (recorded, private) = self.request.record(&key.uid, cx.now(), reply, seal)?;
        write.put(&key.uid, &recorded, private)?;
        cx.apply(write, false).await
    }

    /// Looks up the record of the key.
    async fn find(&self, cx: &Context<'_>) -> Result<Found> {
        let Some(record) = cx.records(&[self.key(cx)?]).await?.pop().flatten() else { return Ok(Found::Nothing) };
        let recorded = Recorded::read(&record.body)?;
        if recorded.has_expired(cx.now()) {
            return Ok(Found::Expired(record.revision));
        }
        Ok(Found::Live(self.request.reply(&recorded, &record, &cx.platform().seal_keys())))
    }

    fn key(&self, cx: &Context<'_>) -> Result<Key> {
        Ok(self.request.record_key(&cx.demand_caller()?.identity, cx.registration()))
    }
}

/// Returns whether an error is the result whatever was recorded: that of a caller without a valid token, and that of a store
/// that does not answer or has not confirmed the commit.
fn is_final(error: &Error) -> bool {
    error.code() == Code::Unauthenticated || error.is_of_unreachable_store()
}
