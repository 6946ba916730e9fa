//! Origin of a request: its address and caller, and the budgets and rate limits that apply to them.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroU32,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::Extensions;
use http_body::{Body, Frame, SizeHint};
use metrics::counter;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use platform_engine::{
    access::{Authenticator, Caller},
    error::{Error, Result},
    uid::Uid,
};
use tokio::sync::watch;

use super::{
    Limits,
    address::Address,
    budget::{Budget, Charge, Holder},
    rate::{Rate, Rates, exhausted},
};
use crate::{BoxError, calls::RATE_LIMITED};

/// Time after which a client may retry when a budget is exhausted.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Minimum interval between two log warnings about the same thing that peers can cause.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Divisor of a byte budget: one holder may use one part in this many.
const SHARES: usize = 8;

/// Number of bytes that may be held between requests ([`Origin::hold`]). Our choice.
const HELD: usize = 32 << 20;

/// Budgets and rate limits shared by all requests of a server. [`serve`](crate::serve) creates one per listener from
/// its [`Limits`] and attaches it to each request.
#[derive(Debug)]
pub struct Shares {
    pub(crate) connections: Arc<Budget>,
    pub(crate) requests: Arc<Budget>,
    pub(crate) replies: Arc<Budget>,
    bodies: Arc<Budget>,
    token_bodies: Arc<Budget>,
    long_lived: Arc<Budget>,
    watches: Arc<Budget>,
    long_lists: Arc<Budget>,
    held: Arc<Budget>,
    open: Rates<Address>,
    stopping: watch::Sender<bool>,
    identities: Rates<Uid>,
    organizations: Rates<Uid>,
    /// Rate limits for log warnings that peers can cause, keyed by topic.
    pub(crate) warnings: Rates<&'static str>,
}

impl Shares {
    /// Returns unused budgets and rate limits.
    pub fn new(limits: &Limits) -> Arc<Self> {
        let of_bytes = |bytes: usize| Budget::new(bytes, bytes / SHARES);
        let of_permits = |permits: u32| Budget::new(permits as usize, (permits as usize).div_ceil(SHARES));
        Arc::new(Self {
            connections: Budget::new(usize::MAX, limits.connections_per_address as usize),
            requests: Budget::new(usize::MAX, limits.requests_per_address as usize),
            // A list of version 1 over gRPC is one message, which may be longer than the share of its address.
            replies: Budget::of_whole(limits.replies, limits.replies / SHARES),
            bodies: of_bytes(limits.bodies),
            token_bodies: of_bytes(limits.token_bodies),
            long_lived: of_permits(limits.long_lived_streams),
            watches: of_permits(limits.watches),
            long_lists: of_permits(limits.long_lists),
            held: of_bytes(HELD),
            open: Rates::new(limits.open_rate),
            stopping: watch::Sender::new(false),
            identities: Rates::new(limits.identity_rate).with(&limits.identity_rates),
            organizations: Rates::new(limits.organization_rate).with(&limits.organization_rates),
            warnings: Rates::new(Some(Rate { every: WARNING_INTERVAL, burst: NonZeroU32::MIN })),
        })
    }

    /// Replaces the rate limits by those of `limits`, for requests from now on. A limit that changes gives every caller
    /// its whole burst again. Other limits do not change.
    pub fn set_rates(&self, limits: &Limits) {
        self.open.set(limits.open_rate, &HashMap::new());
        self.identities.set(limits.identity_rate, &limits.identity_rates);
        self.organizations.set(limits.organization_rate, &limits.organization_rates);
    }

    /// Makes the streams without an end say goodbye, because the server stops.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Returns the number of open watches.
    pub fn open_watches(&self) -> usize {
        self.watches.held()
    }

    /// Returns the number of bytes of buffered request bodies: first on token paths, then on all other paths.
    pub fn held_bodies(&self) -> (usize, usize) {
        (self.token_bodies.held(), self.bodies.held())
    }

    /// Returns the number of bytes of replies that clients have not read yet.
    pub fn held_replies(&self) -> usize {
        self.replies.held()
    }

    /// Returns the number of open connections of addresses that are not exempt from limits.
    pub fn open_connections(&self) -> usize {
        self.connections.held()
    }

    /// Returns the number of open requests: started, and not yet answered completely.
    pub fn open_requests(&self) -> usize {
        self.requests.held()
    }
}

/// Counts a request that a rate limit rejects. The label is the kind of the limit and not the caller, of which there are
/// any number.
fn count_limited(limit: &'static str) {
    counter!(RATE_LIMITED, "limit" => limit).increment(1);
}

/// Data that the listener attaches to a request, in its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) address: Option<Address>,
    pub(crate) shares: Arc<Shares>,
    /// Whether the address was within its limit of concurrent requests when this request started.
    pub(crate) within_limit: bool,
}

/// Origin of a request in progress: the address that it came from, and the budgets that it uses.
///
/// Create one per request and keep it until the request is answered. The charge for the body is released when the last
/// clone is dropped.
#[derive(Debug, Clone)]
pub struct Origin {
    source: Source,
    /// The caller that the embedder's own middleware established.
    caller: Option<Caller>,
    body: Arc<Mutex<Charge>>,
}

impl Origin {
    /// Returns the origin of a request with these extensions. A request that did not come through
    /// [`serve`](crate::serve) has no address and uses the budgets of `own`.
    pub fn of(extensions: &Extensions, own: &Arc<Shares>) -> Self {
        let other = || Self::from(Source { address: None, shares: Arc::clone(own), within_limit: true });
        let origin = Self::known(extensions).unwrap_or_else(other);
        Self { caller: extensions.get::<Caller>().cloned(), ..origin }
    }

    /// Like [`Origin::of`], but returns `None` for a request that did not come through [`serve`](crate::serve).
    pub(crate) fn known(extensions: &Extensions) -> Option<Self> {
        extensions.get::<Source>().cloned().map(Self::from)
    }

    /// Returns the address that limits account a request with these extensions to: of IPv6, the /64 network. `None` for
    /// a loopback address that is exempt from limits, for a trusted proxy that names no client, and for a request that
    /// did not come through [`serve`](crate::serve).
    pub fn address(extensions: &Extensions) -> Option<impl fmt::Display + use<>> {
        extensions.get::<Source>()?.address
    }

    fn from(source: Source) -> Self {
        let body = Arc::new(Mutex::new(source.shares.bodies.charge(source.address.map(Holder::Address))));
        Self { source, caller: None, body }
    }

    /// Admits a request. Call this before any other work for it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the address has too many open requests, or too many bytes of unread replies.
    pub fn admit(&self) -> Result<()> {
        if !self.source.within_limit {
            return Err(exhausted("Too many requests are open at once", RETRY_DELAY));
        }
        self.reply(0)
    }

    /// Counts a request that needs no token, or whose token is not verified yet.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when the address exceeds the rate limit for such requests.
    pub fn open(&self) -> Result<()> {
        let Source { address: Some(address), shares, .. } = &self.source else { return Ok(()) };
        shares.open.check(address).inspect_err(|_| {
            count_limited("address");
            if shares.warnings.check(&"rate").is_ok() {
                tracing::warn!(%address, "rejecting requests: too many without a valid token");
            }
        })
    }

    /// Counts a request that is rejected before its caller is known, like [`Origin::open`]. Returns the error to answer
    /// with: RESOURCE_EXHAUSTED when the rate limit is exceeded, otherwise the given one.
    pub fn refused<E: From<Error>>(&self, error: E) -> E {
        self.open().err().map_or(error, E::from)
    }

    /// Counts a request on a token path, and charges its body to the budget of token paths. Call this before the body
    /// is read: bytes that were charged before no longer count.
    ///
    /// # Errors
    /// As [`Origin::open`].
    pub fn token_path(&self) -> Result<()> {
        *self.body.lock() = self.source.shares.token_bodies.charge(self.source.address.map(Holder::Address));
        self.open()
    }

    /// Returns the caller: the [`Caller`] that middleware has put into the request's extensions, or else the one that
    /// the token authenticates. Counts the request against the caller's rate limits, and charges its body to the
    /// caller. A request without a valid token counts as unauthenticated, like [`Origin::open`].
    ///
    /// # Errors
    /// UNAUTHENTICATED without a token; the errors of [`Authenticator::authenticate`]; RESOURCE_EXHAUSTED when the
    /// identity, its organization or, without a valid token, the address exceeds its rate limit.
    pub async fn authenticate(&self, authenticator: &dyn Authenticator, token: Option<&str>) -> Result<Caller> {
        let authenticated = match (&self.caller, token) {
            (Some(caller), _) => Ok(caller.clone()),
            (None, Some(token)) => authenticator.authenticate(token).await,
            (None, None) => Err(Error::missing_token()),
        };
        let caller = authenticated.map_err(|error| self.refused(error))?;
        self.caller(&caller)?;
        Ok(caller)
    }

    /// Counts a request of a caller, and charges its body to the caller.
    fn caller(&self, caller: &Caller) -> Result<()> {
        let Shares { identities, organizations, .. } = &*self.source.shares;
        identities.check(&caller.identity).inspect_err(|_| count_limited("identity"))?;
        if !caller.identity.is_root() && organizations.is_limited() {
            let organization = Uid::opaque(caller.identity.root().to_owned());
            organizations.check(&organization).inspect_err(|_| count_limited("organization"))?;
        }
        self.body.lock().add_holder(Holder::Caller(caller.identity.clone()));
        Ok(())
    }

    /// Returns a body whose bytes are charged as they arrive. The charge lasts as long as this origin.
    pub fn metered<B>(&self, body: B) -> Metered<B> {
        Metered { body, charge: Arc::clone(&self.body) }
    }

    /// Returns an empty charge for a reply that is made in parts.
    pub fn reply_in_parts(&self) -> ReplyCharge {
        let holder = self.source.address.map(Holder::Address);
        ReplyCharge(self.source.shares.replies.charge(holder))
    }

    /// Checks that a reply of this many bytes fits into the budget.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when unread replies use too much memory.
    pub fn reply(&self, bytes: usize) -> Result<()> {
        let holder = self.source.address.map(Holder::Address);
        if self.source.shares.replies.fits(holder.as_ref(), bytes) { Ok(()) } else { Err(unread()) }
    }

    /// Returns the number of bytes of the request's body that were read so far.
    pub fn received(&self) -> usize {
        self.body.lock().amount()
    }

    /// Returns a permit for a stream without an end, which is released on drop.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when too many such streams are open, in total or for this address.
    pub fn open_stream(&self) -> Result<StreamPermit> {
        self.permit(&self.source.shares.long_lived, "Too many streams are open")
    }

    /// Takes a permit for a watch of a caller. Dropping it releases it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when too many watches are open, in total, for this address or for the caller.
    pub fn watch(&self, caller: &Caller) -> Result<StreamPermit> {
        let mut charge = self.source.shares.watches.charge(self.source.address.map(Holder::Address));
        charge.add_holder(Holder::Caller(caller.identity.clone()));
        if charge.take(1) {
            Ok(StreamPermit { _charge: charge })
        } else {
            Err(exhausted("Too many watches are open", RETRY_DELAY))
        }
    }

    /// Waits until the server stops; without a [listener](crate::serve) of this crate, for ever.
    pub async fn stopping(&self) {
        let mut stopping = self.source.shares.stopping.subscribe();
        if stopping.wait_for(|is_stopping| *is_stopping).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Takes a permit for a list of several pages that is sent as a whole. Dropping it releases it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when too many such lists are being sent, in total or to this address.
    pub fn long_list(&self) -> Result<StreamPermit> {
        self.permit(&self.source.shares.long_lists, "Too many long lists are being sent")
    }

    /// Holds bytes that are kept after the request is answered, such as the state of a sign-in. Dropping the permit
    /// releases them. One address may hold 4 MiB, all together 32 MiB.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when too much is held, in total or for this address.
    pub fn hold(&self, bytes: usize) -> Result<StreamPermit> {
        self.charge(&self.source.shares.held, bytes, "Too many sign-ins are open")
    }

    fn permit(&self, budget: &Arc<Budget>, exceeded: &'static str) -> Result<StreamPermit> {
        self.charge(budget, 1, exceeded)
    }

    fn charge(&self, budget: &Arc<Budget>, amount: usize, exceeded: &'static str) -> Result<StreamPermit> {
        let mut charge = budget.charge(self.source.address.map(Holder::Address));
        if charge.take(amount) { Ok(StreamPermit { _charge: charge }) } else { Err(exhausted(exceeded, RETRY_DELAY)) }
    }
}

/// Permit for one stream that stays open, or for bytes that are held.
#[derive(Debug)]
pub struct StreamPermit {
    _charge: Charge,
}

/// Charge for the parts of a reply that are in memory and not handed over to the transport. Dropping it releases them.
#[derive(Debug)]
pub struct ReplyCharge(Charge);

impl ReplyCharge {
    /// Charges for a part. An address without other unread replies may have one that is longer than its share.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when unread replies use too much memory.
    pub fn take(&mut self, bytes: usize) -> Result<()> {
        if self.0.take(bytes) { Ok(()) } else { Err(unread()) }
    }

    /// Releases a part that is handed over, which is charged for from then on.
    pub fn release(&mut self, bytes: usize) {
        self.0.release(bytes);
    }
}

fn unread() -> Error {
    exhausted("Too many bytes of replies are unread", RETRY_DELAY)
}

/// Number of bytes of a reply in memory. Set in the extensions of a response whose body does not report its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyBytes(pub usize);

/// Error of a body that exceeds its budget.
#[derive(Debug, thiserror::Error)]
#[error("too many bytes of request bodies are buffered")]
pub struct OverBudget;

impl From<OverBudget> for Error {
    fn from(_: OverBudget) -> Self {
        exhausted("Too many bytes of request bodies are buffered", RETRY_DELAY)
    }
}

pin_project! {
    /// Body whose bytes are charged as they arrive. It fails with [`OverBudget`] when they do not fit into the budget.
    #[derive(Debug)]
    pub struct Metered<B> {
        #[pin]
        body: B,
        charge: Arc<Mutex<Charge>>,
    }
}

impl<B> Body for Metered<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx).map_err(Into::into);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Buf::remaining);
            if bytes > 0 && !this.charge.lock().take(bytes) {
                return Poll::Ready(Some(Err(OverBudget.into())));
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
