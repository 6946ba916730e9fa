//! Checks that the compiled descriptor set matches the `.proto` files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use prost_reflect::DescriptorPool;
use protox::{
    Compiler, Error,
    file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver},
};

use crate::snapshot;

/// Resolves files in a folder. The files of `v2beta1` are those of `v2` with the version replaced.
struct Protos(PathBuf);

impl FileResolver for Protos {
    fn open_file(&self, name: &str) -> Result<File, Error> {
        let stored = self.0.join(name.replace("/v2beta1/", "/v2/"));
        let source = fs::read_to_string(stored).map_err(|_| Error::file_not_found(name))?;
        let beta = name.contains("/v2beta1/");
        let source = if beta { source.replace("/v2/", "/v2beta1/").replace(".v2", ".v2beta1") } else { source };
        File::from_source(name, &source)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../platform-core/proto")
}

/// Returns the names of the contract's files, sorted.
fn names() -> Vec<String> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, root, found);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(&folder().join("chainguard"), &folder(), &mut found);
    let beta: Vec<_> = found.iter().filter(|name| name.contains("/v2/")).cloned().collect();
    found.extend(beta.iter().map(|name| name.replace("/v2/", "/v2beta1/")));
    found.sort();
    found
}

fn compiled() -> Vec<u8> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Protos(folder()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true);
    for name in names() {
        compiler.open_file(&name).unwrap_or_else(|error| panic!("{error:?}"));
    }
    compiler.encode_file_descriptor_set()
}

/// Returns the descriptors of the files as they are, so that one run of the tests accepts all changes of a file.
pub(crate) fn pool() -> DescriptorPool {
    DescriptorPool::decode(compiled().as_slice()).unwrap()
}

/// Our own services are not part of the contract, and have descriptors of their own.
#[test]
fn the_compiled_descriptors_of_our_own_services_match_their_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut resolver = ChainFileResolver::new();
    resolver.add(IncludeFileResolver::new(root));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler
        .include_imports(true)
        .open_files(["platform/batch/v1/batch.proto", "platform/watch/v1/watch.proto"])
        .unwrap();
    snapshot::assert_snapshot("proto/own.binpb", compiler.encode_file_descriptor_set());
}

#[test]
fn the_compiled_descriptors_match_the_proto_files() {
    snapshot::assert_snapshot("../platform-core/proto/contract.binpb", compiled());
}
