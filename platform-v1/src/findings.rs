//! The vulnerabilities of images: from imported reports, or computed from the packages of the image, advisories and
//! vulnerability metadata (`docs/api.md`, Vulnerability reports).
//!
//! Whether a package is vulnerable changes only at the events of advisories. So the periods in which a version of a
//! package is vulnerable are computed once and answer requests for every moment and every image of the organization.
//! They are cached until an advisory or the metadata changes. Images share most of their packages.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{Hash, Hasher},
    sync::Arc,
};

use platform_core::resources::{
    advisory::{VulnerabilityMetadata, public_groups},
    data_of,
    registry::{Digest, Image, image::ImagePackage},
    vulnerabilities::{Advisory, Level, advisory::ADVISORIES_EPOCH},
};
use platform_engine::{
    cache::{BytesCache, Equivalent},
    context::Context,
    error::{Error, Result},
    kind::{Imported, Resource},
    scope::Scopes,
    store::{Epoch, Filter, KeyValue, Order, OrderBy, Query, Scope},
    timestamp::Timestamp,
    uid::{self, Uid},
};

mod exposures;
mod periods;

pub(crate) use exposures::{Exposure, Exposures};
use exposures::{Loader, Package};

use crate::resources::{
    VulnerabilityReport,
    vulnerability_report::{DIGEST_KEY, Vulnerability},
};

/// The approximate maximum size of the cached advisories about packages, and of the cached counts of imported reports,
/// in bytes each. Our choice: some 200,000 vulnerabilities of packages, and some 1,000,000 of reports.
const CACHE_BYTES: u64 = 64 << 20;

/// The approximate size of a typical entry of either cache in bytes.
const TYPICAL_BYTES: u64 = 6 << 10;

/// The number of images whose packages are in memory at once while periods are computed.
const IMAGES: usize = 50;

/// The maximum number of imported reports that are read for a request. Our choice.
pub(crate) const MAX_REPORTS: usize = 5_000;

/// A cache of the advisories about packages and of the counts of imported reports, for all requests of a platform.
#[derive(Debug)]
pub(crate) struct Findings {
    packages: BytesCache<PackageKey, Computed>,
    counted: BytesCache<Uid, Arc<Counted>>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            packages: BytesCache::new(CACHE_BYTES, TYPICAL_BYTES, Computed::bytes_of),
            counted: BytesCache::new(CACHE_BYTES, TYPICAL_BYTES, Counted::bytes_of),
        }
    }
}

/// A version of a package, in the images of an organization.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PackageKey {
    organization: Uid,
    package: ImagePackage,
}

/// A borrowed [`PackageKey`].
struct PackageRef<'a> {
    organization: &'a str,
    package: &'a ImagePackage,
}

impl Hash for PackageRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ImagePackage { name, version, origin } = self.package;
        (self.organization, name, version, origin).hash(state);
    }
}

impl Hash for PackageKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        PackageRef { organization: &self.organization, package: &self.package }.hash(state);
    }
}

impl Equivalent<PackageKey> for PackageRef<'_> {
    fn equivalent(&self, key: &PackageKey) -> bool {
        *self.organization == *key.organization && *self.package == key.package
    }
}

/// The advisories about a package, and the epochs of the advisories and the metadata before they were read.
#[derive(Debug, Clone)]
struct Computed {
    as_of: Versions,
    /// The approximate size, which must not change while this is cached.
    bytes: u64,
    package: Arc<Package>,
}

/// The epochs that the vulnerabilities of an organization's images depend on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Versions {
    /// Those of the vulnerability metadata and of the public advisories, and the lineage of the store.
    common: Arc<[u64]>,
    /// That of the organization's advisories.
    own: u64,
}

/// The vulnerabilities of an imported report.
#[derive(Debug)]
struct Counted {
    /// The revision of the report.
    revision: u64,
    found: Arc<Found>,
}

impl Computed {
    fn bytes_of(key: &PackageKey, computed: &Self) -> u64 {
        let ImagePackage { name, version, origin } = &key.package;
        let texts = name.len() + version.len() + origin.len() + key.organization.len();
        computed.bytes + (texts + size_of::<(PackageKey, Package)>()) as u64
    }
}

impl Counted {
    fn bytes_of(uid: &Uid, counted: &Arc<Self>) -> u64 {
        let ids: usize = counted.found.keys().map(|id| id.len() + ENTRY_BYTES).sum();
        (ids + uid.len() + size_of::<Self>()) as u64
    }
}

/// The approximate size of a map's entry in bytes, in addition to the text of the key.
const ENTRY_BYTES: usize = 48;

/// The ids of vulnerabilities, each with its level.
type Found = BTreeMap<Box<str>, Level>;

/// An image of a repo.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Subject {
    /// The uid of the repo.
    pub(crate) repo: Uid,
    pub(crate) digest: Digest,
}

/// The known vulnerabilities of an image over time.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The vulnerabilities of imported reports, by the times of the reports.
    imported: BTreeMap<Timestamp, Arc<Found>>,
    /// Computed vulnerabilities; `None` for an image that was not imported.
    computed: Option<Exposures>,
}

impl History {
    /// Visits each vulnerability at a moment once, with its level: those of the latest report up to then, or else
    /// computed ones. Returns `false` if neither the image nor a report up to then was imported.
    pub(crate) fn at<'h>(&'h self, moment: Timestamp, mut visit: impl FnMut(&'h str, Level)) -> bool {
        match (self.imported.range(..=moment).next_back(), &self.computed) {
            (Some((_, found)), _) => found.iter().for_each(|(id, level)| visit(id, *level)),
            (None, Some(computed)) => computed.found(moment, visit),
            (None, None) => return false,
        }
        true
    }

    /// Returns the number of vulnerabilities that [`History::at`] examines at most, whether or not they are visited.
    pub(crate) fn examined(&self) -> usize {
        let imported = self.imported.values().map(|found| found.len()).max().unwrap_or_default();
        imported.max(self.computed.as_ref().map_or(0, Exposures::examined))
    }

    /// Returns the size of the image for one architecture in bytes; 0 if it is not known.
    pub(crate) fn size(&self) -> i64 {
        self.computed.as_ref().map_or(0, |computed| computed.size)
    }
}

/// Returns the known vulnerabilities of images, in their order. `within` contains the repos of all of them.
///
/// # Errors
/// INVALID_ARGUMENT for `field` when there are more than [`MAX_REPORTS`] reports of these images; those of the store.
pub(crate) async fn histories(
    cx: &Context<'_>,
    within: &Scopes,
    subjects: &[Subject],
    field: &str,
) -> Result<Vec<History>> {
    let imported = imported(cx, within, subjects, field).await?;
    let computed = computed(cx, subjects).await?;
    // Several tags can refer to the same image, so a subject can be there more than once.
    let histories = subjects
        .iter()
        .zip(computed)
        .map(|(subject, computed)| History { imported: imported.get(subject).cloned().unwrap_or_default(), computed });
    Ok(histories.collect())
}

/// Returns the report of an image as of now: the latest imported one, or else a computed one. Returns `None` if neither
/// the image nor a report was imported.
///
/// # Errors
/// Those of the store.
pub(crate) async fn latest(cx: &Context<'_>, subject: &Subject) -> Result<Option<VulnerabilityReport>> {
    let mut query = Query::new(VulnerabilityReport::KIND.name, Scope::Children(subject.repo.clone()));
    query.filters = vec![Filter::AnyOf { key: DIGEST_KEY, values: vec![KeyValue::text(&subject.digest)] }];
    query.order = Order { by: OrderBy::Key("createTime"), descending: true };
    query.limit = 1;
    match cx.find::<VulnerabilityReport>(query).await?.pop() {
        Some(report) => Ok(Some(report)),
        None => compute(cx, subject, cx.now()).await,
    }
}

/// Returns the computed vulnerabilities of an image over time; `None` if the image was not imported.
///
/// # Errors
/// Those of the store.
pub(crate) async fn exposures(cx: &Context<'_>, subject: &Subject) -> Result<Option<Exposures>> {
    Ok(computed(cx, std::slice::from_ref(subject)).await?.pop().flatten())
}

/// Computes the report of an image as of a moment; `None` if the image was not imported.
///
/// # Errors
/// Those of the store.
async fn compute(cx: &Context<'_>, subject: &Subject, moment: Timestamp) -> Result<Option<VulnerabilityReport>> {
    let Some(exposures) = exposures(cx, subject).await? else { return Ok(None) };
    let mut pace = cx.pace();
    let mut vulnerabilities = Vec::new();
    for exposure in exposures.at(moment, &mut pace).await {
        pace.step(exposure.fact.description.len()).await;
        vulnerabilities.push(Vulnerability::from(exposure));
    }
    let (digest, create_time) = (subject.digest.clone(), Some(moment));
    Ok(Some(VulnerabilityReport { digest, vulnerabilities, create_time, ..VulnerabilityReport::default() }))
}

/// The number of images whose reports are looked up at once. A look-up searches each repo for each digest.
const SUBJECTS: usize = 32;

/// The number of reports that are read at once.
const PAGE: usize = 200;

/// The number of bytes of reports that are read at once.
const PAGE_BYTES: usize = 8 << 20;

/// Reads the imported reports of images, by their times.
async fn imported(
    cx: &Context<'_>,
    within: &Scopes,
    subjects: &[Subject],
    field: &str,
) -> Result<HashMap<Subject, BTreeMap<Timestamp, Arc<Found>>>> {
    let mut imported: HashMap<Subject, BTreeMap<Timestamp, Arc<Found>>> = HashMap::new();
    let mut query = Query::new(VulnerabilityReport::KIND.name, Scope::Roots);
    query.scopes = within.as_slice().to_vec();
    query.limit = 1;
    // Most installations import no reports. This costs less than a search for every digest.
    if subjects.is_empty() || cx.page(query.clone()).await?.items.is_empty() {
        return Ok(imported);
    }
    (query.limit, query.bytes) = (PAGE, PAGE_BYTES);
    let mut read = 0;
    // Sorted, so that those of a repo are together.
    let subjects: Vec<_> = subjects.iter().collect::<BTreeSet<_>>().into_iter().collect();
    for subjects in subjects.chunks(SUBJECTS) {
        imported_of(cx, query.clone(), subjects, field, &mut read, &mut imported).await?;
    }
    Ok(imported)
}

/// Adds the imported reports of a few images, which are distinct. `read` counts the reports.
async fn imported_of(
    cx: &Context<'_>,
    mut query: Query,
    subjects: &[&Subject],
    field: &str,
    read: &mut usize,
    imported: &mut HashMap<Subject, BTreeMap<Timestamp, Arc<Found>>>,
) -> Result<()> {
    let repos: BTreeSet<_> = subjects.iter().map(|subject| Scope::Children(subject.repo.clone())).collect();
    let digests: BTreeSet<_> = subjects.iter().map(|subject| KeyValue::text(&subject.digest)).collect();
    query.scopes = repos.into_iter().collect();
    query.filters = vec![Filter::AnyOf { key: DIGEST_KEY, values: digests.into_iter().collect() }];
    let cache = data_of::<Findings>(cx)?;
    let requested: HashSet<&Subject> = subjects.iter().copied().collect();
    let mut pace = cx.pace();
    loop {
        let page = cx.page(query.clone()).await?;
        for item in page.items {
            pace.step(item.body.len()).await;
            let report: Head = serde_json::from_slice(&item.body).map_err(Error::internal)?;
            let Some(repo) = item.uid().parent() else { continue };
            let subject = Subject { repo, digest: report.digest };
            let Some(at) = report.create_time.filter(|_| requested.contains(&subject)) else { continue };
            *read += 1;
            if *read > MAX_REPORTS {
                let rule = format!("must select images with at most {MAX_REPORTS} imported reports");
                return Err(Error::invalid_field(field, rule));
            }
            let counted = match cache.counted.get(&item.uid()).filter(|counted| counted.revision == item.revision) {
                Some(counted) => counted,
                None => {
                    let report: VulnerabilityReport = serde_json::from_slice(&item.body).map_err(Error::internal)?;
                    let counted = Arc::new(Counted { revision: item.revision, found: Arc::new(found(&report)) });
                    cache.counted.insert(item.uid(), Arc::clone(&counted));
                    counted
                }
            };
            imported.entry(subject).or_default().insert(at, Arc::clone(&counted.found));
        }
        query.after = page.next;
        if query.after.is_none() {
            return Ok(());
        }
    }
}

/// The parts of a stored report that say which it is.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    digest: Digest,
    create_time: Option<Timestamp>,
}

/// Returns the vulnerabilities of a report, each once with its highest level.
fn found(report: &VulnerabilityReport) -> Found {
    let mut found = Found::new();
    for one in &report.vulnerabilities {
        let level = found.entry(one.id.as_str().into()).or_default();
        *level = one.severity.max(*level);
    }
    found
}

/// Returns the vulnerabilities of images over time, in their order; `None` for each that was not imported.
async fn computed(cx: &Context<'_>, subjects: &[Subject]) -> Result<Vec<Option<Exposures>>> {
    let public = Arc::new(public_groups(cx)?);
    // Epochs are read before the data that they cover, so that a concurrent change invalidates the result.
    let as_of = epochs(cx, &public, subjects).await?;
    let mut loaders: HashMap<&str, Loader> = HashMap::new();
    let (mut all, mut pace) = (Vec::with_capacity(subjects.len()), cx.pace());
    for subjects in subjects.chunks(IMAGES) {
        let key = |subject: &Subject| {
            platform_engine::store::Key::new(Image::KIND.name, Image::uid_of(&subject.repo, &subject.digest))
        };
        let records = cx.records(&subjects.iter().map(key).collect::<Vec<_>>()).await?;
        for (subject, record) in subjects.iter().zip(records) {
            let Some(record) = record else {
                all.push(None);
                continue;
            };
            pace.step(record.body.len()).await;
            let image: Image = serde_json::from_slice(&record.body).map_err(Error::internal)?;
            // The uid has a part of a hash of the digest.
            if image.digest != subject.digest {
                all.push(None);
                continue;
            }
            let organization = subject.repo.root();
            let as_of = as_of.get(organization).cloned().unwrap_or_default();
            let loader = loaders.entry(organization).or_insert_with(|| Loader::new(&public, organization));
            let mut exposures = Exposures::new(image, &public);
            find(cx, organization, &as_of, &mut exposures, loader).await?;
            all.push(Some(exposures));
        }
    }
    Ok(all)
}

/// Adds the advisories about the packages of an image, and caches those that were not known.
async fn find(
    cx: &Context<'_>,
    organization: &str,
    as_of: &Versions,
    exposures: &mut Exposures,
    loader: &mut Loader,
) -> Result<()> {
    let cache = &data_of::<Findings>(cx)?.packages;
    let mut missing = Vec::new();
    for installed in &mut exposures.packages {
        let cached = cache.get(&PackageRef { organization, package: &installed.package });
        match cached.filter(|computed| computed.as_of == *as_of) {
            Some(computed) => installed.known = computed.package,
            None => missing.push(installed),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    loader.load(cx, missing.iter().map(|installed| &installed.package)).await?;
    for installed in missing {
        let organization = Uid::opaque(organization.to_owned());
        installed.known = Arc::new(loader.package(&installed.package));
        let package = Arc::clone(&installed.known);
        let computed = Computed { as_of: as_of.clone(), bytes: package.bytes() as u64, package };
        cache.insert(PackageKey { organization, package: installed.package.clone() }, computed);
    }
    Ok(())
}

/// Returns, for each organization of these images, the epochs of the advisories that apply to it and of the
/// vulnerability metadata.
async fn epochs<'s>(cx: &Context<'_>, public: &Scopes, subjects: &'s [Subject]) -> Result<HashMap<&'s str, Versions>> {
    let metadata = VulnerabilityMetadata::EPOCH.unwrap_or_default();
    let mut shared: Vec<Epoch> = vec![Epoch::of_organization(metadata, "")];
    shared.extend(public.as_slice().iter().filter_map(|scope| match scope {
        Scope::Subtree(group) => Some(Epoch::of_organization(ADVISORIES_EPOCH, group)),
        _ => None,
    }));
    let mut organizations: Vec<_> = subjects.iter().map(|subject| subject.repo.root()).collect();
    organizations.sort_unstable();
    organizations.dedup();
    let own = organizations.iter().map(|organization| Epoch::of_organization(ADVISORIES_EPOCH, organization));
    let (common, epochs) = (shared.len(), shared.iter().cloned().chain(own).collect::<Vec<_>>());
    let lineage = cx.platform().store().lineage();
    let values = cx.epochs(&epochs).await?;
    let (common, own) = values.split_at_checked(common).unwrap_or_default();
    let common: Arc<[u64]> = common.iter().copied().chain([lineage]).collect();
    let versions = |own: &u64| Versions { common: Arc::clone(&common), own: *own };
    Ok(organizations.into_iter().zip(own).map(|(organization, own)| (organization, versions(own))).collect())
}

/// Returns whether an advisory of a group applies to the images of a repo: advisories of the groups above the repo do,
/// and public ones.
fn applies(group: &str, repo: &str, public: &Scopes) -> bool {
    uid::is_at_or_below(repo, group) || public.as_slice().iter().any(|scope| scope.contains(group))
}

/// Returns the group of an advisory.
fn group_of(advisory: &Advisory) -> Uid {
    advisory.uid.parent().unwrap_or_default()
}
