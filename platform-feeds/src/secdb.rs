//! The security database of Alpine and of the distributions that are built like it: the versions of each package that
//! fixed vulnerabilities. A fix in `0` says that no version was vulnerable.

use std::{collections::BTreeMap, io, io::Write};

use serde::Serialize;

use crate::{
    finding::{Finding, LeftOut},
    sorted::{Entry, Sorted},
};

#[derive(Debug, Serialize)]
struct Line<'a> {
    pkg: Package<'a>,
}

#[derive(Debug, Serialize)]
struct Package<'a> {
    name: &'a str,
    /// The ids of each version: one id in each text, because readers of texts with several take one of them.
    secfixes: BTreeMap<&'a str, Vec<&'a str>>,
}

/// Returns the entries of a finding, grouped by package. One without a version says that a vulnerability is open, so that
/// an earlier advisory with the same vulnerability does not count.
pub(crate) fn entries(finding: &Finding<'_>) -> Result<Vec<Entry>, LeftOut> {
    if finding.withdrawn().is_some() {
        return Err(LeftOut::Withdrawn);
    }
    let version = finding.fixed_version()?.unwrap_or_default();
    let entry = |vulnerability: &str| Entry {
        key: [finding.advisory.artifact_name.clone(), vulnerability.to_owned(), String::new()],
        at: finding.at.millis(),
        value: version.to_owned(),
    };
    Ok(finding.vulnerabilities().into_iter().map(entry).collect())
}

/// Writes the database, and returns the number of ids in it and of those that it leaves out.
pub(crate) fn write(mut entries: Sorted, out: &mut dyn Write) -> io::Result<(u64, u64)> {
    let (mut written, mut open, mut separator) = (0, 0, "");
    out.write_all(b"{\"packages\":[")?;
    loop {
        let group = entries.next_group()?;
        let Some(Entry { key: [name, ..], .. }) = group.first() else { break };
        let mut secfixes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for Entry { key: [_, vulnerability, _], value: version, .. } in &group {
            if version.is_empty() {
                open += 1;
            } else {
                written += 1;
                secfixes.entry(version).or_default().push(vulnerability);
            }
        }
        if !secfixes.is_empty() {
            writeln!(out, "{separator}")?;
            serde_json::to_writer(&mut *out, &Line { pkg: Package { name, secfixes } })?;
            separator = ",";
        }
    }
    out.write_all(b"\n]}\n")?;
    Ok((written, open))
}
