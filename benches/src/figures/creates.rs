//! Durable creates in process: by one client, and by 64 on top of an existing store, with the bytes that they write.

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use futures_util::future::join_all;
use platform_core::resources::registry::Repo;
use platform_engine::{
    access::Caller,
    idempotency::IdempotencyKey,
    options::RequestOptions,
    platform::{Platform, Settings},
    store::Store,
};
use platform_store_sqlite::SqliteStore;
use platform_system::{SystemClock, SystemEntropy};
use pollster::block_on;
use tokio::runtime::Builder;

use super::{count, large};
use crate::{
    data::{Data, copied, mix, operator, organization},
    measure::{Goal, Line, Times, bytes_written, compare, process_cpu, variable},
};

/// Number of concurrent clients.
const CLIENTS: usize = 64;

/// The number of repos in the store before the first create, unless `BENCH_REPOS` is less.
const BEFORE: u64 = 200_000;

/// A platform on a store, and the number of its next repo.
pub(super) struct Creator {
    platform: Platform,
    caller: Caller,
    next: AtomicU64,
    /// Whether each create has an idempotency key.
    is_keyed: bool,
}

impl Creator {
    /// Opens a platform on a store with the first organization.
    pub(super) fn over(store: Arc<dyn Store>) -> Self {
        let settings = Settings { operators: [operator()].into(), ..Settings::default() };
        let builder = platform_v1::builder(store, SystemClock, SystemEntropy).ephemeral_keys().settings(settings);
        let (caller, next) = (Caller::new(operator()), AtomicU64::new(0));
        Self { platform: builder.build().unwrap(), caller, next, is_keyed: false }
    }

    /// Opens a platform as [`Creator::over`] does, for creates with idempotency keys or without.
    fn keyed(store: Arc<dyn Store>, is_keyed: bool) -> Self {
        Self { is_keyed, ..Self::over(store) }
    }

    /// Creates a repo of about 400 bytes in the first organization.
    async fn create(&self) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let spread = mix(number);
        let repo = Repo {
            name: format!("created-{spread:016x}-{number}"),
            description: format!("An image of the service {spread:016x}, rebuilt every night from source and scanned"),
            active_tags: vec!["latest".to_owned(), "1.29".to_owned()],
            ..Repo::default()
        };
        let key = self.is_keyed.then(|| IdempotencyKey::parse(format!("{spread:016x}-{number}").as_bytes()).unwrap());
        let options = RequestOptions::default().idempotency_key(key);
        self.platform.create_with(&self.caller, &organization(0), &repo, &options).await.unwrap();
    }
}

/// The cost of creates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Created {
    /// Creates per second.
    pub(super) rate: f64,
    /// The processor time of the process per create, in microseconds.
    pub(super) cpu: f64,
    /// The bytes that the process wrote per create until the store was closed.
    pub(super) written: f64,
}

/// Creates this number of repos with 64 clients, and closes the store.
pub(super) fn created(store: Arc<dyn Store>, creates: u64) -> Created {
    created_by(Creator::over(store), creates)
}

fn created_by(creator: Creator, creates: u64) -> Created {
    let (written, cpu, started) = (bytes_written(), process_cpu(), Instant::now());
    let creator = Arc::new(creator);
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let left = Arc::new(AtomicU64::new(creates));
        let client = |_| {
            let (creator, left) = (Arc::clone(&creator), Arc::clone(&left));
            tokio::spawn(async move {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    creator.create().await;
                }
            })
        };
        join_all((0..CLIENTS).map(client)).await.into_iter().for_each(|client| client.unwrap());
    });
    let time = started.elapsed().as_secs_f64();
    drop(runtime);
    // The last owner of the store.
    drop(Arc::into_inner(creator).unwrap());
    let per = |total: f64| total / creates as f64;
    Created {
        rate: creates as f64 / time,
        cpu: per((process_cpu() - cpu) * 1e6),
        written: per((bytes_written() - written) as f64),
    }
}

/// Compares creates by one client with an append of 4 KiB to a file and `fdatasync`.
pub(super) fn one_client(name: &str, store: Arc<dyn Store>, directory: &Path, goal: Goal) -> Line {
    let creator = Creator::over(store);
    let mut file = File::create(directory.join("appended")).unwrap();
    let page = [7; 4096];
    let append = |_| {
        file.write_all(&page).unwrap();
        file.sync_data().unwrap();
    };
    // So many that most are after the first checkpoint. Until then the log of SQLite grows, which is slower to sync than
    // a log that overwrites what it has, as that of a server does nearly always.
    let compared = compare(Times::of(1_000), |_| block_on(creator.create()), append);
    // The processor time of a create is that of the writer's thread, too, so that of the caller's means nothing.
    Line { cpu: None, ..Line::ratio(name, compared, goal) }
}

/// Measures creates by one client.
pub fn lines() -> Vec<Line> {
    let data = Data::One(large().min(BEFORE));
    let (directory, path) = copied(&data.sqlite());
    let name = format!("creates: one client, of {} / 4 KiB and fdatasync", count(data.repos()));
    let store = Arc::new(SqliteStore::open(path).unwrap());
    vec![one_client(&name, store, directory.path(), Goal::AtMost(2.5, 1.5))]
}

/// The number of creates of [`written_lines`]: `BENCH_CREATES`, by default 100,000.
pub(super) fn creates() -> u64 {
    variable("BENCH_CREATES", 100_000)
}

/// Measures the bytes written by creates of 64 clients, until the store is closed.
pub fn written_lines() -> Vec<Line> {
    let mut lines = Vec::new();
    let mut sizes = vec![(large().min(BEFORE), Goal::AtMost(8.0, 4.0))];
    if large() > BEFORE {
        sizes.push((large(), Goal::AtMost(12.0, 6.0)));
    }
    for (before, goal) in sizes {
        let (_directory, path) = copied(&Data::One(before).sqlite());
        let created = created(Arc::new(SqliteStore::open(path).unwrap()), creates());
        lines.extend(created.lines(&format!("written: on {}, 64 clients", count(before)), goal));
    }
    lines
}

/// Compares creates of 64 clients with idempotency keys with creates without.
pub fn keyed_lines() -> Vec<Line> {
    let rate = |is_keyed| {
        let (_directory, path) = copied(&Data::One(large().min(BEFORE)).sqlite());
        created_by(Creator::keyed(Arc::new(SqliteStore::open(path).unwrap()), is_keyed), creates()).rate
    };
    let mut ratios: Vec<_> = (0..3).map(|_| rate(true) / rate(false)).collect();
    ratios.sort_by(f64::total_cmp);
    let name = "keyed: 64 clients, creates a second with idempotency keys / without";
    vec![Line::value(name, ratios[1], Goal::AtLeast(0.85, 0.85))]
}

impl Created {
    /// Returns a line with the bytes written, which has the goal, and two with the processor time and the rate.
    pub(super) fn lines(self, name: &str, goal: Goal) -> [Line; 3] {
        [
            Line::value(format!("{name}, KB per create"), self.written / 1e3, goal),
            Line::value(format!("{name}, us of CPU per create"), self.cpu, Goal::None),
            Line::value(format!("{name}, creates a second"), self.rate, Goal::None),
        ]
    }
}
