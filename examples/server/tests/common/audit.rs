//! The entries of the audit log.

use std::{collections::BTreeSet, io::Write, net::TcpStream, path::Path};

use serde_json::Value;

use super::Api;

/// Returns the entries of a file.
pub(crate) fn entries(file: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(file).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sends a request, and closes the connection after this number of exchanges on another one, without reading the answer.
/// A server cancels a request whose client has gone before it begins a change, so a test uses several numbers.
pub(crate) fn send_and_close(api: &Api, path: &str, body: &Value, exchanges: usize) {
    let address = api.url.strip_prefix("http://").unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        api.token,
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    (0..exchanges).for_each(|_| assert_eq!(api.get("/livez").status, 200));
}

/// Returns the uids of the repos that the entries say were created, each once.
pub(crate) fn created(entries: &[Value]) -> BTreeSet<String> {
    let creates = entries.iter().filter(|entry| entry["code"] == "OK" && entry["method"] == "ReposService.CreateRepo");
    let mut uids = BTreeSet::new();
    for entry in creates {
        assert_eq!(entry["changed"][0]["put"][0], "Repo", "{entry}");
        assert!(uids.insert(entry["changed"][0]["put"][1].as_str().unwrap().to_owned()), "two entries: {entry}");
    }
    uids
}
