//! Compares versions as the platform does, so that `tests/clients/run.py versions` can compare it with other programs.
//!
//! Each line of the input has `apk`, `java` or `python`, a version and another version. The line of the output is `<`,
//! `=`, `>`, or `!` for Alpine versions that cannot be compared.

#![expect(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "a program for tests")]

use std::io::{self, BufRead};

use platform_core::resources::{advisory::apk, libraries::artifact_version::ArtifactVersion};
use platform_engine::{kind::Resource, store::KeyValue};
use serde_json::json;

fn main() {
    for line in io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let [ecosystem, one, other] = words[..] else { panic!("not three words: {line}") };
        let order = match ecosystem {
            "apk" => match (apk::is_at_least(one, other), apk::is_at_least(other, one)) {
                (true, true) => "=",
                (true, false) => ">",
                (false, true) => "<",
                (false, false) => "!",
            },
            _ => sign(&key(ecosystem, one), &key(ecosystem, other)),
        };
        println!("{order}");
    }
}

/// Returns the key by which the versions of an artifact are listed.
fn key(ecosystem: &str, version: &str) -> KeyValue {
    let sort_key = ArtifactVersion::KIND.fields.iter().find_map(|field| field.sort_key).unwrap();
    sort_key(&json!({"uid": format!("{ecosystem}:example:{version}"), "version": version}))
}

fn sign(one: &KeyValue, other: &KeyValue) -> &'static str {
    match one.cmp(other) {
        std::cmp::Ordering::Less => "<",
        std::cmp::Ordering::Equal => "=",
        std::cmp::Ordering::Greater => ">",
    }
}
