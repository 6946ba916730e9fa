//! The interface to the other processes over the same store.

use std::fmt::Debug;

use crate::uid::Uid;

/// Tells the other processes over the same store that there are events to deliver, or changes for watches.
///
/// The store does not notify anybody of commits, so without this another process finds an event only by its periodic
/// search. Messages may be lost, repeated or late: they make delivery faster, and its correctness does not depend on
/// them.
pub trait Wake: Debug + Send + Sync + 'static {
    /// Tells the other processes that there are events to deliver to these subscriptions, or that the resources of these
    /// organizations, whose uids have one segment, have changed; at least one uid. Called after the commit, by the task
    /// that committed; must return without waiting.
    ///
    /// A process that receives the message calls [`Platform::woken`](crate::platform::Platform::woken), and one that may
    /// have missed messages [`Platform::wake_watches`](crate::platform::Platform::wake_watches).
    fn wake_others(&self, uids: &[Uid]);
}
