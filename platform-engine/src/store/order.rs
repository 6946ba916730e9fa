//! The values of records in the order by sequence.

/// Returns a sequence as the value of a [`Position`](super::Position), which is
/// [`KeyValue::integer`](super::KeyValue::integer) of it.
pub const fn sequence_value(sequence: u64) -> [u8; 8] {
    (sequence ^ (1 << 63)).to_be_bytes()
}

/// Returns the sequence with this value; the inverse of [`sequence_value`].
pub const fn sequence_of(value: [u8; 8]) -> u64 {
    u64::from_be_bytes(value) ^ (1 << 63)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::KeyValue, *};

    proptest! {
        #[test]
        fn sequences_are_values_of_integers(sequence in 0..=i64::MAX) {
            let value = sequence_value(sequence.unsigned_abs());
            prop_assert_eq!(KeyValue::from_bytes(value), KeyValue::integer(sequence));
            prop_assert_eq!(sequence_of(value), sequence.unsigned_abs());
        }
    }
}
