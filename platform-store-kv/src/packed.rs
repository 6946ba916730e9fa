//! Packed uids: the form of uids in the keys of the index and of trees, about half as long as their text.
//!
//! Each byte of the text has a code of its own length in bits: 4 or 5 for a lower-case hex digit, of which most uids
//! consist, 6 for `/`, and 10 to 18 for others. The last byte is filled up with zero bits.
//!
//! No code is the beginning of another, codes ascend with their bytes, and none consists of zero bits only. So packed
//! uids sort like their texts, and different texts have different packed forms.
//!
//! The codes are a part of the format of files.

/// The code of a byte.
#[derive(Debug, Clone, Copy)]
struct Code {
    bits: u32,
    len: u32,
}

/// The byte after [`HIGH`] for the bytes above `z`.
const ABOVE_Z: u32 = 20;

// The beginnings of the codes that continue with the number of the byte in its range. All are read from 5 bits.
const LOW: u32 = 0b0_0000;
const MIDDLE: u32 = 0b1_0100;
const HIGH: u32 = 0b1_1111;

const fn code_of(byte: u8) -> Code {
    let number = byte as u32;
    let (bits, len) = match byte {
        // From 1 on, so that the code of zero has a bit that is set.
        0..b'/' => (number + 1, 13),
        b'/' => (0b00_0001, 6),
        b'0' => (0b0_0001, 5),
        b'1'..=b'9' => (number - b'0' as u32, 4),
        b':'..b'a' => ((MIDDLE << 6) | (number - b':' as u32), 11),
        b'a' => (0b1_0101, 5),
        b'b'..=b'e' => (number - b'b' as u32 + 0b1011, 4),
        b'f' => (0b1_1110, 5),
        b'g'..=b'z' => ((HIGH << 5) | (number - b'g' as u32), 10),
        _ => ((((HIGH << 5) | ABOVE_Z) << 8) | number, 18),
    };
    Code { bits, len }
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const CODES: [Code; 256] = {
    let mut codes = [Code { bits: 0, len: 0 }; 256];
    let mut byte = 0;
    while byte < codes.len() {
        codes[byte] = code_of(byte as u8);
        byte += 1;
    }
    codes
};

#[expect(clippy::indexing_slicing, reason = "a byte is an index of 256 codes")]
const fn code(byte: u8) -> Code {
    CODES[byte as usize]
}

/// Calls a function with the pieces of the packed form of a uid, or of a part of one, until it returns `false`. Returns
/// whether it never did.
#[inline]
fn pack(text: &str, mut take: impl FnMut(&[u8]) -> bool) -> bool {
    // The lowest `len` bits are not taken yet: less than 32 before each byte, and at most 49 after it.
    let (mut bits, mut len) = (0_u64, 0);
    for byte in text.bytes() {
        let code = code(byte);
        bits = (bits << code.len) | u64::from(code.bits);
        len += code.len;
        if len >= u32::BITS {
            len -= u32::BITS;
            if !take(&((bits >> len) as u32).to_be_bytes()) {
                return false;
            }
        }
    }
    let last = ((bits << (u32::BITS - len)) as u32).to_be_bytes();
    last.get(..len.div_ceil(8) as usize).is_some_and(take)
}

/// Appends the packed form of a uid, or of a part of one.
pub(crate) fn push(key: &mut Vec<u8>, text: &str) {
    key.reserve(text.len() / 2 + size_of::<u32>());
    pack(text, |piece| {
        key.extend_from_slice(piece);
        true
    });
}

/// Returns whether these bytes are the packed form of a text.
pub(crate) fn is_packed(mut bytes: &[u8], text: &str) -> bool {
    let is_prefix = pack(text, |piece| {
        let rest = bytes.strip_prefix(piece);
        bytes = rest.unwrap_or_default();
        rest.is_some()
    });
    is_prefix && bytes.is_empty()
}

/// Returns the text of a packed uid; `None` if the bytes are not a packed text.
pub(crate) fn unpack(bytes: &[u8]) -> Option<String> {
    let end = bytes.len() * 8;
    let mut text = Vec::with_capacity(bytes.len() * 2);
    let mut at = 0;
    loop {
        let peek = |len: usize| read(bytes, at, len);
        let (byte, len) = match peek(5) {
            LOW if peek(6) == 1 => (u32::from(b'/'), 6),
            // No text has more than seven bits of zero at its end.
            LOW if peek(13) == 0 => return (end - at < 8).then(|| String::from_utf8(text).ok()).flatten(),
            LOW => (peek(13) - 1, 13),
            0b0_0001 => (u32::from(b'0'), 5),
            MIDDLE => (u32::from(b':') + (peek(11) & 0b11_1111), 11),
            0b1_0101 => (u32::from(b'a'), 5),
            0b1_1110 => (u32::from(b'f'), 5),
            HIGH if peek(10) & 0b1_1111 == ABOVE_Z => (peek(18) & 0xff, 18),
            HIGH => (u32::from(b'g') + (peek(10) & 0b1_1111), 10),
            five if five >> 1 < 0b1010 => (u32::from(b'0') + (five >> 1), 4),
            five => (u32::from(b'b') + (five >> 1) - 0b1011, 4),
        };
        let byte = u8::try_from(byte).ok()?;
        // Not a code, or one that is cut off.
        if code_of(byte).len as usize != len || at + len > end {
            return None;
        }
        text.push(byte);
        at += len;
    }
}

/// Returns up to 18 bits from a place on; those after the end are zero.
fn read(bytes: &[u8], at: usize, len: usize) -> u32 {
    let from = bytes.get(at / 8..).unwrap_or_default();
    let mut window = [0; 4];
    window.iter_mut().zip(from).for_each(|(to, byte)| *to = *byte);
    (u32::from_be_bytes(window) << (at % 8)) >> (32 - len)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut packed = Vec::new();
        push(&mut packed, text);
        packed
    }

    /// Texts with beginnings in common: of all characters, and of those next to the bounds of the ranges.
    fn texts() -> impl Strategy<Value = String> {
        let near = select("\0\u{1}.-/0159:@A`abcfgz{~\u{7f}\u{80}é€\u{10ffff}".chars().collect::<Vec<_>>());
        let near = vec(near, 0..8).prop_map(String::from_iter);
        prop_oneof![near, ".{0,6}", "[0-9a-f]{3}(/[0-9a-f]{2}){0,3}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn packed_texts_sort_like_texts(left in texts(), right in texts()) {
            prop_assert_eq!(packed(&left).cmp(&packed(&right)), left.cmp(&right));
            prop_assert_eq!(is_packed(&packed(&left), &right), left == right);
        }

        #[test]
        fn a_text_is_unpacked(text in texts()) {
            let packed = packed(&text);
            let mut appended = b"before".to_vec();
            push(&mut appended, &text);
            prop_assert_eq!(&appended[6..], &packed);
            prop_assert!(packed.first() != Some(&u8::MAX));
            prop_assert_eq!(unpack(&packed), Some(text));
        }

        #[test]
        fn what_is_below_a_uid_is_in_its_range(uid in texts(), other in texts()) {
            let (from, to) = platform_engine::store::place::below(&uid);
            let is_in = packed(&from) < packed(&other) && packed(&other) < packed(&to);
            prop_assert_eq!(is_in, other.starts_with(&from) && other != from);
        }

        #[test]
        fn bytes_are_the_packed_form_of_what_they_unpack_to(bytes in vec(any::<u8>(), 0..6)) {
            if let Some(text) = unpack(&bytes) {
                prop_assert_eq!(packed(&text), bytes);
            }
        }
    }

    #[test]
    fn the_uid_of_a_repo_has_about_half_its_length() {
        let uid = "0123456789abcdef0123456789abcdef01234567/0123456789abcdef";
        assert_eq!((uid.len(), packed(uid).len()), (57, 30));
    }
}
