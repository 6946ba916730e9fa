//! Resources for integrations: public advisory documents, vulnerability metadata, and reports of resolved
//! vulnerabilities.

pub mod apk;
pub mod document;
pub mod resolved_vulns_report;
pub mod vulnerability_metadata;

pub use document::Document;
pub use resolved_vulns_report::ResolvedVulnsReport;
pub use resolved_vulns_report::{image_ref, repos};
pub use vulnerability_metadata::VulnerabilityMetadata;

use std::{collections::HashSet, sync::Arc};

use platform_engine::{
    access::topmost, context::Context, error::Result, platform::ResponseCache, scope::Scopes, store::Scope, uid::Uid,
};

use self::document::Documents;
use super::data_of;

/// The groups whose advisories, including those of their descendants, are public as documents; none by default.
#[derive(Debug, Default)]
pub struct PublicAdvisories {
    groups: HashSet<Uid>,
    documents: ResponseCache<Arc<Documents>>,
}

impl PublicAdvisories {
    /// Makes the advisories of these groups public.
    pub fn of(groups: impl IntoIterator<Item = Uid>) -> Self {
        Self { groups: groups.into_iter().collect(), ..Self::default() }
    }
}

/// Returns the scopes whose advisories are public.
pub fn public_groups(cx: &Context<'_>) -> Result<Scopes> {
    let public = &data_of::<PublicAdvisories>(cx)?.groups;
    let topmost = topmost(public.iter(), |group| public.contains(group));
    Ok(Scopes::disjoint(topmost.iter().cloned().map(Scope::Subtree)))
}
