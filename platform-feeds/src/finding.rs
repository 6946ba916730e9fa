//! The state of the vulnerabilities of a package by one advisory, which every format writes in its own way.

use packageurl::PackageUrl;
use platform_core::resources::vulnerabilities::{
    Advisory, AdvisoryEvent,
    advisory::event::{EventType, FalsePositiveType, Note},
};
use platform_engine::timestamp::Timestamp;

/// The reason why a feed leaves out an advisory or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LeftOut {
    /// The advisory is about an image, a library or another artifact that is not a package of a distribution.
    NotAPackage,
    /// The advisory is about a package of another distribution than the requested one.
    OtherDistribution,
    /// The advisory has no approved event of a type that the formats have.
    Unreviewed,
    /// The advisory was withdrawn, which only OSV can say.
    Withdrawn,
    /// The format has no name for the distribution.
    UnknownDistribution,
    /// The format says nothing about a vulnerability that is neither fixed nor denied.
    Open,
    /// The denial holds for one architecture, and the format would deny the vulnerability for all.
    DeniedForArchitecture,
}

impl LeftOut {
    /// Returns the reason, for messages.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotAPackage => "about artifacts that are not packages",
            Self::OtherDistribution => "about packages of other distributions",
            Self::Unreviewed => "without an approved event of a type that the format has",
            Self::Withdrawn => "withdrawn",
            Self::UnknownDistribution => "about packages of a distribution that OSV does not have",
            Self::Open => "neither fixed nor denied",
            Self::DeniedForArchitecture => "denied for one architecture only",
        }
    }
}

/// The state of a vulnerability in a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Fixed in a version, in the notation of the advisory.
    Fixed(String),
    /// The package is not vulnerable, for this reason.
    Denied(FalsePositiveType),
    /// The package is vulnerable: no fix is available yet, or none is planned.
    Affected(EventType),
    /// It is not known whether the package is vulnerable.
    Unknown(EventType),
}

/// The vulnerabilities of a package by an advisory, which are in the same state.
#[derive(Debug, Clone)]
pub(crate) struct Finding<'a> {
    pub(crate) advisory: &'a Advisory,
    /// The distribution of the package; may be empty.
    pub(crate) namespace: &'a str,
    pub(crate) state: State,
    /// The note of the event that determines the state.
    pub(crate) note: &'a str,
    /// The time of that event.
    pub(crate) at: Timestamp,
}

impl<'a> Finding<'a> {
    /// Returns the state by the most recent approved event of a type that the formats have. `namespace` is the
    /// distribution of packages that name none, and then excludes those of others; empty for all.
    pub(crate) fn of(advisory: &'a Advisory, namespace: &'a str) -> Result<Self, LeftOut> {
        if !matches!(advisory.artifact_type.as_str(), "" | "apk") {
            return Err(LeftOut::NotAPackage);
        }
        let own = advisory.package_namespace.as_str();
        if !own.is_empty() && !namespace.is_empty() && own != namespace {
            return Err(LeftOut::OtherDistribution);
        }
        // A patch is about some versions, and no format names single versions that are not vulnerable.
        let counts = |event: &&AdvisoryEvent| event.is_approved() && event.patched.is_none();
        let latest = advisory.events.iter().filter(counts).filter_map(|event| Some((event, event.event_type()?)));
        let (event, form) = latest.max_by_key(|(event, _)| event.create_time).ok_or(LeftOut::Unreviewed)?;
        let (state, note) = read(event, form).ok_or(LeftOut::Unreviewed)?;
        let namespace = if own.is_empty() { namespace } else { own };
        Ok(Self { advisory, namespace, state, note, at: event.create_time.unwrap_or(Timestamp::EPOCH) })
    }

    /// Returns the ids of the vulnerabilities, of which each has an entry of its own: readers use the first CVE of an
    /// entry alone.
    pub(crate) fn vulnerabilities(&self) -> Vec<&'a str> {
        let cves: Vec<_> = self.advisory.cves().collect();
        if cves.is_empty() { vec![self.advisory.vulnerability()] } else { cves }
    }

    /// Returns the other ids of a vulnerability: without those of the other vulnerabilities of the advisory.
    pub(crate) fn aliases(&self, vulnerability: &str) -> impl Iterator<Item = &'a str> {
        self.advisory.names().filter(move |name| *name != vulnerability && !name.starts_with("CVE-"))
    }

    /// Returns the package URL of the package, in a version if one is given.
    pub(crate) fn purl(&self, version: Option<&str>) -> Option<String> {
        let mut purl = PackageUrl::new("apk", self.advisory.artifact_name.as_str()).ok()?;
        if !self.namespace.is_empty() {
            purl.with_namespace(self.namespace).ok()?;
        }
        if let Some(version) = version {
            purl.with_version(version).ok()?;
        }
        if !self.advisory.artifact_architecture.is_empty() {
            purl.add_qualifier("arch", self.advisory.artifact_architecture.as_str()).ok()?;
        }
        Some(purl.to_string())
    }

    /// Returns the version from which on the package is not vulnerable, in the notation of the package databases: `0`
    /// if no version is vulnerable, and `None` if all are, for formats without architectures.
    pub(crate) fn fixed_version(&self) -> Result<Option<&str>, LeftOut> {
        match &self.state {
            State::Fixed(version) => Ok(Some(version)),
            State::Denied(_) if self.advisory.artifact_architecture.is_empty() => Ok(Some("0")),
            State::Denied(_) => Err(LeftOut::DeniedForArchitecture),
            State::Affected(_) | State::Unknown(_) => Ok(None),
        }
    }

    /// Returns when the advisory was withdrawn.
    pub(crate) fn withdrawn(&self) -> Option<Timestamp> {
        self.advisory.delete_time
    }
}

/// Returns the state that an event of a type determines, and its note.
fn read(event: &AdvisoryEvent, form: EventType) -> Option<(State, &str)> {
    match form {
        EventType::Fixed => {
            let fixed = event.fixed.as_ref()?;
            // Of a fix without a version, no version is known to be free of the vulnerability.
            let version = Some(&fixed.fixed_version).filter(|version| !version.is_empty());
            Some((version.cloned().map_or(State::Affected(form), State::Fixed), fixed.note.as_str()))
        }
        EventType::FalsePositiveDetermination => {
            let denied = event.false_positive_determination.as_ref()?;
            Some((State::Denied(denied.reason), denied.note.as_str()))
        }
        EventType::TruePositiveDetermination => noted(State::Affected(form), &event.true_positive_determination),
        EventType::PendingUpstreamFix => noted(State::Affected(form), &event.pending_upstream_fix),
        EventType::FixNotPlanned => noted(State::Affected(form), &event.fix_not_planned),
        EventType::AnalysisNotPlanned => noted(State::Unknown(form), &event.analysis_not_planned),
        EventType::Detection => Some((State::Unknown(form), "")),
        EventType::Patched => None,
    }
}

fn noted(state: State, note: &Option<Note>) -> Option<(State, &str)> {
    Some((state, note.as_ref()?.note.as_str()))
}
