//! Budgets for bytes, connections and requests, with a share per holder.

use std::{borrow::Borrow, collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use platform_engine::uid::Uid;

use super::address::Address;

/// Address or caller that a charge is accounted to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Address(Address),
    Caller(Uid),
}

/// Shared budget. Holders with no charge use no memory.
#[derive(Debug)]
pub(crate) struct Budget {
    total: usize,
    share: usize,
    /// Whether a holder may use more than its share for one thing.
    exceeds_once: bool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by: HashMap<Holder, usize>,
}

impl Budget {
    /// Returns a budget of `total`, of which one holder may use at most `share`.
    pub(crate) fn new(total: usize, share: usize) -> Arc<Self> {
        Arc::new(Self { total, share, exceeds_once: false, held: Mutex::default() })
    }

    /// As [`Budget::new`], except that a holder with no other charge may use all of the total.
    pub(crate) fn of_whole(total: usize, share: usize) -> Arc<Self> {
        Arc::new(Self { total, share, exceeds_once: true, held: Mutex::default() })
    }

    /// Returns an empty charge to this budget. Without a holder, only the total limits it.
    pub(crate) fn charge(self: &Arc<Self>, holder: Option<Holder>) -> Charge {
        Charge { budget: Arc::clone(self), holders: holder.into_iter().collect(), amount: 0 }
    }

    /// Returns the amount in use by all holders.
    pub(crate) fn held(&self) -> usize {
        self.held.lock().total
    }

    /// Returns whether `more` fits into both the total and the holder's share.
    pub(crate) fn fits(&self, holder: Option<&Holder>, more: usize) -> bool {
        self.admits(&self.held.lock(), holder.as_slice(), 0, more)
    }

    /// Returns whether `more` fits in addition to an amount that the same charge has taken.
    fn admits(&self, held: &Held, holders: &[impl Borrow<Holder>], taken: usize, more: usize) -> bool {
        let fits = |holder: &Holder| {
            let by = held.by.get(holder).copied().unwrap_or_default();
            by.saturating_add(more) <= self.share || (self.exceeds_once && by <= taken)
        };
        held.total.saturating_add(more) <= self.total && holders.iter().all(|holder| fits(holder.borrow()))
    }
}

/// Amount taken from a [`Budget`], released on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    holders: Vec<Holder>,
    amount: usize,
}

impl Charge {
    /// Adds a holder, which is charged with the current amount too. Does not check the holder's share.
    pub(crate) fn add_holder(&mut self, holder: Holder) {
        if self.amount > 0 {
            *self.budget.held.lock().by.entry(holder.clone()).or_default() += self.amount;
        }
        self.holders.push(holder);
    }

    /// Takes more from the budget. Returns false and takes nothing if this would exceed the total or the share of a
    /// holder.
    pub(crate) fn take(&mut self, more: usize) -> bool {
        let mut held = self.budget.held.lock();
        let fits = self.budget.admits(&held, &self.holders, self.amount, more);
        if fits {
            self.amount += more;
            held.add(&self.holders, more);
        }
        fits
    }

    /// Takes more regardless of the limits, for memory that is already in use or work that cannot be rejected any more.
    pub(crate) fn force_take(&mut self, more: usize) {
        self.amount += more;
        self.budget.held.lock().add(&self.holders, more);
    }

    /// Returns the amount that was taken.
    pub(crate) const fn amount(&self) -> usize {
        self.amount
    }

    /// Releases a part of the charge, at most all of it.
    pub(crate) fn release(&mut self, less: usize) {
        let less = less.min(self.amount);
        self.amount -= less;
        self.budget.held.lock().remove(&self.holders, less);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.release(self.amount);
        }
    }
}

impl Held {
    fn add(&mut self, holders: &[Holder], more: usize) {
        self.total += more;
        for holder in holders {
            match self.by.get_mut(holder) {
                Some(held) => *held += more,
                None => drop(self.by.insert(holder.clone(), more)),
            }
        }
    }

    fn remove(&mut self, holders: &[Holder], less: usize) {
        self.total = self.total.saturating_sub(less);
        for holder in holders {
            if let Some(held) = self.by.get_mut(holder) {
                *held = held.saturating_sub(less);
                if *held == 0 {
                    self.by.remove(holder);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(last: u8) -> Holder {
        Holder::Address(Address::of([192, 0, 2, last].into()))
    }

    #[test]
    fn one_holder_is_limited_to_its_share_and_all_to_the_total() {
        let budget = Budget::new(10, 4);
        let mut charges: Vec<_> = (0..3).map(|n| budget.charge(Some(holder(n)))).collect();
        assert!(charges.iter_mut().all(|charge| charge.take(3)));
        assert!(!charges[0].take(2), "over the share");
        assert!(charges[0].take(1));
        assert!(!charges[1].take(1), "over the total");
        assert_eq!(budget.held(), 10);
        charges[2].release(1);
        assert!(charges[1].take(1));
        drop(charges);
        assert_eq!((budget.held(), budget.held.lock().by.len()), (0, 0));
    }

    #[test]
    fn a_holder_can_use_the_total_for_one_thing_if_the_budget_allows_it() {
        let budget = Budget::of_whole(10, 4);
        let mut long = budget.charge(Some(holder(1)));
        assert!(long.take(3) && long.take(6), "beyond the share");
        assert!(!long.take(2), "over the total");
        assert!(!budget.charge(Some(holder(1))).take(1), "the holder has something else");
        assert!(budget.charge(Some(holder(2))).take(1));
        drop(long);
        let mut short = budget.charge(Some(holder(1)));
        assert!(short.take(1) && !budget.fits(Some(&holder(1)), 4) && budget.fits(Some(&holder(2)), 9));
    }

    #[test]
    fn a_charge_can_have_several_holders_or_none() {
        let budget = Budget::new(100, 4);
        let (mut one, mut other) = (budget.charge(Some(holder(1))), budget.charge(Some(holder(2))));
        let caller = || Holder::Caller(Uid::opaque("a"));
        assert!(one.take(2));
        one.add_holder(caller());
        other.add_holder(caller());
        assert!(other.take(2) && !other.take(1), "two addresses of one caller have one share");
        let mut exempt = budget.charge(None);
        assert!(exempt.take(96) && !exempt.take(1));
        exempt.force_take(5);
        assert_eq!(budget.held(), 105);
        assert!(!budget.fits(None, 0) && !budget.fits(Some(&holder(1)), 3));
    }
}
