//! `platform-server import`: imports data into the store of a stopped server or into a running server.

use std::{
    fmt::{self, Display},
    io::{Write, stderr, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use platform_core::resources::{
    registry::{Image, Tag},
    vulnerabilities::Advisory,
};
use platform_engine::{clock::Clock, kind::Resource};
use platform_import::{Dataset, Done, Options, Refusal, Sink, Summary, Watcher};
use platform_system::SystemClock;
use platform_v1::resources::{BuildReport, Chart, VulnerabilityReport};

use crate::{
    cli::{Import, ImportCommand, ImportKind, Remove},
    config::Config,
    direct::{Direct, Open},
    installation::{Installation, block_on, known_url},
    running::bearer,
    transfer,
};

mod direct;
mod remote;

use remote::Remote;

pub(crate) fn run(config: &Config, import: Import) -> Result<ExitCode> {
    let kind = match import.what {
        ImportCommand::Store { file } => return transfer::import(config, &file),
        ImportCommand::Data(kind) => kind,
    };
    let (options, paths) = kind.common();
    let (options, paths) = (options.clone(), paths.to_vec());
    let (limits, now) = (options.limits(), SystemClock.now());
    let summary = match options.at.url() {
        None => {
            let otherwise = format!("import into it with --api {}", known_url(config));
            let mut direct = Direct::open(config, Open::ToImport, &otherwise)?;
            let dataset = dataset(kind, || Ok(direct.organization().to_owned()))?;
            run_import(&Options { dataset, paths, limits, now }, &mut direct)?
        }
        Some(url) => {
            let mut remote = Remote::new(url, &options.at, &bearer(config, options.at.token.as_ref())?)?;
            let dataset = dataset(kind, || {
                let advice = "cannot find the default group in the data directory: set --group";
                Ok(block_on(Installation::open_existing(config)).context(advice)?.bootstrap.organization.to_string())
            })?;
            run_import(&Options { dataset, paths, limits, now }, &mut remote)?
        }
    };
    print_summary(&summary)?;
    Ok(if summary.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Removes imported data from the store of a stopped server.
pub(crate) fn remove(config: &Config, remove: &Remove) -> Result<ExitCode> {
    let (plural, query) = match remove {
        Remove::Advisories { group } => (Advisory::KIND.plural, format!("?parent={group}")),
        Remove::Images { repo } => (Image::KIND.plural, format!("?parent={repo}")),
        Remove::Scans { repo } => (VulnerabilityReport::KIND.plural, format!("?parent={repo}")),
        Remove::Builds { repo } => (BuildReport::KIND.plural, format!("?parent={repo}")),
        Remove::Blobs => ("blobs", String::new()),
    };
    let otherwise = format!("send DELETE {}/import/{plural}{query}", known_url(config));
    let direct = Direct::open(config, Open::Existing, &otherwise)?;
    let removed = match remove {
        Remove::Advisories { group } => direct.remove::<Advisory>(group)?,
        Remove::Images { repo } => direct.remove::<Image>(repo)? + direct.remove::<Chart>(repo)?,
        Remove::Scans { repo } => direct.remove::<VulnerabilityReport>(repo)?,
        Remove::Builds { repo } => direct.remove::<BuildReport>(repo)?,
        Remove::Blobs => direct.collect_blobs()?,
    };
    writeln!(stdout(), "{plural}: {removed} removed")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the dataset to import with its destination; `organization` is the default group of advisories.
fn dataset(kind: ImportKind, organization: impl FnOnce() -> Result<String>) -> Result<Dataset> {
    Ok(match kind {
        ImportKind::Advisories { group, namespace, .. } => {
            let group = group.map_or_else(organization, |group| Ok(group.to_string()))?;
            Dataset::Advisories { group, namespace }
        }
        ImportKind::Osv { .. } => Dataset::Osv,
        ImportKind::Image { repo, tag, .. } => Dataset::Images { repo: repo.to_string(), tags: tag },
        ImportKind::Artifacts { .. } => Dataset::Artifacts,
        ImportKind::Versions { package, grace_period_months, .. } => Dataset::Versions { package, grace_period_months },
        ImportKind::Scans { repo, digest, .. } => Dataset::Scans { repo: repo.to_string(), digest },
        ImportKind::Builds { .. } => Dataset::Builds,
    })
}

/// Counts a written tag, by the digest that it had before.
fn count_tag(done: &mut Done, before: Option<&str>, tag: &Tag) {
    match before {
        None => done.created += 1,
        Some(before) if before == &*tag.digest => done.unchanged += 1,
        Some(_) => done.updated += 1,
    }
}

fn run_import<S: Sink<Error = anyhow::Error>>(options: &Options, sink: &mut S) -> Result<Summary> {
    let mut terminal = Terminal::new()?;
    let done = platform_import::run(options, sink, &mut terminal);
    terminal.bar.finish_and_clear();
    done.context(
        "the import was not completed; what it wrote is saved, and running the same command again continues it",
    )
}

/// Shows a progress bar if standard error is a terminal, and always prints rejections to standard error.
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

    /// Prints a line above the progress bar. A closed standard error must not stop the import.
    fn print(&self, line: fmt::Arguments<'_>) {
        self.bar.suspend(|| drop(writeln!(stderr(), "{line}")));
    }
}

impl Watcher for Terminal {
    fn refused(&mut self, refusal: &Refusal) {
        self.print(format_args!("rejected: {refusal}"));
    }

    fn skipped(&mut self, skipped: &Refusal) {
        self.print(format_args!("skipped: {skipped}"));
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

fn print_summary(summary: &Summary) -> Result<()> {
    let mut lines = vec![format!("read {}", counted(summary.documents, "document"))];
    if summary.ignored > 0 {
        lines.push(format!("skipped {}: unsupported name or symbolic link", counted(summary.ignored, "file")));
    }
    for (kind, done) in &summary.kinds {
        let (created, updated, unchanged) = (done.created, done.updated, done.unchanged);
        lines.push(format!("{kind}: {created} created, {updated} updated, {unchanged} unchanged"));
    }
    if summary.withdrawn > 0 {
        let withdrawn = counted(summary.withdrawn, "withdrawn record");
        lines.push(format!("emptied {withdrawn}: only the id is kept"));
    }
    if summary.skipped > 0 {
        lines.push(format!("skipped {}; see above", counted(summary.skipped, "part")));
    }
    if summary.refused > 0 {
        lines.push(format!("rejected {}; see above", counted(summary.refused, "item")));
    }
    Ok(writeln!(stdout(), "{}", lines.join("\n"))?)
}

fn counted(number: u64, noun: impl Display) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
