//! Where a request came from, and what its address and its caller may have of the server.

use std::{
    num::NonZeroU32,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::Extensions;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use platform_core::{
    access::{Authenticator, Caller},
    error::{Error, Result},
    uid::Uid,
};

use super::{
    Limits,
    address::Address,
    budget::{Budget, Charge, Holder},
    rate::{Rate, Rates, exhausted},
};
use crate::BoxError;

/// When a client may try again for whom there is no room.
const AGAIN: Duration = Duration::from_secs(1);

/// How often to warn about one thing that peers can cause.
const WARNINGS: Duration = Duration::from_secs(60);

/// What one holder may have of a budget of bytes: one part of so many.
const SHARES: usize = 8;

/// What the requests of a server share, by the limits that it was made with. [`serve`](crate::serve) makes one for each
/// listener and passes it on with each request.
#[derive(Debug)]
pub struct Shares {
    pub(crate) connections: Arc<Budget>,
    pub(crate) requests: Arc<Budget>,
    pub(crate) replies: Arc<Budget>,
    bodies: Arc<Budget>,
    token_bodies: Arc<Budget>,
    standing: Arc<Budget>,
    open: Rates<Address>,
    identities: Rates<Uid>,
    organizations: Rates<Uid>,
    /// Warnings that peers can cause, by what they are about.
    pub(crate) warnings: Rates<&'static str>,
}

impl Shares {
    /// Returns shares of which nothing is held.
    pub fn new(limits: &Limits) -> Arc<Self> {
        let of_bytes = |bytes: usize| Budget::new(bytes, bytes / SHARES);
        Arc::new(Self {
            connections: Budget::new(usize::MAX, limits.connections_per_address as usize),
            requests: Budget::new(usize::MAX, limits.requests_per_address as usize),
            replies: of_bytes(limits.replies),
            bodies: of_bytes(limits.bodies),
            token_bodies: of_bytes(limits.token_bodies),
            standing: Budget::new(limits.standing as usize, (limits.standing as usize).div_ceil(SHARES)),
            open: Rates::new(limits.open_rate),
            identities: Rates::new(limits.identity_rate).with(&limits.identity_rates),
            organizations: Rates::new(limits.organization_rate).with(&limits.organization_rates),
            warnings: Rates::new(Some(Rate { every: WARNINGS, burst: NonZeroU32::MIN })),
        })
    }

    /// Returns how many bytes of requests' bodies are held: of token paths, and of all others.
    pub fn held_bodies(&self) -> (usize, usize) {
        (self.token_bodies.held(), self.bodies.held())
    }

    /// Returns how many bytes of replies wait to be taken by their clients.
    pub fn held_replies(&self) -> usize {
        self.replies.held()
    }

    /// Returns how many connections are open of addresses that shares apply to.
    pub fn open_connections(&self) -> usize {
        self.connections.held()
    }

    /// Returns how many requests are open: begun, and not yet answered to their end.
    pub fn open_requests(&self) -> usize {
        self.requests.held()
    }
}

/// What the listener knows of a request; it is in the request's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) address: Option<Address>,
    pub(crate) shares: Arc<Shares>,
    /// Whether the address has no more requests open than it may.
    pub(crate) within: bool,
}

/// A request that is being answered: which address it came from, and what it takes of the server's shares.
///
/// Give each request one, and keep it until the request is answered: what its body was charged is given back when the
/// last clone of it is gone.
#[derive(Debug, Clone)]
pub struct Origin {
    source: Source,
    body: Arc<Mutex<Charge>>,
}

impl Origin {
    /// Returns the origin of a request with these extensions. What did not come through [`serve`](crate::serve) has no
    /// address and takes from `own`.
    pub fn of(extensions: &Extensions, own: &Arc<Shares>) -> Self {
        Self::known(extensions)
            .unwrap_or_else(|| Self::from(Source { address: None, shares: Arc::clone(own), within: true }))
    }

    /// As [`Origin::of`]; none for what did not come through [`serve`](crate::serve).
    pub(crate) fn known(extensions: &Extensions) -> Option<Self> {
        extensions.get::<Source>().cloned().map(Self::from)
    }

    fn from(source: Source) -> Self {
        let body = Arc::new(Mutex::new(source.shares.bodies.charge(source.address.map(Holder::Address))));
        Self { source, body }
    }

    /// Admits a request before anything else is done for it.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when its address has too many requests open, or too much of what it was answered is not
    /// taken yet.
    pub fn admit(&self) -> Result<()> {
        if !self.source.within {
            return Err(exhausted("Too many requests are open at once", AGAIN));
        }
        self.reply(0)
    }

    /// Counts a request that needs no token, or whose token is yet to be judged.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when such requests of its address come too fast.
    pub fn open(&self) -> Result<()> {
        let Source { address: Some(address), shares, .. } = &self.source else { return Ok(()) };
        shares.open.check(address).inspect_err(|_| {
            if shares.warnings.check(&"rate").is_ok() {
                tracing::warn!(%address, "requests without a valid token come too fast and are refused");
            }
        })
    }

    /// Counts a request that is refused before it is known who sent it, as [`Origin::open`]. Returns the error to answer
    /// with: RESOURCE_EXHAUSTED when such requests come too fast, otherwise the given one.
    pub fn refused<E: From<Error>>(&self, error: E) -> E {
        self.open().err().map_or(error, E::from)
    }

    /// Counts a request to a token path, whose body is charged to a budget of its own.
    ///
    /// # Errors
    /// As [`Origin::open`].
    pub fn token_path(&self) -> Result<()> {
        *self.body.lock() = self.source.shares.token_bodies.charge(self.source.address.map(Holder::Address));
        self.open()
    }

    /// Returns the caller that a token proves, and counts the request and charges its body to them. A request whose token
    /// proves nobody is counted with those that need no token.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a token, as [`Authenticator::authenticate`], and RESOURCE_EXHAUSTED when requests of the
    /// identity or of its organization come too fast, or as [`Origin::open`].
    pub async fn authenticate(&self, authenticator: &dyn Authenticator, token: Option<&str>) -> Result<Caller> {
        let proved = match token {
            Some(token) => authenticator.authenticate(token).await,
            None => Err(Error::unauthenticated("A bearer token is needed")),
        };
        let caller = proved.map_err(|error| self.refused(error))?;
        self.caller(&caller)?;
        Ok(caller)
    }

    /// Counts a request of a caller, and charges its body to them.
    fn caller(&self, caller: &Caller) -> Result<()> {
        let Shares { identities, organizations, .. } = &*self.source.shares;
        identities.check(&caller.identity)?;
        if !caller.identity.is_root() && organizations.limits() {
            organizations.check(&Uid::opaque(caller.identity.root().to_owned()))?;
        }
        self.body.lock().also(Holder::Caller(caller.identity.clone()));
        Ok(())
    }

    /// Returns a body whose bytes are charged as they arrive, for as long as this origin is kept.
    pub fn metered<B>(&self, body: B) -> Metered<B> {
        Metered { body, charge: Arc::clone(&self.body) }
    }

    /// Tells whether there is room for a reply of this many bytes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when replies that their clients do not take hold too much.
    pub fn reply(&self, bytes: usize) -> Result<()> {
        let holder = self.source.address.map(Holder::Address);
        match self.source.shares.replies.has_room(holder.as_ref(), bytes) {
            true => Ok(()),
            false => Err(exhausted("Too many replies are not read yet", AGAIN)),
        }
    }

    /// Takes a share of the streams that stay open, until it is dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there are too many of them, in all or of one address.
    pub fn stand(&self) -> Result<Standing> {
        let mut charge = self.source.shares.standing.charge(self.source.address.map(Holder::Address));
        match charge.take(1) {
            true => Ok(Standing { _charge: charge }),
            false => Err(exhausted("Too many streams are open", AGAIN)),
        }
    }
}

/// A share of the streams that stay open.
#[derive(Debug)]
pub struct Standing {
    _charge: Charge,
}

/// How many bytes of a reply are kept in memory, in the extensions of a response whose body does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyBytes(pub usize);

/// Says that there is no room for more of a body.
#[derive(Debug, thiserror::Error)]
#[error("too many bytes of requests are held")]
pub struct NoRoom;

impl From<NoRoom> for Error {
    fn from(_: NoRoom) -> Self {
        exhausted("Too many bytes of requests are held at once", AGAIN)
    }
}

pin_project! {
    /// A body whose bytes are charged as they arrive. It fails when there is no room for them.
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
                return Poll::Ready(Some(Err(NoRoom.into())));
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
