#!/bin/sh
# scim_v2 1.0.0 (Rust) refuses the SCIM filter `not(userName eq "ada")`, and accepts it with a space after `not`.
#
# RFC 7644, figure 1: the parenthesis of a group follows `not` directly (*1"not" "(" FILTER ")"), so the form without a
# space is the one of the grammar; the examples of the same section have a space. Needs cargo and crates.io.
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
scim_v2 = { version = "=1.0.0", default-features = false, features = ["filter"] }
TOML
cat > "$work/src/main.rs" <<'RUST'
fn main() {
    for text in [r#"not (userName eq "ada")"#, r#"not(userName eq "ada")"#] {
        let parsed: Result<scim_v2::filter::Filter, _> = text.parse();
        println!("{text}: {}", if parsed.is_ok() { "valid" } else { "refused" });
    }
}
RUST
cd "$work"
found=$(cargo run -q)
expected='not (userName eq "ada"): valid
not(userName eq "ada"): refused'
echo "$found"
[ "$found" = "$expected" ]
