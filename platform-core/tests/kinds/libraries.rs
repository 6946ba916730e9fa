//! Artifacts, their versions, and image metadata (`docs/api.md`, Libraries and Images).

use platform_core::resources::{
    libraries::{Artifact, ArtifactVersion, Ecosystem},
    registry::{self, Image, image::ImagePlatform},
};
use platform_engine::{access::Caller, error::Code, timestamp::Timestamp, uid::Uid};
use serde_json::{Value, json};

use crate::common::{World, block_on, code, digest, text, violated_fields};

const BOTH: [(&str, &str); 2] = [("ecosystems", "ECOSYSTEM_JAVA"), ("ecosystems", "ECOSYSTEM_PYTHON")];

fn artifact(world: &World, ecosystem: Ecosystem, name: &str, cuda: &[&str], remediated: bool) -> String {
    let cuda_versions = cuda.iter().map(|version| (*version).to_owned()).collect();
    world
        .put("", Artifact { ecosystem, name: name.to_owned(), cuda_versions, remediated, ..Artifact::default() })
        .to_string()
}

fn world() -> World {
    let world = World::new();
    artifact(&world, Ecosystem::EcosystemPython, "torch", &["12.8", "13.0"], true);
    artifact(&world, Ecosystem::EcosystemPython, "PyYAML", &[], false);
    artifact(&world, Ecosystem::EcosystemJava, "org.yaml:snakeyaml", &[], true);
    world
}

#[test]
fn artifacts_are_listed_by_name_with_each_filter() {
    let world = world();
    let reader = world.member("viewer", &world.org);
    let names = |query: &[(&str, &str)]| world.list(&reader, "Artifact", query).unwrap().names();
    assert_eq!(names(&BOTH), ["PyYAML", "org.yaml:snakeyaml", "torch"]);
    assert_eq!(names(&BOTH[1..]), ["PyYAML", "torch"]);
    let both = |more: &[(&'static str, &'static str)]| names(&[&BOTH, more].concat());
    assert_eq!(both(&[("query", "yaml")]), ["PyYAML", "org.yaml:snakeyaml"]);
    assert_eq!(both(&[("query", "")]).len(), 3);
    assert_eq!(both(&[("cuda_version", "12.8")]), ["torch"]);
    assert_eq!(both(&[("remediated", "true")]), ["org.yaml:snakeyaml", "torch"]);
    assert_eq!(both(&[("remediated", "false")]).len(), 3);
    assert_eq!(both(&[("remediated", "true"), ("query", "TOR")]), ["torch"]);
    assert_eq!(both(&[("order_by", "name desc")]), ["torch", "org.yaml:snakeyaml", "PyYAML"]);
    let page = world.list(&reader, "Artifact", &BOTH).unwrap();
    assert!(page.items.iter().all(|one| one.get("cudaVersions").is_none() && one.get("remediated").is_none()));
    assert_eq!(page.uids(), ["python:PyYAML", "java:org.yaml:snakeyaml", "python:torch"]);
    assert_eq!(world.list(&world.identity(&world.org), "Artifact", &BOTH).unwrap().total, 0);
}

#[test]
fn a_list_of_artifacts_requires_ecosystems() {
    let world = world();
    for query in [&[][..], &[("ecosystems", "ECOSYSTEM_UNSPECIFIED")], &[("ecosystems", "ECOSYSTEM_GO")]] {
        let rejected = violated_fields(world.list(&world.operator, "Artifact", query));
        assert!(rejected[0].starts_with("ecosystems"), "{rejected:?}");
    }
    assert_eq!(violated_fields(world.run(Some(&world.operator), "GetArtifactCount", json!({}))), ["ecosystems"]);
}

#[test]
fn artifacts_that_the_caller_can_list_are_counted_by_ecosystem() {
    let world = world();
    let request = || json!({ "ecosystems": ["ECOSYSTEM_PYTHON", "ECOSYSTEM_JAVA", "ECOSYSTEM_PYTHON"] });
    let count = |caller: Caller| world.run(Some(&caller), "GetArtifactCount", request()).unwrap();
    let counts = |python: &str, java: &str| {
        json!({ "counts": [
            { "ecosystem": "ECOSYSTEM_PYTHON", "totalCount": python },
            { "ecosystem": "ECOSYSTEM_JAVA", "totalCount": java },
        ] })
    };
    assert_eq!(count(world.member("viewer", &world.org)), counts("2", "1"));
    assert_eq!(count(world.identity(&world.org)), counts("0", "0"));
}

#[test]
fn versions_are_listed_newest_first_in_the_version_order_of_the_ecosystem() {
    let world = World::new();
    let put = |artifact: &str, version: &str| {
        world.put(
            "",
            ArtifactVersion {
                artifact: Uid::opaque(artifact),
                version: version.to_owned(),
                size_bytes: 7,
                ..Default::default()
            },
        );
    };
    let python = artifact(&world, Ecosystem::EcosystemPython, "a", &[], false);
    let java = artifact(&world, Ecosystem::EcosystemJava, "g:a", &[], false);
    for version in ["1.10", "1.9", "1.10rc1", "1.10.post1", "2.0.dev1"] {
        put(&python, version);
    }
    for version in ["1.10", "1.9", "1.10-rc1", "1.10-SNAPSHOT", "1.10.1", "1.10-jre"] {
        put(&java, version);
    }
    let reader = world.member("viewer", &world.org);
    let versions = |query: &[(&str, &str)]| -> Vec<String> {
        let page = world.list(&reader, "ArtifactVersion", query).unwrap();
        page.items.iter().map(|one| text(one, "version").to_owned()).collect()
    };
    assert_eq!(versions(&[("artifactId", &python)]), ["2.0.dev1", "1.10.post1", "1.10", "1.10rc1", "1.9"]);
    let expected = ["1.10.1", "1.10-jre", "1.10", "1.10-SNAPSHOT", "1.10-rc1", "1.9"];
    assert_eq!(versions(&[("artifactId", &java)]), expected);
    let walked = world.walk(&reader, "ArtifactVersion", &[("artifactId", &java), ("page_size", "2")]);
    assert_eq!(walked.iter().map(|one| text(one, "version")).collect::<Vec<_>>(), expected);
    assert_eq!(versions(&[("artifactId", &python), ("order_by", "version"), ("page_size", "2")]), ["1.9", "1.10rc1"]);
    assert_eq!(walked[0]["sizeBytes"], "7");
    assert!(walked[0].get("artifact").is_none());
    assert_eq!(code(world.list(&reader, "ArtifactVersion", &[("artifactId", "java:nosuch")])), Code::NotFound);
    let unbound = world.identity(&world.org);
    assert_eq!(world.list(&unbound, "ArtifactVersion", &[("artifactId", "java:nosuch")]).unwrap().total, 0);
}

#[test]
fn remove_of_an_artifact_cascades_to_its_versions() {
    let world = World::new();
    let uid = artifact(&world, Ecosystem::EcosystemJava, "g:a", &[], false);
    let put = || {
        world.put(
            "",
            ArtifactVersion { artifact: Uid::opaque(uid.as_str()), version: "1".to_owned(), ..Default::default() },
        )
    };
    put();
    block_on(world.platform.remove::<Artifact>(&world.operator, &Uid::opaque(uid.as_str()))).unwrap();
    artifact(&world, Ecosystem::EcosystemJava, "g:a", &[], false);
    assert_eq!(world.list(&world.operator, "ArtifactVersion", &[("artifactId", &uid)]).unwrap().total, 0);
}

#[test]
fn an_artifact_is_summarized_from_its_versions() {
    let version = |version: &str, at: i64, description: &str| ArtifactVersion {
        name: "a".to_owned(),
        version: version.to_owned(),
        description: description.to_owned(),
        create_time: Some(Timestamp::from_millis(at)),
        ..Default::default()
    };
    let versions = [version("1.10", 2_000, "newest"), version("1.9", 1_000, "old"), version("1.9.1", 3_000, "fix")];
    let found = Artifact::of(Ecosystem::EcosystemPython, "a", &versions);
    assert_eq!((found.latest_version.as_str(), found.description.as_str(), found.version_count), ("1.10", "newest", 3));
    assert_eq!(
        (found.create_time, found.update_time),
        (Some(Timestamp::from_millis(1_000)), Some(Timestamp::from_millis(3_000)))
    );
}

#[test]
fn an_index_returns_its_architectures_and_an_image_its_size() {
    let world = World::new();
    let (repo, _) = world.image(&world.repo(&world.org));
    let single = ImagePlatform {
        architecture: "s390x".to_owned(),
        digest: registry::Digest::opaque(digest('c')),
        size: 1 << 40,
        packages: Vec::new(),
    };
    world.put(
        &repo,
        Image { digest: registry::Digest::opaque(digest('c')), platforms: vec![single], ..Image::default() },
    );
    let ask = |action: &str, digest: String, more: Value| {
        let mut request = json!({ "repoUid": repo, "digest": digest });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.run(Some(&world.operator), action, request)
    };
    let none = || json!({});
    assert_eq!(ask("GetArchitectures", digest('a'), none()).unwrap(), json!({ "architectures": ["amd64", "arm64"] }));
    assert_eq!(violated_fields(ask("GetArchitectures", digest('c'), none())), ["digest"]);
    assert_eq!(code(ask("GetArchitectures", digest('d'), none())), Code::NotFound);
    assert_eq!(violated_fields(ask("GetArchitectures", "latest".to_owned(), none())), ["digest"]);
    assert_eq!(ask("GetSize", digest('a'), none()).unwrap(), json!({ "size": "10", "architecture": "amd64" }));
    let of = |architecture: &str| json!({ "architecture": architecture });
    assert_eq!(ask("GetSize", digest('a'), of("arm64")).unwrap(), json!({ "size": "20", "architecture": "arm64" }));
    assert_eq!(code(ask("GetSize", digest('a'), of("riscv64"))), Code::NotFound);
    assert_eq!(ask("GetSize", digest('c'), of("s390x")).unwrap()["size"], "1099511627776");
    let sizes = ask("ListImageSizes", digest('a'), none()).unwrap();
    let of_one = |at: usize, name: &str| sizes["sizes"][at][name].clone();
    assert_eq!(sizes["sizes"].as_array().unwrap().len(), 2);
    assert_eq!([of_one(0, "architecture"), of_one(0, "size")], ["amd64", "10"]);
    assert_eq!([of_one(1, "architecture"), of_one(1, "size")], ["arm64", "20"]);
    assert_eq!(ask("ListImageSizes", digest('c'), none()).unwrap()["sizes"][0]["architecture"], "s390x");
    assert_eq!(code(ask("ListImageSizes", digest('d'), none())), Code::NotFound);
    assert_eq!(violated_fields(ask("ListImageSizes", "latest".to_owned(), none())), ["digest"]);
    world.delete(&world.operator, "Repo", &repo).unwrap();
    assert_eq!(code(ask("GetSize", digest('a'), none())), Code::NotFound);
}
