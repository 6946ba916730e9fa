//! The shards to which Citus assigns organizations, for tests and simulations.

/// Returns PostgreSQL's hash of an `int8`, the function `hashint8`.
///
/// Numbers that fit into 32 bits have the hash that they have as an `int4`: both halves of the number are combined into
/// 32 bits, which are mixed by the final step of Bob Jenkins's lookup3.
pub fn hashint8(value: i64) -> i32 {
    let bits = value.cast_unsigned();
    let (low, high) = (bits as u32, (bits >> 32) as u32);
    mix(low ^ if value >= 0 { high } else { !high }).cast_signed()
}

fn mix(key: u32) -> u32 {
    let start = 0x9e37_79b9_u32.wrapping_add(4).wrapping_add(3_923_095);
    let (mut a, mut b, mut c) = (start.wrapping_add(key), start, start);
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// Returns the shard of an organization among a number of shards, which divide the range of hashes evenly; the last has
/// the remainder too.
pub fn shard(org: i64, shards: u32) -> u32 {
    let shards = shards.max(1);
    let size = (1_u64 << 32) / u64::from(shards);
    let from_least = (i64::from(hashint8(org)) - i64::from(i32::MIN)).cast_unsigned();
    u32::try_from(from_least / size).unwrap_or(u32::MAX).min(shards - 1)
}

/// Returns the organization of a uid, as the store's tables have it.
pub fn organization(uid: &str) -> i64 {
    crate::schema::organization(uid)
}
