//! Pages of an action that returns everything that matches.

use std::iter;

use bytes::Bytes;

use crate::offload::SLICE;

/// A page of an action that returns everything that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The elements of the only list in the response, each as its JSON.
    pub items: Vec<Bytes>,
    /// The token of the next page; `None` on the last page.
    pub next_page_token: Option<String>,
}

impl ListPage {
    /// Appends the items as elements of a JSON array, separated by commas. `is_empty` says that the array has no element
    /// yet, which is also so after empty pages.
    pub fn append_to(&self, array: &mut Vec<u8>, is_empty: bool) {
        Self::append(&self.items, array, is_empty);
    }

    /// Returns the items in slices, each of about as much work as [`Pace`](crate::offload::Pace) allows between two
    /// pauses.
    pub fn slices(&self) -> impl Iterator<Item = &[Bytes]> {
        let mut rest = self.items.as_slice();
        iter::from_fn(move || {
            let mut bytes = 0_usize;
            let is_over = |item: &Bytes| {
                bytes = bytes.saturating_add(item.len());
                bytes >= SLICE
            };
            let end = rest.iter().position(is_over).map_or(rest.len(), |last| last + 1);
            let (slice, others) = rest.split_at_checked(end)?;
            rest = others;
            (!slice.is_empty()).then_some(slice)
        })
    }

    /// Appends items of a page, as [`ListPage::append_to`] does.
    pub fn append(items: &[Bytes], array: &mut Vec<u8>, is_empty: bool) {
        array.reserve(items.iter().map(|item| item.len() + 1).sum());
        for (at, item) in items.iter().enumerate() {
            if at > 0 || !is_empty {
                array.push(b',');
            }
            array.extend_from_slice(item);
        }
    }
}
