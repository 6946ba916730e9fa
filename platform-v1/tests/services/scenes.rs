//! Repos, tags, images, advisories and metadata for the tests of reports.

use platform_core::resources::{
    advisory::VulnerabilityMetadata,
    registry::{Image, Repo, Tag},
    vulnerabilities::Advisory,
};
use platform_engine::kind::Imported;

use super::*;

/// Returns a digest of 64 times this digit.
pub(crate) fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

/// 2,000 days before the time of a world, and later ones.
pub(crate) fn day(day: u32) -> String {
    format!("1964-07-{day:02}T00:00:00.000Z")
}

impl World {
    /// Imports a resource as the operator.
    pub(crate) fn import<R: Imported>(&self, parent: &str, resource: Value) -> Uid {
        let resource: R = serde_json::from_value(resource).unwrap();
        let uid = resource.uid_in(parent);
        let reply = block_on(self.platform.put(&self.operator, parent, [resource])).unwrap();
        assert!(reply.refused.is_empty(), "{reply:?}");
        uid
    }

    /// Creates a group below another, or an organization.
    pub(crate) fn folder(&self, parent: &str, name: &str) -> String {
        let made = self.call("Groups.Create", json!({ "parent": parent, "group": { "name": name } })).unwrap();
        made["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn new_repo(&self, group: &str, name: &str) -> Uid {
        let repo = Repo { name: name.to_owned(), ..Repo::default() };
        block_on(self.platform.create(&self.operator, group, &repo)).unwrap().uid
    }

    pub(crate) fn new_tag(&self, repo: &str, name: &str, digest: &str) -> Uid {
        let tag: Tag = serde_json::from_value(json!({ "name": name, "digest": digest })).unwrap();
        block_on(self.platform.create(&self.operator, repo, &tag)).unwrap().uid
    }

    /// Imports an image for two architectures with these packages: names, versions and origins.
    pub(crate) fn new_image(&self, repo: &str, digest: &str, packages: &[(&str, &str, &str)]) {
        let package = |(name, version, origin): &(&str, &str, &str)| json!({ "name": name, "version": version, "origin": origin });
        let platform = |architecture: &str, size: &str| {
            let packages: Vec<_> = packages.iter().map(package).collect();
            json!({ "architecture": architecture, "digest": digest, "size": size, "packages": packages })
        };
        let platforms = [platform("arm64", "20"), platform("amd64", "10")];
        self.import::<Image>(repo, json!({ "digest": digest, "index": true, "platforms": platforms }));
    }

    /// Imports an advisory of a package with approved events: days, forms and values.
    pub(crate) fn new_advisory(
        &self,
        group: &str,
        id: &str,
        package: &str,
        aliases: &[&str],
        events: &[(u32, &str, Value)],
    ) {
        let event = |(at, form, value): &(u32, &str, Value)| json!({ "createTime": day(*at), "reviewState": "REVIEW_STATE_APPROVED", *form: value });
        let events: Vec<_> = events.iter().map(event).collect();
        self.import::<Advisory>(
            group,
            json!({
                "advisoryId": id, "artifactName": package, "artifactType": "apk", "packageNamespace": "wolfi",
                "aliases": aliases, "events": events,
            }),
        );
    }

    pub(crate) fn new_metadata(&self, id: &str, aliases: &[&str], vector: &str) {
        self.import::<VulnerabilityMetadata>(
            "",
            json!({
                "id": id, "aliases": aliases, "summary": format!("about {id}"),
                "references": [{ "type": "TYPE_WEB", "url": format!("https://example.com/{id}") }],
                "severities": [{ "type": "TYPE_CVSS_V3", "score": vector }],
            }),
        );
    }

    /// Calls a method as a caller who holds exactly these capabilities at a group.
    pub(crate) fn call_with(&self, group: &str, capabilities: &[&str], method: &str, request: Value) -> Result<Value> {
        let subject = format!("{group} {method} {}", capabilities.join(" "));
        let identity =
            json!({ "name": "one", "claimMatch": { "issuer": "https://issuer.example", "subject": subject } });
        let identity = self.call("Identities.Create", json!({ "parentId": group, "identity": identity })).unwrap();
        let known = self.call("Roles.List", json!({ "parent": group })).unwrap();
        let role = json!({ "name": format!("role {}", items(&known).len()), "capabilities": capabilities });
        let role = self.call("Roles.Create", json!({ "parentId": group, "role": role })).unwrap();
        let binding = json!({ "identity": identity["id"], "role": role["id"] });
        self.call("RoleBindings.Create", json!({ "parent": group, "roleBinding": binding })).unwrap();
        let caller = Caller::new(Uid::parse(identity["id"].as_str().unwrap()).unwrap());
        self.call_as(&caller, method, request)
    }
}

/// The vector of a vulnerability of the level HIGH, with the score 7.5.
pub(crate) const HIGH: &str = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H";

/// The vector of a vulnerability of the level MEDIUM, with the score 5.3.
pub(crate) const MEDIUM: &str = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:L/I:N/A:N";

/// An event of a detection.
pub(crate) fn found() -> Value {
    json!({ "manual": {} })
}

/// An event of a fix.
pub(crate) fn fixed(version: &str) -> Value {
    json!({ "fixedVersion": version })
}
