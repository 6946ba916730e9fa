//! SCIM discovery (RFC 7644 section 4): the capabilities of the service, its resource types and their schemas.

use serde_json::{Value, json};

use super::{
    attributes::{self, Attribute, SCHEMA},
    reply::{LIST, MAX_COUNT},
};

const CONFIG: &str = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig";
const RESOURCE_TYPE: &str = "urn:ietf:params:scim:schemas:core:2.0:ResourceType";
const SCHEMA_OF_SCHEMAS: &str = "urn:ietf:params:scim:schemas:core:2.0:Schema";

/// Discovery endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discovery {
    Config,
    ResourceTypes,
    UserType,
    Schemas,
    UserSchema,
}

impl Discovery {
    /// Finds the discovery endpoint of a path after the provider's uid.
    pub(super) fn find(path: &str) -> Option<Self> {
        match path.split_once('/') {
            None if path == "ServiceProviderConfig" => Some(Self::Config),
            None if path == "ResourceTypes" => Some(Self::ResourceTypes),
            None if path == "Schemas" => Some(Self::Schemas),
            Some(("ResourceTypes", "User")) => Some(Self::UserType),
            Some(("Schemas", SCHEMA)) => Some(Self::UserSchema),
            _ => None,
        }
    }

    /// Returns the response body. `base` is the base URL of the directory.
    pub(super) fn to_json(self, base: &str) -> Value {
        match self {
            Self::Config => service_provider_config(base),
            Self::ResourceTypes => list_of_one(user_type(base)),
            Self::UserType => user_type(base),
            Self::Schemas => list_of_one(user_schema(base)),
            Self::UserSchema => user_schema(base),
        }
    }
}

/// Returns a list response with a single resource.
fn list_of_one(one: Value) -> Value {
    json!({ "schemas": [LIST], "totalResults": 1, "startIndex": 1, "itemsPerPage": 1, "Resources": [one] })
}

fn service_provider_config(base: &str) -> Value {
    let (yes, no) = (json!({ "supported": true }), json!({ "supported": false }));
    json!({
        "schemas": [CONFIG],
        "patch": yes,
        "bulk": { "supported": false, "maxOperations": 0, "maxPayloadSize": 0 },
        "filter": { "supported": true, "maxResults": MAX_COUNT },
        "changePassword": no,
        "sort": no,
        "etag": no,
        "authenticationSchemes": [{
            "type": "oauthbearertoken",
            "name": "SCIM token",
            "description": "The SCIM token of the identity provider, as a bearer token",
        }],
        "meta": { "resourceType": "ServiceProviderConfig", "location": format!("{base}/ServiceProviderConfig") },
    })
}

fn user_type(base: &str) -> Value {
    json!({
        "schemas": [RESOURCE_TYPE],
        "id": "User",
        "name": "User",
        "endpoint": "/Users",
        "schema": SCHEMA,
        "meta": { "resourceType": "ResourceType", "location": format!("{base}/ResourceTypes/User") },
    })
}

/// Returns the schema of the stored attributes (RFC 7643 section 7).
fn user_schema(base: &str) -> Value {
    json!({
        "schemas": [SCHEMA_OF_SCHEMAS],
        "id": SCHEMA,
        "name": "User",
        "description": "A user of the directory",
        "attributes": attributes::defined().map(Attribute::definition).collect::<Vec<_>>(),
        "meta": { "resourceType": "Schema", "location": format!("{base}/Schemas/{SCHEMA}") },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_attributes_of_the_table() {
        attributes::tests::assert_has(&list_of_one(json!({})), attributes::LIST);
    }

    #[test]
    fn every_discovery_document_is_at_its_location() {
        let at = |path: &str| {
            Discovery::find(path).unwrap_or_else(|| panic!("{path}")).to_json("https://api.test/scim/v2/a")
        };
        for path in ["ServiceProviderConfig", "ResourceTypes/User", &format!("Schemas/{SCHEMA}")] {
            assert_eq!(at(path)["meta"]["location"], format!("https://api.test/scim/v2/a/{path}"));
        }
        assert_eq!(at("ResourceTypes")["Resources"][0], at("ResourceTypes/User"));
        assert_eq!(at("Schemas")["Resources"][0], at(&format!("Schemas/{SCHEMA}")));
        for other in ["", "Schemas/", "Schemas/User", "ResourceTypes/Group", "ServiceProviderConfig/", "Me", "Bulk"] {
            assert_eq!(Discovery::find(other), None, "{other}");
        }
    }
}
