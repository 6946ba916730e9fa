//! The difference between two versions of a node.

use std::{ops::Range, sync::Arc};

/// Replacements of ranges of bytes, each in the result of the one before.
///
/// Each replacement is encoded as the offset of the range, its length and the length of the new bytes, in two bytes each,
/// and then the new bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patch(Arc<[u8]>);

/// The length of a replacement without its new bytes.
const HEADER_LEN: usize = 6;
/// The number of bytes that are compared at once.
const CHUNK: usize = 64;
/// The number of equal bytes by which the end of an insertion is found.
const ANCHOR: usize = 16;

impl Patch {
    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns this patch followed by the replacements that turn `old` into `new`. `None` if one of them is too long for
    /// a patch.
    pub(crate) fn then(&self, old: &[u8], new: &[u8]) -> Option<Self> {
        let mut bytes = self.0.to_vec();
        if old.len() == new.len() {
            for range in differences(old, new) {
                push(&mut bytes, range.start, range.len(), new.get(range)?)?;
            }
        } else {
            push_insertions(&mut bytes, old, new)?;
        }
        Some(Self(bytes.into()))
    }

    /// Applies the patch. `None` if it was made for other bytes.
    pub(crate) fn apply(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        let mut rest = &*self.0;
        while !rest.is_empty() {
            let [at, removed, added] = [number(&mut rest)?, number(&mut rest)?, number(&mut rest)?];
            let added = rest.split_off(..added)?;
            bytes.get(at..at + removed)?;
            bytes.splice(at..at + removed, added.iter().copied());
        }
        Some(bytes)
    }
}

/// Appends the replacements that turn `old` into a version of another length. A node usually has one or more new entries
/// at different places, so that one replacement from the first to the last would be nearly the whole node. `None` if a
/// replacement is too long.
fn push_insertions(patch: &mut Vec<u8>, mut old: &[u8], mut new: &[u8]) -> Option<()> {
    let mut at = 0;
    loop {
        let prefix = common_prefix(old, new);
        (at, old, new) = (at + prefix, old.get(prefix..)?, new.get(prefix..)?);
        let surplus = new.len().saturating_sub(old.len());
        let inserted = old.get(..ANCHOR).and_then(|next| {
            // The shortest insertion after which the old bytes continue.
            (1..=surplus).find(|inserted| new.get(*inserted..).is_some_and(|rest| rest.starts_with(next)))
        });
        let Some(inserted) = inserted else { break };
        push(patch, at, 0, new.get(..inserted)?)?;
        (at, new) = (at + inserted, new.get(inserted..)?);
    }
    if old == new {
        return Some(());
    }
    let suffix = common_suffix(old, new);
    push(patch, at, old.len() - suffix, new.get(..new.len() - suffix)?)
}

/// Appends a replacement. `None` if one of the numbers is too large.
fn push(patch: &mut Vec<u8>, at: usize, removed: usize, added: &[u8]) -> Option<()> {
    for number in [at, removed, added.len()] {
        patch.extend(u16::try_from(number).ok()?.to_le_bytes());
    }
    patch.extend_from_slice(added);
    Some(())
}

fn number(bytes: &mut &[u8]) -> Option<usize> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(usize::from(u16::from_le_bytes(*number)))
}

/// Returns the ranges in which versions of the same length differ, such as the counts in a branch below which there are
/// new entries. Ranges are joined if one replacement is shorter than two.
fn differences(old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (chunk, (old, new)) in old.chunks(CHUNK).zip(new.chunks(CHUNK)).enumerate() {
        if old == new {
            continue;
        }
        for (at, _) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new) {
            let at = chunk * CHUNK + at;
            match ranges.last_mut() {
                Some(last) if at < last.end + HEADER_LEN => last.end = at + 1,
                _ => ranges.push(at..at + 1),
            }
        }
    }
    ranges
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let chunks = a.chunks_exact(CHUNK).zip(b.chunks_exact(CHUNK)).take_while(|(a, b)| a == b).count() * CHUNK;
    let rest = a.iter().skip(chunks).zip(b.iter().skip(chunks));
    chunks + rest.take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let chunks = a.rchunks_exact(CHUNK).zip(b.rchunks_exact(CHUNK)).take_while(|(a, b)| a == b).count() * CHUNK;
    let rest = a.iter().rev().skip(chunks).zip(b.iter().rev().skip(chunks));
    chunks + rest.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of few values, so that versions have long ranges in common.
    fn version() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0..2_u8, 0..300)
    }

    proptest! {
        #[test]
        fn patches_lead_through_all_versions(versions in prop::collection::vec(version(), 1..8)) {
            let mut patch = Patch::default();
            for pair in versions.windows(2) {
                let [old, new] = pair else { unreachable!() };
                patch = patch.then(old, new).unwrap();
                prop_assert_eq!(&patch.apply(&versions[0]).unwrap(), new);
            }
        }
    }

    #[test]
    fn an_inserted_entry_takes_its_own_length() {
        let old: Vec<u8> = (0..250).cycle().take(3_900).collect();
        let mut new = old.clone();
        new.splice(1_000..1_000, [255; 70]);
        assert_eq!(Patch::default().then(&old, &new).unwrap().len(), 6 + 70);
    }

    #[test]
    fn several_inserted_entries_take_their_own_lengths() {
        let old: Vec<u8> = (0..250).cycle().take(3_900).collect();
        let mut new = old.clone();
        for (at, byte) in [(3_900, 255), (3_000, 254), (1_000, 253), (0, 252)] {
            new.splice(at..at, [byte; 70]);
        }
        let patch = Patch::default().then(&old, &new).unwrap();
        assert_eq!(patch.len(), 4 * (6 + 70));
        assert!(patch.apply(&old) == Some(new));
    }

    #[test]
    fn changed_numbers_take_their_own_lengths() {
        let old: Vec<u8> = (0..250).cycle().take(3_900).collect();
        let mut new = old.clone();
        // The second change is so near to the first one that both are one replacement.
        for at in [100, 105, 2_000, 3_895] {
            new[at..at + 2].copy_from_slice(&[255, 254]);
        }
        let patch = Patch::default().then(&old, &new).unwrap();
        assert_eq!((patch.len(), patch.apply(&old)), (3 * 6 + 7 + 2 + 2, Some(new)));
    }

    #[test]
    fn bytes_that_are_too_long_have_no_patch() {
        assert!(Patch::default().then(&[1; 100_000], &[[1; 80_000], [2; 80_000]].concat()).is_none());
    }

    #[test]
    fn a_patch_does_not_fit_other_bytes() {
        let patch = Patch::default().then(&[1; 100], &[[1; 100], [2; 100]].concat()).unwrap();
        assert!(patch.apply(&[1; 50]).is_none());
    }
}
