//! The scope of a request: what its parts have in common wherever they run, and how it outlives its client.
//!
//! A transport drops the future of a request when the client closes its connection or resets its stream, and when the
//! request takes too long. A commit that was handed to the store is applied nevertheless. So that everything that belongs
//! to it happens too, exactly once, and with the outcome that the request had (its events are published, the dispatcher
//! is woken, the audit log and the request log have their entries), [`Shielded`] carries such a request to its end. A
//! request that has not handed over a commit ends with its future, so that the requests of clients that give up cost
//! nothing.
//!
//! Rejected: a task of its own for each commit, because it does not know the reply, which the logs need; and requests
//! that always run to their end, because a client could then start more of them than its connections allow.

use std::{
    any::Any,
    cell::RefCell,
    fmt,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use crate::{BoxFuture, uid::Uid};

thread_local! {
    /// The scope of the request that this thread works on.
    static CURRENT: RefCell<Option<Arc<RequestScope>>> = const { RefCell::new(None) };
}

/// Runs futures to their end, independently of the caller.
///
/// The engine does not depend on an asynchronous runtime, so a transport provides this.
pub trait Spawn: fmt::Debug + Send + Sync + 'static {
    /// Starts a future and returns immediately. Drops the future if the runtime has stopped.
    fn spawn(&self, future: BoxFuture<'static, ()>);
}

/// The scope of one request.
pub struct RequestScope {
    spawn: Arc<dyn Spawn>,
    has_begun: AtomicBool,
    is_abandoned: AtomicBool,
    principal: OnceLock<Uid>,
    attached: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for RequestScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestScope")
            .field("has_begun", &self.has_begun)
            .field("is_abandoned", &self.is_abandoned)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

impl RequestScope {
    /// Returns the scope of a new request, whose rest is run by `spawn` when its client has gone.
    pub fn new(spawn: Arc<dyn Spawn>) -> Arc<Self> {
        Arc::new(Self {
            spawn,
            has_begun: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            principal: OnceLock::new(),
            attached: OnceLock::new(),
        })
    }

    /// Returns the scope of the request that this thread works on; `None` for work that belongs to no request.
    ///
    /// A task or a thread that works for the request has no scope until it [enters](RequestScope::enter) this one.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Option::clone)
    }

    /// Runs a part of the request in this thread. The function does not need to belong to the future of the request.
    pub fn enter<T>(self: &Arc<Self>, part: impl FnOnce() -> T) -> T {
        /// Restores the scope of the thread, after a panic too.
        struct Restore(Option<Arc<RequestScope>>);

        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }

        // A part of a request usually runs within the whole.
        let is_current =
            CURRENT.with_borrow(|current| current.as_ref().is_some_and(|current| Arc::ptr_eq(current, self)));
        let _restore = (!is_current).then(|| Restore(CURRENT.replace(Some(Arc::clone(self)))));
        part()
    }

    /// Marks the current request, if there is one: it begins to change something outside of its own memory, so from now
    /// on it is carried to its end.
    ///
    /// [`Context::commit`](crate::context::Context::commit) calls this. Code that changes something other than the
    /// store, such as an endpoint for operators, calls it before it begins.
    pub fn begin_change() {
        CURRENT.with_borrow(|current| {
            if let Some(scope) = current {
                scope.has_begun.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Returns whether the request [has begun to change something](RequestScope::begin_change).
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Returns whether the client went away before its request was answered.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Sets the resource whose credential the request has, for one that is not authenticated as a
    /// [`Caller`](crate::access::Caller): the identity provider of a SCIM token. The first call counts.
    pub fn set_principal(uid: &Uid) {
        CURRENT.with_borrow(|current| {
            if let Some(scope) = current {
                let _ = scope.principal.set(uid.clone());
            }
        });
    }

    /// Returns the value of [`RequestScope::set_principal`].
    pub fn principal(&self) -> Option<&Uid> {
        self.principal.get()
    }

    /// Attaches a value to the request, which a middleware finds again in all parts of it. The first call counts.
    pub fn attach(&self, value: Arc<dyn Any + Send + Sync>) {
        let _ = self.attached.set(value);
    }

    /// Returns the attached value, if it has this type.
    pub fn attached<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.attached.get().cloned().and_then(|value| value.downcast().ok())
    }
}

/// A request, or a part of one, that is carried to its end once the request has [begun to change
/// something](RequestScope::begin_change): when this future is dropped before it is ready, [`Spawn`] runs the rest.
pub struct Shielded<F: Future<Output: Send> + Send + 'static> {
    scope: Arc<RequestScope>,
    is_outermost: bool,
    future: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: Send> + Send + 'static> fmt::Debug for Shielded<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shielded").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl<F: Future<Output: Send> + Send + 'static> Shielded<F> {
    /// Shields a whole request, which gets a new scope. Dropping the future before it is ready means that the client has
    /// gone.
    pub fn request(future: F, spawn: Arc<dyn Spawn>) -> Self {
        Self { scope: RequestScope::new(spawn), is_outermost: true, future: Some(Box::pin(future)) }
    }

    /// Shields a part of the current request, such as the part that a time limit ends; without a current request, all of
    /// it.
    pub fn part(future: F, spawn: impl FnOnce() -> Arc<dyn Spawn>) -> Self {
        match RequestScope::current() {
            Some(scope) => Self { scope, is_outermost: false, future: Some(Box::pin(future)) },
            None => Self::request(future, spawn()),
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Shielded<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out, so that a future that has panicked is not polled again. It must not be polled after its end either.
        let Some(mut future) = self.future.take() else { return Poll::Pending };
        let polled = self.scope.enter(|| future.as_mut().poll(cx));
        if polled.is_pending() {
            self.future = Some(future);
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Shielded<F> {
    fn drop(&mut self) {
        let Some(mut future) = self.future.take() else { return };
        if !self.scope.has_begun() {
            return;
        }
        if self.is_outermost {
            self.scope.is_abandoned.store(true, Ordering::Relaxed);
        }
        let scope = Arc::clone(&self.scope);
        let rest = std::future::poll_fn(move |cx| scope.enter(|| future.as_mut().poll(cx)).map(drop));
        self.scope.spawn.spawn(Box::pin(rest));
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::atomic::AtomicUsize};

    use futures_lite::future::{block_on, poll_once};
    use parking_lot::Mutex;

    use super::*;

    /// Keeps the futures that it is given, and runs them on request.
    #[derive(Default)]
    struct Kept(Mutex<Vec<BoxFuture<'static, ()>>>);

    impl fmt::Debug for Kept {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Kept")
        }
    }

    impl Spawn for Kept {
        fn spawn(&self, future: BoxFuture<'static, ()>) {
            self.0.lock().push(future);
        }
    }

    impl Kept {
        fn run(&self) -> usize {
            let kept = std::mem::take(&mut *self.0.lock());
            let number = kept.len();
            kept.into_iter().for_each(block_on);
            number
        }
    }

    async fn pending_once() {
        let mut is_ready = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut is_ready, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// A request of three steps, of which the second begins a change.
    async fn steps(done: Arc<AtomicUsize>) {
        for step in 0..3 {
            if step == 1 {
                RequestScope::begin_change();
            }
            done.fetch_add(1, Ordering::SeqCst);
            pending_once().await;
        }
    }

    #[test]
    fn a_request_whose_client_has_gone_is_carried_to_its_end_once_it_has_begun_a_change() {
        for (polls, carried) in [(0, false), (1, false), (2, true), (3, true), (4, false)] {
            let (kept, done) = (Arc::new(Kept::default()), Arc::<AtomicUsize>::default());
            let mut request = Shielded::request(steps(Arc::clone(&done)), kept.clone());
            for _ in 0..polls {
                block_on(poll_once(&mut request));
            }
            let scope = Arc::clone(&request.scope);
            drop(request);
            assert_eq!(scope.is_abandoned(), carried, "after {polls} polls");
            assert_eq!(kept.run(), usize::from(carried), "after {polls} polls");
            assert_eq!(done.load(Ordering::SeqCst), if carried { 3 } else { polls.min(3) });
        }
    }

    #[test]
    fn a_part_that_took_too_long_is_carried_in_the_scope_of_its_request_whose_client_has_not_gone() {
        let kept = Arc::new(Kept::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let part = {
            let seen = Arc::clone(&seen);
            async move {
                RequestScope::begin_change();
                pending_once().await;
                seen.lock().push(RequestScope::current().unwrap().attached::<&str>());
            }
        };
        let request = async move {
            RequestScope::current().unwrap().attach(Arc::new("notes"));
            let mut part = Shielded::part(part, || unreachable!());
            assert_eq!(poll_once(&mut part).await, None);
        };
        block_on(Shielded::request(request, kept.clone()));
        assert!(seen.lock().is_empty());
        assert_eq!(kept.run(), 1);
        assert_eq!(*seen.lock(), [Some(Arc::new("notes"))]);
    }

    #[test]
    fn a_request_that_has_panicked_is_not_polled_again() {
        let kept = Arc::new(Kept::default());
        let request = Shielded::request(
            async {
                RequestScope::begin_change();
                panic!("in a request");
            },
            kept.clone(),
        );
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(request))).unwrap_err();
        assert_eq!(kept.run(), 0);
        assert!(RequestScope::current().is_none());
    }

    #[test]
    fn a_thread_has_the_scope_of_a_request_only_while_it_works_on_it() {
        let scope = RequestScope::new(Arc::new(Kept::default()));
        RequestScope::begin_change();
        scope.enter(|| {
            let inner = RequestScope::new(Arc::new(Kept::default()));
            inner.enter(|| RequestScope::set_principal(&Uid::opaque("inner")));
            assert_eq!(inner.principal(), Some(&Uid::opaque("inner")));
            RequestScope::set_principal(&Uid::opaque("outer"));
        });
        assert!(RequestScope::current().is_none());
        assert_eq!(scope.principal(), Some(&Uid::opaque("outer")));
        assert!(!scope.has_begun());
        let mut never = Shielded::part(pending::<()>(), || Arc::new(Kept::default()));
        assert_eq!(block_on(poll_once(&mut never)), None);
    }
}
