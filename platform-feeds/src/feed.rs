//! A feed of any format: collects advisories in any order, and writes them as the format orders them.

use std::{collections::BTreeMap, fmt, io, io::Write, str::FromStr};

use platform_core::resources::vulnerabilities::Advisory;
use platform_engine::{timestamp::Timestamp, uid::Uid};

use crate::{
    finding::{Finding, LeftOut},
    openvex::{self, Document},
    osv, secdb,
    sorted::Sorter,
};

/// The size of the entries that a feed keeps in memory, in bytes; others are in temporary files. Our choice: those of
/// some ten thousand advisories.
const IN_MEMORY: usize = 8 << 20;

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// OSV records in a zip archive.
    Osv,
    /// The security database of Alpine and Wolfi.
    Secdb,
    /// An OpenVEX document.
    OpenVex,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Osv, Self::Secdb, Self::OpenVex];

    /// Returns the name, as in commands and paths.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Osv => "osv",
            Self::Secdb => "secdb",
            Self::OpenVex => "openvex",
        }
    }

    /// Returns the path and query of a feed of a server, which is also a part of the id of an OpenVEX document.
    pub fn path(self, group: &Uid, namespace: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("group", group);
        if !namespace.is_empty() {
            query.append_pair("namespace", namespace);
        }
        format!("/feeds/{self}?{}", query.finish())
    }

    /// Returns the media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Osv => "application/zip",
            Self::Secdb | Self::OpenVex => "application/json",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name is not that of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownFormat;

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be one of {}", Format::ALL.map(Format::name).join(", "))
    }
}

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or(UnknownFormat)
    }
}

/// The options of a feed.
#[derive(Debug, Clone)]
pub struct Options {
    /// The format.
    pub format: Format,
    /// The distribution, such as `wolfi`, of packages whose advisories name none. Advisories of other distributions are
    /// then left out. Empty for the advisories of all distributions.
    pub namespace: String,
    /// The properties of an OpenVEX document.
    pub document: Document,
    /// The current time.
    pub now: Timestamp,
}

/// The content of a feed, as counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The number of advisories that were added.
    pub advisories: u64,
    /// The number of written records, ids or statements.
    pub written: u64,
    /// The number of advisories that were left out, and of ids of a secdb that are open, by the reason.
    pub left_out: BTreeMap<LeftOut, u64>,
}

/// A feed that is being collected. Uses little memory for any number of advisories: most of the entries are in temporary
/// files (`TMPDIR`).
#[derive(Debug)]
pub struct Feed {
    options: Options,
    entries: Sorter,
    summary: Summary,
    /// The time of the last change.
    changed: Timestamp,
}

impl Feed {
    /// Returns an empty feed.
    pub const fn new(options: Options) -> Self {
        let summary = Summary { advisories: 0, written: 0, left_out: BTreeMap::new() };
        Self { options, entries: Sorter::new(IN_MEMORY), summary, changed: Timestamp::EPOCH }
    }

    /// Adds an advisory.
    ///
    /// # Errors
    /// Fails if a temporary file cannot be written.
    pub fn add(&mut self, advisory: &Advisory) -> io::Result<()> {
        let Options { format, namespace, now, .. } = &self.options;
        self.summary.advisories += 1;
        let found = Finding::of(advisory, namespace).and_then(|finding| match format {
            Format::Osv => osv::entries(&finding, *now),
            Format::Secdb => secdb::entries(&finding),
            Format::OpenVex => openvex::entries(&finding),
        });
        match found {
            Ok(entries) => {
                self.changed = self.changed.max(advisory.update_time.unwrap_or(Timestamp::EPOCH));
                entries.into_iter().try_for_each(|entry| self.entries.add(entry))
            }
            Err(reason) => {
                *self.summary.left_out.entry(reason).or_default() += 1;
                Ok(())
            }
        }
    }

    /// Writes the feed.
    ///
    /// # Errors
    /// Those of the output, and of the temporary files.
    pub fn write(self, out: &mut dyn Write) -> io::Result<Summary> {
        let Self { options, entries, mut summary, changed } = self;
        let entries = entries.finish()?;
        summary.written = match options.format {
            Format::Osv => osv::write(entries, out)?,
            Format::OpenVex => openvex::write(entries, &options.document, changed, out)?,
            Format::Secdb => {
                let (written, open) = secdb::write(entries, out)?;
                if open > 0 {
                    summary.left_out.insert(LeftOut::Open, open);
                }
                written
            }
        };
        Ok(summary)
    }
}
