//! Keys in the order of a list: bytes that sort like the pairs of a value and a uid.

/// Returns a sequence as the value of a [`Position`](super::Position), which is
/// [`KeyValue::integer`](super::KeyValue::integer) of it.
pub const fn sequence_value(sequence: u64) -> [u8; 8] {
    (sequence ^ (1 << 63)).to_be_bytes()
}

/// Returns the sequence with this value; the inverse of [`sequence_value`].
pub const fn sequence_of(value: [u8; 8]) -> u64 {
    u64::from_be_bytes(value) ^ (1 << 63)
}

/// The escaping of values in keys, which sort by the value first and by the bytes after it second. The choice is a part
/// of a store's format.
///
/// An escaped value ends with two zero bytes, and contains a zero byte only before one that is not zero. A value sorts
/// before longer values that start with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Escape {
    /// Escapes zero bytes only, as 0, 255.
    Zero,
    /// Escapes 0 as 0, 1; 254 as 254, 1; and 255 as 254, 2: an escaped value does not contain the byte 255.
    ZeroAndMax,
}

impl Escape {
    /// Returns the two bytes that replace the byte; `None` if it stays.
    const fn pair(self, byte: u8) -> Option<[u8; 2]> {
        match (self, byte) {
            (Self::Zero, 0) => Some([0, 255]),
            (Self::ZeroAndMax, 0) => Some([0, 1]),
            (Self::ZeroAndMax, 254) => Some([254, 1]),
            (Self::ZeroAndMax, 255) => Some([254, 2]),
            _ => None,
        }
    }

    /// Appends a value, escaped and terminated.
    #[inline]
    pub fn push(self, key: &mut Vec<u8>, value: &[u8]) {
        for byte in value {
            match self.pair(*byte) {
                Some(pair) => key.extend(pair),
                None => key.push(*byte),
            }
        }
        key.extend([0, 0]);
    }

    /// Splits the first value off a key and returns it without escapes, and the rest; `None` if the value is malformed.
    #[inline]
    pub fn take(self, key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
        let mut value = Vec::with_capacity(key.len());
        let mut rest = key;
        loop {
            let [byte, after @ ..] = rest else { return None };
            rest = after;
            if self.pair(*byte).is_none() {
                value.push(*byte);
                continue;
            }
            let [second, after @ ..] = rest else { return None };
            rest = after;
            match [*byte, *second] {
                [0, 0] => return Some((value, rest)),
                pair => value.push([0, 254, 255].into_iter().find(|byte| self.pair(*byte) == Some(pair))?),
            }
        }
    }

    /// Returns the key of a record in an order: the prefix, the escaped value and the rest of the record's uid.
    #[inline]
    pub fn order_key(self, prefix: &[u8], value: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(prefix.len() + value.len() + rest.len() + 8);
        key.extend_from_slice(prefix);
        self.push(&mut key, value);
        key.extend_from_slice(rest);
        key
    }

    /// Returns what follows the value in a key without a prefix, which is the rest that [`Escape::order_key`] was given;
    /// `None` if the key has another value. Does not allocate unless the value has bytes that are escaped.
    #[inline]
    pub fn rest_after<'k>(self, key: &'k [u8], value: &[u8]) -> Option<&'k [u8]> {
        if value.iter().any(|byte| self.pair(*byte).is_some()) {
            return key.strip_prefix(&*self.order_key(&[], value, &[]));
        }
        key.strip_prefix(value)?.strip_prefix(&[0, 0])
    }
}

/// Splits a key without a prefix into the escaped value with its terminator, and the rest.
pub fn split(key: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some(pair) = key.get(at..at + 2) {
        if pair == [0, 0] {
            return key.split_at_checked(at + 2).unwrap_or_default();
        }
        at += if pair.first() == Some(&0) { 2 } else { 1 };
    }
    (key, &[])
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::{super::KeyValue, *};

    /// Returns short values of the escaped bytes and their neighbors.
    fn values() -> impl Strategy<Value = Vec<u8>> {
        vec(select(vec![0, 1, 2, 0x61, 0xfd, 0xfe, 0xff]), 0..5)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn keys_sort_like_values_and_rests(left in (values(), "[/0a]{0,3}"), right in (values(), "[/0a]{0,3}")) {
            for escape in [Escape::Zero, Escape::ZeroAndMax] {
                let key = |(value, rest): &(Vec<u8>, String)| escape.order_key(b"p", value, rest.as_bytes());
                prop_assert_eq!(key(&left).cmp(&key(&right)), left.cmp(&right));
            }
        }

        #[test]
        fn a_key_is_taken_apart_and_recognized(value in values(), rest in "[/0a]{0,3}", other in values()) {
            let rest = rest.as_bytes();
            for escape in [Escape::Zero, Escape::ZeroAndMax] {
                let key = escape.order_key(&[], &value, rest);
                prop_assert_eq!(escape.take(&key), Some((value.clone(), rest)));
                prop_assert_eq!(split(&key), key.split_at(key.len() - rest.len()));
                prop_assert_eq!(escape.rest_after(&key, &value), Some(rest));
                prop_assert_eq!(escape.rest_after(&key, &other), (other == value).then_some(rest));
            }
            prop_assert!(!Escape::ZeroAndMax.order_key(&[], &value, rest).contains(&0xff));
        }

        #[test]
        fn sequences_are_values_of_integers(sequence in 0..=i64::MAX) {
            let value = sequence_value(sequence.unsigned_abs());
            prop_assert_eq!(KeyValue::from_bytes(value), KeyValue::integer(sequence));
            prop_assert_eq!(sequence_of(value), sequence.unsigned_abs());
        }
    }

    #[test]
    fn a_malformed_value_is_not_taken() {
        for key in [&b""[..], b"abc", b"abc\0", b"abc\0\x02", b"abc\xfe", b"abc\xff\0\0"] {
            assert_eq!(Escape::ZeroAndMax.take(key), None, "{key:?}");
        }
        assert_eq!(split(b"abc\0"), (&b"abc\0"[..], &b""[..]));
    }

    #[test]
    fn the_bytes_of_keys_are_those_of_stored_data() {
        let keys = [Escape::Zero, Escape::ZeroAndMax].map(|escape| escape.order_key(b"p", b"a\0\xfe\xff", b"/b"));
        assert_eq!(keys, [b"pa\0\xff\xfe\xff\0\0/b".to_vec(), b"pa\0\x01\xfe\x01\xfe\x02\0\0/b".to_vec()]);
    }
}
