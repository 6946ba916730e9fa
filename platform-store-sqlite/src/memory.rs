//! How much memory each part of a store may use.

use std::{num::NonZero, thread};

/// The part of each cache in the memory of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The caches of the engine, and its changes that are not in the tables.
    pub(crate) engine: platform_store_kv::Memory,
    /// The page cache of the writer's connection, in KiB.
    pub(crate) writer_pages: u64,
    /// The page caches of all idle connections of readers, in KiB.
    pub(crate) reader_pages: u64,
}

/// Returns the maximum number of idle connections of readers: one for each processor, but at least 4. Their page caches
/// are the larger the fewer they are. A page whose records were not read before takes a sixth less time with four than
/// with eight, on 1,000,000 records: the inner pages of the table stay cached.
pub(crate) fn max_idle() -> usize {
    thread::available_parallelism().map_or(4, NonZero::get).clamp(4, 32)
}

/// The approximate memory of a cached tree node, in bytes.
const NODE: u64 = 4_096;

impl Memory {
    /// Divides a number of bytes: a half is for the delta, because it decides how much the store writes, and a quarter
    /// for the rows. The pages of readers are few, since each commit makes SQLite read them again.
    pub(crate) const fn of(bytes: u64) -> Self {
        let nodes = bytes / 16 / NODE;
        // Some nodes, so that those of one path stay cached.
        let nodes = if nodes < 16 { 16 } else { nodes as usize };
        Self {
            engine: platform_store_kv::Memory { rows: bytes / 4, delta: bytes / 2, nodes },
            writer_pages: bytes / 16 / 1024,
            reader_pages: bytes / 8 / 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_not_more_than_the_whole() {
        for bytes in [1 << 20, 16 << 20, 64 << 20, 128 << 20, 1 << 30, 1_u64 << 40] {
            let Memory { engine, writer_pages, reader_pages } = Memory::of(bytes);
            let platform_store_kv::Memory { rows, delta, nodes } = engine;
            let pages = (writer_pages + reader_pages) * 1024;
            assert!(rows + delta + nodes as u64 * NODE + pages <= bytes, "{bytes}");
        }
    }
}
