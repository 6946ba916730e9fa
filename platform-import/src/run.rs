//! An import: reads on a thread of its own, hands over lots, and keeps count.
//!
//! At most a few lots are in memory at once, however much there is to read. What is written is told apart from what
//! stood already, so that an import that was interrupted is begun again from the start.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use platform_core::{
    kind::Imported,
    resources::{
        advisory::VulnerabilityMetadata,
        libraries::{Artifact, ArtifactVersion},
        registry::Image,
        vulnerabilities::Advisory,
    },
};
use sha2::{Digest, Sha256};

use crate::{
    Parsed, Placed, Refusal, advisories, artifacts,
    image::{self, Directory},
    osv,
    parsed::joined,
    source::{Flow, Found, Limits, documents, lines, size},
};

/// The most resources of a lot; a document or line is not split.
const LOT: usize = 500;

/// The most bytes that a lot was read from, but for its last document.
const LOT_BYTES: usize = 1 << 20;

/// How many lots wait to be written.
const WAITING: usize = 2;

/// What to import.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which data, and where it goes.
    pub what: What,
    /// Files, folders and archives; for artifacts, `-` is the standard input.
    pub paths: Vec<PathBuf>,
    /// Bounds on what is read.
    pub limits: Limits,
}

/// The data that can be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Advisory documents.
    Advisories {
        /// The uid of the group that they go to.
        group: String,
        /// The distribution that the packages are of; may be empty.
        namespace: String,
    },
    /// OSV records.
    Osv,
    /// OCI image layouts.
    Images {
        /// The uid of the repo that they go to.
        repo: String,
    },
    /// Artifacts and their versions.
    Artifacts,
}

/// Writes resources: to a store, or to a server.
pub trait Sink {
    /// Why nothing more can be written.
    type Error;

    /// Creates or replaces resources below a parent, as [`Platform::put`](platform_core::platform::Platform::put)
    /// does.
    ///
    /// # Errors
    /// When the import cannot go on.
    fn put<R: Imported>(&mut self, parent: &str, resources: Vec<R>) -> Result<Done, Self::Error>;
}

/// What became of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// How many were not there before.
    pub created: u64,
    /// How many differed from what was there and were replaced.
    pub updated: u64,
    /// How many were there already.
    pub unchanged: u64,
    /// Those that were not written: the place of each among those that were given, from 0, and the rules it breaks.
    pub refused: Vec<(usize, String)>,
}

/// Is told how an import goes.
pub trait Watcher {
    /// Something was refused, and the rest goes on.
    fn refused(&mut self, refusal: &Refusal);

    /// A lot was written. `read` of `size` bytes are read, as they are on disk; the size is 0 where it is not known.
    fn progress(&mut self, summary: &Summary, read: u64, size: u64);
}

/// What came of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many documents, lines or layouts were read.
    pub documents: u64,
    /// How many files were left alone, since they are no documents by their names, or links.
    pub ignored: u64,
    /// How many refusals there were.
    pub refused: u64,
    /// What became of the resources of each kind, by its plural; without the refused ones.
    pub kinds: Vec<(&'static str, Done)>,
}

/// What was read and not yet written.
#[derive(Debug, Default)]
pub struct Lot {
    advisories: Vec<Placed<Advisory>>,
    vulnerabilities: Vec<Placed<VulnerabilityMetadata>>,
    images: Vec<Placed<Image>>,
    artifacts: Vec<Placed<Artifact>>,
    versions: Vec<Placed<ArtifactVersion>>,
    refused: Vec<Refusal>,
    documents: u64,
    ignored: u64,
    bytes: usize,
}

/// Imports everything, and tells `watcher` as it goes.
///
/// Of the same advisory or vulnerability in several documents the first is written and the others are refused; of the
/// same artifact in several lines, the last is what stays.
///
/// # Errors
/// That of the sink. What was written before stays.
pub fn run<S: Sink>(options: &Options, sink: &mut S, watcher: &mut dyn Watcher) -> Result<Summary, S::Error> {
    let read = &AtomicU64::new(0);
    let size = options.paths.iter().map(|path| size(path)).sum();
    let (lots, waiting) = sync_channel(WAITING);
    thread::scope(|scope| {
        scope.spawn(move || Reader { options, lots, lot: Lot::default(), seen: HashSet::new() }.read_all(read));
        let mut summary = Summary::default();
        // A reader whose lots are not awaited any more stops.
        for lot in waiting {
            summary.write(lot, &options.what, sink, watcher)?;
            watcher.progress(&summary, read.load(Ordering::Relaxed), size);
        }
        Ok(summary)
    })
}

impl Summary {
    fn write<S: Sink>(
        &mut self,
        lot: Lot,
        what: &What,
        sink: &mut S,
        watcher: &mut dyn Watcher,
    ) -> Result<(), S::Error> {
        self.documents += lot.documents;
        self.ignored += lot.ignored;
        for refusal in lot.refused {
            self.refuse(&refusal, watcher);
        }
        let parent = match what {
            What::Advisories { group, .. } => group,
            What::Images { repo } => repo,
            What::Osv | What::Artifacts => "",
        };
        self.put(parent, lot.advisories, sink, watcher)?;
        self.put(parent, lot.vulnerabilities, sink, watcher)?;
        self.put(parent, lot.images, sink, watcher)?;
        // An artifact shows when its versions are there.
        self.put(parent, lot.versions, sink, watcher)?;
        self.put(parent, lot.artifacts, sink, watcher)
    }

    fn put<R: Imported, S: Sink>(
        &mut self,
        parent: &str,
        placed: Vec<Placed<R>>,
        sink: &mut S,
        watcher: &mut dyn Watcher,
    ) -> Result<(), S::Error> {
        if placed.is_empty() {
            return Ok(());
        }
        let (places, resources): (Vec<_>, Vec<_>) =
            placed.into_iter().map(|placed| (placed.place, placed.resource)).unzip();
        let done = sink.put(parent, resources)?;
        for (index, rule) in done.refused {
            let place = places.get(index).cloned().unwrap_or_default();
            self.refuse(&Refusal::new(place, rule), watcher);
        }
        let plural = R::KIND.plural;
        let at = self.kinds.iter().position(|(kind, _)| *kind == plural).unwrap_or_else(|| {
            self.kinds.push((plural, Done::default()));
            self.kinds.len() - 1
        });
        if let Some((_, total)) = self.kinds.get_mut(at) {
            total.created += done.created;
            total.updated += done.updated;
            total.unchanged += done.unchanged;
        }
        Ok(())
    }

    fn refuse(&mut self, refusal: &Refusal, watcher: &mut dyn Watcher) {
        self.refused += 1;
        watcher.refused(refusal);
    }
}

struct Reader<'a> {
    options: &'a Options,
    lots: SyncSender<Lot>,
    lot: Lot,
    /// Hashes of what was read: what would otherwise be written twice, at each import.
    seen: HashSet<[u8; 16]>,
}

impl Reader<'_> {
    fn read_all(mut self, read: &AtomicU64) {
        let options = self.options;
        for path in &options.paths {
            let limits = &options.limits;
            let flow = match &options.what {
                What::Advisories { namespace, .. } => documents(path, limits, read, is_yaml, &mut |found| {
                    self.document(found, |_, bytes| advisories::document(bytes, namespace), |lot| &mut lot.advisories)
                }),
                What::Osv => documents(path, limits, read, is_json_or_yaml, &mut |found| {
                    let parse =
                        |place: &str, bytes: &[u8]| if is_yaml(place) { osv::yaml(bytes) } else { osv::json(bytes) };
                    self.document(found, parse, |lot| &mut lot.vulnerabilities)
                }),
                What::Images { .. } => self.layout(path),
                What::Artifacts => {
                    let file = path.display().to_string();
                    lines(path, limits, read, &mut |number, line| self.line(&format!("{file}:{number}"), line))
                }
            };
            if flow.is_break() {
                return;
            }
        }
        // Nobody may be waiting any more.
        let _ = self.lots.send(self.lot);
    }

    fn document<R: Imported>(
        &mut self,
        found: Found<'_>,
        parse: impl Fn(&str, &[u8]) -> Parsed<R>,
        list: fn(&mut Lot) -> &mut Vec<Placed<R>>,
    ) -> Flow {
        match found {
            Found::Ignored => self.lot.ignored += 1,
            Found::Refused(refusal) => self.lot.refused.push(refusal),
            Found::Document { place, bytes } => {
                self.lot.documents += 1;
                self.lot.bytes += bytes.len();
                let parsed = parse(place, bytes);
                self.lot.refused.extend(parsed.refused.into_iter().map(|refusal| refusal.within(place)));
                for Placed { place: within, resource } in parsed.resources {
                    let place = joined(place, &within);
                    if self.is_new(&resource) {
                        list(&mut self.lot).push(Placed { place, resource });
                    } else {
                        self.lot.refused.push(Refusal::new(place, "was given before, by another document"));
                    }
                }
            }
        }
        self.send_full()
    }

    fn is_new<R: Imported>(&mut self, resource: &R) -> bool {
        let uid = resource.uid_in(&platform_core::uid::Uid::default());
        let mut short = [0; 16];
        short.iter_mut().zip(Sha256::digest(uid.as_str())).for_each(|(to, from)| *to = from);
        self.seen.insert(short)
    }

    fn layout(&mut self, path: &std::path::Path) -> Flow {
        let place = path.display().to_string();
        let parsed = image::layout(&Directory(path.to_owned()), self.options.limits.document);
        self.lot.documents += 1;
        self.lot.refused.extend(parsed.refused.into_iter().map(|refusal| refusal.within(&place)));
        let images = parsed.resources.into_iter();
        self.lot.images.extend(images.map(|image| Placed { place: joined(&place, &image.place), ..image }));
        self.send_full()
    }

    fn line(&mut self, place: &str, line: Result<&[u8], Refusal>) -> Flow {
        match line.map_err(|refusal| vec![refusal]).and_then(|line| {
            self.lot.documents += 1;
            self.lot.bytes += line.len();
            artifacts::line(line)
        }) {
            Ok((artifact, versions)) => {
                let versions = versions.into_iter().enumerate();
                self.lot.versions.extend(
                    versions.map(|(index, resource)| Placed { place: format!("{place}: versions[{index}]"), resource }),
                );
                self.lot.artifacts.push(Placed { place: place.to_owned(), resource: artifact });
            }
            Err(refused) => self.lot.refused.extend(refused.into_iter().map(|refusal| refusal.within(place))),
        }
        self.send_full()
    }

    /// Hands the lot over when it is full.
    fn send_full(&mut self) -> Flow {
        let lot = &self.lot;
        let resources = lot.advisories.len()
            + lot.vulnerabilities.len()
            + lot.images.len()
            + lot.artifacts.len()
            + lot.versions.len();
        if resources + lot.refused.len() < LOT && lot.bytes < LOT_BYTES {
            return Flow::Continue(());
        }
        match self.lots.send(std::mem::take(&mut self.lot)) {
            Ok(()) => Flow::Continue(()),
            Err(_) => Flow::Break(()),
        }
    }
}

fn is_yaml(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".yaml") || name.ends_with(".yml")
}

fn is_json_or_yaml(name: &str) -> bool {
    is_yaml(name) || name.to_ascii_lowercase().ends_with(".json")
}
