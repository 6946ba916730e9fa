//! An OpenVEX document (0.2.0, <https://github.com/openvex/spec>) with a statement for each vulnerability of a package.

use std::{io, io::Write};

use platform_core::resources::vulnerabilities::advisory::event::{EventType, FalsePositiveType};
use platform_engine::timestamp::Timestamp;
use serde::Serialize;

use crate::{
    finding::{Finding, LeftOut, State},
    sorted::{Entry, Sorted},
};

const CONTEXT: &str = "https://openvex.dev/ns/v0.2.0";

/// The properties of a document.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// The id: a URL of its own. Libraries derive the same id for different documents.
    pub id: String,
    /// The author.
    pub author: String,
    /// The version, which every change of the advisories must raise.
    pub version: u64,
}

#[derive(Debug, Serialize)]
struct Head<'a> {
    #[serde(rename = "@context")]
    context: &'static str,
    #[serde(rename = "@id")]
    id: &'a str,
    author: &'a str,
    timestamp: Timestamp,
    version: u64,
}

#[derive(Debug, Serialize)]
struct Statement<'a> {
    vulnerability: Vulnerability<'a>,
    timestamp: Timestamp,
    products: [Product; 1],
    #[serde(flatten)]
    status: Status<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    status_notes: &'a str,
}

#[derive(Debug, Serialize)]
struct Vulnerability<'a> {
    name: &'a str,
    aliases: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct Product {
    #[serde(rename = "@id")]
    id: String,
}

/// A status with the members that it requires.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
enum Status<'a> {
    Fixed,
    NotAffected {
        #[serde(skip_serializing_if = "Option::is_none")]
        justification: Option<&'static str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        impact_statement: &'a str,
    },
    Affected {
        action_statement: &'a str,
    },
    UnderInvestigation,
}

/// Returns the entries of a finding, grouped by vulnerability.
pub(crate) fn entries(finding: &Finding<'_>) -> Result<Vec<Entry>, LeftOut> {
    if finding.withdrawn().is_some() {
        return Err(LeftOut::Withdrawn);
    }
    let or = |text: &'static str| if finding.note.is_empty() { text } else { finding.note };
    let status = || match &finding.state {
        State::Fixed(fixed) => (Status::Fixed, Some(fixed.as_str()), finding.note),
        State::Denied(reason) => {
            let justification = justification(*reason);
            let contested = "The record of the vulnerability is contested.";
            let impact_statement = if justification.is_some() { finding.note } else { or(contested) };
            (Status::NotAffected { justification, impact_statement }, None, "")
        }
        State::Affected(form) => (Status::Affected { action_statement: or(action(*form)) }, None, ""),
        State::Unknown(EventType::AnalysisNotPlanned) => {
            (Status::UnderInvestigation, None, or("No analysis is planned."))
        }
        State::Unknown(_) => (Status::UnderInvestigation, None, finding.note),
    };
    let mut entries = Vec::new();
    for name in finding.vulnerabilities() {
        let (status, version, status_notes) = status();
        let Some(id) = finding.purl(version) else { continue };
        let statement = Statement {
            vulnerability: Vulnerability { name, aliases: finding.aliases(name).collect() },
            timestamp: finding.at,
            products: [Product { id }],
            status,
            status_notes,
        };
        let key = [name.to_owned(), finding.purl(None).unwrap_or_default(), String::new()];
        let value = serde_json::to_string(&statement).unwrap_or_default();
        entries.push(Entry { key, at: finding.at.millis(), value });
    }
    Ok(entries)
}

/// Writes the document, and returns the number of statements.
pub(crate) fn write(
    mut entries: Sorted,
    document: &Document,
    timestamp: Timestamp,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let Document { id, author, version } = document;
    let head = Head { context: CONTEXT, id, author, timestamp, version: *version };
    let head = serde_json::to_string(&head)?;
    write!(out, "{},\"statements\":[", head.trim_end_matches('}'))?;
    let mut written = 0;
    while let Some(entry) = entries.next()? {
        write!(out, "{}\n{}", if written > 0 { "," } else { "" }, entry.value)?;
        written += 1;
    }
    out.write_all(b"\n]}\n")?;
    Ok(written)
}

/// Returns the justification of a denial; `None` if OpenVEX has none, and then requires a text.
const fn justification(reason: FalsePositiveType) -> Option<&'static str> {
    match reason {
        FalsePositiveType::TypeComponentVulnerabilityMismatch => Some("component_not_present"),
        FalsePositiveType::TypeVulnerableCodeVersionNotUsed
        | FalsePositiveType::TypeVulnerableCodeNotIncludedInPackage => Some("vulnerable_code_not_present"),
        FalsePositiveType::TypeVulnerableCodeNotInExecutionPath => Some("vulnerable_code_not_in_execute_path"),
        FalsePositiveType::TypeVulnerableCodeCannotBeControlledByAdversary => {
            Some("vulnerable_code_cannot_be_controlled_by_adversary")
        }
        FalsePositiveType::TypeInlineMitigationsExist => Some("inline_mitigations_already_exist"),
        _ => None,
    }
}

/// Returns what to do about a vulnerability without a note, which OpenVEX requires.
const fn action(form: EventType) -> &'static str {
    match form {
        EventType::PendingUpstreamFix => "Wait for the fix of the upstream project.",
        EventType::FixNotPlanned => "No fix is planned.",
        EventType::Fixed => "A fix was released; the advisory does not name its version.",
        _ => "No fix is available yet.",
    }
}
