//! OSV records (schema 1.7.5, <https://ossf.github.io/osv-schema/>), one for each vulnerability of an advisory, as a zip
//! archive like those of osv.dev.

use std::{borrow::Cow, collections::BTreeSet, io, io::Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use platform_engine::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    finding::{Finding, LeftOut},
    sorted::{Entry, Sorted},
    zip::Zip,
};

const SCHEMA: &str = "1.7.5";

/// The distributions whose advisories have a place in OSV: those with Alpine packages. The first name is that in
/// package URLs and in `packageNamespace`, the second one that of OSV.
const ECOSYSTEMS: &[(&str, &str)] = &[
    ("alpaquita", "Alpaquita"),
    ("alpine", "Alpine"),
    ("chainguard", "Chainguard"),
    ("minimos", "MinimOS"),
    ("wolfi", "Wolfi"),
];

/// The databases of Alpine packages, and those whose ids an advisory repository may use. An id of another one begins with
/// `x_`, as the schema requires for databases that it does not list.
const DATABASES: &[&str] = &["ALPINE", "BELL", "CGA", "CVE", "GHSA", "MINI"];

/// The characters of an id that a file name has as they are: no others, as an id can be any text.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// A record.
#[derive(Debug, Serialize)]
struct Record<'a> {
    schema_version: &'static str,
    id: Cow<'a, str>,
    modified: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    withdrawn: Option<Timestamp>,
    /// In `aliases` and not in `upstream`, which older readers do not know.
    aliases: BTreeSet<&'a str>,
    affected: Vec<&'a Affected>,
}

/// The part of a record about one package.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    modified: Timestamp,
    published: Option<Timestamp>,
    withdrawn: Option<Timestamp>,
    aliases: Vec<String>,
    affected: Affected,
}

#[derive(Debug, Serialize, Deserialize)]
struct Affected {
    package: Package,
    ranges: [Range; 1],
}

#[derive(Debug, Serialize, Deserialize)]
struct Package {
    ecosystem: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Range {
    #[serde(rename = "type")]
    scale: String,
    /// First `introduced`: some readers take the events in the order of the record.
    events: Vec<Event>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Event {
    Introduced(String),
    Fixed(String),
}

/// Returns the entries of a finding, grouped by the id of the advisory.
pub(crate) fn entries(finding: &Finding<'_>, now: Timestamp) -> Result<Vec<Entry>, LeftOut> {
    let advisory = finding.advisory;
    let withdrawn = finding.withdrawn();
    // A reader may take a record with a time in the future as withdrawn now, as lists of the platform do.
    if withdrawn.is_some_and(|at| at > now) {
        return Err(LeftOut::Withdrawn);
    }
    let known = ECOSYSTEMS.iter().find(|(name, _)| *name == finding.namespace);
    let (_, ecosystem) = known.ok_or(LeftOut::UnknownDistribution)?;
    let introduced = Event::Introduced("0".to_owned());
    let fixed = finding.fixed_version()?.map(|version| Event::Fixed(version.to_owned()));
    let mut part = Part {
        modified: advisory.update_time.unwrap_or(finding.at),
        published: advisory.create_time,
        withdrawn,
        aliases: Vec::new(),
        affected: Affected {
            package: Package {
                ecosystem: (*ecosystem).to_owned(),
                name: advisory.artifact_name.clone(),
                purl: finding.purl(None),
            },
            ranges: [Range { scale: "ECOSYSTEM".to_owned(), events: [introduced].into_iter().chain(fixed).collect() }],
        },
    };
    let package = format!("{}/{}", finding.namespace, advisory.artifact_name);
    let mut entries = Vec::new();
    for vulnerability in finding.vulnerabilities() {
        part.aliases = finding.aliases(vulnerability).chain([vulnerability]).map(str::to_owned).collect();
        let value = serde_json::to_string(&part).unwrap_or_default();
        let key = [advisory.advisory_id.clone(), vulnerability.to_owned(), package.clone()];
        entries.push(Entry { key, at: finding.at.millis(), value });
    }
    Ok(entries)
}

/// Writes the archive, and returns the number of records.
pub(crate) fn write(mut entries: Sorted, out: &mut dyn Write) -> io::Result<u64> {
    let (mut archive, mut written) = (Zip::new(out), 0);
    loop {
        let group = entries.next_group()?;
        let Some(Entry { key: [advisory, ..], .. }) = group.first() else { break };
        let is_one = group.iter().all(|entry| group.first().is_some_and(|first| first.key[1] == entry.key[1]));
        for of_vulnerability in group.chunk_by(|one, other| one.key[1] == other.key[1]) {
            let Some(Entry { key: [_, vulnerability, _], .. }) = of_vulnerability.first() else { continue };
            let own =
                if is_one { Cow::Borrowed(advisory.as_str()) } else { format!("{advisory}-{vulnerability}").into() };
            let parts: Vec<Part> =
                of_vulnerability.iter().map(|entry| serde_json::from_str(&entry.value)).collect::<Result<_, _>>()?;
            let Some(record) = Record::of(listed(&own), &parts) else { continue };
            let name = format!("{}.json", utf8_percent_encode(&own, ESCAPED));
            archive.add(&name, &serde_json::to_vec(&record)?)?;
            written += 1;
        }
    }
    archive.finish()?;
    Ok(written)
}

impl<'a> Record<'a> {
    /// Returns the record of several packages, without those whose advisory is withdrawn unless all are.
    fn of(id: Cow<'a, str>, parts: &'a [Part]) -> Option<Self> {
        let is_withdrawn = parts.iter().all(|part| part.withdrawn.is_some());
        let parts = || parts.iter().filter(move |part| is_withdrawn || part.withdrawn.is_none());
        let aliases = parts().flat_map(|part| &part.aliases).map(String::as_str);
        Some(Self {
            schema_version: SCHEMA,
            modified: parts().map(|part| part.modified).max()?,
            published: parts().filter_map(|part| part.published).min(),
            withdrawn: parts().filter_map(|part| part.withdrawn).max(),
            aliases: aliases.filter(|alias| *alias != id).collect(),
            affected: parts().map(|part| &part.affected).collect(),
            id,
        })
    }
}

/// Returns an id with a prefix that the schema allows.
fn listed(id: &str) -> Cow<'_, str> {
    let is_listed = id.split_once('-').is_some_and(|(database, _)| DATABASES.contains(&database));
    if is_listed || id.starts_with("x_") { id.into() } else { format!("x_{id}").into() }
}
