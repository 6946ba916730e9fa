//! The endpoints of the emulator, and lists of its memory store.

use serde_json::json;

use super::{
    cases::{Case, Client},
    directory::call,
};
use crate::{client, servers::Server};

/// The number of repos.
const REPOS: usize = 2_000;

/// Starts an emulator with data, and returns it with its requests.
pub fn emulator() -> (Server, Vec<Case>) {
    let mut server = Server::emulator();
    let post = |server: &Server, path: &str, body: &str| call(server, &client::request(server, "POST", path, body));
    server.token = post(&server, "/_emulator/tokens", "{}")["token"].as_str().expect("a token").to_owned();
    let tenant = call(&server, &client::get_of(&server, "/_emulator/tenant"));
    let organization = tenant["organization"].as_str().expect("an organization");
    for number in 0..REPOS {
        let repo = json!({ "name": format!("repo-{number}"), "description": "d".repeat(500) }).to_string();
        post(&server, &format!("/registry/v2/repos/{organization}"), &repo);
    }
    let client = Client::operator(&server);
    let paths = ["", "/tenants", "/tenant", "/snapshots", "/clock", "/faults", "/requests", "/coverage"];
    let mut cases: Vec<_> = paths.map(|path| client.get(&format!("/_emulator{path}"))).into();
    cases.push(client.get("/registry/v2/repos?page_size=200"));
    cases.push(client.get("/registry/v2/repos?page_size=200&name=repo-7"));
    cases.push(client.get("/registry/v1/repos"));
    let bodies = [("tokens", "{}"), ("upstreamTokens", "{}"), ("faults", "{}"), ("clock", "{}"), ("seed", "repos: []")];
    cases.extend(bodies.map(|(path, body)| client.body("POST", &format!("/_emulator/{path}"), body)));
    for case in &mut cases {
        case.name.insert_str(0, "emulator: ");
    }
    (server, cases)
}
