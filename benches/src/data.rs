//! The data of the benchmarks, cached in `target/bench-data`.
//!
//! A repo has about 330 bytes of JSON. Half of the repos of one organization are its children and half are in ten
//! folders, so that there are subtrees and lists of children of several sizes.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use platform_core::{
    iam::{Bootstrap, Iam},
    resources::{
        iam::Group,
        registry::{Repo, repo::CatalogTier},
    },
};
use platform_engine::{
    store::{Commit, Put, Store, memory::MemoryStore},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use platform_store_sled::SledStore;
use platform_store_sqlite::SqliteStore;
use platform_system::{SystemClock, SystemEntropy};

/// Number of records per commit while data is created.
const BATCH: u64 = 5_000;

/// Number of folders in an organization.
const FOLDERS: u64 = 10;

/// A data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// This number of repos in one organization.
    One(u64),
    /// This number of organizations with a thousand repos each. The operator owns the first.
    Many(u64),
    /// The same, and the operator owns all.
    Owned(u64),
    /// This number of repos in the first organization, after a second organization with a thousand. The operator owns
    /// both.
    Neighbors(u64),
}

/// The number of repos in each organization of [`Data::Many`], and in the small one of [`Data::Neighbors`].
pub const EACH: u64 = 1_000;

impl Data {
    /// Returns the number of repos.
    pub const fn repos(self) -> u64 {
        match self {
            Self::One(repos) => repos,
            Self::Many(organizations) | Self::Owned(organizations) => organizations * EACH,
            Self::Neighbors(repos) => repos + EACH,
        }
    }

    /// Returns the number of the organization of a repo.
    pub const fn organization_of(self, number: u64) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Many(_) | Self::Owned(_) => number / EACH,
            Self::Neighbors(_) => (number < EACH) as u64,
        }
    }

    /// Returns a repo by its number, which must be less than [`Data::repos`].
    pub fn repo(self, number: u64) -> Repo {
        let parent = match self {
            Self::One(_) if !number.is_multiple_of(2) => folder(number / 2 % FOLDERS),
            _ => organization(self.organization_of(number)),
        };
        let spread = mix(number);
        let subject = ["nginx", "python", "postgres", "redis", "node", "go", "kafka", "ruby"][(spread % 8) as usize];
        let created = Timestamp::from_millis(1_760_000_000_000 + (number * 7_919 % 1_000_003).cast_signed() * 1_000);
        Repo {
            uid: Uid::opaque(format!("{parent}/{spread:016x}")),
            // The first digits make the order of names differ from that of numbers.
            name: format!("{:05x}-{subject}-{number}", spread >> 44),
            description: format!("A minimal image of {subject}, rebuilt every night from source"),
            catalog_tier: [CatalogTier::CatalogTierApplication, CatalogTier::CatalogTierBase][(spread % 2) as usize],
            bundles: vec!["application".to_owned()],
            active_tags: vec!["latest".to_owned(), "1.29".to_owned()],
            create_time: Some(created),
            update_time: Some(created.plus_millis(86_400_000)),
            ..Repo::default()
        }
    }

    /// Returns the records of a store, except those that the bootstrap creates.
    fn puts(self) -> impl Iterator<Item = Put> {
        let groups: Vec<(Uid, String)> = match self {
            Self::One(_) => (0..FOLDERS).map(|number| (folder(number), format!("folder {number}"))).collect(),
            Self::Many(many) => (1..many).map(|number| (organization(number), format!("org {number}"))).collect(),
            // The bootstrap creates them.
            Self::Owned(_) | Self::Neighbors(_) => Vec::new(),
        };
        let groups = groups.into_iter().map(|(uid, name)| {
            let now = Some(Timestamp::from_millis(1_760_000_000_000));
            put(&Group { uid: uid.clone(), name, create_time: now, update_time: now, ..Group::default() }, &uid)
        });
        groups.chain((0..self.repos()).map(move |number| repo_put(&self.repo(number))))
    }

    /// Returns the number of organizations that the operator owns.
    const fn owned(self) -> u64 {
        match self {
            Self::One(_) | Self::Many(_) => 1,
            Self::Owned(many) => many,
            Self::Neighbors(_) => 2,
        }
    }

    fn name(self) -> String {
        match self {
            Self::One(repos) => format!("one-{repos}"),
            Self::Many(organizations) => format!("many-{organizations}"),
            Self::Owned(organizations) => format!("owned-{organizations}"),
            Self::Neighbors(repos) => format!("neighbors-{repos}"),
        }
    }

    /// Returns a new memory store with this data.
    pub fn memory(self) -> MemoryStore {
        let store = Arc::new(MemoryStore::new());
        pollster::block_on(self.fill(store.clone()));
        Arc::into_inner(store).unwrap()
    }

    /// Returns the file of a SQLite store with this data, and creates it if it is missing.
    pub fn sqlite(self) -> PathBuf {
        let open = |path: &Path| SqliteStore::builder().bulk_load(true).open(path).unwrap();
        self.cached("sqlite", |path| pollster::block_on(self.fill(Arc::new(open(path)))))
    }

    /// Returns the directory of a sled store with this data, and creates it if it is missing.
    pub fn sled(self) -> PathBuf {
        self.cached("sled", |path| pollster::block_on(self.fill(Arc::new(SledStore::open(path).unwrap()))))
    }

    /// Returns the directory of a store over redb with this data, and creates it if it is missing.
    pub fn redb(self) -> PathBuf {
        self.cached("redb", |path| pollster::block_on(self.fill(Arc::new(own_store::open(path).unwrap()))))
    }

    /// Returns the path of a file derived from this data, and creates it if it is missing.
    pub fn cached(self, suffix: &str, make: impl FnOnce(&Path)) -> PathBuf {
        cached(&format!("{}.{suffix}", self.name()), make)
    }

    /// Bootstraps an empty store and writes this data to it.
    pub async fn fill(self, store: Arc<dyn Store>) {
        fill(store, self.owned(), self.puts()).await;
    }
}

/// Copies a store that is not open, a file or a directory, into a new directory, which is deleted with the returned value.
pub fn copied(store: &Path) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(directory()).unwrap();
    let path = directory.path().join("platform.sqlite");
    copy(store, &path);
    (directory, path)
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
        return;
    }
    fs::copy(from, to).unwrap();
    fs::File::open(to).unwrap().sync_all().unwrap();
}

/// Returns the bytes of a file, or of all files in a directory.
pub fn size(path: &Path) -> u64 {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().map(|entry| size(&entry.unwrap().path())).sum();
    }
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Returns the path of a file in [`directory`], and creates it if it is missing: under another name at first, so that
/// an existing file is always complete.
pub fn cached(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let path = directory().join(name);
    if !path.exists() {
        let new = directory().join(format!("{name}-new"));
        let _ = fs::remove_file(&new).or_else(|_| fs::remove_dir_all(&new));
        let start = Instant::now();
        eprintln!("creating {}", path.display());
        make(&new);
        fs::rename(&new, &path).unwrap();
        eprintln!("created in {:.0?}", start.elapsed());
    }
    path
}

/// Bootstraps an empty store with this number of organizations of the operator, and writes records to it.
pub async fn fill(store: Arc<dyn Store>, owned: u64, mut puts: impl Iterator<Item = Put>) {
    let platform =
        platform_v1::builder(Arc::clone(&store), SystemClock, SystemEntropy).ephemeral_keys().build().unwrap();
    for number in 0..owned {
        let organization_name = if number == 0 { "platform".to_owned() } else { format!("org {number}") };
        let first = Bootstrap { organization: organization(number), organization_name, operator: operator() };
        Iam::of(&platform).bootstrap(&first).await.unwrap();
    }
    loop {
        let put: Vec<_> = puts.by_ref().take(BATCH as usize).collect();
        if put.is_empty() {
            return;
        }
        store.commit(Commit { put, ..Commit::default() }).await.unwrap();
    }
}

/// Returns the directory of the data.
pub fn directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("target"), PathBuf::from);
    let directory = target.join("bench-data");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Returns a pseudorandom number, which differs for each argument.
pub fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Returns the uid of an organization. The operator owns the first.
pub fn organization(number: u64) -> Uid {
    Uid::opaque(format!("{:016x}{:024x}", mix(number + 1), number))
}

/// Returns the uid of a folder of the first organization.
pub fn folder(number: u64) -> Uid {
    Uid::opaque(format!("{}/{:016x}", organization(0), mix(number + 77)))
}

/// Returns the uid of the operator, who owns only the first organization.
pub fn operator() -> Uid {
    Uid::from_digest([0x0f; 20])
}

/// Returns the record that a create of the repo would write.
pub fn repo_put(repo: &Repo) -> Put {
    put(repo, &repo.uid)
}

/// Returns the record that a create of the resource would write.
pub fn put<R: platform_engine::kind::Resource>(resource: &R, uid: &Uid) -> Put {
    let mut write = Write::default();
    write.put(uid, resource, Bytes::new()).unwrap();
    write.into_commit().put.pop().unwrap()
}
