#!/bin/sh
# pep440_rs 0.7.3 refuses a version whose number does not fit 64 bits; packaging 25.0, the reference of PyPI, orders it.
#
# PEP 440 has no bound for the numbers of a version, and versions made of a date and a hash have such numbers. Needs cargo,
# Python, crates.io and PyPI.
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
pep440_rs = "=0.7.3"
TOML
cat > "$work/src/main.rs" <<'RUST'
fn main() {
    for text in ["1.18446744073709551615", "1.18446744073709551616"] {
        let parsed: Result<pep440_rs::Version, _> = text.parse();
        println!("pep440_rs {text}: {}", if parsed.is_ok() { "valid" } else { "refused" });
    }
}
RUST
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check packaging==25.0
found=$(cargo run -q
venv/bin/python -c '
from packaging.version import Version
low, high = "1.18446744073709551615", "1.18446744073709551616"
print("packaging", high, "after" if Version(high) > Version(low) else "not after", low)')
expected='pep440_rs 1.18446744073709551615: valid
pep440_rs 1.18446744073709551616: refused
packaging 1.18446744073709551616 after 1.18446744073709551615'
echo "$found"
[ "$found" = "$expected" ]
