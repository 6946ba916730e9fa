//! Bounded thread pool for CPU-heavy work.

use std::{collections::HashMap, num::NonZero, sync::Arc, thread::available_parallelism};

use parking_lot::Mutex;
use platform_engine::{
    BoxFuture,
    error::{Error, Result},
    offload::{Offload, Work},
};
use tokio::sync::Semaphore;

/// Runs CPU-heavy work on the runtime's blocking threads: one job per processor at a time, with a bounded queue and a
/// share of the queue for each organization.
#[derive(Debug)]
pub struct Pool {
    processors: Arc<Semaphore>,
    jobs: Arc<Mutex<Jobs>>,
    bounds: PoolBounds,
}

/// Maximum number of jobs that are queued or running. Further jobs get RESOURCE_EXHAUSTED.
#[derive(Debug, Clone, Copy)]
pub struct PoolBounds {
    /// Total of all organizations.
    pub all: usize,
    /// Share of one organization.
    pub share: usize,
}

impl Default for PoolBounds {
    /// Returns bounds of 256 jobs, 8 of them for one organization.
    fn default() -> Self {
        Self { all: 256, share: 8 }
    }
}

/// Number of jobs that are queued or running.
#[derive(Debug, Default)]
struct Jobs {
    all: usize,
    by_share: HashMap<Box<str>, usize>,
}

/// Slot of a job that is queued or running, released on drop.
struct Slot {
    jobs: Arc<Mutex<Jobs>>,
    share: Box<str>,
}

impl Pool {
    /// Returns a pool with these bounds.
    pub fn new(bounds: PoolBounds) -> Self {
        Self::with_processors(bounds, available_parallelism().map_or(1, NonZero::get))
    }

    fn with_processors(bounds: PoolBounds, processors: usize) -> Self {
        Self { processors: Arc::new(Semaphore::new(processors)), jobs: Arc::default(), bounds }
    }

    fn slot(&self, share: &str) -> Option<Slot> {
        let mut jobs = self.jobs.lock();
        let of_share = jobs.by_share.get(share).copied().unwrap_or_default();
        if jobs.all >= self.bounds.all || of_share >= self.bounds.share {
            return None;
        }
        jobs.all += 1;
        jobs.by_share.insert(share.into(), of_share + 1);
        Some(Slot { jobs: Arc::clone(&self.jobs), share: share.into() })
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(PoolBounds::default())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut jobs = self.jobs.lock();
        jobs.all = jobs.all.saturating_sub(1);
        if let Some(of_share) = jobs.by_share.get_mut(&self.share) {
            *of_share -= 1;
            if *of_share == 0 {
                jobs.by_share.remove(&self.share);
            }
        }
    }
}

impl Offload for Pool {
    fn run<'a>(&'a self, share: &'a str, work: Work) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let slot = self.slot(share).ok_or_else(Error::exhausted)?;
            // Acquired before the thread, so that queued jobs do not occupy blocking threads.
            let processor = Arc::clone(&self.processors).acquire_owned().await.map_err(Error::internal)?;
            let job = move || {
                work();
                // Work goes on when its request is dropped, and keeps its slot and processor until it is done.
                drop((slot, processor));
            };
            tokio::task::spawn_blocking(job).await.map_err(Error::internal)
        })
    }

    /// Defers the task until the thread has polled its other tasks and the driver of the runtime. It does not wake
    /// itself, as the thread would then have a task to poll, and not look at its sockets.
    fn pause(&self) -> BoxFuture<'static, ()> {
        Box::pin(tokio::task::yield_now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    };

    use platform_engine::error::Code;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::UnixStream,
    };

    use super::*;

    #[tokio::test]
    async fn one_organization_cannot_use_the_whole_queue() {
        let pool = Arc::new(Pool::with_processors(PoolBounds { all: 3, share: 2 }, 3));
        let spawn = |share: &'static str| {
            let (release, wait) = mpsc::channel::<()>();
            let pool = Arc::clone(&pool);
            let work: Work = Box::new(move || wait.recv().unwrap_or_default());
            (release, tokio::spawn(async move { pool.run(share, work).await }))
        };
        let refused = async |share: &'static str| pool.run(share, Box::new(|| ())).await.map_err(|error| error.code());
        let (mut releases, mut jobs) = (Vec::new(), Vec::new());
        for share in ["a", "a", "b"] {
            let (release, job) = spawn(share);
            releases.push(release);
            jobs.push(job);
        }
        while pool.jobs.lock().all < 3 {
            tokio::task::yield_now().await;
        }
        for share in ["a", "b", "c"] {
            assert_eq!(refused(share).await, Err(Code::ResourceExhausted), "{share}");
        }
        // One of the two jobs of `a` ends.
        drop(releases.remove(0));
        jobs.remove(0).await.unwrap().unwrap();
        assert_eq!(refused("c").await, Ok(()));
        assert_eq!(refused("a").await, Ok(()));
        drop(releases);
        for job in jobs {
            job.await.unwrap().unwrap();
        }
        let jobs = pool.jobs.lock();
        assert_eq!((jobs.all, jobs.by_share.len()), (0, 0));
    }

    #[tokio::test]
    async fn events_of_sockets_are_received_during_a_pause() {
        let (pool, pauses) = (Arc::new(Pool::default()), Arc::new(AtomicU64::new(0)));
        let busy = tokio::spawn({
            let (pool, pauses) = (Arc::clone(&pool), Arc::clone(&pauses));
            async move {
                loop {
                    pool.pause().await;
                    pauses.fetch_add(1, Relaxed);
                }
            }
        });
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let reader = tokio::spawn({
            let pauses = Arc::clone(&pauses);
            async move {
                near.read_u8().await.unwrap();
                pauses.load(Relaxed)
            }
        });
        // By then, the reader waits.
        while pauses.load(Relaxed) < 10 {
            tokio::task::yield_now().await;
        }
        far.write_u8(1).await.unwrap();
        let written = pauses.load(Relaxed);
        // With tasks that wake themselves, sockets would be looked at after 61 of them.
        let read = reader.await.unwrap();
        assert!(read - written < 8, "{} pauses", read - written);
        busy.abort();
    }

    #[tokio::test]
    async fn work_of_a_dropped_request_keeps_its_slot_until_it_is_done() {
        let pool = Arc::new(Pool::new(PoolBounds { all: 1, share: 1 }));
        let (release, wait) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel::<()>();
        let work: Work = Box::new(move || {
            started.send(()).unwrap();
            wait.recv().unwrap_or_default();
        });
        let job = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move { pool.run("a", work).await }
        });
        while has_started.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        job.abort();
        assert!(job.await.unwrap_err().is_cancelled());
        assert_eq!(pool.jobs.lock().all, 1);
        drop(release);
        while pool.jobs.lock().all > 0 {
            tokio::task::yield_now().await;
        }
    }
}
