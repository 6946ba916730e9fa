//! What integrations read: public documents of advisories, vulnerability metadata, reports of what was resolved.

pub mod document;
pub mod resolved_vulns_report;
pub mod vulnerability_metadata;

pub use document::Document;
pub use resolved_vulns_report::ResolvedVulnsReport;
pub use vulnerability_metadata::VulnerabilityMetadata;

use crate::{cx::Cx, scope::Scopes, store::Scope};

/// Returns the groups whose advisories are public, as places.
fn public_groups(cx: &Cx<'_>) -> Scopes {
    let public = &cx.platform().settings().public_advisory_groups;
    let topmost = crate::access::topmost(public.iter(), |group| public.contains(group));
    Scopes::disjoint(topmost.iter().cloned().map(Scope::Subtree))
}
