//! The file of a backup: a tar archive of known entries, which `tar` and `sha256sum -c SHA256SUMS` read too.
//!
//! | Entry | |
//! |---|---|
//! | `manifest.json` | the first: what the backup is of, and the versions that it needs |
//! | `bootstrap.json` | the uids of the first organization and the operator |
//! | `keys.json` | the keys, if the backup has them |
//! | `store.sqlite` or `store.ndjson` | a copy of the SQLite file, or an export |
//! | `blobs/<parent>/<digest>` | the blobs |
//! | `SHA256SUMS` | the last: the checksums of all others, so that a part of an archive is recognized |

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use platform_engine::{
    blob::{self, BlobId, BlobStore},
    store::MAX_COPIED,
    timestamp::Timestamp,
};
use platform_store_sqlite::SqliteStore;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType};
use zeroize::Zeroizing;

use crate::transfer;

/// The name of the format.
const FORMAT: &str = "platform-backup";
/// The version of the format that this release writes and reads.
const VERSION: u32 = 1;
/// The maximum length of a document, in bytes.
const MAX_DOCUMENT: u64 = 1 << 20;
/// The maximum length of the name of an entry: those of blobs have 103 bytes.
const MAX_PATH: usize = 200;
/// The maximum length of the checksums: several million blobs.
const MAX_SUMS: u64 = 1 << 30;

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const BOOTSTRAP: &str = "bootstrap.json";
pub(crate) const KEYS: &str = "keys.json";
pub(crate) const BLOBS: &str = "blobs";
const SUMS: &str = "SHA256SUMS";

/// The form in which a backup has the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    /// A copy of the file.
    Sqlite,
    /// An export, of any other store.
    Export,
}

impl Form {
    /// Returns the name of the entry.
    pub(crate) const fn entry(self) -> &'static str {
        match self {
            Self::Sqlite => "store.sqlite",
            Self::Export => "store.ndjson",
        }
    }

    /// Returns the version of the layout that this release reads and writes.
    pub(crate) fn layout(self) -> u32 {
        match self {
            Self::Sqlite => SqliteStore::LAYOUT,
            Self::Export => transfer::VERSION,
        }
    }
}

/// The source of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    /// The release that made the backup.
    pub(crate) release: String,
    pub(crate) store: Form,
    /// The layout of the store.
    pub(crate) layout: u32,
    /// The sequence of the last commit that the backup has.
    pub(crate) sequence: u64,
    /// When the backup was made.
    pub(crate) time: Timestamp,
    /// Whether it has the keys.
    pub(crate) keys: bool,
}

impl Manifest {
    pub(crate) fn new(store: Form, sequence: u64, time: Timestamp, keys: bool) -> Self {
        let release = env!("CARGO_PKG_VERSION").to_owned();
        let (format, version, layout) = (FORMAT.to_owned(), VERSION, store.layout());
        Self { format, version, release, store, layout, sequence, time, keys }
    }

    /// Rejects a manifest of another format or version.
    fn parse(json: &[u8]) -> Result<Self> {
        /// The keys that the manifest of every version has.
        #[derive(Deserialize)]
        struct Any {
            format: String,
            version: u32,
            release: String,
        }
        let this = env!("CARGO_PKG_VERSION");
        let any: Any = serde_json::from_slice(json).context("manifest.json is not that of a backup")?;
        if any.format != FORMAT {
            bail!("manifest.json must have the format {FORMAT}");
        }
        if any.version != VERSION {
            let Any { version, release, .. } = any;
            bail!(
                "the backup has version {version}, made by release {release}, and this release {this} reads version \
                 {VERSION}: restore it with release {release}"
            );
        }
        let manifest: Self = serde_json::from_slice(json).context("manifest.json is not valid")?;
        if manifest.sequence > MAX_COPIED {
            bail!("manifest.json is not valid: sequence must be at most {MAX_COPIED}");
        }
        let (layout, own) = (manifest.layout, manifest.store.layout());
        if layout != own {
            let next =
                if layout < own { ", `export` it there, and `import store` the file with this release" } else { "" };
            let release = &manifest.release;
            bail!(
                "the store in the backup has layout {layout}, made by release {release}, and this release {this} has \
                 layout {own}: restore it with release {release}{next}"
            );
        }
        Ok(manifest)
    }
}

/// The contents of an archive other than its manifest and the blobs.
#[derive(Debug)]
pub(crate) struct Contents<'a> {
    pub(crate) store: &'a Path,
    pub(crate) bootstrap: &'a [u8],
    pub(crate) keys: Option<Zeroizing<Vec<u8>>>,
}

/// Writes an archive.
pub(crate) fn write<W: Write>(
    out: W,
    manifest: &Manifest,
    contents: &Contents<'_>,
    blobs: &dyn BlobStore,
) -> Result<W> {
    let mut archive = Writer {
        tar: Builder::new(out),
        time: u64::try_from(manifest.time.millis() / 1000).unwrap_or(0),
        sums: String::new(),
    };
    archive.add(MANIFEST, &serde_json::to_vec_pretty(manifest)?)?;
    archive.add(BOOTSTRAP, contents.bootstrap)?;
    if let Some(keys) = &contents.keys {
        archive.add(KEYS, keys)?;
    }
    let store = File::open(contents.store).context("cannot read the copy of the store")?;
    let len = store.metadata().context("cannot read the copy of the store")?.len();
    archive.add_from(manifest.store.entry(), store, len)?;
    for id in blobs.list()? {
        // One that was deleted after the copy was made is named by no record in it: they are not deleted during a backup.
        if let Some(content) = blobs.get(&id).context("run `platform-server check`")? {
            let (parent, digest) = id.parts();
            archive.add(&format!("{BLOBS}/{parent}/{digest}"), &content)?;
        }
    }
    let sums = std::mem::take(&mut archive.sums);
    archive.add(SUMS, sums.as_bytes())?;
    archive.tar.into_inner().context("cannot write the backup")
}

struct Writer<W: Write> {
    tar: Builder<W>,
    time: u64,
    sums: String,
}

impl<W: Write> Writer<W> {
    fn add(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.add_from(path, content, content.len() as u64)
    }

    fn add_from(&mut self, path: &str, content: impl Read, len: u64) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(len);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        header.set_entry_type(EntryType::Regular);
        let mut content = Hashed { inner: content.take(len), hash: Sha256::new(), len: 0 };
        let added = self.tar.append_data(&mut header, path, &mut content);
        added.with_context(|| format!("cannot write the {path} of the backup"))?;
        if content.len != len {
            bail!("cannot read {path}: it has become shorter");
        }
        self.sums.push_str(&format!("{}  {path}\n", content.sum()));
        Ok(())
    }
}

/// A reader that computes the checksum of the bytes that are read.
struct Hashed<R> {
    inner: R,
    hash: Sha256,
    len: u64,
}

impl<R> Hashed<R> {
    fn sum(self) -> String {
        transfer::hex(&self.hash.finalize())
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        self.len += read as u64;
        Ok(read)
    }
}

/// Reads an archive to its end, verifies it, and writes its entries into a directory, if one is given, by their names.
/// Returns the manifest.
///
/// # Errors
/// Fails if an entry is missing, damaged or unknown, or if the archive is of another version. A part of the entries may
/// have been written.
pub(crate) fn unpack(input: impl Read, into: Option<&Path>) -> Result<Manifest> {
    let mut archive = Archive::new(BufReader::with_capacity(1 << 20, input));
    let (mut manifest, mut sums, mut is_complete) = (None, BTreeMap::new(), false);
    for entry in archive.entries().context("cannot read the backup")? {
        let entry = entry.context("the backup is truncated, or is no tar archive")?;
        let path = {
            let bytes = entry.path_bytes();
            let text = std::str::from_utf8(&bytes).ok().filter(|path| path.len() <= MAX_PATH);
            text.context("the backup has an entry whose name is not one of a backup")?.to_owned()
        };
        if entry.header().entry_type() != EntryType::Regular || sums.contains_key(&path) || is_complete {
            bail!("the backup has an entry `{}` that does not belong there", path.escape_debug());
        }
        let size = entry.size();
        let mut content = Hashed { inner: entry, hash: Sha256::new(), len: 0 };
        let mut document = |limit: u64| {
            let mut bytes = Zeroizing::new(Vec::new());
            if size > limit {
                bail!("`{path}` of the backup must have at most {limit} bytes");
            }
            content.read_to_end(&mut bytes).with_context(|| format!("cannot read `{path}` of the backup"))?;
            Ok(bytes)
        };
        match (&manifest, path.as_str()) {
            (None, MANIFEST) => manifest = Some(Manifest::parse(&document(MAX_DOCUMENT)?)?),
            (None, _) => bail!("the first entry must be {MANIFEST}: this is not a backup"),
            (Some(_), SUMS) => {
                let expected = document(MAX_SUMS)?;
                let found: String = sums.iter().map(|(path, sum)| format!("{sum}  {path}\n")).collect();
                compare(&expected, &found)?;
                is_complete = true;
            }
            (Some(_), BOOTSTRAP | KEYS) => {
                let bytes = document(MAX_DOCUMENT)?;
                copy_to(&mut &**bytes, into.map(|into| into.join(&path)), size)?;
            }
            (Some(known), name) if name == known.store.entry() => {
                copy_to(&mut content, into.map(|into| into.join(name)), size)?;
            }
            (Some(_), name) => {
                let id = name.strip_prefix("blobs/").and_then(|rest| rest.split_once('/'));
                let id = id.and_then(|(parent, digest)| BlobId::parse(parent, digest));
                let id = id.with_context(|| format!("the backup has an unknown entry `{}`", name.escape_debug()))?;
                if size > blob::MAX_LEN as u64 {
                    bail!("the blob {id} of the backup is too long");
                }
                let (parent, digest) = id.parts();
                let directory = into.map(|into| into.join(BLOBS).join(parent));
                if let Some(directory) = &directory {
                    let created = super::create_directory(directory);
                    created.with_context(|| format!("cannot create {}", directory.display()))?;
                }
                copy_to(&mut content, directory.map(|directory| directory.join(digest)), size)?;
            }
        }
        sums.insert(path, content.sum());
    }
    let manifest = manifest.context("the backup is empty")?;
    if !is_complete {
        bail!("the backup is truncated: it has no {SUMS}");
    }
    let required = [Some(manifest.store.entry()), Some(BOOTSTRAP), Some(KEYS).filter(|_| manifest.keys)];
    if let Some(missing) = required.into_iter().flatten().find(|name| !sums.contains_key(*name)) {
        bail!("the backup has no {missing}");
    }
    Ok(manifest)
}

/// Compares the list of checksums in an archive, in any order, with those of its entries, which are sorted.
fn compare(expected: &[u8], found: &str) -> Result<()> {
    let expected = std::str::from_utf8(expected).with_context(|| format!("{SUMS} of the backup is not text"))?;
    let path = |line: &str| line.split_once("  ").map_or("", |(_, path)| path).to_owned();
    let mut expected: Vec<_> = expected.lines().collect();
    expected.sort_by_key(|line| path(line));
    let mut found = found.lines();
    for line in expected {
        match found.next() {
            Some(own) if own == line => {}
            Some(own) if path(own) == path(line) => {
                bail!("`{}` of the backup is damaged: its checksum is wrong", path(line));
            }
            _ => bail!("`{}` of the backup is missing, or another entry was added", path(line)),
        }
    }
    match found.next() {
        None => Ok(()),
        Some(own) => bail!("`{}` was added to the backup", path(own)),
    }
}

/// Writes the content of an entry to a new file that only its owner can read, and syncs it; without a path, only reads it.
fn copy_to(content: &mut impl Read, path: Option<PathBuf>, size: u64) -> Result<()> {
    let mut file = path.as_deref().map(transfer::create_secret).transpose()?;
    let copied = match &mut file {
        Some(file) => io::copy(content, file).and_then(|copied| file.sync_all().map(|()| copied)),
        None => io::copy(content, &mut io::sink()),
    };
    if copied.context("cannot unpack the backup")? != size {
        bail!("the backup is truncated");
    }
    Ok(())
}

/// Syncs a directory and everything in it.
pub(crate) fn sync_all(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            sync_all(&entry?.path())?;
        }
    }
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use platform_engine::blob::MemoryBlobs;

    use super::*;

    /// Returns an archive with a store of some bytes.
    fn archive(store: &[u8], with_keys: bool) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        fs::write(&path, store).unwrap();
        let blobs = MemoryBlobs::default();
        for content in [&b"one"[..], b"two"] {
            blobs.put(&BlobId::of("parent", content), content, Timestamp::EPOCH).unwrap();
        }
        let keys = with_keys.then(|| Zeroizing::new(b"keys".to_vec()));
        let contents = Contents { store: &path, bootstrap: b"uids", keys };
        let manifest = Manifest::new(Form::Export, 7, Timestamp::from_millis(1_767_225_600_123), with_keys);
        write(Vec::new(), &manifest, &contents, &blobs).unwrap()
    }

    /// Unpacks an archive, and returns its manifest and its files by their names.
    fn unpacked(archive: &[u8]) -> Result<(Manifest, BTreeMap<String, Vec<u8>>)> {
        fn read(directory: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
                match entry.path() {
                    path if path.is_dir() => read(&path, &format!("{name}/"), files),
                    path => drop(files.insert(name, fs::read(path).unwrap())),
                }
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let unpacked = unpack(archive, Some(directory.path()));
        assert_eq!(unpacked.is_ok(), unpack(archive, None).is_ok(), "a verification finds what a restoration finds");
        let mut files = BTreeMap::new();
        read(directory.path(), "", &mut files);
        Ok((unpacked?, files))
    }

    /// Returns an archive with these entries and correct checksums.
    fn with_entries(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = Writer { tar: Builder::new(Vec::new()), time: 0, sums: String::new() };
        for (path, content) in entries {
            archive.add(path, content).unwrap();
        }
        let sums = std::mem::take(&mut archive.sums);
        archive.add(SUMS, sums.as_bytes()).unwrap();
        archive.tar.into_inner().unwrap()
    }

    #[test]
    fn an_archive_is_unpacked_as_it_was_written() {
        for with_keys in [true, false] {
            let store = vec![b'x'; 10_000];
            let (manifest, files) = unpacked(&archive(&store, with_keys)).unwrap();
            assert_eq!((manifest.sequence, manifest.keys, manifest.store), (7, with_keys, Form::Export));
            let blob = |content: &[u8]| (format!("blobs/{}", BlobId::of("parent", content)), content.to_vec());
            let mut expected: BTreeMap<_, _> = [blob(b"one"), blob(b"two")].into();
            expected.insert(BOOTSTRAP.to_owned(), b"uids".to_vec());
            expected.insert("store.ndjson".to_owned(), store);
            if with_keys {
                expected.insert(KEYS.to_owned(), b"keys".to_vec());
            }
            assert_eq!(files, expected);
        }
    }

    #[test]
    fn a_damaged_or_truncated_archive_is_refused() {
        let whole = archive(&[b'x'; 1000], true);
        let expected = unpacked(&whole).unwrap();
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..500 {
            let mut damaged = whole.clone();
            damaged[random.usize(0..whole.len())] ^= 1 << random.u8(0..8);
            // Only tar's padding is not verified.
            if unpack(&*damaged, None).is_ok() {
                assert_eq!(unpacked(&damaged).unwrap(), expected);
            }
        }
        // The last 1,024 bytes say only that the archive ends, and the padding of the checksums is before them.
        for _ in 0..100 {
            let len = random.usize(0..whole.len() - 1024 - 512);
            assert!(unpack(&whole[..len], None).is_err(), "{len}");
        }
    }

    #[test]
    fn an_archive_with_other_entries_or_of_another_version_is_refused() {
        let manifest = |change: &dyn Fn(&mut Manifest)| {
            let mut manifest = Manifest::new(Form::Export, 7, Timestamp::EPOCH, false);
            change(&mut manifest);
            serde_json::to_vec(&manifest).unwrap()
        };
        let own = manifest(&|_| {});
        let (bootstrap, store) = ((BOOTSTRAP, &b"uids"[..]), ("store.ndjson", &b"lines"[..]));
        unpacked(&with_entries(&[(MANIFEST, &own), bootstrap, store])).unwrap();
        let refused = |entries: &[(&str, &[u8])]| format!("{:#}", unpacked(&with_entries(entries)).unwrap_err());
        assert!(refused(&[(MANIFEST, &own), bootstrap]).contains("has no store.ndjson"));
        assert!(refused(&[bootstrap, (MANIFEST, &own), store]).contains("first entry"));
        assert!(refused(&[(MANIFEST, &own), bootstrap, store, bootstrap]).contains("does not belong"));
        for name in ["other", "blobs/x/y", "store.sqlite", "keys.json/x"] {
            assert!(refused(&[(MANIFEST, &own), bootstrap, store, (name, b"")]).contains("unknown entry"), "{name}");
        }
        let layout = manifest(&|manifest| (manifest.layout, manifest.release) = (9, "8.7.6".to_owned()));
        let error = refused(&[(MANIFEST, &layout), bootstrap, store]);
        assert!(error.contains("layout 9, made by release 8.7.6") && error.ends_with("with release 8.7.6"), "{error}");
        let last = manifest(&|manifest| manifest.sequence = MAX_COPIED + 1);
        assert!(
            refused(&[(MANIFEST, &last), bootstrap, store]).contains("sequence must be at most 4611686018427387904")
        );
        let earlier = manifest(&|manifest| manifest.layout = 0);
        assert!(refused(&[(MANIFEST, &earlier), bootstrap, store]).contains("`export` it there"));
        let version = manifest(&|manifest| manifest.version = 2);
        assert!(refused(&[(MANIFEST, &version), bootstrap, store]).contains("the backup has version 2"));
        let format = manifest(&|manifest| manifest.format = "other".to_owned());
        assert!(refused(&[(MANIFEST, &format), bootstrap, store]).contains("must have the format"));
    }
}
