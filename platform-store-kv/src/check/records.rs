//! Checks records and epochs against their checksums and the digest, and the index against records.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use platform_engine::store::{StoreError, check::Findings};

use crate::{
    commit::epoch_checksum,
    index::{Index, Range, keys_of},
    record::{self, Stored},
    replaced::Before,
    rows::{EpochRow, Rows},
    schema::{NameId, Names},
    search,
    state::State,
};

pub(super) fn check(
    index: Index<'_, impl Rows>,
    names: &Names,
    state: State,
    replaced: &BTreeMap<i64, Before>,
    kinds: &mut BTreeSet<NameId>,
    searched: &mut BTreeMap<(NameId, NameId), (u64, u64)>,
    findings: &mut Findings,
) -> Result<(), StoreError> {
    let rows = index.rows;
    let (mut digest, mut entries) = (0_i64, 0);
    rows.each_record(i64::MIN, |stored| {
        let Some(stored) = findings.catch(stored.and_then(Stored::verified))? else { return Ok(()) };
        kinds.insert(stored.kind);
        for (name, trigrams) in search::of(stored.keys) {
            let (records, sum) = searched.entry((stored.kind, name)).or_default();
            *records += 1;
            for trigram in trigrams {
                *sum = sum.wrapping_add(search::hash(trigram, stored.id));
            }
        }
        digest = digest.wrapping_add(stored.sum);
        entries += 1 + (stored.keys.filter().count() + stored.keys.unique().count()) as u64;
        let is_possible = stored.revision <= state.sequence && names.has_id(stored.kind);
        findings.expect(is_possible, || format!("record {} has an impossible revision or kind", stored.id));
        // A replay takes the record for unchanged since the last fold if it has no replaced version.
        let is_new = stored.id >= state.first || replaced.contains_key(&stored.id);
        findings.expect(is_new || stored.revision <= state.folded, || {
            format!("the replaced version of record {} is missing", stored.id)
        });
        Ok(())
    })?;
    rows.each_epoch(|EpochRow { name, value, sum }| {
        digest = digest.wrapping_add(sum);
        let is_valid = epoch_checksum(name, value) == sum && value.cast_unsigned() <= state.sequence;
        findings.expect(is_valid, || format!("the row of epoch `{name}` does not match its checksum"));
    })?;
    findings.expect(digest == state.digest, || {
        "records or epochs are missing or outdated: the sum of their checksums is wrong".to_owned()
    });
    check_sequence(rows, findings)?;
    check_index(index, findings, entries)
}

fn check_sequence(rows: &impl Rows, findings: &mut Findings) -> Result<(), StoreError> {
    let mut previous: (NameId, i64, String) = (0, 0, String::new());
    rows.each_in_sequence(|kind, revision, uid| {
        let next = (kind, revision, uid.to_owned());
        findings.expect(previous < next, || format!("`{}` is out of order by sequence", next.2));
        previous = next;
    })
}

/// Checks that each entry belongs to its record. No entry is missing if their number is right.
fn check_index(index: Index<'_, impl Rows>, findings: &mut Findings, expected: u64) -> Result<(), StoreError> {
    let mut count = 0;
    index.each(&Range::all(), false, |key, id| {
        if search::index_of(key).is_some() {
            return Ok(ControlFlow::Continue(()));
        }
        count += 1;
        let belongs = |r: Stored<'_>| keys_of(r.kind, r.uid, r.keys).any(|other| other == key);
        if findings.catch(record::at(index.rows, id, belongs))? == Some(false) {
            findings.add(format!("the index has a wrong entry for record {id}"));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    findings.expect(count == expected, || format!("the index has {count} of {expected} entries"));
    Ok(())
}
