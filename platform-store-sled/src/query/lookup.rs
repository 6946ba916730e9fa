//! Reads of single entries and of short ranges, used by readers and by the writer.

use platform_engine::{
    store::{Epoch, StoreError},
    uid::Uid,
};

use crate::{
    error::{corrupt, from_sled},
    schema::{self, ListAt, Stored},
};

/// Returns the value of an epoch: 0 if it was never raised.
pub(crate) fn epoch(db: &sled::Db, epoch: &Epoch) -> Result<u64, StoreError> {
    let key = schema::epoch_key(epoch);
    let Some(stored) = db.get(&key).map_err(from_sled)? else { return Ok(0) };
    let value = schema::unseal(&key, &stored)?.0.try_into().map(u64::from_le_bytes);
    value.map_err(|_| corrupt("an epoch is malformed"))
}

/// Returns a stored record.
pub(crate) fn record(db: &sled::Db, kind: &str, uid: &str) -> Result<Option<Stored>, StoreError> {
    let stored = db.get(schema::record_key(kind, uid)).map_err(from_sled)?;
    stored.map(|stored| Stored::read(kind, uid, stored, |key| db.get(key).map_err(from_sled))).transpose()
}

/// Returns the number of descendants of a list's uid in the list; stops counting at `limit + 1`.
pub(crate) fn count_below(db: &sled::Db, at: &ListAt, limit: u32) -> Result<u32, StoreError> {
    let mut prefix = at.index_prefix();
    prefix.extend_from_slice(format!("{}/", at.uid).as_bytes());
    let mut count = 0;
    for key in db.scan_prefix(prefix).keys() {
        key.map_err(from_sled)?;
        count += 1;
        if count > limit {
            break;
        }
    }
    Ok(count)
}

/// Returns the uids of a list's records.
pub(crate) fn members(db: &sled::Db, at: &ListAt) -> Result<Vec<Uid>, StoreError> {
    let base = at.index_prefix();
    let mut uids = Vec::new();
    let top = [base.as_slice(), at.uid.as_bytes()].concat();
    if db.contains_key(&top).map_err(from_sled)? {
        uids.push(at.uid.clone());
    }
    for key in db.scan_prefix([top.as_slice(), b"/"].concat()).keys() {
        uids.push(rest_as_uid(&key.map_err(from_sled)?, base.len(), "")?);
    }
    Ok(uids)
}

/// Returns the uid that consists of `top` and the bytes of a key from the offset `from` on.
pub(crate) fn rest_as_uid(key: &[u8], from: usize, top: &str) -> Result<Uid, StoreError> {
    let rest = key.get(from..).and_then(|rest| std::str::from_utf8(rest).ok());
    let rest = rest.ok_or_else(|| corrupt("the uid in a key is malformed"))?;
    Ok(Uid::opaque(if top.is_empty() { rest.to_owned() } else { format!("{top}{rest}") }))
}
