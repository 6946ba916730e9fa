//! Rules for the sources of the whole workspace, and dependencies that platform-engine, platform-core and platform-v1 must
//! not have.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "that is how tests fail")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use platform_core::resources::KINDS;

const MAX_LINES: usize = 600;

/// Returns the root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn in_core(path: &str) -> PathBuf {
    root().join("platform-core").join(path)
}

/// Returns every Rust source below a directory with its text.
fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else { return all };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                all.extend(sources(&path));
            }
        } else if name.ends_with(".rs") {
            all.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
    all
}

/// Returns a source without its comments and its unit tests.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_file_has_a_module_comment_and_is_not_too_long() {
    let files = sources(&root());
    assert!(files.len() > 50);
    for (path, text) in files {
        // The crate documentation of a store is a separate file.
        let opens = ["//!", "#![doc = include_str!"].iter().any(|opening| text.starts_with(opening));
        assert!(opens, "{} opens with `//!`", path.display());
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
    }
}

#[test]
fn every_kind_has_a_file_of_its_name_and_is_in_the_list_of_kinds() {
    let snake = |name: &str| {
        let parts = name.char_indices().map(|(at, c)| {
            if c.is_ascii_uppercase() && at > 0 {
                format!("_{}", c.to_ascii_lowercase())
            } else {
                c.to_ascii_lowercase().to_string()
            }
        });
        parts.collect::<String>()
    };
    for (folder, kinds) in [("platform-core", KINDS), ("platform-v1", platform_v1::resources::KINDS)] {
        let mut found = BTreeSet::new();
        for (path, text) in sources(&root().join(folder).join("src/resources")) {
            for kind in text.split("impl Resource for ").skip(1).filter_map(|rest| rest.split([' ', '{']).next()) {
                let file = path.file_stem().unwrap().to_str().unwrap();
                assert_eq!(snake(kind), file, "{kind} is in {}", path.display());
                found.insert(kind.to_owned());
            }
        }
        let listed: BTreeSet<_> = kinds.iter().map(|registered| registered.kind.name.to_owned()).collect();
        assert_eq!(found, listed);
    }
}

#[test]
fn core_and_engine_do_not_use_transports_databases_runtimes_environment_clocks_or_randomness() {
    let absent = [
        "http::",
        "hyper",
        "axum",
        "tower",
        "tonic",
        "prost",
        "rusqlite",
        "sqlx",
        "sled",
        "tokio",
        "futures::",
        "std::env",
        "env::var",
        "SystemTime",
        "Instant::now",
        "now_utc",
        "rand::",
        "getrandom",
        "std::fs",
        "std::net",
        "println!",
        "eprintln!",
    ];
    let (engine, v1) = (root().join("platform-engine"), root().join("platform-v1"));
    for (path, text) in [sources(&in_core("src")), sources(&v1.join("src")), sources(&engine.join("src"))].concat() {
        let code = code(&text);
        for word in absent {
            assert!(!code.contains(word), "{} has {word}", path.display());
        }
    }
    let manifests = [in_core("Cargo.toml"), v1.join("Cargo.toml"), engine.join("Cargo.toml")]
        .map(|path| fs::read_to_string(path).unwrap());
    let dependencies = manifests
        .iter()
        .map(|manifest| manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap());
    let dependencies: String = dependencies.collect();
    for name in ["tokio", "hyper", "http", "axum", "tower", "tonic", "rusqlite", "sled", "rand", "getrandom", "futures"]
    {
        let depends = dependencies.lines().any(|line| line.split(['.', ' ', '=']).next() == Some(name));
        assert!(!depends, "core, version 1 or the engine depends on {name}");
    }
}

#[test]
fn a_program_without_version_1_does_not_compile_it() {
    for folder in ["platform-core", "platform-services", "examples/embed", "examples/own-kind", "examples/service"] {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
        let mut lines = dependencies.lines().filter(|line| line.starts_with("platform-v1"));
        assert!(lines.all(|line| line.contains("optional = true")), "{folder} depends on version 1");
        assert!(!dependencies.contains("\"v1\""), "{folder} enables version 1");
    }
}

#[test]
fn the_transports_do_not_depend_on_the_contract() {
    for transport in ["platform-http", "platform-grpc"] {
        let manifest = fs::read_to_string(root().join(transport).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
        let names = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        let own: Vec<_> = names.filter(|name| name.starts_with("platform-")).collect();
        assert!(own.contains(&"platform-engine"), "{transport}: {own:?}");
        assert!(own.iter().all(|name| ["platform-engine", "platform-http"].contains(name)), "{transport}: {own:?}");
    }
}

#[test]
fn the_profile_of_tests_names_every_package() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let profile = manifest.split("[profile.dev.package]").nth(1).unwrap();
    let named: BTreeSet<_> = profile.lines().filter_map(|line| line.split(" = ").next()).collect();
    let folders = ["", "examples", "tests"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let manifests = folders.into_iter().flatten().map(|entry| entry.unwrap().path().join("Cargo.toml"));
    let mut packages = 0;
    for manifest in manifests.filter(|manifest| manifest.exists() && !manifest.ends_with("fuzz/Cargo.toml")) {
        let text = fs::read_to_string(&manifest).unwrap();
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).unwrap();
        assert!(named.contains(name), "[profile.dev.package] in Cargo.toml does not name {name}");
        packages += 1;
    }
    assert!(packages > 20, "{packages}");
}

#[test]
fn masks_orders_filters_and_tokens_do_not_depend_on_store_operations_or_resources() {
    let files = sources(&root().join("platform-engine/src/aip"));
    assert_eq!(files.len(), 11);
    for (path, text) in files {
        let code = code(&text);
        for word in ["resources", "platform::", "cx::", "Store,", "Query", "Commit", "Record"] {
            assert!(!code.contains(word), "{} has {word}", path.display());
        }
    }
}

#[test]
fn the_workspace_has_no_long_macros_and_no_unsafe_code() {
    for (path, text) in sources(&root()) {
        let code = code(&text);
        for definition in code.split("macro_rules!").skip(1) {
            let lines = definition.lines().take_while(|line| !line.starts_with('}')).count();
            assert!(lines <= 10, "{} has a macro of {lines} lines", path.display());
        }
        assert!(!code.contains("unsafe {") && !code.contains("unsafe fn"), "{}", path.display());
    }
}

#[test]
fn every_section_of_the_rules_that_code_refers_to_exists() {
    let rules = fs::read_to_string(root().join("docs/api.md")).unwrap();
    let sections: Vec<_> =
        rules.lines().filter_map(|line| Some(line.strip_prefix("##")?.trim_start_matches(['#', ' ']))).collect();
    assert_eq!(sections.iter().collect::<BTreeSet<_>>().len(), sections.len(), "two sections have the same name");
    let mut references = 0;
    for (path, text) in sources(&root()) {
        // A reference may continue on the next line of a comment.
        let joined = text.lines().map(|line| line.trim_start_matches(['/', '!', ' '])).collect::<Vec<_>>().join(" ");
        for reference in joined.split("`docs/api.md`, ").skip(1) {
            let mut rest = reference;
            // One section, or several: `Updates`, `Updates and Times`.
            while rest.starts_with(|c: char| c.is_ascii_uppercase()) {
                let known = sections.iter().filter(|section| rest.starts_with(**section)).max_by_key(|name| name.len());
                let section = known.unwrap_or_else(|| panic!("{} refers to a section {rest:.30}", path.display()));
                rest = &rest[section.len()..];
                rest = rest.strip_prefix(" and ").or_else(|| rest.strip_prefix(", ")).unwrap_or_default();
                references += 1;
            }
        }
    }
    assert!(references > 30, "{references}");
}

#[test]
fn every_path_that_the_maps_of_the_code_name_exists() {
    for map in ["ARCHITECTURE.md", "docs/code-map.md"] {
        every_path_exists(map);
    }
}

fn every_path_exists(map: &str) {
    let architecture = fs::read_to_string(root().join(map)).unwrap();
    let crates = |names: &str| -> Vec<PathBuf> {
        let names = names.split('`').skip(1).step_by(2).map(|name| root().join(name));
        names.filter(|path| path.join("Cargo.toml").exists()).collect()
    };
    let all: Vec<PathBuf> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").exists())
        .collect();
    let mut seen = 0;
    for section in architecture.split("\n##") {
        let (title, text) = section.split_once('\n').unwrap_or((section, ""));
        let of_section = crates(title);
        for name in text.split('`').skip(1).step_by(2) {
            let is_path = [".rs", ".md", ".txt", ".toml"].iter().any(|end| name.ends_with(end)) || name.ends_with('/');
            if !is_path || name.contains(['<', '{', ' ']) {
                continue;
            }
            let exists_in = |at: &PathBuf| ["", "src", "tests"].iter().any(|part| at.join(part).join(name).exists());
            let exists = if title.starts_with("# `") {
                // A section about several crates applies to each of them.
                of_section.iter().all(exists_in)
            } else {
                all.iter().any(exists_in) || root().join(name).exists()
            };
            assert!(exists, "{map}, {title}: {name}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}
