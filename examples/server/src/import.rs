//! `platform-server import`: data in, into a stopped server's store or into a running server.

use std::{
    fmt::Display,
    io::{Write, stderr, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use platform_core::{
    kind::Resource,
    resources::{registry::Image, vulnerabilities::Advisory},
};
use platform_import::{Dataset, Options, Refusal, Sink, Summary, Watcher};

use crate::{
    cli::{Import, ImportKind, Remove},
    config::{Config, Store},
    installation::{Installation, issuer_url, known_url},
    token,
};

mod direct;
mod remote;

pub(crate) use direct::Direct;
use remote::Remote;

/// How long the token for a running server is good, which the longest import does not take.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) fn run(config: &Config, import: Import) -> Result<ExitCode> {
    let (options, paths) = import.kind.common();
    let (options, paths) = (options.clone(), paths.to_vec());
    let api = options.api.as_deref().map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty());
    let limits = options.limits();
    let summary = match api {
        None => {
            let otherwise = format!("import into it with --api {}", known_url(config));
            let mut direct = Direct::open(config, Installation::open_to_import, &otherwise)?;
            let dataset = dataset(import.kind, || Ok(direct.organisation().to_owned()))?;
            carry_out(&Options { dataset, paths, limits }, &mut direct)?
        }
        Some(url) => {
            let mut remote = Remote::new(url, &bearer(config, options.token.as_ref())?);
            let dataset = dataset(import.kind, || {
                let advice = "it says which organisation was there first; or name a group with --group";
                Ok(Installation::open_existing(config).context(advice)?.bootstrap.organization.to_string())
            })?;
            carry_out(&Options { dataset, paths, limits }, &mut remote)?
        }
    };
    tell(&summary)?;
    Ok(if summary.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes out again what was imported.
pub(crate) fn remove(config: &Config, remove: &Remove) -> Result<ExitCode> {
    let (what, parent) = match remove {
        Remove::Advisories { group } => (Advisory::KIND.plural, group),
        Remove::Images { repo } => (Image::KIND.plural, repo),
    };
    let path = format!("send it DELETE {}/import/{what}?parent={parent}", known_url(config));
    let direct = Direct::open(config, Installation::open_existing, &path)?;
    let removed = match remove {
        Remove::Advisories { .. } => direct.remove::<Advisory>(parent)?,
        Remove::Images { .. } => direct.remove::<Image>(parent)?,
    };
    writeln!(stdout(), "{what}: {removed} removed")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what to import, into `organisation` where nothing else is said.
fn dataset(kind: ImportKind, organisation: impl FnOnce() -> Result<String>) -> Result<Dataset> {
    Ok(match kind {
        ImportKind::Advisories { group, namespace, .. } => {
            let group = group.map_or_else(organisation, |group| Ok(group.to_string()))?;
            Dataset::Advisories { group, namespace }
        }
        ImportKind::Osv { .. } => Dataset::Osv,
        ImportKind::Image { repo, .. } => Dataset::Images { repo: repo.to_string() },
        ImportKind::Artifacts { .. } => Dataset::Artifacts,
    })
}

/// Returns the token for a running server: the one that is given, or else one of the operator of the data directory.
pub(crate) fn bearer(config: &Config, token: Option<&String>) -> Result<String> {
    if let Some(token) = token.filter(|token| !token.is_empty()) {
        return Ok(token.clone());
    }
    let installation = Installation::open_existing(config)
        .context("name the server's with --data-dir, or give a token with --token")?;
    token::issue(&installation, &issuer_url(config)?, &installation.bootstrap.operator, TTL)
}

/// Refuses a store that ends with its process. `otherwise` says what to do with a running server.
fn refuse_memory(config: &Config, otherwise: &str) -> Result<()> {
    if config.store == Store::Memory {
        bail!("a memory store ends with its server: {otherwise}");
    }
    Ok(())
}

fn carry_out<S: Sink<Error = anyhow::Error>>(options: &Options, sink: &mut S) -> Result<Summary> {
    let mut terminal = Terminal::new()?;
    let done = platform_import::run(options, sink, &mut terminal);
    terminal.bar.finish_and_clear();
    done.context("the import did not come to its end; what was written stays, and the same command goes on from there")
}

/// Shows how far it is on a terminal, and what is refused wherever the standard error stream leads.
struct Terminal {
    bar: ProgressBar,
}

impl Terminal {
    fn new() -> Result<Self> {
        let bar = ProgressBar::no_length();
        bar.set_style(ProgressStyle::with_template("{spinner} {bytes}{msg}")?);
        bar.enable_steady_tick(Duration::from_millis(250));
        Ok(Self { bar })
    }
}

impl Watcher for Terminal {
    fn refused(&mut self, refusal: &Refusal) {
        // An import whose messages nobody reads goes on.
        self.bar.suspend(|| drop(writeln!(stderr(), "refused: {refusal}")));
    }

    fn progress(&mut self, summary: &Summary, read: u64, size: u64) {
        if size > 0 && self.bar.length().is_none() {
            self.bar.set_length(size);
            if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta} left{msg}") {
                self.bar.set_style(style);
            }
        }
        self.bar.set_position(read);
        let written: u64 = summary.kinds.iter().map(|(_, done)| done.created + done.updated + done.unchanged).sum();
        self.bar.set_message(format!(", {written} resources"));
    }
}

fn tell(summary: &Summary) -> Result<()> {
    let mut lines = vec![format!("read {}", counted(summary.documents, "document"))];
    if summary.ignored > 0 {
        lines.push(format!("skipped {} by name: not an input of this kind", counted(summary.ignored, "file")));
    }
    for (kind, done) in &summary.kinds {
        let (created, updated, unchanged) = (done.created, done.updated, done.unchanged);
        lines.push(format!("{kind}: {created} created, {updated} updated, {unchanged} unchanged"));
    }
    if summary.refused > 0 {
        lines.push(format!("refused {}; see above", counted(summary.refused, "time")));
    }
    Ok(writeln!(stdout(), "{}", lines.join("\n"))?)
}

fn counted(number: u64, what: impl Display) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
