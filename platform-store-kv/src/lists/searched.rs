//! Maintenance of the search indexes ([`crate::search`]), which are kept like lists.

use std::collections::BTreeSet;

use platform_engine::store::{StoreError, pattern::Trigram, place::Part};

use super::{Change, Indexes, Maintenance, Slot, TreeEdit, Version};
use crate::{error::corrupt, list::ListKey, rows::RowsMut, schema::BY_TRIGRAM, search};

impl<W: RowsMut> Maintenance<'_, W> {
    /// Applies a change to the search indexes. An index that becomes empty stays.
    pub(super) fn change_search(&mut self, change: Change<'_>) -> Result<(), StoreError> {
        let of = |version: Option<Version<'_>>| version.map(|version| search::of(version.keys)).unwrap_or_default();
        let (old, new) = (of(change.old), of(change.new));
        for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(name))) {
            let (was, is) = (old.get(name), new.get(name));
            if was == is {
                continue;
            }
            let key = ListKey::search(change.kind, *name);
            if !self.cache.lists.contains_key(&key) {
                let list = self.cache.load(&key, self.transaction.rows)?.unwrap_or_else(search::empty);
                self.cache.lists.insert(key.clone(), Slot::Materialized { list, edits: Vec::new(), changed: false });
            }
            let Indexes { lists, changed: all_changed, edits: memory, .. } = &mut *self.cache;
            let Some(Slot::Materialized { list, edits, changed }) = lists.get_mut(&key) else { continue };
            let after = (list.deep + u64::from(is.is_some())).checked_sub(u64::from(was.is_some()));
            list.deep = after.ok_or_else(|| corrupt("the count of a search index is too low"))?;
            let (none, before) = (BTreeSet::new(), edits.len());
            let (was, is) = (was.unwrap_or(&none), is.unwrap_or(&none));
            let edit = |trigram: &Trigram, record| {
                let key = search::key(*trigram, change.id);
                TreeEdit { order: BY_TRIGRAM, part: Part::Direct, key, record }
            };
            edits.extend(was.difference(is).map(|trigram| edit(trigram, None)));
            edits.extend(is.difference(was).map(|trigram| edit(trigram, Some(change.id.cast_unsigned()))));
            let after = (list.direct + is.len() as u64).checked_sub(was.len() as u64);
            list.direct = after.ok_or_else(|| corrupt("the count of a search index is too low"))?;
            *memory += edits.iter().skip(before).map(TreeEdit::memory).sum::<u64>();
            if !*changed {
                *changed = true;
                all_changed.push(key);
            }
        }
        Ok(())
    }
}
