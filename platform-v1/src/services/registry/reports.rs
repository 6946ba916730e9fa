//! The vulnerability report of an image of a repo, in the form of scanners.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use platform_core::{
    capabilities::cap,
    resources::{
        registry::{Digest, Image, Repo},
        vulnerabilities::Level,
    },
};
use platform_engine::{
    context::Context,
    error::{Code, Error, Result},
    kind::{Action, Authorization, Field, Resource, Type},
    platform::Rendered,
    uid::Uid,
};
use serde_json::{Map, Value, json};

use super::vulnerabilities::{DIGEST, FIX, scanner_name, severity_name, state_name};
use crate::{
    findings::{self, Subject},
    resources::{
        RawVulnerabilityReport, VulnerabilityReport,
        vulnerability_report::{CVSS, ScannerName, Vulnerability},
    },
};

pub(super) const GET: Action =
    Action::get_rendered("GetVulnReport", "repos/{repoId=**}/digests/{digest=*}/vulnreport", |cx, request| {
        Box::pin(get(cx, request))
    })
    .request(&[Field::string("repoId").about("The uid of the repo.").required(), DIGEST.required()])
    .response(&[
        Field::string("id").about("The uid of the report, or that of the image for a computed report."),
        Field::timestamp("vulnerabilityDbLastBuildTime").about("When the scanner's database was built."),
        Field::new("vulnerabilityMatches", Type::List(&Type::Message(MATCH)))
            .about("The vulnerable packages of the image."),
        Field::message(
            "scanner",
            &[
                Field::string("name").about("`grype` or `trivy`; `unknown` for a computed report."),
                Field::string("version").about("The version of the scanner."),
            ],
        )
        .about("The scanner that made the report."),
        Field::timestamp("reportGeneration").about("When the report was made."),
        Field::new("rawVulnReport", Type::Bytes).about("The scanner's JSON; empty if it was not kept."),
        Field::timestamp("lastSeen").about("When the report was last known to hold: now for a computed report."),
    ])
    .authorization(Authorization::At("repoId", &[cap("repo.list"), cap("vuln_reports.list")]));

const MATCH: &[Field] = &[
    Field::message(
        "vulnerability",
        &[
            Field::string("id").about("The identifier, such as `CVE-2022-4203`."),
            Field::string("description").about("A description in a few sentences.").multiline(),
            Field::enumeration("severity", &["UNKNOWN", "LOW", "MEDIUM", "HIGH", "CRITICAL"])
                .about("How severe it is. LOW for a negligible one."),
            Field::string("source").about("Not known: imports do not have it."),
            CVSS,
            Field::strings("cpeUri").about("Not known: imports do not have them."),
            Field::strings("relatedUrls").about("Pages about it."),
            Field::string_map("advisories").about("Not known: imports do not have them."),
            Field::new(
                "relatedVulnerabilities",
                Type::List(&Type::Message(&[
                    Field::string("id").about("The identifier."),
                    Field::string("source").about("Not known: imports do not have it."),
                ])),
            )
            .about("Other identifiers of the same vulnerability."),
            Field::string("displayId").about("The identifier."),
        ],
    )
    .about("The vulnerability."),
    Field::message(
        "pkg",
        &[
            Field::string("id").about("The package URL."),
            Field::string("name").about("The name of the package."),
            Field::string("version").about("The version of the package."),
            Field::string("license").about("Not known: imports do not have it."),
            Field::string("description").about("Not known: imports do not have it."),
            Field::string("purl").about("The package URL."),
        ],
    )
    .about("The vulnerable package."),
    FIX,
];

async fn get(cx: &Context<'_>, request: Map<String, Value>) -> Result<Rendered> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).unwrap_or_default();
    let subject = Subject { repo: Uid::opaque(text("repoId").to_owned()), digest: Digest::opaque(text("digest")) };
    let Some(report) = findings::latest(cx, &subject).await? else {
        return Err(match cx.read::<Repo>(&subject.repo).await? {
            None => Error::not_found(Repo::KIND, subject.repo.as_str()),
            Some(_) => Error::not_found(Image::KIND, &*subject.digest),
        });
    };
    let is_imported = report.scanner.name != ScannerName::ScannerUnspecified;
    let raw = if is_imported { cx.read::<RawVulnerabilityReport>(&report.uid).await? } else { None };
    let raw = raw.map(|raw| raw.text().map(|text| STANDARD.encode(text))).transpose()?;
    let id = if is_imported { report.uid.clone() } else { Image::uid_of(&subject.repo, &subject.digest) };
    let rest = json!({
        "id": id,
        "vulnerabilityDbLastBuildTime": report.scanner.db_build_time,
        "scanner": { "name": scanner_name(report.scanner.name).to_ascii_lowercase(), "version": report.scanner.version },
        "reportGeneration": report.create_time,
        "rawVulnReport": raw.unwrap_or_default(),
        "lastSeen": report.create_time,
        "vulnerabilityMatches": [],
    });
    let mut body = serde_json::to_vec(&rest).map_err(Error::internal)?;
    // The matches are last.
    body.truncate(body.len().saturating_sub(2));
    matches(cx, &report, &mut body).await?;
    body.extend_from_slice(b"]}");
    Ok(Rendered::of_many(body, cx.platform().offload()).await)
}

/// The approximate maximum size of the matches in bytes. Our choice. Each match repeats the vulnerability, so that they
/// can be much longer than the report.
const MAX_MATCHES_BYTES: usize = 16 << 20;

/// Appends a match for each package of each vulnerability.
///
/// # Errors
/// RESOURCE_EXHAUSTED if they have more than about 16 MiB.
async fn matches(cx: &Context<'_>, report: &VulnerabilityReport, body: &mut Vec<u8>) -> Result<()> {
    let (mut bytes, mut pace) = (0_usize, cx.pace());
    for one in &report.vulnerabilities {
        let vulnerability = vulnerability(one);
        let state = state_name(one.fix.state);
        let shared = serde_json::to_vec(&(&vulnerability, &one.fix)).map_err(Error::internal)?.len();
        bytes = one.purls.iter().fold(bytes, |bytes, purl| bytes.saturating_add(shared + 3 * purl.len()));
        if bytes > MAX_MATCHES_BYTES {
            let message = format!("The vulnerabilities of all packages have more than {MAX_MATCHES_BYTES} bytes");
            return Err(Error::new(Code::ResourceExhausted, message));
        }
        for purl in &one.purls {
            let (name, version) = package(purl);
            let found = json!({
                "vulnerability": vulnerability,
                "pkg": {
                    "id": purl, "name": name, "version": version, "license": "", "description": "", "purl": purl,
                },
                "fix": { "versions": one.fix.versions, "state": state },
            });
            if body.last() != Some(&b'[') {
                body.push(b',');
            }
            serde_json::to_writer(&mut *body, &found).map_err(Error::internal)?;
            pace.step(shared + 3 * purl.len()).await;
        }
    }
    Ok(())
}

fn vulnerability(one: &Vulnerability) -> Value {
    let severity = match one.severity {
        Level::LevelNegligible => severity_name(Level::LevelLow),
        level => severity_name(level),
    };
    let related: Vec<_> = one.aliases.iter().map(|alias| json!({ "id": alias, "source": "" })).collect();
    json!({
        "id": one.id, "description": one.description, "severity": severity, "source": "", "cvss": one.cvss,
        "cpeUri": [], "relatedUrls": one.related_urls, "advisories": {}, "relatedVulnerabilities": related,
        "displayId": one.id,
    })
}

/// Returns the name and the version in a package URL, which may be empty.
fn package(purl: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    let path = purl.split(['?', '#']).next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    let (name, version) = last.split_once('@').unwrap_or((last, ""));
    (percent_decode_str(name).decode_utf8_lossy(), percent_decode_str(version).decode_utf8_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_of_a_package_url_has_a_name_and_maybe_a_version() {
        for (purl, expected) in [
            ("pkg:apk/wolfi/libstdc%2B%2B@13.2.0-r4?arch=x86_64", ("libstdc++", "13.2.0-r4")),
            ("pkg:golang/example.com/a/b@v1.2.3#sub", ("b", "v1.2.3")),
            ("pkg:npm/%40scope/name@1.0", ("name", "1.0")),
            ("pkg:generic/name", ("name", "")),
            ("", ("", "")),
        ] {
            let (name, version) = package(purl);
            assert_eq!((&*name, &*version), expected, "{purl}");
        }
    }
}
