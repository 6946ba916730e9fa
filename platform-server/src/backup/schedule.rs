//! Scheduled backups: a running server writes one at regular intervals, and deletes the oldest.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use platform_engine::{clock::Clock, timestamp::Timestamp};
use platform_system::SystemClock;
use tokio::{task::spawn_blocking, time::sleep};

use super::{Backups, DATABASE, command::write_file, create_directory};
use crate::{config::BackupOptions, stores::Origin};

/// How the names of scheduled backups begin and end; between is the time.
const NAME: (&str, &str) = ("platform-", ".tar");
/// The time after which a failed backup is tried again, unless the next one comes earlier.
const RETRY: Duration = Duration::from_secs(15 * 60);
/// The shortest interval.
const MIN_EVERY: Duration = Duration::from_secs(1);

/// Makes backups until the runtime stops, if the operator wants it.
///
/// # Errors
/// Fails for a database, and if the directory cannot be used.
pub(crate) fn start(options: &BackupOptions, backups: &Arc<Backups>) -> Result<()> {
    let Some(directory) = options.backup_dir.clone() else { return Ok(()) };
    if let Origin::Shared = backups.origin {
        bail!("--backup-dir: {DATABASE}");
    }
    create_directory(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    super::remove_temporary(&directory);
    let (every, keep, backups) = (options.backup_every.max(MIN_EVERY), options.backup_keep.get(), Arc::clone(backups));
    let mut next = next_due(&directory, every)?;
    tokio::spawn(async move {
        loop {
            sleep(next).await;
            let started = Instant::now();
            next = match make(&backups, &directory, keep).await {
                Ok((path, sequence)) => {
                    let (path, seconds) = (path.display(), started.elapsed().as_secs());
                    tracing::info!(%path, sequence, seconds, "made a backup");
                    every.saturating_sub(started.elapsed())
                }
                Err(error) => {
                    tracing::error!("cannot make a scheduled backup: {error:#}");
                    RETRY.min(every)
                }
            };
        }
    });
    Ok(())
}

/// Makes a backup, and deletes the oldest ones.
async fn make(backups: &Backups, directory: &Path, keep: usize) -> Result<(PathBuf, u64)> {
    let turn = Arc::clone(&backups.turn).lock_owned().await;
    let copy = backups.copy(true).await?;
    let path = directory.join(name(copy.manifest.time));
    let directory = directory.to_owned();
    let write = move || {
        let _turn = turn;
        let sequence = copy.manifest.sequence;
        write_file(&path, |file| copy.write(file))?;
        delete_oldest(&directory, keep)?;
        Ok((path, sequence))
    };
    spawn_blocking(write).await.context("the backup was interrupted")?
}

/// Deletes all scheduled backups but the newest.
fn delete_oldest(directory: &Path, keep: usize) -> Result<()> {
    for old in scheduled(directory)?.into_iter().rev().skip(keep) {
        let path = directory.join(name(old));
        fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
    }
    Ok(())
}

/// Returns the file name of a backup: `platform-2026-11-23T17:01:14.000Z.tar` without the punctuation in the time.
pub(super) fn name(time: Timestamp) -> String {
    let digits: String = time.to_string().chars().filter(|char| !matches!(char, '-' | ':' | '.')).collect();
    format!("{}{digits}{}", NAME.0, NAME.1)
}

/// Returns the time of a file name.
fn time_of(name: &str) -> Option<Timestamp> {
    let digits = name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?;
    let part = |range: std::ops::Range<usize>| digits.get(range);
    let text = format!(
        "{}-{}-{}:{}:{}.{}",
        part(0..4)?,
        part(4..6)?,
        part(6..11)?,
        part(11..13)?,
        part(13..15)?,
        part(15..digits.len())?
    );
    Timestamp::parse(&text).ok().filter(|time| self::name(*time) == name)
}

/// Returns the times of the backups in a directory, in ascending order. Other files are ignored.
fn scheduled(directory: &Path) -> Result<Vec<Timestamp>> {
    let entries = fs::read_dir(directory).and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
    let entries = entries.with_context(|| format!("cannot read {}", directory.display()))?;
    let mut times: Vec<_> = entries.iter().filter_map(|entry| entry.file_name().to_str().and_then(time_of)).collect();
    times.sort_unstable();
    Ok(times)
}

/// Returns the time until the next backup: at once if there is none or the last is too old, so that restarts do not
/// prevent backups.
fn next_due(directory: &Path, every: Duration) -> Result<Duration> {
    let Some(last) = scheduled(directory)?.pop() else { return Ok(Duration::ZERO) };
    let age = SystemClock.now().millis().saturating_sub(last.millis());
    Ok(every.saturating_sub(Duration::from_millis(u64::try_from(age).unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_scheduled_backups_have_a_time() {
        let time = Timestamp::from_millis(1_767_225_600_123);
        assert_eq!(name(time), "platform-20260101T000000123Z.tar");
        assert_eq!(time_of(&name(time)), Some(time));
        for other in
            ["platform-.tar", "platform-20260101T000000Z.tar", "platform-latest.tar", "x.tar", "platform-é.tar"]
        {
            assert_eq!(time_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_oldest_backups_are_deleted_and_other_files_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let time = |hour: i64| Timestamp::from_millis(1_767_225_600_000 + hour * 3_600_000);
        for hour in 0..5 {
            fs::write(directory.path().join(name(time(hour))), "").unwrap();
        }
        fs::write(directory.path().join("platform-mine.tar"), "").unwrap();
        delete_oldest(directory.path(), 2).unwrap();
        assert_eq!(scheduled(directory.path()).unwrap(), [time(3), time(4)]);
        assert!(directory.path().join("platform-mine.tar").exists());
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path(".platform-backup-copy/blobs")).unwrap();
        for name in [".platform-backup-archive", ".platform-other", "platform-latest.tar"] {
            fs::write(path(name), "").unwrap();
        }
        crate::backup::remove_temporary(directory.path());
        let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, [".platform-other", "platform-latest.tar"]);
    }

    #[test]
    fn the_next_backup_is_due_at_once_unless_there_is_a_recent_one() {
        let directory = tempfile::tempdir().unwrap();
        let every = Duration::from_secs(3600);
        assert_eq!(next_due(directory.path(), every).unwrap(), Duration::ZERO);
        fs::write(directory.path().join(name(Timestamp::from_millis(1_767_225_600_000))), "").unwrap();
        assert_eq!(next_due(directory.path(), every).unwrap(), Duration::ZERO);
        fs::write(directory.path().join(name(SystemClock.now())), "").unwrap();
        assert!(next_due(directory.path(), every).unwrap() > Duration::ZERO);
    }
}
