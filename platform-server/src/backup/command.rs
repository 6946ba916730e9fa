//! `platform-server backup`: of a running server by its endpoint, or of the store of a stopped one.

use std::{
    fs::File,
    io::{IsTerminal, Seek, SeekFrom, Write, copy, stderr, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use platform_engine::clock::Clock;
use platform_system::SystemClock;
use serde::Deserialize;
use serde_json::Value;

use super::{Backups, DATABASE, archive, restore::verify, schedule};
use crate::{
    cli::{Backup, BackupCommand},
    config::Config,
    installation::{Installation, block_on},
    running::{bearer, client},
    stores::{is_in_use, store_path},
};

/// The interval at which the progress of a running server is read.
const POLL: Duration = Duration::from_millis(250);
/// The maximum length of an error response.
const MAX_ERROR: u64 = 64 << 10;

pub(crate) fn run(config: &Config, backup: &Backup) -> Result<ExitCode> {
    if let Some(BackupCommand::Verify { file }) = &backup.command {
        return verify(file, config.kinds);
    }
    let api = backup.at.url();
    if api.is_none() && config.store.is_shared() {
        bail!(DATABASE);
    }
    match api {
        Some(url) => {
            let url = url.to_owned();
            save(backup, |out| remote(config, backup, &url, out))?;
        }
        None if !has_store(config) => save(backup, |out| {
            let made = running(config, backup, out);
            made.with_context(|| match store_path(config) {
                Some(path) => format!("no store at {}: choose another with --data-dir or --store", path.display()),
                None => "a memory store exists only inside its server process".to_owned(),
            })
        })?,
        None => save(backup, |out| match direct(config, backup, out) {
            // Nothing was written yet.
            Err(error) if is_in_use(&error) => running(config, backup, out),
            done => done,
        })?,
    }
    if backup.without_keys {
        writeln!(
            stderr(),
            "the backup has no keys. A server does not start without them; with new keys, all secrets in the store are \
             lost, such as the client secrets of identity providers. Keep those of `platform-server keys export` in \
             another place, and pass them to `restore --keys`"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Passes standard output, or a new file that only its owner can read, to a function that writes a backup to it.
fn save(backup: &Backup, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let path = match &backup.to {
        Some(path) if path.as_os_str() == "-" => {
            let mut out = stdout().lock();
            write(&mut out)?;
            return out.flush().context("cannot write the backup");
        }
        Some(path) => path.clone(),
        None => PathBuf::from(schedule::name(SystemClock.now())),
    };
    let mut manifest = None;
    write_file(&path, |mut file| {
        write(&mut file)?;
        // The received file is verified before it gets its name.
        file.seek(SeekFrom::Start(0)).context("cannot read the backup")?;
        manifest = Some(archive::unpack(&file, None)?);
        Ok(file)
    })?;
    if let Some(manifest) = manifest {
        writeln!(stdout(), "{}: sequence {}", path.display(), manifest.sequence)?;
    }
    Ok(())
}

/// Writes a new file, which only its owner can read, under a temporary name, and makes it durable.
///
/// # Errors
/// Fails if the file exists.
pub(super) fn write_file(path: &Path, write: impl FnOnce(File) -> Result<File>) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if path.exists() {
        bail!("{} exists", path.display());
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = tempfile::Builder::new().prefix(super::TEMPORARY).tempfile_in(directory).with_context(failed)?;
    write(new.reopen().with_context(failed)?)?.sync_all().with_context(failed)?;
    new.persist_noclobber(path).with_context(failed)?;
    File::open(directory).and_then(|directory| directory.sync_all()).with_context(failed)
}

/// Returns whether the configured store exists. Without it, the server of the data directory can have another one.
fn has_store(config: &Config) -> bool {
    store_path(config).is_some_and(|path| path.exists())
}

/// Backs up the store of a stopped server.
fn direct(config: &Config, backup: &Backup, out: &mut dyn Write) -> Result<()> {
    block_on(async {
        let installation = Installation::open_existing(config).await?;
        crate::transfer::reject_unfinished(&*installation.documents).await?;
        let backups = Backups::open(config, &installation)?;
        let bar = progress_bar()?;
        let copied = backups.copy(!backup.without_keys).await?;
        copied.write(bar.wrap_write(out))?;
        bar.finish_and_clear();
        Ok(())
    })
}

/// Backs up the store of the server that runs on the data directory.
fn running(config: &Config, backup: &Backup, out: &mut dyn Write) -> Result<()> {
    let url = block_on(Installation::open_existing(config))?.issuer_url(config)?;
    remote(config, backup, &url, out)
}

/// Asks a running server for a backup.
fn remote(config: &Config, backup: &Backup, url: &str, out: &mut dyn Write) -> Result<()> {
    let authorization = format!("Bearer {}", bearer(config, backup.at.token.as_ref())?);
    let agent: ureq::Agent = client(&backup.at)?.build().into();
    let bar = progress_bar()?;
    let endpoint = format!("{url}/operator/backup");
    let following = follow(&agent, &endpoint, &authorization, &bar);
    let query = if backup.without_keys { "?withoutKeys=true" } else { "" };
    let sent = agent.post(format!("{endpoint}{query}")).header("authorization", &authorization).send_empty();
    drop(following);
    let response = sent.with_context(|| format!("no response from {url}: is a server running there?"))?;
    let status = response.status();
    let mut body = response.into_body();
    if !status.is_success() {
        let text = body.with_config().limit(MAX_ERROR).read_to_string().unwrap_or_default();
        let error: Value = serde_json::from_str(&text).unwrap_or_default();
        bail!("{url} returned {}: {}", status.as_u16(), error.get("message").and_then(Value::as_str).unwrap_or(&text));
    }
    let copied = copy(&mut body.into_reader(), &mut bar.wrap_write(out));
    copied.with_context(|| format!("the backup of {url} broke off"))?;
    bar.finish_and_clear();
    Ok(())
}

/// Ends the thread when it is dropped.
struct Following(#[expect(dead_code, reason = "the thread waits for it to be dropped")] mpsc::Sender<()>);

/// Shows the progress of the copy that a running server makes, on a thread of its own, if there is a terminal.
fn follow(agent: &ureq::Agent, endpoint: &str, authorization: &str, bar: &ProgressBar) -> Option<Following> {
    /// The response of the endpoint, as far as it is shown.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        copied_pages: u64,
        pages: u64,
    }
    if !stderr().is_terminal() {
        return None;
    }
    let (agent, endpoint, authorization) = (agent.clone(), endpoint.to_owned(), authorization.to_owned());
    let (stop, stopped) = mpsc::channel();
    let bar = bar.clone();
    thread::spawn(move || {
        while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(POLL) {
            let response = agent.get(&endpoint).header("authorization", &authorization).call();
            let text = response.and_then(|mut response| response.body_mut().read_to_string());
            let status = text.ok().and_then(|text| serde_json::from_str::<Status>(&text).ok());
            if let Some(Status { copied_pages, pages: pages @ 1.. }) = status {
                bar.set_message(format!("copied {} %, ", copied_pages.saturating_mul(100) / pages));
            }
        }
        bar.set_message("");
    });
    Some(Following(stop))
}

/// Returns a progress bar on standard error, which is hidden if that is not a terminal.
fn progress_bar() -> Result<ProgressBar> {
    let bar = ProgressBar::no_length();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}wrote {bytes}, {bytes_per_sec}")?);
    bar.enable_steady_tick(POLL);
    Ok(bar)
}
