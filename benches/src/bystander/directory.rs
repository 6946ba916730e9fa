//! A directory with users, and its requests over SCIM.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};

use serde_json::{Value, json};

use super::{Sent, cases::Case};
use crate::{client, data, servers::Server};

/// The number of users, of which a page has 200.
const USERS: usize = 1_000;

/// Returns a request to every endpoint of SCIM, after making a provider and its users.
pub fn scim(server: &Server) -> Vec<Case> {
    let organization = data::organization(0);
    let post = |path: &str, body: &Value| call(server, &client::request(server, "POST", path, &body.to_string()));
    let role = |name: &str| {
        let roles = call(server, &client::get_of(server, &format!("/iam/v2/roles?name={name}")));
        roles["roles"][0]["uid"].clone()
    };
    let claims = json!({ "issuer": "https://issuer.example", "subject": "second" });
    let second = json!({ "name": "second owner", "claimMatch": claims });
    let second = post(&format!("/iam/v2/identities/{organization}"), &second);
    let binding = json!({ "identityUid": second["uid"], "roleUid": role("owner") });
    post(&format!("/iam/v2/roleBindings/{organization}"), &binding);
    let oidc = json!({ "issuer": "https://issuer.example", "clientId": "c", "pkceEnabled": true });
    let provider = json!({ "name": "p", "defaultRole": role("viewer"), "oidc": oidc });
    let provider = post(&format!("/iam/v2/identityProviders/{organization}"), &provider);
    let provider = provider["uid"].as_str().expect("a provider");
    let path = format!("/iam/v2/identityProviders/{provider}");
    let issued = post(&format!("{path}:generateScimToken"), &json!({ "neverExpires": true }));
    post(&format!("{path}:setScimEnabled"), &json!({ "enabled": true, "etag": issued["etag"] }));
    let token = issued["token"].as_str().expect("a token");
    let users = format!("/scim/v2/{provider}/Users");
    let user = |number: usize| {
        let schemas = ["urn:ietf:params:scim:schemas:core:2.0:User"];
        let name = format!("user-{number}@example.com");
        json!({ "schemas": schemas, "userName": name, "externalId": name, "displayName": "d".repeat(200) }).to_string()
    };
    let request = |method: &str, path: &str, body: &str| client::request_with(server, token, method, path, body);
    let mut last = String::new();
    for number in 0..USERS {
        let created = call(server, &request("POST", &users, &user(number)));
        created["id"].as_str().expect("a user").clone_into(&mut last);
    }
    let filter = "filter=userName%20eq%20%22user-7@example.com%22";
    let patch = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [{ "op": "replace", "path": "displayName", "value": "d" }],
    });
    let patch = patch.to_string();
    // Reads every user, and compares as often as a filter may.
    let scan = json!({ "filter": vec!["displayName ew \"x\""; 100].join(" or ") }).to_string();
    let one = format!("{users}/{last}");
    let sent = [
        ("GET", format!("{users}?count=200"), String::new()),
        ("GET", format!("{users}?{filter}"), String::new()),
        ("GET", format!("{users}?filter=active%20eq%20true&count=200"), String::new()),
        ("POST", format!("{users}/.search"), scan),
        ("GET", one.clone(), String::new()),
        ("GET", format!("/scim/v2/{provider}/Schemas"), String::new()),
        ("GET", format!("/scim/v2/{provider}/ServiceProviderConfig"), String::new()),
        ("POST", users.clone(), user(7)),
        ("PUT", one.clone(), user(USERS - 1)),
        ("PATCH", one.clone(), patch),
        ("DELETE", format!("{one}0"), String::new()),
    ];
    let case = |(method, path, body): &(&str, String, String)| {
        let name = path.replace(provider, "…").replace(&last, "…");
        let sent: Arc<[u8]> = request(method, path, body);
        Case { name: format!("{method} {name}"), sent: Sent::Http(sent) }
    };
    sent.iter().map(case).collect()
}

/// Sends a request, and returns the JSON of the reply.
pub fn call(server: &Server, request: &[u8]) -> Value {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(request).unwrap();
    let (mut reply, mut buffer) = (Vec::new(), [0; 16 << 10]);
    loop {
        let read = stream.read(&mut buffer).unwrap();
        reply.extend_from_slice(&buffer[..read]);
        assert!(read > 0, "{}", String::from_utf8_lossy(&reply));
        let Some(end) = reply.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        // A reply that is not JSON is not needed.
        let head = String::from_utf8_lossy(&reply[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        let body = &reply[end + 4..];
        if body.len() >= length.unwrap_or_default() {
            return serde_json::from_slice(body).unwrap_or_default();
        }
    }
}
