//! Images, bills of materials and charts.

use base64::{Engine, engine::general_purpose::STANDARD};
use platform_core::resources::registry::{
    Digest, Image,
    image::{BlobContent, ImageBlob, ImagePlatform},
};
use platform_engine::{blob::BlobId, kind::Imported};
use platform_v1::resources::{
    Chart,
    chart::{ChartImage, Requirement},
};

use super::*;

const SPDX: &str = r#"{
    "spdxVersion": "SPDX-2.3", "SPDXID": "SPDXRef-DOCUMENT", "name": "nginx", "comment": "an image",
    "creationInfo": { "created": "2026-01-02T03:04:05Z", "creators": ["Tool: builder-1.0", "Organization: Acme"] },
    "documentDescribes": ["SPDXRef-a"],
    "packages": [
        { "SPDXID": "SPDXRef-a", "name": "libcrypto3", "versionInfo": "3.1.0-r0", "licenseConcluded": "NOASSERTION",
          "licenseDeclared": "Apache-2.0", "description": "crypto", "hasFiles": ["SPDXRef-f"],
          "builtDate": "2026-01-01T00:00:00Z", "validUntilDate": "2027-01-01T00:00:00Z",
          "externalRefs": [{ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
              "referenceLocator": "pkg:apk/wolfi/libcrypto3@3.1.0-r0?origin=openssl" }] },
        { "SPDXID": "SPDXRef-b", "name": "other", "versionInfo": null }
    ],
    "files": [{ "SPDXID": "SPDXRef-f", "fileName": "/lib/libcrypto.so.3", "fileTypes": ["BINARY"] }],
    "relationships": [
        { "spdxElementId": "SPDXRef-a", "relatedSpdxElement": "SPDXRef-b", "relationshipType": "DEPENDENCY_OF" },
        { "spdxElementId": "SPDXRef-a", "relatedSpdxElement": "SPDXRef-f", "relationshipType": "VARIANT_OF" }
    ]
}"#;

const CONFIG: &str = r#"{ "architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00Z", "config": {
    "User": "65532", "ExposedPorts": { "80/tcp": {} }, "Env": ["A=b"], "Entrypoint": ["/nginx"], "Cmd": null,
    "Volumes": { "/data": {} }, "WorkingDir": "/", "Labels": { "a": "b" }, "StopSignal": "SIGQUIT" } }"#;

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn digest_of(content: &str) -> Digest {
    Digest::opaque(format!("sha256:{}", BlobId::of("", content.as_bytes()).parts().1))
}

impl World {
    /// Stores blobs of a repo.
    fn blobs(&self, repo: &str, contents: &[&str]) {
        let contents = contents.iter().map(|content| content.to_string().into()).collect();
        let reply = block_on(self.platform.put_blobs::<Image>(&self.operator, repo, contents)).unwrap();
        assert!(reply.refused.is_empty());
    }

    fn put<R: Imported>(&self, repo: &str, resource: R) {
        let reply = block_on(self.platform.put(&self.operator, repo, [resource])).unwrap();
        assert!(reply.refused.is_empty(), "{reply:?}");
    }

    /// Imports an index with digest `a…` of two images, `b…` for amd64 and `c…` for arm64, and the image for amd64.
    /// Only that for amd64 has blobs.
    fn image(&self, repo: &str) {
        self.blobs(repo, &[SPDX, CONFIG]);
        let platform = |architecture: &str, digit, size| ImagePlatform {
            architecture: architecture.to_owned(),
            digest: Digest::opaque(digest(digit)),
            size,
            ..ImagePlatform::default()
        };
        let blob = |content: &str, kind, manifest| ImageBlob {
            digest: digest_of(content),
            content: kind,
            image: Digest::opaque(digest('b')),
            manifest: Digest::opaque(digest(manifest)),
        };
        let blobs = vec![blob(CONFIG, BlobContent::ContentConfig, 'b'), blob(SPDX, BlobContent::ContentSbom, 'd')];
        let platforms = vec![platform("amd64", 'b', 10), platform("arm64", 'c', 20)];
        let single = Image {
            digest: Digest::opaque(digest('b')),
            platforms: vec![platforms[0].clone()],
            blobs: blobs.clone(),
            ..Image::default()
        };
        self.put(repo, single);
        self.put(
            repo,
            Image { digest: Digest::opaque(digest('a')), index: true, platforms, blobs, ..Image::default() },
        );
    }

    fn ask(&self, method: &str, repo: &str, digest: String, more: Value) -> Result<Value> {
        let mut request = json!({ "repoId": repo, "digest": digest });
        request.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        self.call(&format!("Registry.{method}"), request)
    }

    /// Calls a method that returns pages, and returns its items.
    fn pages(&self, method: &str, request: Value) -> Vec<Value> {
        let service = self.platform.registered().iter().find(|one| one.kind.service == "Registry").unwrap();
        let action = service.actions.iter().find(|action| action.name == method).unwrap();
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let request = request.as_object().unwrap();
            let page = self.platform.run_page(Some(&self.operator), service.kind, action, request, &token);
            let page = block_on(page).unwrap();
            items.extend(page.items.iter().map(|item| serde_json::from_slice::<Value>(item).unwrap()));
            match page.next_page_token {
                Some(next) => token = next,
                None => return items,
            }
        }
    }
}

fn code(result: Result<Value>) -> Code {
    result.unwrap_err().code()
}

#[test]
fn a_bill_of_materials_is_shown_as_a_graph_and_as_it_was_imported() {
    let world = World::new();
    let repo = world.repo("nginx");
    world.image(&repo);
    let sbom = world.ask("GetSbom", &repo, digest('a'), json!({})).unwrap();
    let edge = |subject: &str, predicate: &str, ty: &str| {
        let id = |name: &str| format!("SPDXRef-{name}");
        json!({ "subjectId": id(subject), "predicateId": id(predicate), "type": ty })
    };
    assert_eq!(
        sbom,
        json!({
            "id": digest_of(SPDX), "rawSbom": STANDARD.encode(SPDX),
            "graph": {
                "nodes": [
                    { "package": { "id": "SPDXRef-a", "name": "libcrypto3", "version": "3.1.0-r0",
                        "license": "Apache-2.0", "description": "crypto",
                        "purl": "pkg:apk/wolfi/libcrypto3@3.1.0-r0?origin=openssl" } },
                    { "package": { "id": "SPDXRef-b", "name": "other", "version": "", "license": "",
                        "description": "", "purl": "" } },
                    { "file": { "id": "SPDXRef-f", "name": "/lib/libcrypto.so.3", "types": ["BINARY"] } },
                ],
                "edges": [
                    edge("DOCUMENT", "a", "DESCRIBES"), edge("a", "f", "CONTAINS"), edge("b", "a", "DEPENDS_ON"),
                    edge("a", "f", "UNKNOWN"),
                ],
            },
            "lastSeen": sbom["lastSeen"], "tool": "builder-1.0", "format": "SPDX-2.3",
            "generatedAt": "2026-01-02T03:04:05.000Z", "authors": "Acme", "source": "INGESTED", "name": "nginx",
            "description": "an image", "digest": digest('b'),
        })
    );
    assert!(sbom["lastSeen"].is_string());
    let raw = |more: Value| world.ask("GetRawSbom", &repo, digest('a'), more);
    let document = json!({ "rawSbom": SPDX });
    assert_eq!(raw(json!({})).unwrap(), document);
    assert_eq!(raw(json!({ "reference": digest_of(SPDX), "arch": "amd64" })).unwrap(), document);
    assert_eq!(raw(json!({ "reference": digest('d') })).unwrap(), document);
    assert_eq!(code(raw(json!({ "reference": digest('e') }))), Code::NotFound);
    assert_eq!(code(raw(json!({ "arch": "arm64" }))), Code::NotFound);
}

#[test]
fn the_configuration_of_an_image_has_the_names_of_version_1() {
    let world = World::new();
    let repo = world.repo("nginx");
    world.image(&repo);
    for digit in ['a', 'b'] {
        let config = world.ask("GetImageConfig", &repo, digest(digit), json!({ "registry": true })).unwrap();
        assert_eq!(
            config,
            json!({
                "user": "65532", "exposedPorts": { "80/tcp": {} }, "env": ["A=b"], "entrypoint": ["/nginx"], "cmd": [],
                "volumes": { "/data": {} }, "workingDir": "/", "labels": { "a": "b" }, "stopSignal": "SIGQUIT",
            })
        );
    }
}

#[test]
fn a_malformed_blob_is_a_failed_precondition_that_names_it_and_other_images_are_listed() {
    let world = World::new();
    let repo = world.repo("nginx");
    world.image(&repo);
    let packages = format!(r#"{{"packages":[{}{{}}]}}"#, "{},".repeat(100_000));
    world.blobs(&repo, &["not json", &packages]);
    for (digit, content) in [('1', "not json"), ('2', &packages)] {
        let blob = |kind| ImageBlob {
            digest: digest_of(content),
            content: kind,
            image: Digest::opaque(digest(digit)),
            manifest: Digest::opaque(digest(digit)),
        };
        let platform = ImagePlatform {
            architecture: "amd64".to_owned(),
            digest: Digest::opaque(digest(digit)),
            ..ImagePlatform::default()
        };
        let image = Image {
            digest: Digest::opaque(digest(digit)),
            platforms: vec![platform],
            blobs: vec![blob(BlobContent::ContentConfig), blob(BlobContent::ContentSbom)],
            ..Image::default()
        };
        world.put(&repo, image);
    }
    let failed = |method: &str, digit, content: &str| {
        let error = world.ask(method, &repo, digest(digit), json!({})).unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{method}: {error}");
        assert!(error.message().contains(&*digest_of(content)), "{method}: {error}");
    };
    for method in ["GetSbom", "GetRawSbom", "GetImageConfig"] {
        failed(method, '1', "not json");
    }
    failed("GetSbom", '2', &packages);
    let chart = Chart {
        digest: Digest::opaque(digest('3')),
        config: digest_of("not json"),
        raw: digest_of("not json"),
        ..Chart::default()
    };
    world.put(&repo, chart);
    failed("GetChart", '3', "not json");
    failed("GetHelm", '3', "not json");
    let listed = world.pages("ListManifestMetadata", json!({ "repoId": repo }));
    let mut counts: Vec<_> = listed.iter().map(|one| one["pkgMetadata"].as_array().unwrap().len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 1]);
}

#[test]
fn architectures_and_sizes_are_those_of_version_2() {
    let world = World::new();
    let repo = world.repo("nginx");
    world.image(&repo);
    assert_eq!(world.ask("GetArchs", &repo, digest('a'), json!({})).unwrap(), json!({ "archs": ["amd64", "arm64"] }));
    assert_eq!(violation(world.ask("GetArchs", &repo, digest('b'), json!({}))).0, "digest");
    let size = |more: Value| world.ask("GetSize", &repo, digest('a'), more);
    assert_eq!(size(json!({})).unwrap(), json!({ "size": "10", "arch": "amd64" }));
    assert_eq!(size(json!({ "arch": "arm64" })).unwrap(), json!({ "size": "20", "arch": "arm64" }));
    assert_eq!(code(size(json!({ "arch": "riscv64" }))), Code::NotFound);
}

#[test]
fn an_image_or_chart_of_another_repo_is_not_found_like_a_missing_one() {
    let world = World::new();
    let (repo, other) = (world.repo("nginx"), world.repo("other"));
    world.image(&repo);
    let missing = format!("{}/0000000000000000", world.org);
    for method in ["GetSbom", "GetRawSbom", "GetImageConfig", "GetArchs", "GetSize", "GetHelm", "GetChart"] {
        let text = |repo: &str, digit| {
            let error = world.ask(method, repo, digest(digit), json!({})).unwrap_err();
            (error.code(), error.message().to_owned())
        };
        let (code, message) = text(&other, 'a');
        assert_eq!((code, message.replace('a', "f")), (text(&other, 'f').0, text(&other, 'f').1.replace('a', "f")));
        assert_eq!((code, text(&missing, 'a').0), (Code::NotFound, Code::NotFound), "{method}");
        assert!(text(&missing, 'a').1.contains("Repo"), "{method}");
        let (field, rule) = violation(world.ask(method, &repo, "latest".to_owned(), json!({})));
        assert_eq!(field, "digest", "{method}: {rule}");
        assert_eq!(violation(world.ask(method, "x", digest('a'), json!({}))).0, "repoId", "{method}");
    }
    for method in ["GetSbom", "GetImageConfig"] {
        assert_eq!(code(world.ask(method, &repo, digest('a'), json!({ "arch": "arm64" }))), Code::NotFound);
        assert_eq!(code(world.ask(method, &repo, digest('a'), json!({ "arch": "s390x" }))), Code::NotFound);
    }
}

#[test]
fn metadata_of_packages_is_listed_by_image_by_index_and_for_a_repo() {
    let world = World::new();
    let repo = world.repo("nginx");
    world.image(&repo);
    let metadata = json!([{
        "purl": "pkg:apk/wolfi/libcrypto3@3.1.0-r0?origin=openssl", "originPurl": "pkg:apk/wolfi/openssl@3.1.0-r0",
        "eolDate": "2027-01-01T00:00:00.000Z", "buildTimestamp": "2026-01-01T00:00:00.000Z", "license": "Apache-2.0",
    }]);
    let item = json!({ "digest": digest('b'), "pkgMetadata": metadata });
    let list = |items: Value| world.pages("ListManifestMetadata", json!({ "repoId": repo, "items": items }));
    assert_eq!(list(json!([])), std::slice::from_ref(&item), "an index is not listed");
    assert_eq!(list(json!([{ "imageDigest": digest('b') }])), std::slice::from_ref(&item));
    let index = |arch: &str| json!([{ "indexFilter": { "digest": digest('a'), "arch": arch } }]);
    assert_eq!(list(index("")), std::slice::from_ref(&item));
    assert_eq!(list(index("arm64")), [json!({ "digest": digest('c'), "pkgMetadata": [] })]);
    let none: [Value; 0] = [];
    assert_eq!(list(index("s390x")), none);
    assert_eq!(list(json!([{ "imageDigest": digest('a') }, { "imageDigest": digest('f') }])), none);
    let many: Vec<_> = (0..25).map(|_| json!({ "imageDigest": digest('b') })).collect();
    assert_eq!(list(many.into()), vec![item; 25]);
    let missing = format!("{}/0000000000000000", world.org);
    assert_eq!(world.pages("ListManifestMetadata", json!({ "repoId": missing })), none);
}

#[test]
fn digests_are_counted_at_and_below_a_group_or_repo() {
    let world = World::new();
    let (repo, empty) = (world.repo("nginx"), world.repo("other"));
    world.image(&repo);
    let count = |parent: &str| world.call("Registry.GetManifestDigestCount", json!({ "parentId": parent }));
    assert_eq!(count(&world.org).unwrap(), json!({ "count": "2" }));
    assert_eq!(count(&repo).unwrap(), json!({ "count": "2" }));
    assert_eq!(count(&empty).unwrap(), json!({ "count": "0" }));
    assert_eq!(code(count(&format!("{}/0000000000000000", world.org))), Code::NotFound);
}

const METADATA: &str = r#"{ "name": "web", "version": "1.2.0", "appVersion": "1.27", "description": "A chart",
    "dependencies": [{ "name": "redis", "version": "^1", "repository": "https://charts.example.com" }],
    "annotations": { "category": "web" }, "apiVersion": "v2", "keywords": null }"#;

impl World {
    /// Imports a chart that declares this image.
    fn chart(&self, repo: &str, digit: char, image: &str, requirement: Requirement) {
        self.blobs(repo, &[METADATA, "name: web\n", "replicas: 1\n"]);
        let chart = Chart {
            digest: Digest::opaque(digest(digit)),
            config: digest_of(METADATA),
            raw: digest_of("name: web\n"),
            values: digest_of("replicas: 1\n"),
            images: vec![ChartImage { name: "web".to_owned(), image: image.to_owned(), requirement }],
            ..Chart::default()
        };
        self.put(repo, chart);
    }

    fn bindings(&self, repo: &str) -> Value {
        self.call("Registry.ListChartsByImageRepo", json!({ "repoId": repo })).unwrap()["chartImageBindings"].clone()
    }
}

#[test]
fn a_chart_is_shown_with_its_files() {
    let world = World::new();
    let repo = world.repo("charts");
    world.chart(&repo, '1', "registry.example.com/x/nginx", Requirement::RequirementRequired);
    let helm = world.ask("GetHelm", &repo, digest('1'), json!({ "arch": "arm64" })).unwrap();
    assert_eq!(
        helm,
        json!({ "chartName": "web", "chartVersion": "1.2.0", "chartRepository": "charts", "chartDigest": digest('1'),
            "values": "replicas: 1\n" })
    );
    let chart = world.ask("GetChart", &repo, digest('1'), json!({})).unwrap();
    assert_eq!(
        chart,
        json!({
            "name": "web", "version": "1.2.0", "appVersion": "1.27", "description": "A chart",
            "dependencies": [{ "name": "redis", "version": "^1", "repository": "https://charts.example.com" }],
            "annotations": { "category": "web" },
            "images": [{ "name": "web", "image": "registry.example.com/x/nginx", "requirement": "REQUIREMENT_REQUIRED" }],
            "raw": "name: web\n", "values": "replicas: 1\n", "changelog": "",
        })
    );
}

#[test]
fn charts_are_found_by_the_repos_of_their_images() {
    let world = World::new();
    let (nginx, one, two) = (world.repo("nginx"), world.repo("one"), world.repo("two"));
    let none = json!([]);
    assert_eq!(world.bindings(&nginx), none);
    world.chart(&one, '1', "nginx:1", Requirement::RequirementOptional);
    world.chart(&two, '1', &format!("registry.example.com/{}/nginx:2", world.org), Requirement::RequirementOptional);
    world.chart(&two, '2', "registry.example.com/first organization/nginx", Requirement::RequirementRequired);
    world.chart(&two, '3', "registry.example.com/other/redis", Requirement::RequirementRequired);
    let mut expected = vec![
        json!({ "chartRepo": one, "requirement": "REQUIREMENT_OPTIONAL" }),
        json!({ "chartRepo": two, "requirement": "REQUIREMENT_REQUIRED" }),
    ];
    expected.sort_by_key(|binding| binding["chartRepo"].to_string());
    assert_eq!(world.bindings(&nginx), json!(expected));
    let redis = world.repo("redis");
    assert_eq!(world.bindings(&redis), none, "the image is of another organization");
    assert_eq!(world.bindings(&format!("{}/0000000000000000", world.org)), none);
}

/// A caller with this capability at a group.
fn caller_with(world: &World, group: &str, capabilities: &[&str]) -> Caller {
    let identity = json!({ "name": "reader", "claimMatch": { "issuer": "https://issuer.example", "subject": "r" } });
    let identity = world.call("Identities.Create", json!({ "parentId": world.org, "identity": identity })).unwrap();
    let role = json!({ "name": "reader", "capabilities": capabilities });
    let role = world.call("Roles.Create", json!({ "parentId": world.org, "role": role })).unwrap();
    let binding = json!({ "identity": identity["id"], "role": role["id"] });
    world.call("RoleBindings.Create", json!({ "parent": group, "roleBinding": binding })).unwrap();
    Caller::new(Uid::parse(identity["id"].as_str().unwrap()).unwrap())
}

#[test]
fn charts_that_the_caller_cannot_see_are_left_out() {
    let mut world = World::new();
    let folder = world.call("Groups.Create", json!({ "parent": world.org, "group": { "name": "folder" } })).unwrap();
    let folder = folder["id"].as_str().unwrap().to_owned();
    let hidden = world.repo("hidden");
    let org = std::mem::replace(&mut world.org, folder.clone());
    let nginx = world.repo("nginx");
    world.org = org;
    world.chart(&hidden, '1', "nginx", Requirement::RequirementRequired);
    assert_eq!(world.bindings(&nginx).as_array().unwrap().len(), 1);
    world.operator = caller_with(&world, &folder, &["repo.list"]);
    assert_eq!(world.bindings(&nginx), json!([]));
    assert_eq!(code(world.call("Registry.ListChartsByImageRepo", json!({ "repoId": hidden }))), Code::PermissionDenied);
    assert_eq!(code(world.ask("GetSbom", &nginx, digest('a'), json!({}))), Code::PermissionDenied);
}

#[test]
fn a_resource_that_names_a_blob_of_another_repo_is_rejected() {
    let world = World::new();
    let (repo, other) = (world.repo("nginx"), world.repo("other"));
    world.blobs(&other, &[METADATA, "raw"]);
    let chart = Chart {
        digest: Digest::opaque(digest('1')),
        config: digest_of(METADATA),
        raw: digest_of("raw"),
        ..Chart::default()
    };
    let put = |repo: &str| block_on(world.platform.put(&world.operator, repo, [chart.clone()])).unwrap();
    let reply = put(&repo);
    assert_eq!((reply.created, reply.refused.len()), (0, 1));
    let fields: Vec<_> = reply.refused[0].error.violations().iter().map(|one| one.field.as_str()).collect();
    assert_eq!(fields, ["config", "raw"]);
    assert_eq!(code(world.ask("GetChart", &repo, digest('1'), json!({}))), Code::NotFound);
    assert_eq!(put(&other).created, 1);
}

#[test]
fn unused_blobs_are_collected_after_the_grace_period_and_used_ones_stay() {
    let world = World::new();
    let repo = world.repo("nginx");
    world.image(&repo);
    world.blobs(&repo, &["unused"]);
    let collect = |grace| block_on(world.platform.collect_blobs(grace)).unwrap();
    assert_eq!(collect(3_600_000), 0);
    assert_eq!(collect(0), 1);
    assert_eq!(collect(0), 0);
    world.ask("GetSbom", &repo, digest('a'), json!({})).unwrap();
    block_on(world.platform.remove_all::<Image>(&world.operator, &repo)).unwrap();
    assert_eq!(collect(0), 2);
}

#[test]
fn blobs_are_stored_by_those_who_may_import_and_in_existing_repos() {
    let world = World::new();
    let repo = world.repo("nginx");
    let caller = caller_with(&world, &world.org, &["repo.list"]);
    let put = |caller: &Caller, repo: &str, content: Vec<u8>| {
        block_on(world.platform.put_blobs::<Image>(caller, repo, vec![content.into()]))
    };
    assert_eq!(put(&caller, &repo, b"x".to_vec()).unwrap_err().code(), Code::PermissionDenied);
    let missing = format!("{}/0000000000000000", world.org);
    assert_eq!(put(&world.operator, &missing, b"x".to_vec()).unwrap_err().code(), Code::NotFound);
    let first = put(&world.operator, &repo, b"x".to_vec()).unwrap();
    let second = put(&world.operator, &repo, b"x".to_vec()).unwrap();
    assert_eq!((first.created, second.created, second.unchanged), (1, 0, 1));
    let long = put(&world.operator, &repo, vec![0; platform_engine::blob::MAX_LEN + 1]).unwrap();
    assert_eq!((long.created, long.refused.len()), (0, 1));
}

#[test]
fn a_lost_blob_is_data_loss_and_not_not_found() {
    let world = World::over(Arc::new(MemoryBlobs::default()));
    let repo = world.repo("nginx");
    world.image(&repo);
    let blobs = world.platform.blobs();
    for id in blobs.list().unwrap() {
        assert!(blobs.delete(&id, Timestamp::MAX).unwrap());
    }
    for method in ["GetSbom", "GetRawSbom", "GetImageConfig"] {
        assert_eq!(code(world.ask(method, &repo, digest('a'), json!({}))), Code::DataLoss, "{method}");
    }
    let kinds = world.platform.kinds();
    let damaged = block_on(platform_engine::blob::damaged(world.platform.store(), kinds, &**blobs)).unwrap();
    assert_eq!(damaged.len(), 4, "two resources with two blobs each");
}
