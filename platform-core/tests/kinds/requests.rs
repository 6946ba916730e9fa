//! A request of each action, for the tests of all actions.

use platform_engine::uid::Uid;
use serde_json::{Value, json};

use crate::common::{World, built_in, digest};

/// Returns a request of an action at a group.
pub(crate) fn request(world: &World, action: &str, group: &Uid) -> Value {
    match action {
        "LookupGroup" | "CheckEligibility" | "EndSignIns" | "Ping" | "ListDocuments" => json!({}),
        "CountAdvisories" => json!({ "uid": group }),
        "ExplainAccess" => json!({ "uid": group, "capability": "repo.list" }),
        "RequestGroupAccess" => json!({ "groupUid": group }),
        "RepairOwner" => {
            let heir = world.person(&format!("heir {}", world.serial()), None);
            json!({ "groupUid": group, "identityUid": heir.identity })
        }
        "RevokeTokens" => json!({ "identityUid": world.identity(group).identity }),
        "SetResourceLimit" => json!({ "groupUid": group, "kind": "Repo", "limit": 1000 }),
        "RemoveResourceLimit" => json!({ "groupUid": group, "kind": "Repo" }),
        "ListResourceLimits" => json!({ "groupUid": group }),
        "LookupIdentity" => json!({ "issuer": "i", "subject": "s" }),
        "UpdateIdentityMetadata" => json!({ "identityMetadata": { "company": "c" } }),
        "BatchCreateRoleBindings" => {
            let binding =
                json!({ "identityUid": world.identity(group).identity, "roleUid": built_in("actions.viewer") });
            json!({ "parent": group, "requests": [{ "roleBinding": binding }] })
        }
        "GetArchitectures" | "GetSize" | "ListImageSizes" => {
            json!({ "repoUid": world.image(&world.repo(group)).0, "digest": digest('a') })
        }
        "GetArtifactCount" => json!({ "ecosystems": ["ECOSYSTEM_JAVA"] }),
        "ListResolvedVulnsReports" => {
            let at = "2026-01-01T00:00:00Z";
            json!({ "imageRefs": [{ "repo": "nginx" }], "startTime": at, "endTime": at })
        }
        "CheckAccountAssociation" => json!({ "uid": group, "providerType": "ACCOUNT_PROVIDER_TYPE_AMAZON" }),
        "AcceptTerms" => json!({ "group": group, "documentIds": ["skills-tos.v1"] }),
        "ListTermsAcceptances" => json!({ "group": group }),
        "BatchDeleteExternalGroupRoleMappings" => {
            let provider = format!("{group}/0000000000000000");
            json!({ "parent": provider, "names": [format!("{provider}/0000000000000000")] })
        }
        "GenerateScimToken" | "RevokeScimToken" => {
            json!({ "identityProviderUid": format!("{group}/0000000000000000") })
        }
        "RegenerateScimToken" => {
            json!({ "identityProviderUid": format!("{group}/0000000000000000"), "etag": "e" })
        }
        "RedeliverEvent" => json!({ "uid": format!("{group}/0000000000000000"), "eventId": "e" }),
        "ResumeDelivery" | "RedeliverDeadLetter" | "SendTestEvent" | "GetBacklog" => {
            json!({ "uid": format!("{group}/0000000000000000") })
        }
        "SetScimEnabled" => {
            json!({ "identityProviderUid": format!("{group}/0000000000000000"), "enabled": true, "etag": "e" })
        }
        other => panic!("{other} needs a request in tests/kinds/requests.rs"),
    }
}
