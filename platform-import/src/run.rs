//! Runs an import: reads on a separate thread, passes batches to a sink and counts the results.
//!
//! Only a few batches are in memory at once, however large the input is. Existing resources are recognized, so an
//! interrupted import can simply be run again from the start.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    libraries::{Artifact, ArtifactVersion},
    registry::{self, Image, Tag},
    vulnerabilities::Advisory,
};
use platform_engine::{
    kind::{Imported, Resource},
    timestamp::Timestamp,
    uid::Uid,
};
use platform_v1::resources::{BuildReport, Chart, PackageVersions};
use sha2::{Digest, Sha256};

use crate::{
    Parsed, Placed, Refusal, advisories, artifacts,
    builds::{self, Build},
    image::{self, Directory},
    osv,
    parsed::joined,
    scans::{self, Scan},
    source::{Flow, Found, Limits, documents, lines, size},
    versions::{self, Defaults},
};

/// The number of resources at which a batch is complete. Documents and lines are not split.
const BATCH_RESOURCES: usize = 500;

/// The number of input bytes at which a batch is complete.
const BATCH_BYTES: usize = 1 << 20;

/// The number of batches that may wait to be written.
const MAX_WAITING: usize = 2;

/// Options of an import.
#[derive(Debug, Clone)]
pub struct Options {
    /// The format of the data, and its destination.
    pub dataset: Dataset,
    /// Files, folders and archives; for artifacts, `-` is the standard input.
    pub paths: Vec<PathBuf>,
    /// Limits on reading.
    pub limits: Limits,
    /// The time of the import. A withdrawal of its source that is later than this has not happened yet.
    pub now: Timestamp,
}

/// The data that can be imported, with its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dataset {
    /// Advisory documents.
    Advisories {
        /// The uid of the group that receives them.
        group: String,
        /// The distribution of the packages; may be empty.
        namespace: String,
    },
    /// OSV records.
    Osv,
    /// OCI image layouts: images, charts, and their tags.
    Images {
        /// The uid of the repo that receives them.
        repo: String,
        /// The tags of the only image or chart of each layout, instead of those that the layout names.
        tags: Vec<String>,
    },
    /// Artifacts and their versions.
    Artifacts,
    /// Versions of packages.
    Versions {
        /// The package of documents that do not name it; empty for the name of the file without its extension.
        package: String,
        /// The number of months of the grace period in documents that do not have it.
        grace_period_months: i32,
    },
    /// Reports of vulnerability scanners.
    Scans {
        /// The uid of the repo of the images.
        repo: String,
        /// The digest of the image, in place of those in the reports.
        digest: Option<registry::Digest>,
    },
    /// Build reports, which name their repos.
    Builds,
}

/// Writes resources, to a store or to a server.
pub trait Sink {
    /// The error that ends the import.
    type Error;

    /// Creates or replaces resources below a parent, as [`Platform::put`](platform_engine::platform::Platform::put) does.
    ///
    /// # Errors
    /// When the import cannot continue.
    fn put<R: Imported>(&mut self, parent: &str, resources: Vec<R>) -> Result<Done, Self::Error>;

    /// Stores blobs of a repo, as [`Platform::put_blobs`](platform_engine::platform::Platform::put_blobs) does. They are
    /// durable when this returns.
    ///
    /// # Errors
    /// When the import cannot continue.
    fn put_blobs(&mut self, repo: &str, contents: Vec<Vec<u8>>) -> Result<Done, Self::Error>;

    /// Creates or moves tags of a repo, of which only the name and the digest are set. Tags that the caller may not
    /// create are reported in [`Done::refused`].
    ///
    /// # Errors
    /// When the import cannot continue.
    fn put_tags(&mut self, repo: &str, tags: Vec<Tag>) -> Result<Done, Self::Error>;
}

/// The result of writing resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// The number of new resources.
    pub created: u64,
    /// The number of resources that differed from the stored ones and replaced them.
    pub updated: u64,
    /// The number of resources that equaled the stored ones.
    pub unchanged: u64,
    /// The rejected resources: the index of each in the argument of [`Sink::put`], from 0, and the violated rules.
    pub refused: Vec<(usize, String)>,
}

/// Receives the progress of an import.
pub trait Watcher {
    /// A part of the input was rejected. The import continues.
    fn refused(&mut self, refusal: &Refusal);

    /// A part of valid input is not read or has no effect. The import continues.
    fn skipped(&mut self, skipped: &Refusal);

    /// A batch was written. `read` of `size` bytes on disk have been read; `size` is 0 when unknown.
    fn progress(&mut self, summary: &Summary, read: u64, size: u64);
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The number of documents, lines or layouts read.
    pub documents: u64,
    /// The number of ignored files: links, and files whose name is not that of a document.
    pub ignored: u64,
    /// The number of refusals.
    pub refused: u64,
    /// The number of parts of valid documents that are not read or have no effect.
    pub skipped: u64,
    /// The number of records that their source has withdrawn. Only their ids were written.
    pub withdrawn: u64,
    /// The results for each kind, by its plural, without the refused resources.
    pub kinds: Vec<(&'static str, Done)>,
}

/// Resources that have been read and not yet written.
#[derive(Debug, Default)]
pub struct Batch {
    advisories: Vec<Placed<Advisory>>,
    vulnerabilities: Vec<Placed<VulnerabilityMetadata>>,
    /// Written before the images and charts that name them.
    blobs: Vec<Vec<u8>>,
    images: Vec<Placed<Image>>,
    charts: Vec<Placed<Chart>>,
    tags: Vec<Placed<Tag>>,
    artifacts: Vec<Placed<Artifact>>,
    versions: Vec<Placed<ArtifactVersion>>,
    packages: Vec<Placed<PackageVersions>>,
    scans: Vec<Placed<Scan>>,
    builds: Vec<Placed<Build>>,
    refused: Vec<Refusal>,
    skipped: Vec<Refusal>,
    documents: u64,
    ignored: u64,
    withdrawn: u64,
    bytes: usize,
}

/// Imports everything and reports the progress to `watcher`.
///
/// If several documents contain the same advisory or vulnerability, the first is written and the others are rejected.
/// If several lines contain the same artifact, the last one wins.
///
/// # Errors
/// The error of the sink. Resources written before the error remain.
pub fn run<S: Sink>(options: &Options, sink: &mut S, watcher: &mut dyn Watcher) -> Result<Summary, S::Error> {
    let read = &AtomicU64::new(0);
    let size = options.paths.iter().map(|path| size(path)).sum();
    let (batches, received) = sync_channel(MAX_WAITING);
    thread::scope(|scope| {
        scope.spawn(move || Reader { options, batches, batch: Batch::default(), seen: HashSet::new() }.read_all(read));
        let mut summary = Summary::default();
        // Returning early drops the receiver, which stops the reader.
        for batch in received {
            summary.write(batch, &options.dataset, sink, watcher)?;
            watcher.progress(&summary, read.load(Ordering::Relaxed), size);
        }
        Ok(summary)
    })
}

impl Summary {
    fn write<S: Sink>(
        &mut self,
        batch: Batch,
        dataset: &Dataset,
        sink: &mut S,
        watcher: &mut dyn Watcher,
    ) -> Result<(), S::Error> {
        self.documents += batch.documents;
        self.ignored += batch.ignored;
        self.withdrawn += batch.withdrawn;
        for refusal in batch.refused {
            self.refuse(&refusal, watcher);
        }
        for skipped in batch.skipped {
            self.skipped += 1;
            watcher.skipped(&skipped);
        }
        let parent = match dataset {
            Dataset::Advisories { group, .. } => group,
            Dataset::Images { repo, .. } | Dataset::Scans { repo, .. } => repo,
            Dataset::Osv | Dataset::Artifacts | Dataset::Versions { .. } | Dataset::Builds => "",
        };
        self.put(parent, batch.advisories, sink, watcher)?;
        self.put(parent, batch.vulnerabilities, sink, watcher)?;
        if !batch.blobs.is_empty() {
            let count = batch.blobs.len();
            let done = sink.put_blobs(parent, batch.blobs)?;
            self.add("blobs", done, &vec![String::new(); count], watcher);
        }
        let mut rejected = HashSet::new();
        let digests: Vec<_> = batch.images.iter().map(|placed| placed.resource.digest.clone()).collect();
        let refused = self.put(parent, batch.images, sink, watcher)?;
        rejected.extend(refused.into_iter().filter_map(|index| digests.get(index).cloned()));
        let digests: Vec<_> = batch.charts.iter().map(|placed| placed.resource.digest.clone()).collect();
        let refused = self.put(parent, batch.charts, sink, watcher)?;
        rejected.extend(refused.into_iter().filter_map(|index| digests.get(index).cloned()));
        self.put_tags(parent, batch.tags, &rejected, sink, watcher)?;
        // Versions first: an artifact must not be visible before its versions.
        self.put(parent, batch.versions, sink, watcher)?;
        self.put(parent, batch.artifacts, sink, watcher)?;
        self.put(parent, batch.packages, sink, watcher)?;
        self.put_scans(parent, batch.scans, sink, watcher)?;
        let mut builds: BTreeMap<String, Vec<Placed<BuildReport>>> = BTreeMap::new();
        for Placed { place, resource: Build { repo, report } } in batch.builds {
            builds.entry(repo.to_string()).or_default().push(Placed { place, resource: report });
        }
        for (repo, builds) in builds {
            self.put(&repo, builds, sink, watcher)?;
        }
        Ok(())
    }

    /// Writes tags, except for those of rejected images and charts: a tag keeps the image that it has. The tags of a
    /// layout are in the same batch as its images and charts.
    fn put_tags<S: Sink>(
        &mut self,
        repo: &str,
        placed: Vec<Placed<Tag>>,
        rejected: &HashSet<registry::Digest>,
        sink: &mut S,
        watcher: &mut dyn Watcher,
    ) -> Result<(), S::Error> {
        let (mut places, mut tags) = (Vec::new(), Vec::new());
        for Placed { place, resource } in placed {
            if rejected.contains(&resource.digest) {
                let rule = format!("names {}, which was rejected", &*resource.digest);
                self.refuse(&Refusal::new(place, rule), watcher);
            } else {
                places.push(place);
                tags.push(resource);
            }
        }
        if !tags.is_empty() {
            let done = sink.put_tags(repo, tags)?;
            self.add(Tag::KIND.plural, done, &places, watcher);
        }
        Ok(())
    }

    /// Writes reports of scanners, and then each scanner's own report below the one that was made from it.
    fn put_scans<S: Sink>(
        &mut self,
        repo: &str,
        scans: Vec<Placed<Scan>>,
        sink: &mut S,
        watcher: &mut dyn Watcher,
    ) -> Result<(), S::Error> {
        let (mut reports, mut raws) = (Vec::new(), Vec::new());
        for Placed { place, resource: Scan { report, raw } } in scans {
            raws.push((report.uid_in(repo), place.clone(), raw));
            reports.push(Placed { place, resource: report });
        }
        let refused = self.put(repo, reports, sink, watcher)?;
        for (_, (uid, place, raw)) in raws.into_iter().enumerate().filter(|(index, _)| !refused.contains(index)) {
            match raw {
                Some(resource) => drop(self.put(&uid, vec![Placed { place, resource }], sink, watcher)?),
                None => {
                    self.refuse(&Refusal::new(place, "is too long to keep as it is; the rest was imported"), watcher);
                }
            }
        }
        Ok(())
    }

    /// Writes resources and returns the indexes of those that were rejected.
    fn put<R: Imported, S: Sink>(
        &mut self,
        parent: &str,
        placed: Vec<Placed<R>>,
        sink: &mut S,
        watcher: &mut dyn Watcher,
    ) -> Result<HashSet<usize>, S::Error> {
        if placed.is_empty() {
            return Ok(HashSet::new());
        }
        let (places, resources): (Vec<_>, Vec<_>) =
            placed.into_iter().map(|placed| (placed.place, placed.resource)).unzip();
        let done = sink.put(parent, resources)?;
        let refused = done.refused.iter().map(|(index, _)| *index).collect();
        self.add(R::KIND.plural, done, &places, watcher);
        Ok(refused)
    }

    /// Adds the result of writing resources from these places.
    fn add(&mut self, plural: &'static str, done: Done, places: &[String], watcher: &mut dyn Watcher) {
        for (index, rule) in done.refused {
            let place = places.get(index).cloned().unwrap_or_default();
            self.refuse(&Refusal::new(place, rule), watcher);
        }
        let at = self.kinds.iter().position(|(kind, _)| *kind == plural).unwrap_or_else(|| {
            self.kinds.push((plural, Done::default()));
            self.kinds.len() - 1
        });
        if let Some((_, total)) = self.kinds.get_mut(at) {
            total.created += done.created;
            total.updated += done.updated;
            total.unchanged += done.unchanged;
        }
    }

    fn refuse(&mut self, refusal: &Refusal, watcher: &mut dyn Watcher) {
        self.refused += 1;
        watcher.refused(refusal);
    }
}

struct Reader<'a> {
    options: &'a Options,
    batches: SyncSender<Batch>,
    batch: Batch,
    /// Hashes of the uids read so far. Without this check, a duplicate would be rewritten at every import.
    seen: HashSet<[u8; 16]>,
}

impl Reader<'_> {
    fn read_all(mut self, read: &AtomicU64) {
        let options = self.options;
        for path in &options.paths {
            let limits = &options.limits;
            let flow = match &options.dataset {
                Dataset::Advisories { namespace, .. } => documents(path, limits, read, is_yaml, &mut |found| {
                    self.document(
                        found,
                        |_, bytes| advisories::document(bytes, namespace),
                        |batch| &mut batch.advisories,
                    )
                }),
                Dataset::Osv => documents(path, limits, read, is_json_or_yaml, &mut |found| {
                    let parse = |place: &str, bytes: &[u8]| {
                        let parse = if is_yaml(place) { osv::yaml } else { osv::json };
                        parse(bytes, options.now)
                    };
                    self.document(found, parse, |batch| &mut batch.vulnerabilities)
                }),
                Dataset::Images { tags, .. } => self.layout(path, tags),
                Dataset::Versions { package, grace_period_months } => {
                    documents(path, limits, read, is_json, &mut |found| {
                        let parse = |place: &str, bytes: &[u8]| {
                            let package = if package.is_empty() { stem(place).to_owned() } else { package.clone() };
                            let grace_period_months = *grace_period_months;
                            versions::document(bytes, &Defaults { package, grace_period_months })
                        };
                        self.document(found, parse, |batch| &mut batch.packages)
                    })
                }
                Dataset::Scans { digest, .. } => documents(path, limits, read, is_json, &mut |found| {
                    self.part(
                        found,
                        |_, bytes| scans::document(bytes, digest.as_ref()),
                        |scan| scan.report.uid_in(""),
                        |batch| &mut batch.scans,
                    )
                }),
                Dataset::Builds => documents(path, limits, read, is_json, &mut |found| {
                    self.part(
                        found,
                        |_, bytes| builds::document(bytes),
                        |build| build.report.uid_in(&build.repo),
                        |batch| &mut batch.builds,
                    )
                }),
                Dataset::Artifacts => {
                    let file = path.display().to_string();
                    lines(path, limits, read, &mut |number, line| self.line(&format!("{file}:{number}"), line))
                }
            };
            if flow.is_break() {
                return;
            }
        }
        // A send fails only when the receiver has stopped, and then no one needs the rest.
        let _ = self.batches.send(self.batch);
    }

    fn document<R: Imported>(
        &mut self,
        found: Found<'_>,
        parse: impl Fn(&str, &[u8]) -> Parsed<R>,
        list: fn(&mut Batch) -> &mut Vec<Placed<R>>,
    ) -> Flow {
        self.part(found, parse, |resource| resource.uid_in(""), list)
    }

    /// Adds the parts of a document, each of which has a uid that no other part of the import may have.
    fn part<T>(
        &mut self,
        found: Found<'_>,
        parse: impl Fn(&str, &[u8]) -> Parsed<T>,
        uid: impl Fn(&T) -> Uid,
        list: fn(&mut Batch) -> &mut Vec<Placed<T>>,
    ) -> Flow {
        match found {
            Found::Ignored => self.batch.ignored += 1,
            Found::Refused(refusal) => self.batch.refused.push(refusal),
            Found::Document { place, bytes } => {
                self.batch.documents += 1;
                self.batch.bytes += bytes.len();
                let parsed = parse(place, bytes);
                self.batch.withdrawn += parsed.withdrawn;
                self.batch.refused.extend(parsed.refused.into_iter().map(|refusal| refusal.within(place)));
                self.batch.skipped.extend(parsed.skipped.into_iter().map(|skipped| skipped.within(place)));
                for Placed { place: within, resource } in parsed.resources {
                    let place = joined(place, &within);
                    if self.is_new(&uid(&resource)) {
                        list(&mut self.batch).push(Placed { place, resource });
                    } else {
                        self.batch.refused.push(Refusal::new(place, "duplicates a resource of an earlier document"));
                    }
                }
            }
        }
        self.send_full()
    }

    fn is_new(&mut self, uid: &Uid) -> bool {
        let mut short = [0; 16];
        short.iter_mut().zip(Sha256::digest(uid.as_str())).for_each(|(to, from)| *to = from);
        self.seen.insert(short)
    }

    fn layout(&mut self, path: &std::path::Path, tags: &[String]) -> Flow {
        let place = path.display().to_string();
        let largest = self.options.limits.document;
        let mut flow = Flow::Continue(());
        let contents = image::layout(&Directory(path.to_owned()), largest, &mut |content| {
            if flow.is_continue() {
                self.batch.bytes += content.len();
                self.batch.blobs.push(content);
                flow = self.send_full();
            }
        });
        flow?;
        fn within<R>(place: &str, placed: Vec<Placed<R>>) -> impl Iterator<Item = Placed<R>> {
            placed.into_iter().map(move |one| Placed { place: joined(place, &one.place), ..one })
        }
        self.batch.documents += 1;
        self.batch.refused.extend(contents.refused.into_iter().map(|refusal| refusal.within(&place)));
        self.batch.skipped.extend(contents.skipped.into_iter().map(|skipped| skipped.within(&place)));
        self.batch.images.extend(within(&place, contents.images));
        self.batch.charts.extend(within(&place, contents.charts));
        match (tags, contents.top.as_slice()) {
            ([], _) => self.batch.tags.extend(within(&place, contents.tags)),
            (names, [digest]) => self.batch.tags.extend(names.iter().map(|name| {
                let digest = registry::Digest::opaque(digest.as_str());
                let resource = Tag { name: name.clone(), digest, ..Tag::default() };
                Placed { place: joined(&place, &format!("tag {name}")), resource }
            })),
            (_, top) => {
                let rule = format!("must have one image or chart in index.json to be tagged, but has {}", top.len());
                self.batch.refused.push(Refusal::new(place, rule));
            }
        }
        self.send_full()
    }

    fn line(&mut self, place: &str, line: Result<&[u8], Refusal>) -> Flow {
        match line.map_err(|refusal| vec![refusal]).and_then(|line| {
            self.batch.documents += 1;
            self.batch.bytes += line.len();
            artifacts::line(line)
        }) {
            Ok((artifact, versions)) => {
                let versions = versions.into_iter().enumerate();
                self.batch.versions.extend(
                    versions.map(|(index, resource)| Placed { place: format!("{place}: versions[{index}]"), resource }),
                );
                self.batch.artifacts.push(Placed { place: place.to_owned(), resource: artifact });
            }
            Err(refused) => self.batch.refused.extend(refused.into_iter().map(|refusal| refusal.within(place))),
        }
        self.send_full()
    }

    /// Sends the batch when it is complete.
    fn send_full(&mut self) -> Flow {
        let batch = &self.batch;
        let resources = batch.advisories.len()
            + batch.vulnerabilities.len()
            + batch.blobs.len()
            + batch.images.len()
            + batch.charts.len()
            + batch.tags.len()
            + batch.artifacts.len()
            + batch.versions.len()
            + batch.packages.len()
            + batch.scans.len()
            + batch.builds.len();
        if resources + batch.refused.len() < BATCH_RESOURCES && batch.bytes < BATCH_BYTES {
            return Flow::Continue(());
        }
        match self.batches.send(std::mem::take(&mut self.batch)) {
            Ok(()) => Flow::Continue(()),
            Err(_) => Flow::Break(()),
        }
    }
}

fn is_yaml(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".yaml") || name.ends_with(".yml")
}

fn is_json(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".json")
}

fn is_json_or_yaml(name: &str) -> bool {
    is_yaml(name) || is_json(name)
}

/// Returns the name of a file without its folder and its extension.
fn stem(place: &str) -> &str {
    let name = place.rsplit(['/', '\\', ':']).next().unwrap_or_default().trim();
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}
