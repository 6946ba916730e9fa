//! Turns, of which each organization and each target has a share.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use http::Uri;
use parking_lot::Mutex;
use platform_core::uid::Uid;
use tokio::sync::oneshot;

/// How many of an organization's waiters are searched for one whose target may have a turn, so that handing out a turn
/// costs the same however many wait. An organization whose first waiters all wait for busy targets delays only itself.
const SEARCHED: usize = 64;

/// The host of a sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target(Arc<str>);

impl Target {
    pub(crate) fn of(sink: &str) -> Self {
        let host = sink.parse::<Uri>().ok().and_then(|uri| Some(uri.host()?.to_ascii_lowercase()));
        Self(host.map_or_else(|| sink.into(), Into::into))
    }
}

/// A number of turns. An organization gets one more only while it has fewer than are free, so that however many it asks
/// for, some are left: one organization alone has at most half of them, two have a third each. The same holds for a
/// target, so that many organizations with one slow target do not take them all.
#[derive(Debug, Clone)]
pub(crate) struct Turns(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    free: usize,
    /// The number of waiters, including those that gave up.
    waiting: usize,
    /// Organizations that have turns or wait for one.
    organizations: HashMap<Uid, Organization>,
    /// The number of turns of each target that has any.
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
    grant: oneshot::Sender<Turn>,
}

/// The right to deliver, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    /// None when it was handed back.
    holder: Option<Holder>,
}

#[derive(Debug, Clone)]
struct Holder {
    organization: Uid,
    target: Option<Target>,
}

impl Turns {
    pub(crate) fn new(count: usize) -> Self {
        let (organizations, targets) = (HashMap::new(), HashMap::new());
        Self(Arc::new(Mutex::new(Inner { free: count.max(1), waiting: 0, organizations, targets })))
    }

    /// Waits for a turn for an organization, behind its other waiters; with a target, behind those whose targets may have
    /// a turn.
    pub(crate) async fn take(&self, organization: &str, target: Option<&Target>) -> Turn {
        loop {
            let granted = {
                let mut inner = self.0.lock();
                let (organization, target) = (Uid::opaque(organization), target.cloned());
                if inner.may_take(&organization) && inner.may_reach(target.as_ref()) {
                    let holder = Holder { organization, target };
                    inner.take(&holder);
                    return Turn { turns: self.clone(), holder: Some(holder) };
                }
                let (grant, granted) = oneshot::channel();
                inner.waiting += 1;
                inner.organizations.entry(organization).or_default().waiting.push_back(Waiter { target, grant });
                granted
            };
            // The sender is kept until there is a turn for it.
            if let Ok(turn) = granted.await {
                return turn;
            }
        }
    }

    /// Hands free turns to waiters: first to the organization that has the fewest.
    fn hand_out(&self) {
        let mut inner = self.0.lock();
        while let Some((holder, grant)) = inner.next() {
            inner.take(&holder);
            let turn = Turn { turns: self.clone(), holder: Some(holder) };
            if let Err(mut turn) = grant.send(turn) {
                // The waiter gave up. The drop of its turn must not lock again.
                if let Some(holder) = turn.holder.take() {
                    inner.give_back(&holder);
                }
            }
        }
    }
}

impl Turn {
    /// Counts a turn that has no target yet as one of this target. Gives it back when the target has its share.
    pub(crate) fn reaching(mut self, target: &Target) -> Option<Self> {
        let turns = self.turns.clone();
        let mut inner = turns.0.lock();
        let holder = self.holder.as_mut().filter(|holder| holder.target.is_none())?;
        // This turn is free until it has its target, as when it is taken with one.
        let may_reach = inner.free + 1 > inner.reaching(target);
        if may_reach {
            holder.target = Some(target.clone());
            inner.reach(target);
        }
        // What is returned or dropped must not find the lock held.
        drop(inner);
        may_reach.then_some(self)
    }
}

impl Inner {
    fn may_take(&self, organization: &Uid) -> bool {
        self.free > self.organizations.get(organization).map_or(0, |organization| organization.taken)
    }

    fn may_reach(&self, target: Option<&Target>) -> bool {
        self.free > target.map_or(0, |target| self.reaching(target))
    }

    /// Returns the number of turns that a target has.
    fn reaching(&self, target: &Target) -> usize {
        self.targets.get(target).copied().unwrap_or(0)
    }

    fn take(&mut self, holder: &Holder) {
        self.free -= 1;
        self.organizations.entry(holder.organization.clone()).or_default().taken += 1;
        if let Some(target) = &holder.target {
            self.reach(target);
        }
    }

    fn reach(&mut self, target: &Target) {
        *self.targets.entry(target.clone()).or_default() += 1;
    }

    fn give_back(&mut self, holder: &Holder) {
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

    /// Returns the next waiter that may have a turn.
    fn next(&mut self) -> Option<(Holder, oneshot::Sender<Turn>)> {
        if self.waiting == 0 || self.free == 0 {
            return None;
        }
        let able = self.organizations.iter().filter(|(_, organization)| self.free > organization.taken);
        let able = able.filter_map(|(uid, organization)| {
            let mut searched = organization.waiting.iter().take(SEARCHED);
            let at = searched.position(|waiter| self.may_reach(waiter.target.as_ref()))?;
            Some((organization.taken, uid, at))
        });
        let (_, organization, at) = able.min_by_key(|(taken, ..)| *taken)?;
        let organization = organization.clone();
        let Waiter { target, grant } = self.organizations.get_mut(&organization)?.waiting.remove(at)?;
        self.waiting -= 1;
        Some((Holder { organization, target }, grant))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take() {
            self.turns.0.lock().give_back(&holder);
            self.turns.hand_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};

    use super::*;

    /// Takes as many turns as are to be had at once.
    fn all(turns: &Turns, organization: &str) -> Vec<Turn> {
        std::iter::from_fn(|| turns.take(organization, None).now_or_never()).collect()
    }

    #[test]
    fn one_organization_leaves_turns_to_others_however_many_it_wants() {
        let turns = Turns::new(64);
        let a = all(&turns, "a");
        let b = all(&turns, "b");
        let c = all(&turns, "c");
        assert_eq!((a.len(), b.len(), c.len()), (32, 16, 8));
        drop(a);
        assert_eq!(all(&turns, "d").len(), 20);
        drop((b, c));
        let inner = turns.0.lock();
        assert_eq!((inner.free, inner.organizations.len()), (64, 0), "nothing is kept of those who have none");
    }

    #[tokio::test]
    async fn one_target_of_many_organizations_leaves_turns_to_others() {
        let turns = Turns::new(64);
        let slow = Target::of("https://Slow.test:8443/a?b");
        assert_eq!(slow, Target::of("http://slow.test/"));
        let mut held = Vec::new();
        let mut waiting = FuturesUnordered::new();
        for n in 0..200 {
            let (turns, slow, organization) = (turns.clone(), slow.clone(), format!("{n}"));
            let mut turn = Box::pin(async move { turns.take(&organization, Some(&slow)).await });
            match turn.as_mut().now_or_never() {
                Some(turn) => held.push(turn),
                None => waiting.push(turn),
            }
        }
        assert_eq!((held.len(), waiting.len()), (32, 168));
        let well = Target::of("https://well.test/");
        let other = turns.take("0", Some(&well)).now_or_never();
        assert!(other.is_some(), "an organization that waits for the slow target has turns for others");
        // A turn without a target counts when it gets one.
        let first = turns.take("new", None).now_or_never().unwrap();
        assert!(first.reaching(&slow).is_none());
        let first = turns.take("new", None).now_or_never().unwrap();
        drop(first.reaching(&well).unwrap());
        drop(other);
        for left in (0..168).rev() {
            held.remove(0);
            held.push(waiting.next().await.unwrap());
            assert_eq!(waiting.len(), left);
        }
        drop(held);
        let inner = turns.0.lock();
        assert_eq!((inner.free, inner.waiting, inner.organizations.len(), inner.targets.len()), (64, 0, 0, 0));
    }

    #[test]
    fn a_single_turn_is_for_whoever_comes() {
        let turns = Turns::new(1);
        let a = all(&turns, "a");
        assert_eq!((a.len(), all(&turns, "b").len()), (1, 0));
        drop(a);
        assert_eq!(all(&turns, "b").len(), 1);
    }

    #[tokio::test]
    async fn a_free_turn_goes_to_the_organization_with_the_fewest_and_within_it_to_the_first() {
        let turns = Turns::new(8);
        let mut a = all(&turns, "a");
        let b = all(&turns, "b");
        assert_eq!((a.len(), b.len()), (4, 2));
        let take = |(at, organization)| turns.take(organization, None).map(move |turn| (at, turn));
        let mut waiting: FuturesUnordered<_> = ["a", "a", "b"].into_iter().enumerate().map(take).collect();
        assert!(waiting.next().now_or_never().is_none());
        let mut taken = Vec::new();
        for expected in [2, 0] {
            a.pop();
            let (at, turn) = waiting.next().await.unwrap();
            assert_eq!(at, expected);
            taken.push(turn);
            assert!(waiting.next().now_or_never().is_none(), "the others have as many as are free");
        }
        drop(b);
        assert_eq!(waiting.next().await.unwrap().0, 1);
    }

    #[tokio::test]
    async fn who_gave_up_waiting_holds_no_turn() {
        let turns = Turns::new(2);
        let a = all(&turns, "a");
        let b = all(&turns, "b");
        assert_eq!((a.len(), b.len()), (1, 1));
        let mut given_up = Box::pin(turns.take("a", None));
        assert!(given_up.as_mut().now_or_never().is_none());
        drop(given_up);
        let mut last = Box::pin(turns.take("c", None));
        assert!(last.as_mut().now_or_never().is_none());
        drop(a);
        drop(last.await);
        drop(b);
        let inner = turns.0.lock();
        assert_eq!((inner.free, inner.waiting, inner.organizations.len()), (2, 0, 0));
    }
}
