//! A server behind a proxy that does not keep `Host` and has the server below a path.

use serde_json::Value;
use tempfile::tempdir;

use crate::common::{Api, Server, api};

const PUBLIC: &str = "https://api.example:8443/platform";

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into()
}

#[test]
fn pages_links_and_documents_have_the_path_of_the_public_url() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory", "--public-url", PUBLIC]);
    let get = |path: &str, accept: &str| {
        let mut response = agent().get(format!("{}{path}", server.url)).header("accept", accept).call().unwrap();
        assert_eq!(response.status(), 200, "{path}");
        String::from_utf8_lossy(&response.body_mut().read_to_vec().unwrap()).into_owned()
    };
    for (path, files) in [("/console", 3), ("/", 6), ("/docs", 7)] {
        let page = get(path, "text/html");
        let links: Vec<_> = page.split(['"']).filter(|part| part.starts_with('/')).collect();
        assert_eq!(links.len(), files, "{links:?}");
        for link in links {
            // The proxy removes the path.
            let behind = link.strip_prefix("/platform/").unwrap_or_else(|| panic!("{path}: {link}"));
            get(&format!("/{behind}"), "*/*");
        }
    }
    assert!(get("/docs/start.js", "*/*").contains("url: \"/platform/openapi.json\""));
    let json = |path: &str| serde_json::from_str::<Value>(&get(path, "application/json")).unwrap();
    assert_eq!(json("/openapi.json")["servers"][0]["url"], "/platform");
    let index = json("/");
    assert_eq!((&index["docs"], &index["console"]), (&"/platform/docs".into(), &"/platform/console".into()));
}

#[test]
fn a_session_of_the_console_begins_with_the_origin_of_the_public_url() {
    let dir = tempdir().unwrap();
    let server = Server::start(dir.path(), &["--store", "memory", "--public-url", PUBLIC]);
    let token = &*api(dir.path(), &[]).0.token;
    let start = |origin: &str| {
        let request = agent().post(format!("{}/console/session", server.url)).header("origin", origin);
        let request = request.header("x-console-session", "start").header("authorization", format!("Bearer {token}"));
        request.send_empty().unwrap()
    };
    let started = start("https://api.example:8443");
    assert_eq!(started.status(), 200);
    let cookie = started.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("Path=/platform/console/session;") && cookie.contains("Secure"), "{cookie}");
    // Without the proxy, the page has the host that it sends to.
    assert_eq!(start(&server.url).status(), 200);
    for other in ["https://api.example", "http://api.example:8443", "https://other.example:8443", "null"] {
        let mut refused = start(other);
        let body: Value = serde_json::from_str(&refused.body_mut().read_to_string().unwrap()).unwrap();
        assert_eq!((refused.status().as_u16(), body["code"].as_u64()), (403, Some(7)), "{other}");
        assert!(body["message"].as_str().unwrap().contains(&format!("Origin must be that of {PUBLIC}")), "{body}");
    }
    Api::new(&server.url, token).get("/auth/v1/ok").ok();
}
