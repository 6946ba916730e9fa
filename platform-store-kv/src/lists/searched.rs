//! Maintenance of the search indexes ([`crate::search`]): in the delta with each change of a record, and in their blocks
//! with a fold.

use platform_engine::store::StoreError;

use super::{Change, Indexes, Maintenance, Slot, Version};
use crate::{
    entries::Entry,
    error::corrupt,
    list::ListKey,
    nodes::{EditedNodes, SnapshotNodes},
    rows::RowsMut,
    schema::NameId,
    search::{self, Block, ValueChange},
    transaction::Transaction,
    tree::write::{NodesMut as _, insert, remove},
};

impl<W: RowsMut> Maintenance<'_, W> {
    /// Applies a change to the search indexes. An index that becomes empty stays.
    pub(super) fn change_search<'a>(&mut self, change: Change<'a>) -> Result<(), StoreError> {
        let searched = |version: Option<Version<'a>>| version.into_iter().flat_map(|version| version.keys.searched());
        let value = |version, name| searched(version).find(|(other, _)| *other == name).map(|(_, value)| value);
        let left = searched(change.old).filter(|(name, _)| value(change.new, *name).is_none());
        for (name, _) in searched(change.new).chain(left) {
            let (old, new) = (value(change.old, name), value(change.new, name));
            if old.is_some() != new.is_some() {
                let key = ListKey::search(change.kind, name);
                if !self.cache.lists.contains_key(&key) {
                    let list = self.cache.load(&key, self.transaction.rows)?.unwrap_or_else(search::empty);
                    self.cache
                        .lists
                        .insert(key.clone(), Slot::Materialized { list, edits: Vec::new(), changed: false });
                }
                let Indexes { lists, changed: all_changed, .. } = &mut *self.cache;
                let Some(Slot::Materialized { list, changed, .. }) = lists.get_mut(&key) else { continue };
                let after = (list.deep + u64::from(new.is_some())).checked_sub(u64::from(old.is_some()));
                list.deep = after.ok_or_else(|| corrupt("the count of a search index is too low"))?;
                if !*changed {
                    *changed = true;
                    all_changed.push(key);
                }
            }
            if old != new {
                self.cache.delta.set_searched((change.kind, name), ValueChange { id: change.id, old, new });
            }
        }
        Ok(())
    }
}

impl Indexes {
    /// Moves the changes of all search indexes from the delta to their blocks.
    pub(super) fn fold_search(&mut self, transaction: Transaction<'_, impl RowsMut>) -> Result<(), StoreError> {
        let entries = self.delta.take_search();
        let index_of = |(key, _): &Entry| search::index_of(key).map(|(kind, name, _)| (kind, name));
        for of_index in entries.chunk_by(|one, other| index_of(one) == index_of(other)) {
            let Some(index) = of_index.first().and_then(index_of) else { continue };
            let changes = of_index.iter().filter_map(|(key, _)| search::value_change_of(key));
            let mut changes: Vec<_> = changes.flat_map(ValueChange::postings).collect();
            changes.sort_unstable();
            self.edit_search(transaction, index, 0, &mut changes.into_iter().map(Ok))?;
        }
        Ok(())
    }

    /// Changes the blocks of a search index, which gets this many records more. The changes are in the order of their
    /// trigrams and numbers.
    pub(crate) fn edit_search(
        &mut self,
        transaction: Transaction<'_, impl RowsMut>,
        (kind, name): (NameId, NameId),
        records: u64,
        changes: impl Iterator<Item = Result<search::Change, StoreError>>,
    ) -> Result<(), StoreError> {
        let (key, rows) = (ListKey::search(kind, name), transaction.rows);
        let list = self.find(&key, rows)?.unwrap_or_else(search::empty);
        let (mut root, mut postings) = (search::root(&list), list.direct);
        // The tree stays as it is until the end, and each block is changed once: both are read from the delta.
        self.nodes.settle(&mut self.delta, transaction);
        let (mut changes, mut inserted, mut removed) = (changes.peekable(), Vec::new(), Vec::new());
        while let Some(next) = changes.peek() {
            let Ok((trigram, id, _)) = next else { return changes.next().map_or(Ok(()), |next| next.map(drop)) };
            let stored = SnapshotNodes(rows, &self.delta);
            let block = Block::find(&stored, root, (*trigram, *id))?;
            let changed = block.changed(&stored, &mut changes)?;
            let after = (postings + changed.after).checked_sub(changed.before);
            postings = after.ok_or_else(|| corrupt("the count of a search index is too low"))?;
            let mut nodes = EditedNodes { rows, delta: &self.delta, cache: &mut self.nodes };
            let mut blocks = changed.blocks.into_iter();
            if let Some((key, id)) = block.found {
                match blocks.next() {
                    Some((_, bytes)) => *nodes.edit(id)? = bytes,
                    None => {
                        nodes.delete(id);
                        removed.push(key);
                    }
                }
            }
            for (key, bytes) in blocks {
                inserted.push((key, nodes.add(bytes)));
            }
            self.trim_nodes(transaction)?;
        }
        let mut nodes = EditedNodes { rows, delta: &self.delta, cache: &mut self.nodes };
        for key in removed {
            root = remove(&mut nodes, root, &key)?;
        }
        let inserted: Vec<_> = inserted.iter().map(|(key, block)| (key.as_slice(), *block)).collect();
        if !inserted.is_empty() {
            root = insert(&mut nodes, root, &inserted)?;
        }
        self.put(key, search::with_root(root, (postings, list.deep + records)));
        Ok(())
    }
}
