//! Vulnerabilities of images over time, computed from packages, advisories and metadata.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use cvss::Cvss;
use futures_lite::future::yield_now;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    super::{
        super::{
            advisory::vulnerability_metadata::{Entries, Entry},
            vulnerabilities::{Advisory, Severity},
        },
        image::{Image, ImagePackage},
        vulnerability_report::{Fix, Level, Score, Vulnerability},
    },
    Subject, applies, group_of,
    periods::{Known, Period},
};
use crate::{
    context::Context,
    error::Result,
    kind::Resource,
    scope::Scopes,
    store::{Filter, KeyValue, Query, Scope},
    timestamp::Timestamp,
    uid::Uid,
};

/// The vulnerabilities of an image over time.
#[derive(Debug, Default)]
pub(crate) struct Exposures {
    /// The size of the image for one architecture in bytes: `amd64`, or else the first.
    pub(super) size: i64,
    /// In the order of the ids.
    list: Vec<Exposure>,
}

/// A vulnerability of an image over time.
#[derive(Debug)]
struct Exposure {
    fact: Arc<Fact>,
    aliases: Vec<String>,
    affected: Vec<Affected>,
}

/// A package that has a vulnerability in some periods.
#[derive(Debug)]
struct Affected {
    purls: Vec<String>,
    periods: Vec<Period>,
}

/// The metadata of a vulnerability, from all of its entries.
#[derive(Debug, Default)]
struct Fact {
    id: String,
    level: Level,
    scores: Vec<Score>,
    description: String,
    urls: Vec<String>,
}

impl Exposures {
    /// Returns the approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &String| text.len() + size_of::<String>();
        let affected = |affected: &Affected| {
            let versions = affected.periods.iter().flat_map(|period| &period.fix.versions).map(text).sum::<usize>();
            let purls = affected.purls.iter().map(text).sum::<usize>();
            versions + purls + affected.periods.len() * size_of::<Period>() + size_of::<Affected>()
        };
        let exposure = |exposure: &Exposure| {
            let fact = exposure.fact.description.len() + exposure.fact.urls.iter().map(text).sum::<usize>();
            let own = exposure.aliases.iter().map(text).sum::<usize>();
            fact + own + exposure.affected.iter().map(affected).sum::<usize>() + size_of::<Exposure>()
        };
        self.list.iter().map(exposure).sum()
    }

    /// Returns the vulnerabilities at a moment, each with its level.
    pub(super) fn found(&self, moment: Timestamp) -> impl Iterator<Item = (&str, Level)> {
        let is_open = move |affected: &Affected| affected.periods.iter().any(|period| period.contains(moment));
        let open = self.list.iter().filter(move |exposure| exposure.affected.iter().any(is_open));
        open.map(|exposure| (exposure.fact.id.as_str(), exposure.fact.level))
    }

    /// Returns the vulnerabilities at a moment, as a report has them: one for each vulnerability and fix.
    pub(super) fn vulnerabilities(&self, moment: Timestamp) -> Vec<Vulnerability> {
        let mut all = Vec::new();
        for exposure in &self.list {
            let mut by_fix: BTreeMap<&Fix, Vec<&String>> = BTreeMap::new();
            for affected in &exposure.affected {
                if let Some(period) = affected.periods.iter().find(|period| period.contains(moment)) {
                    by_fix.entry(&period.fix).or_default().extend(&affected.purls);
                }
            }
            all.extend(by_fix.into_iter().map(|(fix, mut purls)| {
                purls.sort();
                purls.dedup();
                Vulnerability {
                    id: exposure.fact.id.clone(),
                    aliases: exposure.aliases.clone(),
                    purls: purls.into_iter().cloned().collect(),
                    description: exposure.fact.description.clone(),
                    severity: exposure.fact.level,
                    cvss: exposure.fact.scores.clone(),
                    fix: fix.clone(),
                    related_urls: exposure.fact.urls.clone(),
                    ..Vulnerability::default()
                }
            }));
        }
        all
    }
}

/// The number of artifacts whose advisories are looked up at once.
const NAMES: usize = 200;

/// The number of advisories that are read at once.
const PAGE: usize = 500;

/// Loads the advisories and the metadata that apply to images, each once.
pub(super) struct Loader<'p> {
    public: &'p Scopes,
    /// The scopes of the advisories: the organizations of the images, and public groups of others.
    scopes: Vec<Scope>,
    /// The advisories of the artifacts whose advisories were read.
    known: HashMap<String, Vec<Arc<Known>>>,
    /// By the main names of vulnerabilities.
    facts: HashMap<String, Arc<Fact>>,
}

impl<'p> Loader<'p> {
    pub(super) fn new(public: &'p Scopes, subjects: &[Subject]) -> Self {
        let organizations: BTreeSet<_> = subjects.iter().map(|subject| subject.repo.root()).collect();
        let is_in_another = |scope: &&Scope| match scope {
            Scope::Subtree(group) => organizations.contains(group.root()),
            _ => false,
        };
        let public_elsewhere = public.as_slice().iter().filter(|scope| !is_in_another(scope)).cloned();
        let own = organizations.iter().map(|organization| Scope::Subtree(Uid::opaque((*organization).to_owned())));
        Self { public, scopes: own.chain(public_elsewhere).collect(), known: HashMap::new(), facts: HashMap::new() }
    }

    /// Loads what applies to these images.
    pub(super) async fn load<'i>(&mut self, cx: &Context<'_>, images: impl Iterator<Item = &'i Image>) -> Result<()> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let packages = images.flat_map(|image| &image.platforms).flat_map(|platform| &platform.packages);
        for package in packages {
            names.extend(artifacts(package).filter(|name| !self.known.contains_key(*name)));
        }
        let names: Vec<_> = names.into_iter().collect();
        let mut new = Vec::new();
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
                    let advisory: Advisory =
                        serde_json::from_slice(&item.body).map_err(crate::error::Error::internal)?;
                    let group = group_of(&advisory);
                    let Some(known) = Known::of(advisory, group).map(Arc::new) else { continue };
                    new.push(Arc::clone(&known));
                    self.known.entry(known.artifact.clone()).or_default().push(known);
                }
                query.after = page.next;
                yield_now().await;
                if query.after.is_none() {
                    break;
                }
            }
        }
        self.load_facts(cx, &new).await
    }

    async fn load_facts(&mut self, cx: &Context<'_>, known: &[Arc<Known>]) -> Result<()> {
        let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for known in known {
            if let Some(main) = known.names.first().filter(|main| !self.facts.contains_key(*main)) {
                names.entry(main).or_default().extend(known.names.iter().map(String::as_str));
            }
        }
        let entries = Entries::look_up(cx, names.values().flatten().copied()).await?;
        for (main, names) in names {
            let others = names.into_iter().filter(|name| *name != main);
            let fact = Fact::of(main, &entries.of([main].into_iter().chain(others)));
            self.facts.insert(main.to_owned(), Arc::new(fact));
        }
        Ok(())
    }

    /// Computes the periods of an image that was loaded.
    pub(super) fn exposures(&self, image: &Image) -> Exposures {
        // Packages of several architectures are often the same.
        let mut platforms: BTreeMap<&ImagePackage, Vec<&str>> = BTreeMap::new();
        for platform in &image.platforms {
            for package in &platform.packages {
                platforms.entry(package).or_default().push(&platform.architecture);
            }
        }
        let mut found: BTreeMap<&str, (BTreeSet<&String>, Vec<Affected>)> = BTreeMap::new();
        let repo = image.uid.parent().unwrap_or_default();
        for (package, architectures) in platforms {
            // An advisory may be of the package and of its origin in several groups.
            let mut seen = HashSet::new();
            for known in artifacts(package).filter_map(|name| self.known.get(name)).flatten() {
                let named = |architecture: &&&str| {
                    known.architecture.is_empty() || known.architecture == apk_architecture(architecture)
                };
                let architectures: Vec<_> = architectures.iter().filter(named).collect();
                let mut is_new = || seen.insert(Arc::as_ptr(known));
                if architectures.is_empty() || !applies(&known.group, &repo, self.public) || !is_new() {
                    continue;
                }
                let periods = known.periods(&package.version);
                let Some((main, others)) = known.names.split_first().filter(|_| !periods.is_empty()) else { continue };
                let purls = architectures.iter().map(|architecture| purl(known, package, architecture)).collect();
                let (aliases, affected) = found.entry(main).or_default();
                aliases.extend(others);
                affected.push(Affected { purls, periods });
            }
        }
        let list = found.into_iter().map(|(main, (aliases, affected))| Exposure {
            fact: self.facts.get(main).cloned().unwrap_or_else(|| Arc::new(Fact::of(main, &[]))),
            aliases: aliases.into_iter().cloned().collect(),
            affected,
        });
        let amd64 = image.platforms.iter().find(|platform| platform.architecture == "amd64");
        let size = amd64.or(image.platforms.first()).map_or(0, |platform| platform.size);
        Exposures { size, list: list.collect() }
    }
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

fn purl(known: &Known, package: &ImagePackage, architecture: &str) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
    let namespace = if known.namespace.is_empty() { String::new() } else { format!("{}/", encoded(&known.namespace)) };
    let (name, version) = (encoded(&package.name), encoded(&package.version));
    format!("pkg:apk/{namespace}{name}@{version}?arch={}", encoded(apk_architecture(architecture)))
}

/// The characters that package URLs encode.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b':');

impl Fact {
    /// Returns what these entries say about the vulnerability with this main name.
    fn of(main: &str, entries: &[Arc<Entry>]) -> Self {
        let mut fact = Self { id: main.into(), ..Self::default() };
        for entry in entries {
            if fact.description.is_empty() {
                fact.description.clone_from(&entry.summary);
            }
            for url in &entry.urls {
                if fact.urls.len() < MAX_URLS && !fact.urls.contains(url) {
                    fact.urls.push(url.clone());
                }
            }
            for severity in &entry.severities {
                fact.rate(severity);
            }
        }
        fact
    }

    /// Adds a score. The level is that of the highest score.
    fn rate(&mut self, severity: &Severity) {
        let Ok(vector) = severity.score.parse::<Cvss>() else { return };
        let version = match vector {
            Cvss::CvssV20(_) => "2.0",
            Cvss::CvssV30(_) => "3.0",
            Cvss::CvssV31(_) => "3.1",
            _ => "4.0",
        };
        let value = vector.score();
        let score = Score { score: format!("{value:.1}"), version: version.to_owned() };
        if !self.scores.contains(&score) {
            self.scores.push(score);
        }
        self.level = self.level.max(Level::of_score(value));
    }
}

/// The maximum number of pages about a vulnerability in a computed report. Our choice.
const MAX_URLS: usize = 20;
