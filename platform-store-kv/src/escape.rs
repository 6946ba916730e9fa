//! Escaped values, which keys begin with: keys sort by the value first and by the bytes after it second.
//!
//! A byte 0 becomes 0, 255, and an escaped value ends with two zero bytes. A value sorts before longer values that start
//! with it. The bytes are a part of the format of stores.

/// Appends a value, escaped and terminated.
#[inline]
pub(crate) fn push(key: &mut Vec<u8>, value: &[u8]) {
    for byte in value {
        match byte {
            0 => key.extend([0, 255]),
            other => key.push(*other),
        }
    }
    key.extend([0, 0]);
}

/// Splits the first value off a key and returns it without escapes, and the rest; `None` if the value is malformed.
#[inline]
pub(crate) fn take(key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::with_capacity(key.len());
    let mut rest = key;
    loop {
        rest = match rest {
            [0, 0, rest @ ..] => return Some((value, rest)),
            [0, 255, rest @ ..] => {
                value.push(0);
                rest
            }
            [0, ..] | [] => return None,
            [byte, rest @ ..] => {
                value.push(*byte);
                rest
            }
        };
    }
}

/// Returns what follows the value in a key; `None` if the key has another value. Does not allocate unless the value has
/// bytes that are escaped.
#[inline]
pub(crate) fn rest_after<'k>(key: &'k [u8], value: &[u8]) -> Option<&'k [u8]> {
    if value.contains(&0) {
        let mut escaped = Vec::with_capacity(value.len() + 8);
        push(&mut escaped, value);
        return key.strip_prefix(&*escaped);
    }
    key.strip_prefix(value)?.strip_prefix(&[0, 0])
}

/// Splits a key into the escaped value with its terminator, and the rest.
pub(crate) fn split(key: &[u8]) -> (&[u8], &[u8]) {
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

    use super::*;

    /// Returns short values of the escaped bytes and their neighbors.
    fn values() -> impl Strategy<Value = Vec<u8>> {
        vec(select(vec![0, 1, 2, 0x61, 0xfd, 0xfe, 0xff]), 0..5)
    }

    fn key((value, rest): &(Vec<u8>, String)) -> Vec<u8> {
        let mut key = Vec::new();
        push(&mut key, value);
        key.extend_from_slice(rest.as_bytes());
        key
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn keys_sort_like_values_and_rests(left in (values(), "[/0a]{0,3}"), right in (values(), "[/0a]{0,3}")) {
            prop_assert_eq!(key(&left).cmp(&key(&right)), left.cmp(&right));
        }

        #[test]
        fn a_key_is_taken_apart_and_recognized(value in values(), rest in "[/0a]{0,3}", other in values()) {
            let key = key(&(value.clone(), rest.clone()));
            let rest = rest.as_bytes();
            prop_assert_eq!(take(&key), Some((value.clone(), rest)));
            prop_assert_eq!(split(&key), key.split_at(key.len() - rest.len()));
            prop_assert_eq!(rest_after(&key, &value), Some(rest));
            prop_assert_eq!(rest_after(&key, &other), (other == value).then_some(rest));
        }
    }

    #[test]
    fn a_malformed_value_is_not_taken() {
        for key in [&b""[..], b"abc", b"abc\0", b"abc\0\x02"] {
            assert_eq!(take(key), None, "{key:?}");
        }
        assert_eq!(split(b"abc\0"), (&b"abc\0"[..], &b""[..]));
    }

    #[test]
    fn the_bytes_of_keys_are_those_of_stored_data() {
        assert_eq!(key(&(b"a\0\xfe\xff".to_vec(), "/b".to_owned())), b"a\0\xff\xfe\xff\0\0/b");
    }
}
