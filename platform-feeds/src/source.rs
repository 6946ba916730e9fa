//! Reads the advisories of a feed from a platform, as the caller may see them.

use platform_core::{
    capabilities::cap,
    resources::{
        iam::Group,
        vulnerabilities::{Advisory, advisory::ADVISORIES_EPOCH},
    },
};
use platform_engine::{
    access::{Caller, Capability},
    error::{Error, Result},
    kind::Resource,
    platform::Platform,
    store::{Epoch, Order, OrderBy, Position, Query, Scope},
    uid::Uid,
    verbs::PAGE_BYTES,
};
use sha2::{Digest, Sha256};

/// The capability that a caller needs at the group, as for a list of its advisories.
const READ: &[Capability] = &[cap("advisories.list")];

/// The number of advisories that are read at once. Our choice.
const PAGE: usize = 500;

/// The state of the advisories at and below a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// A number that every change of an advisory of the organization raises.
    pub version: u64,
    /// A weak entity tag (RFC 9110) for feeds of these advisories, including the quotes.
    pub etag: String,
}

/// Returns the state of the advisories at and below a group. The cost does not depend on their number.
///
/// # Errors
/// PERMISSION_DENIED without `advisories.list` at the group, whether or not it exists; NOT_FOUND for a missing group; those
/// of the store.
pub async fn state(platform: &Platform, caller: &Caller, group: &Uid) -> Result<State> {
    let read = platform.with_caller(caller, |cx| {
        Box::pin(async move {
            cx.demand(group, READ)?;
            if cx.record(Group::KIND, group).await?.is_none() {
                return Err(Error::not_found(Group::KIND, group.as_str()));
            }
            // Read first: what is read later is at least as new, and a client then asks once too often.
            let version = cx.epochs(&[Epoch::of_organization(ADVISORIES_EPOCH, group)]).await?;
            let order = Order { by: OrderBy::Sequence, descending: true };
            let scope = Scope::Subtree(group.clone());
            let newest = Query { order, limit: 1, count: true, ..Query::new(Advisory::KIND.name, scope) };
            Ok((version.into_iter().next().unwrap_or_default(), cx.page(newest).await?))
        })
    });
    let (version, newest) = read.await?;
    // The version alone could come again with other advisories, when an older backup was restored. A release may write
    // the same advisories in another way.
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION"));
    hash.update(version.to_be_bytes());
    hash.update(newest.total.unwrap_or_default().to_be_bytes());
    if let Some(item) = newest.items.first() {
        hash.update(item.revision.to_be_bytes());
        hash.update(&item.body);
    }
    let etag = format!("W/\"{}\"", hex::encode(hash.finalize().get(..16).unwrap_or_default()));
    Ok(State { version, etag })
}

/// Returns the next advisories at and below a group in the order of their uids, and the position after which others
/// follow. Checks access again.
///
/// # Errors
/// PERMISSION_DENIED without `advisories.list` at the group, and those of the store.
pub async fn page(
    platform: &Platform,
    caller: &Caller,
    group: &Uid,
    after: Option<Position>,
) -> Result<(Vec<Advisory>, Option<Position>)> {
    let after = &after;
    let read = platform.with_caller(caller, |cx| {
        Box::pin(async move {
            cx.demand(group, READ)?;
            let query = Query::new(Advisory::KIND.name, Scope::Subtree(group.clone()));
            cx.page(Query { after: after.clone(), limit: PAGE, bytes: PAGE_BYTES, ..query }).await
        })
    });
    let page = read.await?;
    let advisories = page.items.iter().map(|item| serde_json::from_slice(&item.body).map_err(Error::internal));
    Ok((advisories.collect::<Result<_>>()?, page.next))
}
