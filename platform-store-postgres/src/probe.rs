//! Whether reads are answered, for health checks: a read of the tables that requests read. The database can answer others
//! while a table is locked, damaged or missing.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use futures_util::future::select_ok;
use platform_engine::store::StoreError;
use uuid::Uuid;

use crate::{error::Failure, schema::Org, shared::Shared};

/// Looks up a row in each of the tables that gets and lists read; there is none.
pub(crate) const PROBE: &str = "SELECT EXISTS (SELECT FROM record r WHERE r.org = $1 AND r.kind = '' AND r.uid = ''), \
     EXISTS (SELECT FROM epoch e WHERE e.org = $1 AND e.name = ''), \
     EXISTS (SELECT FROM deep d WHERE d.org = $1 AND d.list = $2), \
     EXISTS (SELECT FROM member m WHERE m.org = $1 AND m.value = $2), \
     EXISTS (SELECT FROM tally t WHERE t.org = $1 AND t.list = $2), \
     EXISTS (SELECT FROM block b WHERE b.org = $1 AND b.list = $2)";

/// The time for the organization that answered the last time, in a distributed database.
const FIRST: Duration = Duration::from_secs(1);
/// The number of organizations that are asked when it does not answer (our choice). They are usually on different nodes.
const OTHERS: i64 = 4;

/// The organization that answered the last time.
#[derive(Debug, Default)]
pub(crate) struct Probed(AtomicI64);

/// Reads from the tables of an organization. In a distributed database, any organization is enough: the
/// requests about organizations of other nodes can be answered although one node is gone.
pub(crate) async fn probe(shared: &Shared, probed: &Probed) -> Result<(), StoreError> {
    let org = probed.0.load(Ordering::Relaxed);
    if !shared.database.is_distributed() {
        return Ok(read(shared, org).await.map(drop)?);
    }
    if matches!(tokio::time::timeout(FIRST, read(shared, org)).await, Ok(Ok(_))) {
        return Ok(());
    }
    // If none answers, others are asked the next time.
    probed.0.store(org.wrapping_add(OTHERS), Ordering::Relaxed);
    let others = (1..=OTHERS).map(|number| Box::pin(read(shared, org.wrapping_add(number))));
    let (answered, _) = select_ok(others).await?;
    probed.0.store(answered, Ordering::Relaxed);
    Ok(())
}

/// Reads once, so that an answer is about this moment.
async fn read(shared: &Shared, org: Org) -> Result<Org, Failure> {
    let connection = shared.database.attempts().reader().await?;
    let done = connection.query(PROBE, &[&org, &Uuid::nil()]).await;
    if matches!(done, Err(Failure::Lost(_))) {
        connection.close();
    }
    done.map(|_| org)
}
