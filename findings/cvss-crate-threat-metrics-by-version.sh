#!/bin/sh
# cvss 3.0.0 (Rust): `score()` of a CVSS 4.0 vector counts its threat metrics, and that of a 3.1 vector leaves its temporal
# metrics out. So one method returns scores of two kinds, which cannot be compared.
#
# A record with both vectors, as advisories have, seems to become less severe with version 4. Needs cargo and crates.io.
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
cvss = "=3.0.0"
TOML
cat > "$work/src/main.rs" <<'RUST'
fn main() {
    let three = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H";
    let four = "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N";
    for vector in [three.to_owned(), format!("{three}/E:U/RL:O"), four.to_owned(), format!("{four}/E:U")] {
        println!("{vector} {:.1}", vector.parse::<cvss::Cvss>().unwrap().score());
    }
}
RUST
cd "$work"
found=$(cargo run -q)
expected='CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H 9.8
CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H/E:U/RL:O 9.8
CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N 9.3
CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N/E:U 8.1'
echo "$found"
[ "$found" = "$expected" ]
