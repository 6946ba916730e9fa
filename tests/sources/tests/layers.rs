//! Checks the layers of each crate by its imports: files that import each other form a cycle, and a cycle has at most
//! three files.
//!
//! A file depends on the files that define the items in its `use` declarations and its `crate::` and `super::` paths.
//! Re-exports are followed and are not dependencies themselves: a parent module that exports its children is a table of
//! contents. Unit tests are ignored.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "that is how tests fail")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use syn::{
    Item, UseTree, Visibility,
    visit::{self, Visit},
};

/// The maximum number of files in a cycle.
const MAX_CYCLE: usize = 3;

type Module = Vec<String>;

/// A name that a file uses or exports: the path from the root of the crate.
type Name = Vec<String>;

struct Source {
    uses: BTreeSet<Name>,
    exports: BTreeSet<Name>,
}

/// Collects the names of a file.
struct Names<'m> {
    module: &'m Module,
    children: BTreeSet<String>,
    source: Source,
}

impl Names<'_> {
    /// Returns a path from the root of the crate; `None` for a path of another crate.
    fn absolute(&self, path: &[String]) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let mut base: Name = match first.as_str() {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => self.module.split_last()?.1.to_vec(),
            child if self.children.contains(child) => [self.module.as_slice(), &[child.to_owned()]].concat(),
            _ => return None,
        };
        let mut rest = rest.iter().peekable();
        while rest.next_if(|segment| *segment == "super").is_some() {
            base.pop();
        }
        base.extend(rest.cloned());
        Some(base)
    }

    fn tree(&mut self, prefix: &[String], tree: &UseTree, exported: bool) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        let leaf = match tree {
            UseTree::Path(path) => return self.tree(&with(&path.ident), &path.tree, exported),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.tree(prefix, tree, exported)),
            UseTree::Name(name) if name.ident == "self" => prefix.to_vec(),
            UseTree::Name(name) => with(&name.ident),
            UseTree::Rename(rename) => with(&rename.ident),
            UseTree::Glob(_) => prefix.to_vec(),
        };
        if let Some(name) = self.absolute(&leaf) {
            if exported {
                self.source.exports.insert(name)
            } else {
                self.source.uses.insert(name)
            };
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) => {}
            Item::Use(item) => {
                let exported = !matches!(item.vis, Visibility::Inherited);
                self.tree(&[], &item.tree, exported);
            }
            other => visit::visit_item(self, other),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        // A single segment is the path of `pub(super)`.
        if segments.len() > 1
            && matches!(segments.first().map(String::as_str), Some("crate" | "super"))
            && let Some(name) = self.absolute(&segments)
        {
            self.source.uses.insert(name);
        }
        visit::visit_path(self, path);
    }
}

/// Returns the modules of the files below a directory.
fn modules(directory: &Path, prefix: &Module, found: &mut BTreeMap<Module, String>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let module = [prefix.as_slice(), &[path.file_stem().unwrap().to_str().unwrap().to_owned()]].concat();
        match path.extension() {
            None => modules(&path, &module, found),
            Some(end) if end == "rs" => drop(found.insert(module, fs::read_to_string(&path).unwrap())),
            Some(_) => {}
        }
    }
}

/// Returns the files that each file of a crate depends on.
fn dependencies(texts: &BTreeMap<Module, String>) -> BTreeMap<&Module, BTreeSet<&Module>> {
    let sources: BTreeMap<&Module, Source> = texts
        .iter()
        .map(|(module, text)| {
            let is_child = |other: &&Module| other.split_last().is_some_and(|(_, parent)| parent == module.as_slice());
            let children = texts.keys().filter(is_child).filter_map(|child| child.last().cloned()).collect();
            let source = Source { uses: BTreeSet::new(), exports: BTreeSet::new() };
            let mut names = Names { module, children, source };
            names.visit_file(&syn::parse_file(text).unwrap());
            (module, names.source)
        })
        .collect();
    // The file that a name leads to, and the rest of the name.
    let find = |name: &Name| {
        (1..=name.len()).rev().find_map(|len| {
            let (module, _) = texts.get_key_value(name.get(..len)?)?;
            Some((module, name[len..].to_vec()))
        })
    };
    let defined = |name: &Name| {
        let mut found = find(name)?;
        // Follows re-exports, of which there are never more than a few in a row.
        for _ in 0..5 {
            let Some(item) = found.1.first() else { break };
            let exported = sources[found.0].exports.iter().find(|export| export.last() == Some(item));
            match exported.and_then(&find) {
                Some(next) => found = next,
                None => break,
            }
        }
        Some(found.0)
    };
    let of_file = |module: &Module, source: &Source| {
        source.uses.iter().filter_map(defined).filter(|other| *other != module).collect()
    };
    sources.iter().map(|(module, source)| (*module, of_file(module, source))).collect()
}

/// Returns all files that a file depends on, directly or not.
fn reachable<'m>(from: &Module, graph: &BTreeMap<&'m Module, BTreeSet<&'m Module>>) -> BTreeSet<&'m Module> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        for other in graph.get(module).into_iter().flatten() {
            if seen.insert(*other) {
                next.push(other);
            }
        }
    }
    seen
}

#[test]
fn no_import_cycle_has_more_than_three_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let crates: Vec<_> = crates.filter(|name| name.starts_with("platform-")).collect();
    assert!(crates.len() > 7, "{crates:?}");
    let mut wrong = Vec::new();
    for name in &crates {
        let mut texts = BTreeMap::new();
        modules(&root.join(name).join("src"), &Vec::new(), &mut texts);
        assert!(!texts.is_empty(), "{name}");
        let graph = dependencies(&texts);
        let all: BTreeMap<_, _> = graph.keys().map(|module| (*module, reachable(module, &graph))).collect();
        let mut done = BTreeSet::new();
        for (module, below) in &all {
            let cycle: BTreeSet<_> = below.iter().filter(|other| all[**other].contains(module)).collect();
            let files: Vec<_> = cycle.iter().map(|module| module.join("::")).collect();
            if cycle.len() > MAX_CYCLE && done.insert(files.clone()) {
                let edges = cycle.iter().flat_map(|from| {
                    let to = graph[**from].iter().filter(|to| cycle.contains(to));
                    to.map(|to| format!("{} -> {}", from.join("::"), to.join("::")))
                });
                wrong.push(format!(
                    "{name}: {} files import each other: {:#?}",
                    files.len(),
                    edges.collect::<Vec<_>>()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
