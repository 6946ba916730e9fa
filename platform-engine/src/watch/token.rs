//! Tokens that resume a watch: the position after an event.
//!
//! `1.<list>.<since>-<after>-<skip>…[~<uid>]`, in hexadecimal: a hash of the list that is watched; for each of its
//! organizations, in their order, when its log began, the sequence of the last commit that was sent completely, and how
//! many changes of the next one were sent; and the uid of the last resource that was sent, while the state is being sent.
//!
//! A token is not authenticated: it only says from where to read, and what is read is decided by the caller's grants.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::{store::Scope, uid::Uid};

/// The maximum length of a token in bytes.
pub(crate) const MAX_LEN: usize = 2 << 10;

const VERSION: &str = "1";

/// A position in the log of an organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// The value of the epoch `watched`, which says when the log began.
    pub(crate) since: u64,
    /// The sequence of the last commit that was sent completely.
    pub(crate) after: u64,
    /// How many changes of the next commit were sent.
    pub(crate) skip: usize,
}

/// The position of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Token {
    /// The hash of the list.
    pub(crate) list: u64,
    /// A place for each organization, in their order.
    pub(crate) places: Vec<Place>,
    /// The last resource of the state that was sent, empty before the first; `None` after the state.
    pub(crate) state: Option<Uid>,
}

/// Returns the hash of a list: of its kind, of its request, and of the scopes that the caller sees.
pub(crate) fn hash(kind: &str, request: &[u8], scopes: &[Scope]) -> u64 {
    let mut hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(request);
    for scope in scopes {
        hash.update(format!("\n{scope:?}"));
    }
    hash.finalize().first_chunk().copied().map_or(0, u64::from_be_bytes)
}

impl Token {
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{VERSION}.{:x}", self.list);
        for Place { since, after, skip } in &self.places {
            // Writing into a string does not fail.
            let _ = write!(text, ".{since:x}-{after:x}-{skip:x}");
        }
        if let Some(uid) = &self.state {
            text.push('~');
            text.push_str(uid);
        }
        text
    }

    /// Parses a token; `None` for a text that is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_LEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let (positions, state) = match text.split_once('~') {
            Some((positions, uid)) => (positions, Some(Uid::opaque(uid.to_owned()))),
            None => (text, None),
        };
        let mut parts = positions.split('.');
        if parts.next() != Some(VERSION) {
            return None;
        }
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let list = number(parts.next()?)?;
        let place = |part: &str| {
            let mut numbers = part.split('-');
            let place = Place {
                since: number(numbers.next()?)?,
                after: number(numbers.next()?)?,
                skip: usize::try_from(number(numbers.next()?)?).ok()?,
            };
            numbers.next().is_none().then_some(place)
        };
        let places = parts.map(place).collect::<Option<Vec<_>>>()?;
        (!places.is_empty()).then_some(Self { list, places, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_short_printable_ascii_and_means_the_same_position() {
        let place = |since, after, skip| Place { since, after, skip };
        for (places, state, text) in [
            (vec![place(10, 255, 0)], None, "1.abc.a-ff-0"),
            (vec![place(1, 2, 3), place(4, 5, 6)], None, "1.abc.1-2-3.4-5-6"),
            (vec![place(1, 2, 0)], Some(""), "1.abc.1-2-0~"),
            (vec![place(1, 2, 0)], Some("aa/bb"), "1.abc.1-2-0~aa/bb"),
        ] {
            let token = Token { list: 0xabc, places, state: state.map(Uid::opaque) };
            assert_eq!(token.text(), text);
            assert_eq!(Token::parse(text), Some(token));
        }
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let long = format!("1.abc{}", ".1-2-0".repeat(MAX_LEN));
        for text in
            ["", "1", "1.abc", "2.abc.1-2-0", "1.xyz.1-2-0", "1.abc.1-2", "1.abc.1-2-0-0", "1.abc.1-2-0 ", &long]
        {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_hash_depends_on_the_kind_and_the_scopes() {
        let subtree = |uid: &'static str| Scope::Subtree(Uid::opaque(uid));
        let all = [
            hash("Repo", b"", &[subtree("a")]),
            hash("Tag", b"", &[subtree("a")]),
            hash("Repo", b"filter", &[subtree("a")]),
            hash("Repo", b"", &[subtree("b")]),
            hash("Repo", b"", &[Scope::Children(Uid::opaque("a"))]),
            hash("Repo", b"", &[subtree("a"), subtree("b")]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all.iter().take(index).any(|other| other == one));
        }
    }
}
