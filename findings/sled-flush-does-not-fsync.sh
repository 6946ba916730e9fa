#!/bin/sh
# sled 0.34.7: `Db::flush` makes no call of fsync or fdatasync on Linux, although its documentation says that it does. It
# calls sync_file_range, which writes no metadata and does not flush the cache of the disk.
#
# A store that acknowledges writes after `flush` must sync the file `db` itself. Needs cargo, crates.io and strace on Linux.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
cat > "$work/Cargo.toml" <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2024"
[dependencies]
sled = "=0.34.7"
TOML
cat > "$work/src/main.rs" <<'RUST'
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let db = sled::Config::new().path(&path).flush_every_ms(None).open().unwrap();
    // The two marks delimit what is between them in the trace.
    let mark = || assert!(std::fs::metadata("/mark").is_err());
    mark();
    db.insert("key", "value").unwrap();
    let bytes = db.flush().unwrap();
    mark();
    assert!(bytes > 0);
}
RUST
cd "$work"
cargo build -q
strace -f -o trace -e trace=fsync,fdatasync,sync_file_range,statx,stat target/debug/finding "$work/store"
found=$(awk '/"\/mark"/ { inside = !inside } inside' trace | grep -o 'fsync\|fdatasync\|sync_file_range' | sort | uniq -c | tr -s ' ')
expected=' 1 sync_file_range'
echo "between the write and the end of flush:$found"
[ "$found" = "$expected" ]
