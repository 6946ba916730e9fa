//! Vulnerabilities of images over time, computed from packages, advisories and metadata.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use cvss::Cvss;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use platform_core::resources::{
    advisory::vulnerability_metadata::Entries,
    registry::image::{Image, ImagePackage, ImagePlatform},
    vulnerabilities::{Advisory, Level, Severity},
};
use platform_engine::{
    context::Context,
    error::Result,
    kind::Resource,
    offload::Pace,
    scope::Scopes,
    store::{Filter, KeyValue, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};

use super::{
    applies, group_of,
    periods::{Known, Period},
};
use crate::resources::vulnerability_report::{Fix, Score, Vulnerability};

/// The vulnerabilities of an image over time.
#[derive(Debug)]
pub(crate) struct Exposures {
    repo: Uid,
    /// The groups whose advisories are public.
    public: Arc<Scopes>,
    /// The size of the image for one architecture in bytes: `amd64`, or else the first.
    pub(super) size: i64,
    pub(super) packages: Vec<Installed>,
}

/// A package of an image, with the architectures of the image that have it, as advisories name them.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) package: ImagePackage,
    architectures: Vec<String>,
    /// The end of the package URL for each architecture, from the package's name on. Only reports have URLs.
    named: OnceLock<Vec<String>>,
    pub(super) known: Arc<Package>,
}

/// The advisories about one version of a package, for all images of an organization that have it.
#[derive(Debug, Default)]
pub(super) struct Package {
    findings: Vec<Finding>,
    /// The periods of all findings in one list, so that a count reads memory in order.
    periods: Vec<(usize, Period)>,
}

/// An advisory about a package.
#[derive(Debug)]
struct Finding {
    /// The first bytes of the vulnerability's id: comparing them decides nearly every comparison of ids.
    prefix: u128,
    fact: Arc<Fact>,
    known: Arc<Known>,
}

/// The metadata of a vulnerability, from all of its entries.
#[derive(Debug, Default, Clone)]
pub(crate) struct Fact {
    pub(crate) id: String,
    pub(crate) level: Level,
    pub(crate) scores: Vec<Score>,
    pub(crate) description: String,
    pub(crate) urls: Vec<String>,
}

/// A vulnerability of an image at a moment, with a fix that its packages have in common.
#[derive(Debug)]
pub(crate) struct Exposure<'e> {
    pub(crate) fact: Cow<'e, Fact>,
    /// Other ids of the vulnerability.
    pub(crate) aliases: Vec<&'e str>,
    /// The package URLs of the packages.
    pub(crate) purls: Vec<String>,
    pub(crate) fix: &'e Fix,
}

/// An advisory by which a package of an image is vulnerable at a moment.
struct Open<'e> {
    /// The prefix of the finding. A copy in a list that is sorted saves a cache miss for each comparison.
    prefix: u128,
    installed: &'e Installed,
    finding: &'e Finding,
    fix: &'e Fix,
}

impl Open<'_> {
    fn order(&self, other: &Self) -> Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| self.finding.fact.id.cmp(&other.finding.fact.id))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.order(other).is_eq()
    }
}

impl Installed {
    /// Returns the package URLs for the architectures to which an advisory applies.
    fn purls<'e>(&'e self, known: &'e Known) -> impl Iterator<Item = String> + 'e {
        let named = self.named.get_or_init(|| self.architectures.iter().map(|one| named(&self.package, one)).collect());
        let pairs = self.architectures.iter().zip(named);
        pairs.filter(|(one, _)| known.is_for(one)).map(|(_, named)| purl(known, named))
    }
}

impl Package {
    /// Returns the approximate size in bytes. Packages share facts and advisories, and each counts its part.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &String| text.len() + size_of::<String>();
        let periods = self.periods.iter().flat_map(|(_, period)| &period.fix.versions).map(text).sum::<usize>();
        let finding = |Finding { fact, known, .. }: &Finding| {
            let of_fact = fact.id.len() + fact.description.len() + fact.urls.iter().map(text).sum::<usize>();
            let of_known = known.names.iter().map(text).sum::<usize>() + size_of::<Known>();
            (of_fact + size_of::<Fact>()) / Arc::strong_count(fact) + of_known / Arc::strong_count(known)
        };
        periods
            + self.periods.len() * size_of::<(usize, Period)>()
            + self.findings.iter().map(finding).sum::<usize>()
            + self.findings.len() * size_of::<Finding>()
    }
}

impl Exposures {
    /// Returns the packages of an image, without advisories.
    pub(super) fn new(image: Image, public: &Arc<Scopes>) -> Self {
        let amd64 = image.platforms.iter().find(|platform| platform.architecture == "amd64");
        let size = amd64.or(image.platforms.first()).map_or(0, |platform| platform.size);
        let of_platform = |platform: ImagePlatform| {
            let architecture = apk_architecture(&platform.architecture).to_owned();
            platform.packages.into_iter().map(move |package| (package, architecture.clone()))
        };
        let mut installed: Vec<_> = image.platforms.into_iter().flat_map(of_platform).collect();
        installed.sort();
        // Packages of several architectures are often the same.
        let mut packages: Vec<Installed> = Vec::with_capacity(installed.len());
        for (package, architecture) in installed {
            match packages.last_mut().filter(|last| last.package == package) {
                Some(same) => same.architectures.push(architecture),
                None => packages.push(Installed {
                    package,
                    architectures: vec![architecture],
                    named: OnceLock::new(),
                    known: Arc::default(),
                }),
            }
        }
        Self { repo: image.uid.parent().unwrap_or_default(), public: Arc::clone(public), size, packages }
    }

    /// Returns the number of periods that are examined for a moment.
    pub(super) fn examined(&self) -> usize {
        self.packages.iter().map(|installed| installed.known.periods.len() + 1).sum()
    }

    /// Returns the advisories by which packages are vulnerable at a moment, in the order of the vulnerabilities' ids.
    fn open(&self, moment: Timestamp) -> Vec<Open<'_>> {
        let mut open = Vec::new();
        // Most advisories about a package are of one group.
        let mut applying: Option<(&Uid, bool)> = None;
        for installed in &self.packages {
            for (finding, period) in installed.known.periods.iter().filter(|(_, period)| period.contains(moment)) {
                let Some(finding) = installed.known.findings.get(*finding) else { continue };
                let group = &finding.known.group;
                let applies = match applying {
                    // A comparison of the texts would cost as much as the whole rest.
                    Some((same, applies)) if std::ptr::eq(same.as_str(), group.as_str()) => applies,
                    _ => applies(group, &self.repo, &self.public),
                };
                applying = Some((group, applies));
                if applies && installed.architectures.iter().any(|one| finding.known.is_for(one)) {
                    open.push(Open { prefix: finding.prefix, installed, finding, fix: &period.fix });
                }
            }
        }
        open.sort_by(Open::order);
        open
    }

    /// Visits the vulnerabilities at a moment, each once with its level, in the order of the ids.
    pub(super) fn found<'e>(&'e self, moment: Timestamp, mut visit: impl FnMut(&'e str, Level)) {
        for same in self.open(moment).chunk_by(Open::is_same) {
            let level = same.iter().map(|open| open.finding.fact.level).max();
            if let Some(Open { finding, .. }) = same.first() {
                visit(&finding.fact.id, level.unwrap_or_default());
            }
        }
    }

    /// Returns the vulnerabilities at a moment, as a report has them: one for each vulnerability and fix, in the order
    /// of the ids.
    pub(crate) async fn at(&self, moment: Timestamp, pace: &mut Pace<'_>) -> Vec<Exposure<'_>> {
        let mut open = self.open(moment);
        let mut all = Vec::with_capacity(open.len());
        for same in open.chunk_by_mut(|one, other| one.is_same(other)) {
            let others = same.iter().flat_map(|open| open.finding.known.names.iter().skip(1));
            let mut aliases: Vec<_> = others.map(String::as_str).collect();
            aliases.sort_unstable();
            aliases.dedup();
            let Some(fact) = Fact::of_all(same.iter().map(|open| &open.finding.fact)) else { continue };
            same.sort_by_key(|open| open.fix);
            for same in same.chunk_by(|one, other| one.fix == other.fix) {
                let mut purls: Vec<_> =
                    same.iter().flat_map(|open| open.installed.purls(&open.finding.known)).collect();
                purls.sort_unstable();
                purls.dedup();
                let bytes = fact.description.len() + purls.iter().map(String::len).sum::<usize>();
                if let Some(Open { fix, .. }) = same.first() {
                    all.push(Exposure { fact: fact.clone(), aliases: aliases.clone(), purls, fix });
                }
                pace.step(bytes).await;
            }
        }
        all
    }
}

impl From<Exposure<'_>> for Vulnerability {
    fn from(Exposure { fact, aliases, purls, fix }: Exposure<'_>) -> Self {
        let Fact { id, level, scores, description, urls } = fact.into_owned();
        Self {
            id,
            aliases: aliases.into_iter().map(str::to_owned).collect(),
            purls,
            description,
            severity: level,
            cvss: scores,
            fix: fix.clone(),
            related_urls: urls,
            ..Self::default()
        }
    }
}

/// The number of artifacts whose advisories are looked up at once.
const NAMES: usize = 200;

/// The number of advisories that are read at once.
const PAGE: usize = 500;

/// Loads the advisories and the metadata that apply to the images of an organization, each once.
pub(super) struct Loader {
    /// The scopes of the advisories: the organization, and public groups of others.
    scopes: Vec<Scope>,
    /// The advisories of the artifacts whose advisories were read.
    known: HashMap<String, Vec<Arc<Known>>>,
    /// The groups of these advisories, which share the text of their uids.
    groups: HashSet<Uid>,
    entries: Entries,
    /// The metadata of the vulnerabilities, by their names.
    facts: HashMap<Vec<String>, Arc<Fact>>,
}

impl Loader {
    pub(super) fn new(public: &Scopes, organization: &str) -> Self {
        let is_elsewhere = |scope: &&Scope| !matches!(scope, Scope::Subtree(group) if group.root() == organization);
        let own = Scope::Subtree(Uid::opaque(organization.to_owned()));
        let scopes = public.as_slice().iter().filter(is_elsewhere).cloned().chain([own]).collect();
        Self {
            scopes,
            known: HashMap::new(),
            groups: HashSet::new(),
            entries: Entries::default(),
            facts: HashMap::new(),
        }
    }

    /// Loads the advisories and the metadata of these packages.
    pub(super) async fn load<'i>(
        &mut self,
        cx: &Context<'_>,
        packages: impl Iterator<Item = &'i ImagePackage>,
    ) -> Result<()> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for package in packages {
            names.extend(artifacts(package).filter(|name| !self.known.contains_key(*name)));
        }
        let names: Vec<_> = names.into_iter().collect();
        let (mut new, mut pace) = (Vec::new(), cx.pace());
        for names in names.chunks(NAMES) {
            self.known.extend(names.iter().map(|name| ((*name).to_owned(), Vec::new())));
            let mut query = Query::new(Advisory::KIND.name, Scope::Roots);
            query.scopes.clone_from(&self.scopes);
            query.limit = PAGE;
            query.filters = vec![Filter::AnyOf {
                key: "artifact",
                values: names.iter().map(|name| KeyValue::text(name)).collect(),
            }];
            loop {
                let page = cx.page(query.clone()).await?;
                for item in &page.items {
                    pace.step(item.body.len()).await;
                    let advisory: Advisory =
                        serde_json::from_slice(&item.body).map_err(platform_engine::error::Error::internal)?;
                    let group = group_of(&advisory);
                    let group = match self.groups.get(&group) {
                        Some(group) => group.clone(),
                        None => {
                            self.groups.insert(group.clone());
                            group
                        }
                    };
                    let Some(known) = Known::of(advisory, group).map(Arc::new) else { continue };
                    new.push(Arc::clone(&known));
                    self.known.entry(known.artifact.clone()).or_default().push(known);
                }
                query.after = page.next;
                if query.after.is_none() {
                    break;
                }
            }
        }
        let names: Vec<&str> = new.iter().flat_map(|known| &known.names).map(String::as_str).collect();
        self.entries.look_up(cx, names).await
    }

    /// Returns the advisories about a package that was loaded.
    pub(super) fn package(&mut self, package: &ImagePackage) -> Package {
        let mut found = Package::default();
        // An advisory may be of the package and of its origin in several groups.
        let mut seen = HashSet::new();
        for known in artifacts(package).filter_map(|name| self.known.get(name)).flatten() {
            let periods = known.periods(&package.version);
            if periods.is_empty() || !seen.insert(Arc::as_ptr(known)) {
                continue;
            }
            let fact = match self.facts.get(&known.names) {
                Some(fact) => Arc::clone(fact),
                None => {
                    let fact = Arc::new(Fact::of(&known.names, &self.entries));
                    self.facts.insert(known.names.clone(), Arc::clone(&fact));
                    fact
                }
            };
            let at = found.findings.len();
            found.periods.extend(periods.into_iter().map(|period| (at, period)));
            found.findings.push(Finding { prefix: prefix(&fact.id), fact, known: Arc::clone(known) });
        }
        found
    }
}

/// Returns the first 16 bytes of an id as a number with the same order.
fn prefix(id: &str) -> u128 {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(id.bytes()).for_each(|(place, byte)| *place = byte);
    u128::from_be_bytes(bytes)
}

/// Returns the artifacts whose advisories concern a package: the package, and the one whose build made it.
fn artifacts(package: &ImagePackage) -> impl Iterator<Item = &str> {
    let made_by = Some(package.origin.as_str()).filter(|origin| !origin.is_empty() && *origin != package.name);
    made_by.into_iter().chain([package.name.as_str()])
}

/// Returns the architecture as packages name it.
fn apk_architecture(oci: &str) -> &str {
    match oci {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    }
}

/// Returns the package URL of a package that ends in this text of [`named`].
fn purl(known: &Known, named: &str) -> String {
    let namespace = Cow::from(encoded(&known.namespace));
    let separator = if namespace.is_empty() { "" } else { "/" };
    ["pkg:apk/", &namespace, separator, named].concat()
}

/// Returns the part of a package URL from the package's name on, for an architecture as packages name it.
fn named(package: &ImagePackage, architecture: &str) -> String {
    format!("{}@{}?arch={}", encoded(&package.name), encoded(&package.version), encoded(architecture))
}

fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

/// The characters that package URLs encode.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b':');

impl Fact {
    /// Returns the metadata of the vulnerability with these names, the main one first.
    fn of(names: &[String], entries: &Entries) -> Self {
        let mut fact = Self { id: names.first().cloned().unwrap_or_default(), ..Self::default() };
        for entry in entries.of(names.iter().map(String::as_str)) {
            if fact.description.is_empty() {
                fact.description.clone_from(&entry.summary);
            }
            entry.urls.iter().for_each(|url| fact.refer_to(url));
            entry.severities.iter().for_each(|severity| fact.rate(severity));
        }
        fact
    }

    /// Returns the metadata of a vulnerability that several advisories have, each with its own aliases.
    fn of_all<'f>(mut facts: impl Iterator<Item = &'f Arc<Self>>) -> Option<Cow<'f, Self>> {
        let first = facts.next()?;
        let mut all = Cow::Borrowed(&**first);
        for other in facts.filter(|other| !Arc::ptr_eq(first, other)) {
            let all = all.to_mut();
            all.level = all.level.max(other.level);
            if all.description.is_empty() {
                all.description.clone_from(&other.description);
            }
            other.urls.iter().for_each(|url| all.refer_to(url));
            let new: Vec<_> = other.scores.iter().filter(|score| !all.scores.contains(score)).cloned().collect();
            all.scores.extend(new);
        }
        Some(all)
    }

    fn refer_to(&mut self, url: &String) {
        if self.urls.len() < MAX_URLS && !self.urls.contains(url) {
            self.urls.push(url.clone());
        }
    }

    /// Adds a score. The level is that of the highest score.
    fn rate(&mut self, severity: &Severity) {
        let Some((vector, value)) = severity.cvss().zip(severity.base_score()) else { return };
        let version = match vector {
            Cvss::CvssV20(_) => "2.0",
            Cvss::CvssV30(_) => "3.0",
            Cvss::CvssV31(_) => "3.1",
            _ => "4.0",
        };
        let score = Score { score: format!("{value:.1}"), version: version.to_owned() };
        if !self.scores.contains(&score) {
            self.scores.push(score);
        }
        self.level = self.level.max(Level::of_score(value));
    }
}

/// The maximum number of pages about a vulnerability in a computed report. Our choice.
const MAX_URLS: usize = 20;
