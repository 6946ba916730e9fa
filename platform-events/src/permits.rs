//! A fair semaphore: limits the permits of each organization and of each target.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use http::Uri;
use parking_lot::Mutex;
use platform_engine::uid::Uid;
use tokio::sync::oneshot;

/// The maximum number of an organization's waiters that are searched for one whose target may have a permit, so that
/// granting a permit costs the same however many wait. An organization whose first waiters all wait for busy targets
/// delays only itself.
const MAX_SEARCHED: usize = 64;

/// The host of a sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target(Arc<str>);

impl Target {
    pub(crate) fn of(sink: &str) -> Self {
        let host = sink.parse::<Uri>().ok().and_then(|uri| Some(uri.host()?.to_ascii_lowercase()));
        Self(host.map_or_else(|| sink.into(), Into::into))
    }
}

/// A fixed number of permits. An organization gets another permit only while it has fewer than are free, so that some
/// are always left for others: one organization alone has at most half of them, two have a third each. The same rule
/// holds for a target, so that many organizations with one slow target do not use up all permits.
#[derive(Debug, Clone)]
pub(crate) struct Permits(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    free: usize,
    /// The number of waiters, including canceled ones.
    waiting: usize,
    /// Organizations that hold permits or wait for one.
    organizations: HashMap<Uid, Organization>,
    /// The number of permits per target, for targets that have any.
    targets: HashMap<Target, usize>,
}

#[derive(Debug, Default)]
struct Organization {
    taken: usize,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    target: Option<Target>,
    grant: oneshot::Sender<Permit>,
}

/// The right to deliver, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Permits,
    /// None after the permit was released.
    holder: Option<Holder>,
}

#[derive(Debug, Clone)]
struct Holder {
    organization: Uid,
    target: Option<Target>,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        let (organizations, targets) = (HashMap::new(), HashMap::new());
        Self(Arc::new(Mutex::new(Inner { free: count.max(1), waiting: 0, organizations, targets })))
    }

    /// Waits for a permit for an organization, in order of arrival among its waiters. A waiter whose target may not
    /// have a permit is passed over.
    pub(crate) async fn acquire(&self, organization: &str, target: Option<&Target>) -> Permit {
        loop {
            let granted = {
                let mut inner = self.0.lock();
                let (organization, target) = (Uid::opaque(organization), target.cloned());
                if inner.may_acquire(&organization) && inner.may_acquire_for_target(target.as_ref()) {
                    let holder = Holder { organization, target };
                    inner.count(&holder);
                    return Permit { permits: self.clone(), holder: Some(holder) };
                }
                let (grant, granted) = oneshot::channel();
                inner.waiting += 1;
                inner.organizations.entry(organization).or_default().waiting.push_back(Waiter { target, grant });
                granted
            };
            // A waiter's sender stays queued until it grants a permit, so this does not fail in practice.
            if let Ok(permit) = granted.await {
                return permit;
            }
        }
    }

    /// Grants free permits to waiters: first to the organization that has the fewest.
    fn grant_free(&self) {
        let mut inner = self.0.lock();
        while let Some((holder, grant)) = inner.next_waiter() {
            inner.count(&holder);
            let permit = Permit { permits: self.clone(), holder: Some(holder) };
            if let Err(mut permit) = grant.send(permit) {
                // The waiter was canceled. Dropping its permit must not lock again, so release it here.
                if let Some(holder) = permit.holder.take() {
                    inner.release(&holder);
                }
            }
        }
    }
}

impl Permit {
    /// Counts a permit without a target as one of this target. Returns None and releases it when the target has its
    /// share.
    pub(crate) fn assign_target(mut self, target: &Target) -> Option<Self> {
        let permits = self.permits.clone();
        let mut inner = permits.0.lock();
        let holder = self.holder.as_mut().filter(|holder| holder.target.is_none())?;
        // The permit itself counts as free, as it would when acquired with the target.
        let may_assign = inner.free + 1 > inner.permits_of(target);
        if may_assign {
            holder.target = Some(target.clone());
            inner.count_target(target);
        }
        // Unlock first: dropping `self` locks again.
        drop(inner);
        may_assign.then_some(self)
    }
}

impl Inner {
    fn may_acquire(&self, organization: &Uid) -> bool {
        self.free > self.organizations.get(organization).map_or(0, |organization| organization.taken)
    }

    fn may_acquire_for_target(&self, target: Option<&Target>) -> bool {
        self.free > target.map_or(0, |target| self.permits_of(target))
    }

    /// Returns the number of permits of a target.
    fn permits_of(&self, target: &Target) -> usize {
        self.targets.get(target).copied().unwrap_or(0)
    }

    fn count(&mut self, holder: &Holder) {
        self.free -= 1;
        self.organizations.entry(holder.organization.clone()).or_default().taken += 1;
        if let Some(target) = &holder.target {
            self.count_target(target);
        }
    }

    fn count_target(&mut self, target: &Target) {
        *self.targets.entry(target.clone()).or_default() += 1;
    }

    fn release(&mut self, holder: &Holder) {
        self.free += 1;
        if let Some(entry) = self.organizations.get_mut(&holder.organization) {
            entry.taken -= 1;
            if entry.taken == 0 && entry.waiting.is_empty() {
                self.organizations.remove(&holder.organization);
            }
        }
        if let Some(target) = &holder.target
            && let Some(taken) = self.targets.get_mut(target)
        {
            *taken -= 1;
            if *taken == 0 {
                self.targets.remove(target);
            }
        }
    }

    /// Removes and returns the next waiter that may have a permit.
    fn next_waiter(&mut self) -> Option<(Holder, oneshot::Sender<Permit>)> {
        if self.waiting == 0 || self.free == 0 {
            return None;
        }
        let eligible = self.organizations.iter().filter(|(_, organization)| self.free > organization.taken);
        let eligible = eligible.filter_map(|(uid, organization)| {
            let mut searched = organization.waiting.iter().take(MAX_SEARCHED);
            let at = searched.position(|waiter| self.may_acquire_for_target(waiter.target.as_ref()))?;
            Some((organization.taken, uid, at))
        });
        let (_, organization, at) = eligible.min_by_key(|(taken, ..)| *taken)?;
        let organization = organization.clone();
        let Waiter { target, grant } = self.organizations.get_mut(&organization)?.waiting.remove(at)?;
        self.waiting -= 1;
        Some((Holder { organization, target }, grant))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            self.permits.0.lock().release(&holder);
            self.permits.grant_free();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};

    use super::*;

    /// Acquires as many permits as are available at once.
    fn acquire_all(permits: &Permits, organization: &str) -> Vec<Permit> {
        std::iter::from_fn(|| permits.acquire(organization, None).now_or_never()).collect()
    }

    #[test]
    fn one_organization_leaves_permits_to_others_however_many_it_requests() {
        let permits = Permits::new(64);
        let a = acquire_all(&permits, "a");
        let b = acquire_all(&permits, "b");
        let c = acquire_all(&permits, "c");
        assert_eq!((a.len(), b.len(), c.len()), (32, 16, 8));
        drop(a);
        assert_eq!(acquire_all(&permits, "d").len(), 20);
        drop((b, c));
        let inner = permits.0.lock();
        assert_eq!((inner.free, inner.organizations.len()), (64, 0), "organizations without permits are removed");
    }

    #[tokio::test]
    async fn one_target_of_many_organizations_leaves_permits_to_other_targets() {
        let permits = Permits::new(64);
        let slow = Target::of("https://Slow.test:8443/a?b");
        assert_eq!(slow, Target::of("http://slow.test/"));
        let mut held = Vec::new();
        let mut waiting = FuturesUnordered::new();
        for n in 0..200 {
            let (permits, slow, organization) = (permits.clone(), slow.clone(), format!("{n}"));
            let mut permit = Box::pin(async move { permits.acquire(&organization, Some(&slow)).await });
            match permit.as_mut().now_or_never() {
                Some(permit) => held.push(permit),
                None => waiting.push(permit),
            }
        }
        assert_eq!((held.len(), waiting.len()), (32, 168));
        let healthy = Target::of("https://healthy.test/");
        let other = permits.acquire("0", Some(&healthy)).now_or_never();
        assert!(other.is_some(), "an organization that waits for the slow target gets permits for other targets");
        // A permit without a target counts against the target when it gets one.
        let first = permits.acquire("new", None).now_or_never().unwrap();
        assert!(first.assign_target(&slow).is_none());
        let first = permits.acquire("new", None).now_or_never().unwrap();
        drop(first.assign_target(&healthy).unwrap());
        drop(other);
        for left in (0..168).rev() {
            held.remove(0);
            held.push(waiting.next().await.unwrap());
            assert_eq!(waiting.len(), left);
        }
        drop(held);
        let inner = permits.0.lock();
        assert_eq!((inner.free, inner.waiting, inner.organizations.len(), inner.targets.len()), (64, 0, 0, 0));
    }

    #[test]
    fn a_single_permit_goes_to_the_first_organization() {
        let permits = Permits::new(1);
        let a = acquire_all(&permits, "a");
        assert_eq!((a.len(), acquire_all(&permits, "b").len()), (1, 0));
        drop(a);
        assert_eq!(acquire_all(&permits, "b").len(), 1);
    }

    #[tokio::test]
    async fn a_free_permit_goes_to_the_organization_with_the_fewest_and_within_it_to_the_first_waiter() {
        let permits = Permits::new(8);
        let mut a = acquire_all(&permits, "a");
        let b = acquire_all(&permits, "b");
        assert_eq!((a.len(), b.len()), (4, 2));
        let take = |(at, organization)| permits.acquire(organization, None).map(move |permit| (at, permit));
        let mut waiting: FuturesUnordered<_> = ["a", "a", "b"].into_iter().enumerate().map(take).collect();
        assert!(waiting.next().now_or_never().is_none());
        let mut taken = Vec::new();
        for expected in [2, 0] {
            a.pop();
            let (at, permit) = waiting.next().await.unwrap();
            assert_eq!(at, expected);
            taken.push(permit);
            assert!(waiting.next().now_or_never().is_none(), "the others hold as many as are free");
        }
        drop(b);
        assert_eq!(waiting.next().await.unwrap().0, 1);
    }

    #[tokio::test]
    async fn a_canceled_waiter_holds_no_permit() {
        let permits = Permits::new(2);
        let a = acquire_all(&permits, "a");
        let b = acquire_all(&permits, "b");
        assert_eq!((a.len(), b.len()), (1, 1));
        let mut abandoned = Box::pin(permits.acquire("a", None));
        assert!(abandoned.as_mut().now_or_never().is_none());
        drop(abandoned);
        let mut last = Box::pin(permits.acquire("c", None));
        assert!(last.as_mut().now_or_never().is_none());
        drop(a);
        drop(last.await);
        drop(b);
        let inner = permits.0.lock();
        assert_eq!((inner.free, inner.waiting, inner.organizations.len()), (2, 0, 0));
    }
}
