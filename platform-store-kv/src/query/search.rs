//! The records with the trigrams of a pattern, from the search index ([`crate::search`]).

use platform_engine::store::{
    StoreError,
    pattern::{Pattern, Trigram},
};

use crate::{
    list::ListKey,
    readers::View,
    rows::Tables,
    schema::NameId,
    search::{merged, read_block, root},
    tree,
};

/// An estimate of the number of postings in a block.
const BLOCK_POSTINGS: u64 = 400;

/// A record is compared with a pattern in the time in which about this many postings are read.
const POSTINGS_PER_RECORD: u64 = 256;

/// The blocks of one trigram.
#[derive(Debug)]
struct Part {
    /// The rank of the first block in the tree.
    first: u64,
    /// The number of blocks.
    blocks: u64,
}

impl Part {
    fn bound(&self) -> u64 {
        self.blocks * BLOCK_POSTINGS
    }

    fn read(&self, view: &View<'_, impl Tables>, root: u64) -> Result<Vec<i64>, StoreError> {
        let (mut ids, mut stored) = (Vec::new(), Vec::new());
        tree::slice(view, root, self.first, self.blocks, &mut |_, id| ids.push(id))?;
        ids.into_iter().try_for_each(|id| read_block(view, id, &mut stored))?;
        Ok(stored)
    }
}

/// The postings that lead to all records which match a pattern.
#[derive(Debug)]
pub(super) struct Postings {
    root: u64,
    /// Those of each trigram, the fewest first.
    parts: Vec<Part>,
    /// The records whose values the delta changes, in ascending order, and whether they match now.
    changed: Vec<(i64, bool)>,
}

impl Postings {
    /// Finds them. `None` if the pattern has no trigram, or if the index lacks some of the records of the kind, of which
    /// there are `total`.
    pub(super) fn find(
        view: &View<'_, impl Tables>,
        (kind, key, total): (NameId, NameId, u64),
        pattern: &Pattern,
    ) -> Result<Option<Self>, StoreError> {
        let trigrams = pattern.trigrams();
        if trigrams.is_empty() {
            return Ok(None);
        }
        let Some(list) = view.list(&ListKey::search(kind, key))?.filter(|list| list.1.deep == total) else {
            return Ok(None);
        };
        let root = root(&list.1);
        let part = |trigram: Trigram| {
            // No number of a record begins with this byte.
            let end = [&trigram[..], &[u8::MAX]].concat();
            let (first, end) = (tree::rank(view, root, &trigram, false)?, tree::rank(view, root, &end, true)?);
            Ok(Part { first, blocks: end.saturating_sub(first) })
        };
        let mut parts: Vec<_> = trigrams.into_iter().map(part).collect::<Result<_, StoreError>>()?;
        parts.sort_by_key(Part::bound);
        let mut changed = Vec::new();
        view.index()?.delta.each_searched(kind, key, |change| {
            changed.push((change.id, change.new.is_some_and(|value| pattern.matches(value))));
        });
        Ok(Some(Self { root, parts, changed }))
    }

    /// Returns an estimate of the number of records.
    pub(super) fn bound(&self) -> u64 {
        let matches = self.changed.iter().filter(|(_, matches)| *matches).count();
        self.parts.first().map_or(0, Part::bound) + matches as u64
    }

    /// Returns the numbers of the records with the trigrams, in ascending order. There may be others among them, without a
    /// trigram that many records have, because it takes longer to read its postings than to compare the records.
    pub(super) fn records(&self, view: &View<'_, impl Tables>) -> Result<Vec<i64>, StoreError> {
        let mut found: Option<Vec<i64>> = None;
        for part in &self.parts {
            let Some(before) = &found else {
                found = Some(part.read(view, self.root)?);
                continue;
            };
            if part.bound() / POSTINGS_PER_RECORD > before.len() as u64 {
                break;
            }
            let (mut other, mut both) = (part.read(view, self.root)?.into_iter().peekable(), Vec::new());
            for id in before {
                while other.next_if(|other| other < id).is_some() {}
                both.extend(other.next_if_eq(id));
            }
            found = Some(both);
        }
        Ok(merged(found.unwrap_or_default(), &self.changed))
    }
}
