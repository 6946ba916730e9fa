//! Tests of imports into a platform on the memory store: files, folders, archives, layouts and lines.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on fails")]

mod archives;
mod charts;
mod images;
mod support;

use std::fs;

use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    libraries::{Artifact, ArtifactVersion},
    vulnerabilities::Advisory,
};
use platform_engine::timestamp::Timestamp;
use platform_import::{Dataset, source::Limits};
use support::{Counts, World, document};

#[test]
fn a_second_import_writes_nothing_and_a_changed_document_changes_one() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    for name in ["a", "b", "c"] {
        fs::write(dir.path().join(format!("{name}.yaml")), document(name, &["CGA-1", "CGA-2"])).unwrap();
    }
    fs::write(dir.path().join("LICENSE"), "words").unwrap();
    let first = world.import(world.advisories(), &[dir.path()]).unwrap();
    assert_eq!((first.documents, first.ignored, first.refused), (3, 1, 0));
    assert_eq!(first.counts("advisories"), (6, 0, 0));
    assert_eq!(world.import(world.advisories(), &[dir.path()]).unwrap().counts("advisories"), (0, 0, 6));

    let changed = document("b", &["CGA-1", "CGA-2"]).replacen("1.0-r0", "1.0-r1", 1);
    fs::write(dir.path().join("b.yaml"), changed).unwrap();
    assert_eq!(world.import(world.advisories(), &[dir.path()]).unwrap().counts("advisories"), (0, 1, 5));
    let advisories: Vec<Advisory> = world.list(&[("artifactNames", "b")]);
    let fixed: Vec<_> =
        advisories.iter().map(|one| one.events[0].fixed.as_ref().unwrap().fixed_version.as_str()).collect();
    assert!(fixed.contains(&"1.0-r1") && fixed.contains(&"1.0-r0"), "{fixed:?}");
}

#[test]
fn the_same_advisory_in_two_documents_is_taken_from_the_first_at_every_import() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let (first, second) = (dir.path().join("1.yaml"), dir.path().join("2.yaml"));
    fs::write(&first, document("a", &["CGA-1"])).unwrap();
    fs::write(&second, document("a", &["CGA-1"]).replace("1.0-r0", "2.0-r0")).unwrap();
    for counts in [(1, 0, 0), (0, 0, 1)] {
        let done = world.import(world.advisories(), &[dir.path()]).unwrap();
        assert_eq!(done.counts("advisories"), counts);
        let place = second.display();
        assert_eq!(world.refused, [format!("{place}: advisories[0]: duplicates a resource of an earlier document")]);
    }
}

#[test]
fn resources_that_the_platform_rejects_are_reported_with_file_and_place_and_the_rest_is_written() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let file = dir.path().join("a.yaml");
    let text = document("a", &["CGA-1", "CGA-2"]).replacen("id: CGA-1", "id: \"CGA\\e1\"", 1);
    fs::write(&file, text).unwrap();
    fs::write(dir.path().join("b.yaml"), "schema-version: 2\nnothing").unwrap();
    let done = world.import(world.advisories(), &[dir.path()]).unwrap();
    assert_eq!((done.counts("advisories"), done.refused), ((1, 0, 0), 2));
    let expected = world.refused.join("\n");
    assert!(expected.contains(&format!("{}: advisories[0]: advisoryId: must be text", file.display())), "{expected}");
    assert!(expected.contains("b.yaml: line "), "{expected}");
}

#[test]
fn an_advisory_whose_component_is_in_hundreds_of_places_is_imported() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let paths: Vec<_> = (0..400).map(|n| format!("/usr/share/dotnet/shared/component-{n}/component.dll")).collect();
    let file = dir.path().join("a.yaml");
    let detection = format!(
        "type: detection\n        data:\n          type: scan/v1\n          data:\n            componentLocation: {}\n",
        paths.join(", ")
    );
    let text = document("a", &["CGA-1"]);
    let (before, _) = text.split_once("type: fixed").unwrap();
    fs::write(&file, format!("{before}{detection}")).unwrap();
    let done = world.import(world.advisories(), &[&file]).unwrap();
    assert_eq!((done.counts("advisories"), done.refused), ((1, 0, 0), 0), "{:?}", world.refused);
}

#[test]
fn records_are_read_from_json_and_yaml_in_one_folder() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    fs::create_dir_all(dir.path().join("deep/er")).unwrap();
    fs::write(
        dir.path().join("deep/er/a.json"),
        r#"{"id": "GO-1", "aliases": ["CVE-1"], "severity": [{"type": "CVSS_V3", "score": "x"}]}"#,
    )
    .unwrap();
    fs::write(dir.path().join("b.yaml"), "id: PYSEC-1\ndetails: d\n").unwrap();
    let done = world.import(Dataset::Osv, &[dir.path()]).unwrap();
    assert_eq!((done.counts("vulnerabilityMetadata"), done.refused), ((2, 0, 0), 0));
    let found: Vec<VulnerabilityMetadata> = world.list(&[("id", "GO-1")]);
    assert_eq!(found[0].severities.len(), 1);
    assert_eq!(world.import(Dataset::Osv, &[dir.path()]).unwrap().counts("vulnerabilityMetadata"), (0, 0, 2));
}

#[test]
fn a_withdrawn_record_lends_no_severity_and_empties_what_an_earlier_import_wrote() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    world.now = Timestamp::parse("2026-01-02T00:00:00Z").unwrap();
    let advisory = document("a", &["CGA-1"]).replace("    events:", "    aliases: [CVE-2026-0001]\n    events:");
    fs::write(dir.path().join("a.yaml"), advisory).unwrap();
    world.import(world.advisories(), &[&dir.path().join("a.yaml")]).unwrap();
    let file = dir.path().join("r.json");
    let mut import = |withdrawn: &str| {
        let record = format!(
            r#"{{"id": "PYSEC-1", "withdrawn": {withdrawn}, "aliases": ["CVE-2026-0001"], "summary": "s",
                "severity": [{{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}}]}}"#
        );
        fs::write(&file, record).unwrap();
        let done = world.import(Dataset::Osv, &[&file]).unwrap();
        let severities = world.list::<Advisory>(&[]).remove(0).severities.len();
        let summary = world.list::<VulnerabilityMetadata>(&[]).remove(0).summary;
        (done.withdrawn, done.refused, severities, summary)
    };
    let withdrawn = "\"2026-01-01T00:00:00Z\"";
    let emptied = (1, 0, 0, "Withdrawn at 2026-01-01T00:00:00.000Z".to_owned());
    assert_eq!(import(withdrawn), emptied, "without an earlier import");
    for not_withdrawn in ["null", "\"2026-01-03T00:00:00Z\""] {
        assert_eq!(import(not_withdrawn), (0, 0, 1, "s".to_owned()), "{not_withdrawn}");
        assert_eq!(import(withdrawn), emptied, "after an import with {not_withdrawn}");
    }
}

#[test]
fn severities_are_found_by_the_ids_in_upstream() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let (advisory, record) = (dir.path().join("a.yaml"), dir.path().join("r.json"));
    let text = document("a", &["CGA-1"]).replace("    events:", "    aliases: [CVE-2026-0002]\n    events:");
    fs::write(&advisory, text).unwrap();
    let text = r#"{"id": "UBUNTU-CVE-2026-0002", "upstream": ["CVE-2026-0002"],
        "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}]}"#;
    fs::write(&record, text).unwrap();
    world.import(Dataset::Osv, &[&record]).unwrap();
    world.import(world.advisories(), &[&advisory]).unwrap();
    assert_eq!(world.list::<Advisory>(&[])[0].severities.len(), 1);
}

#[test]
fn lines_become_artifacts_and_versions_and_an_invalid_line_is_reported_with_its_number() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let file = dir.path().join("a.ndjson");
    let lines = [
        r#"{"ecosystem":"python","name":"a","versions":[{"version":"1.9"},{"version":"1.10"}]}"#,
        "",
        "{}",
        r#"{"ecosystem":"java","name":"b:c","versions":[{"version":"1\u0000"},{"version":"2"}]}"#,
    ];
    fs::write(&file, lines.join("\n")).unwrap();
    let done = world.import(Dataset::Artifacts, &[&file]).unwrap();
    assert_eq!((done.documents, done.counts("artifacts"), done.counts("artifactVersions")), (3, (2, 0, 0), (3, 0, 0)));
    let place = file.display();
    assert!(world.refused[0].starts_with(&format!("{place}:3: ")), "{:?}", world.refused);
    assert!(world.refused[1].starts_with(&format!("{place}:4: versions[0]: uid: must be text")), "{:?}", world.refused);
    let versions: Vec<ArtifactVersion> = world.list(&[("artifactId", "python:a")]);
    assert_eq!(versions.iter().map(|one| one.version.as_str()).collect::<Vec<_>>(), ["1.10", "1.9"]);
    let artifacts: Vec<Artifact> = world.list(&[("ecosystems", "ECOSYSTEM_PYTHON")]);
    assert_eq!((artifacts[0].latest_version.as_str(), artifacts[0].version_count), ("1.10", 2));
    let again = world.import(Dataset::Artifacts, &[&file]).unwrap();
    assert_eq!((again.counts("artifacts"), again.counts("artifactVersions")), ((0, 0, 2), (0, 0, 3)));
}

#[test]
fn missing_and_unsupported_files_are_rejected_and_the_other_files_are_read() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let (missing, other, good) = (dir.path().join("no.yaml"), dir.path().join("a.txt"), dir.path().join("b.yml"));
    fs::write(&other, "x").unwrap();
    fs::write(&good, document("a", &["CGA-1"])).unwrap();
    let done = world.import(world.advisories(), &[&missing, &other, &good]).unwrap();
    assert_eq!((done.counts("advisories"), done.refused), ((1, 0, 0), 2));
    assert!(world.refused[0].ends_with("no.yaml: is missing"), "{:?}", world.refused);
    assert!(world.refused[1].contains("a.txt: has an unsupported name"), "{:?}", world.refused);
}

#[test]
fn a_document_that_is_too_large_is_rejected_and_the_rest_is_read() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.yaml"), format!("{}\n# {}", document("a", &["CGA-1"]), "x".repeat(1000))).unwrap();
    fs::write(dir.path().join("b.yaml"), document("b", &["CGA-1"])).unwrap();
    world.limits = Limits { document: 500, ..Limits::default() };
    let done = world.import(world.advisories(), &[dir.path()]).unwrap();
    assert_eq!((done.counts("advisories"), done.refused), ((1, 0, 0), 1));
    assert!(world.refused[0].ends_with("a.yaml: is larger than 500 bytes"), "{:?}", world.refused);
}

#[test]
fn links_in_folders_are_not_followed() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a.yaml"), document("a", &["CGA-1"])).unwrap();
    std::os::unix::fs::symlink(outside.path().join("a.yaml"), dir.path().join("a.yaml")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("folder")).unwrap();
    let done = world.import(world.advisories(), &[dir.path()]).unwrap();
    assert_eq!((done.documents, done.ignored), (0, 2));
}

#[test]
fn several_batches_are_written_and_a_failing_sink_ends_the_import() {
    let (mut world, dir) = (World::new(), tempfile::tempdir().unwrap());
    let file = dir.path().join("a.ndjson");
    let line = |n: u32| format!(r#"{{"ecosystem":"python","name":"p{n}","versions":[{{"version":"1"}}]}}"#);
    fs::write(&file, (0..1200).map(line).collect::<Vec<_>>().join("\n")).unwrap();
    world.fails_after = Some(700);
    assert!(world.import(Dataset::Artifacts, &[&file]).is_err());
    world.fails_after = None;
    let done = world.import(Dataset::Artifacts, &[&file]).unwrap();
    let (created, updated, unchanged) = done.counts("artifactVersions");
    assert_eq!((created + unchanged, updated), (1200, 0));
    assert!(unchanged >= 250, "what was written before stays: {unchanged}");
}
