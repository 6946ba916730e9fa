//! Turns, of which each organization has a share.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use platform_core::uid::Uid;
use tokio::sync::oneshot;

/// A number of turns. An organization gets one more only while it has fewer than are free, so that however many it asks
/// for, some are left: one organization alone has at most half of them, two have a third each.
#[derive(Debug, Clone)]
pub(crate) struct Turns(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    free: usize,
    /// How many wait, those who gave up among them.
    waiting: usize,
    organizations: HashMap<Uid, Organization>,
}

/// An organization that has turns or waits for one; of others nothing is kept.
#[derive(Debug, Default)]
struct Organization {
    taken: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to deliver, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    /// None when it was handed back.
    organization: Option<Uid>,
}

impl Turns {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner { free: count.max(1), waiting: 0, organizations: HashMap::new() })))
    }

    /// Waits for a turn for an organization, behind its others that wait.
    pub(crate) async fn take(&self, organization: &str) -> Turn {
        loop {
            let granted = {
                let mut inner = self.0.lock();
                let organization = Uid::opaque(organization);
                if inner.may_take(&organization) {
                    inner.take(&organization);
                    return Turn { turns: self.clone(), organization: Some(organization) };
                }
                let (grant, granted) = oneshot::channel();
                inner.waiting += 1;
                inner.organizations.entry(organization).or_default().waiting.push_back(grant);
                granted
            };
            // Whoever hands turns out keeps the sender until it has one.
            if let Ok(turn) = granted.await {
                return turn;
            }
        }
    }

    /// Hands free turns to those who wait: first to the organization that has the fewest.
    fn hand_out(&self) {
        let mut inner = self.0.lock();
        while let Some((organization, grant)) = inner.next() {
            inner.take(&organization);
            let turn = Turn { turns: self.clone(), organization: Some(organization) };
            if let Err(mut turn) = grant.send(turn) {
                // Nobody waits any more. Its drop must not lock again.
                if let Some(organization) = turn.organization.take() {
                    inner.give_back(&organization);
                }
            }
        }
    }
}

impl Inner {
    fn may_take(&self, organization: &Uid) -> bool {
        self.free > self.organizations.get(organization).map_or(0, |organization| organization.taken)
    }

    fn take(&mut self, organization: &Uid) {
        self.free -= 1;
        self.organizations.entry(organization.clone()).or_default().taken += 1;
    }

    fn give_back(&mut self, organization: &Uid) {
        self.free += 1;
        if let Some(entry) = self.organizations.get_mut(organization) {
            entry.taken -= 1;
            if entry.taken == 0 && entry.waiting.is_empty() {
                self.organizations.remove(organization);
            }
        }
    }

    /// Returns who is next, if anybody who waits may have a turn.
    fn next(&mut self) -> Option<(Uid, oneshot::Sender<Turn>)> {
        if self.waiting == 0 || self.free == 0 {
            return None;
        }
        let waiting = self.organizations.iter().filter(|(_, organization)| !organization.waiting.is_empty());
        let (fewest, _) = waiting.min_by_key(|(_, organization)| organization.taken)?;
        let fewest = fewest.clone();
        if !self.may_take(&fewest) {
            return None;
        }
        let grant = self.organizations.get_mut(&fewest)?.waiting.pop_front()?;
        self.waiting -= 1;
        Some((fewest, grant))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(organization) = self.organization.take() {
            self.turns.0.lock().give_back(&organization);
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
        std::iter::from_fn(|| turns.take(organization).now_or_never()).collect()
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
        let take = |(at, organization)| turns.take(organization).map(move |turn| (at, turn));
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
        let mut given_up = Box::pin(turns.take("a"));
        assert!(given_up.as_mut().now_or_never().is_none());
        drop(given_up);
        let mut last = Box::pin(turns.take("c"));
        assert!(last.as_mut().now_or_never().is_none());
        drop(a);
        drop(last.await);
        drop(b);
        let inner = turns.0.lock();
        assert_eq!((inner.free, inner.waiting, inner.organizations.len()), (2, 0, 0));
    }
}
