//! Hostile and broken requests, sent to every operation of the OpenAPI document over a real connection: each is
//! answered, in the form of AIP-193 when it is refused, and never with a fault of ours. The operations, their
//! parameters and the fields of their bodies come from the document, so that a new kind is in it at once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod support;

use platform_http::{Limits, openapi::OpenApi};
use serde_json::{Value, json};
use support::{Answer, Listening, OPERATOR, ORG, peer::Peer};

/// An operation, with what is needed to call it.
struct Operation {
    method: String,
    /// With `{}` where a variable was.
    path: String,
    /// Values of the path's variables that get far.
    variables: Vec<String>,
    query: Vec<String>,
    /// The names and schemas of the body's fields, where there is a body.
    body: Option<Vec<(String, Value)>>,
}

/// Something wrong, or odd and harmless.
struct Case {
    what: String,
    target: Vec<u8>,
    headers: String,
    body: Vec<u8>,
    expects: Expects,
}

#[derive(Clone, Copy, PartialEq)]
enum Expects {
    /// 2xx or 4xx; a 4xx in the form of AIP-193.
    Manners,
    /// 4xx in the form of AIP-193.
    Refusal,
    /// As manners, or what the HTTP library says of what is no HTTP: 400 or 431 without a body.
    NoHttp,
}

/// A server with a resource of the kinds that matter, and all operations of its document.
struct World {
    peer: Peer,
    operations: Vec<Operation>,
    _server: Listening,
}

impl World {
    async fn new() -> Self {
        let server = Listening::new(Limits::default()).await;
        let mut peer = Peer::new(server.address);
        let mut uids = Vec::new();
        for (collection, body) in [
            ("iam/v2/groups", json!({ "name": "folder" })),
            ("iam/v2/roles", json!({ "name": "reader", "capabilities": ["CAP_REPO_LIST"] })),
            (
                "iam/v2/identities",
                json!({ "name": "ci", "claimMatch": { "issuer": "https://a.example", "subject": "b" } }),
            ),
            ("registry/v2/repos", json!({ "name": "nginx" })),
        ] {
            let request = request("POST", format!("/{collection}/{ORG}").as_bytes(), "", body.to_string().as_bytes());
            let made = peer.send(&request).await.unwrap().ok();
            uids.push((collection.rsplit('/').next().unwrap(), made["uid"].as_str().unwrap().to_owned()));
        }
        let rest = support::rest(Limits::default()).await;
        let document = OpenApi::of(rest.platform()).unwrap().into_value();
        let operations = operations(&document, &uids);
        assert!(operations.len() > 40, "{}", operations.len());
        Self { peer, operations, _server: server }
    }

    /// Sends the cases that `make` says for each operation.
    async fn every(mut self, make: impl Fn(&Operation) -> Vec<Case>) {
        let mut sent = 0;
        for operation in &self.operations {
            for case in make(operation) {
                let request = request(&operation.method, &case.target, &case.headers, &case.body);
                let answer = self.peer.send(&request).await;
                let which = || format!("{} {}: {}", operation.method, operation.path, case.what);
                check(case.expects, answer.as_ref(), &which);
                sent += 1;
            }
        }
        assert!(sent > self.operations.len() / 2, "only {sent} requests");
    }
}

fn check(expects: Expects, answer: Option<&Answer>, which: &dyn Fn() -> String) {
    let Some(answer) = answer else { panic!("{}: no answer", which()) };
    let status = answer.status.as_u16();
    if expects == Expects::NoHttp && matches!(status, 400 | 431) && answer.body.is_empty() {
        return;
    }
    match status {
        200 if expects != Expects::Refusal => {}
        400..=499 => {
            let (_, code, message) = answer.refusal();
            assert!((1..=16).contains(&code) && !message.is_empty(), "{}: {answer:?}", which());
        }
        _ => panic!("{}: {answer:?}", which()),
    }
}

/// Returns a request over HTTP/1.1 as the operator.
fn request(method: &str, target: &[u8], headers: &str, body: &[u8]) -> Vec<u8> {
    let mut request = method.as_bytes().to_vec();
    request.push(b' ');
    request.extend_from_slice(target);
    request.extend_from_slice(b" HTTP/1.1\r\nhost: a\r\n");
    if !headers.contains("authorization") {
        request.extend_from_slice(format!("authorization: Bearer {OPERATOR}\r\n").as_bytes());
    }
    request.extend_from_slice(headers.as_bytes());
    if !body.is_empty() {
        request.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(body);
    request
}

fn operations(document: &Value, uids: &[(&str, String)]) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let of = |place: &str| parameters.iter().filter(|one| one["in"] == place).cloned().collect::<Vec<_>>();
            let collection = path.split(['/', ':']).nth(3).unwrap();
            let standing = uids.iter().find(|(name, _)| *name == collection).map(|(_, uid)| uid.as_str());
            // What is deleted must not be missed by the cases that follow.
            let uid = match (method.as_str(), collection) {
                ("delete", _) => format!("{ORG}/0123456789abcdef"),
                ("post", "tags") => uids.iter().find(|(name, _)| *name == "repos").unwrap().1.clone(),
                ("post", _) => ORG.to_owned(),
                _ => standing.unwrap_or(ORG).to_owned(),
            };
            let mut template = path.clone();
            for parameter in of("path") {
                template = template.replace(&format!("{{{}}}", parameter["name"].as_str().unwrap()), "{}");
            }
            let body = operation.pointer("/requestBody/content/application~1json/schema/$ref").map(|reference| {
                let schema = document.pointer(&reference.as_str().unwrap()[1..]).unwrap();
                schema["properties"].as_object().unwrap().clone().into_iter().collect()
            });
            operations.push(Operation {
                method: method.to_uppercase(),
                path: template,
                variables: of("path").iter().map(|_| uid.clone()).collect(),
                query: of("query").iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect(),
                body,
            });
        }
    }
    operations
}

impl Operation {
    /// Returns the path with its variables, of which one is this.
    fn path_with(&self, which: usize, value: &[u8]) -> Vec<u8> {
        let mut parts = self.path.split("{}");
        let mut path = parts.next().unwrap().as_bytes().to_vec();
        for (place, part) in parts.enumerate() {
            path.extend_from_slice(if place == which { value } else { self.variables[place].as_bytes() });
            path.extend_from_slice(part.as_bytes());
        }
        path
    }

    fn path(&self) -> Vec<u8> {
        self.path_with(usize::MAX, b"")
    }

    fn case(&self, what: impl Into<String>, expects: Expects) -> Case {
        Case { what: what.into(), target: self.path(), headers: String::new(), body: Vec::new(), expects }
    }

    fn with_query(&self, query: impl AsRef<[u8]>, expects: Expects) -> Case {
        let query = query.as_ref();
        let mut case = self.case(String::from_utf8_lossy(&query[..query.len().min(80)]), expects);
        case.target.push(b'?');
        case.target.extend_from_slice(query);
        case
    }

    fn with_body(&self, what: &str, body: impl Into<Vec<u8>>, expects: Expects) -> Case {
        let body = body.into();
        Case { body, ..self.case(format!("body {what}"), expects) }
    }
}

#[tokio::test]
async fn paths_that_are_no_uids_are_refused_by_every_operation() {
    let long = "a".repeat(3500);
    let deep = format!("{ORG}{}", "/0123456789abcdef".repeat(32));
    let upper = ORG.to_uppercase();
    let tricks = [
        "..",
        "%2e%2e",
        "%2E%2E%2F%2E%2E",
        "../../../etc/passwd",
        "..%5c..%5c",
        ".",
        "%00",
        "a%00b",
        "%0a",
        "%ff",
        "%c0%af",
        "%ed%a0%80",
        "%zz",
        "%",
        "%2",
        "%252e",
        "%2F",
        "//",
        ";a=b",
        "*",
        "~",
        "'%20OR%201=1--",
        "%F0%9F%92%A5",
        "-1",
        "null",
        "9999999999999999999999999",
        "{}",
        "$(id)",
        "%24%7Bjndi:a%7D",
        "a:b:c",
        ":",
        &long,
        &deep,
        &upper,
    ];
    let world = World::new().await;
    world
        .every(|operation| {
            (0..operation.variables.len())
                .flat_map(|place| tricks.iter().map(move |trick| (place, trick)))
                .map(|(place, trick)| Case {
                    target: operation.path_with(place, trick.as_bytes()),
                    ..operation.case(format!("{trick:.60}"), Expects::Manners)
                })
                .collect()
        })
        .await;
}

#[tokio::test]
async fn bytes_that_no_path_has_are_refused_by_every_operation() {
    let world = World::new().await;
    world
        .every(|operation| {
            let raw: [&[u8]; 7] = [b"/\xff\xfe", b"/\0", b"/\x01", b"/\x7f", "/💥".as_bytes(), b"?\xff", b"?a=\0"];
            let raw = raw.map(|bytes| Case {
                target: [&operation.path(), bytes].concat(),
                ..operation.case(format!("{bytes:?}"), Expects::NoHttp)
            });
            raw.into_iter().collect()
        })
        .await;
}

#[tokio::test]
async fn queries_are_read_strictly_by_every_operation() {
    let values = [
        "",
        "%00",
        "a%0ab",
        "%ff",
        "%",
        "%zz",
        "-1",
        "0",
        "99999999999999999999999999",
        "1e309",
        "-9223372036854775809",
        "NaN",
        "1.5",
        "true",
        "null",
        "[]",
        "%7B%7D",
        "..%2F..",
        "%F0%9F%92%A5",
        "%u0041",
        "a,b,,c",
        "*",
        "2026-13-45T99:99:99Z",
        "99999s",
        "%20",
        "+",
        "name%20sideways",
        "uid%20desc%20desc",
        "/",
    ];
    let long = format!("a={}", "b".repeat(40_000));
    let longest = format!("a={}", "b".repeat(10_000_000));
    let many = "a=b&".repeat(5_000);
    let world = World::new().await;
    world
        .every(|operation| {
            let mut cases: Vec<_> = [
                "nosuch=1",
                "=",
                "=1",
                "a%00=1",
                "%ff=1",
                "a=%",
                "a=%f",
                "&&&nosuch",
                "a=b;c=d",
                "a[]=1",
                "a[b]=1",
                "uidp=1",
                "uidp.=1",
                "uidp.ids.x=1",
                ".=.",
                "updateMask=%00",
                "updateMask=a&updateMask=a",
                "updateMask=nosuch",
                "updateMask=name..description",
                "updateMask=%ff",
            ]
            .map(|query| operation.with_query(query, Expects::Refusal))
            .into();
            cases.push(operation.with_query("&&&", Expects::Manners));
            cases.push(operation.with_query(&many, Expects::Refusal));
            cases.push(operation.with_query(&long, Expects::Refusal));
            for name in &operation.query {
                cases.extend(values.map(|value| operation.with_query(format!("{name}={value}"), Expects::Manners)));
                let snake = name
                    .chars()
                    .map(|c| if c.is_uppercase() { format!("_{}", c.to_lowercase()) } else { c.to_string() });
                let snake: String = snake.collect();
                // Twice in one spelling, and in both.
                cases.push(operation.with_query(format!("{name}=1&{name}=1"), Expects::Manners));
                cases.push(operation.with_query(format!("{name}=1&{snake}=2"), Expects::Manners));
                cases.push(operation.with_query(format!("{name}={}", "9".repeat(20_000)), Expects::Manners));
            }
            if operation.method == "GET" && operation.variables.is_empty() {
                cases.push(operation.with_query(&longest, Expects::NoHttp));
            }
            cases
        })
        .await;
}

#[tokio::test]
async fn bodies_that_are_no_json_object_are_refused_by_every_operation_that_has_one() {
    let nested = |open: &str, close: &str| format!("{{\"name\":{}{}}}", open.repeat(10_000), close.repeat(10_000));
    let (arrays, objects) =
        (nested("[", "]"), format!("{{\"name\":{}1{}}}", "{\"a\":".repeat(10_000), "}".repeat(10_000)));
    let open = format!("{{\"name\":{}", "[".repeat(10_000));
    let utf16: Vec<u8> = "{\"name\":\"a\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let wide = format!("{{{}\"z\":1}}", (0..5_000).map(|n| format!("\"k{n}\":1,")).collect::<String>());
    let broken: Vec<(&str, Vec<u8>)> = vec![
        ("null", b"null".to_vec()),
        ("an array", b"[]".to_vec()),
        ("a number", b"1".to_vec()),
        ("a text", b"\"x\"".to_vec()),
        ("cut short", b"{\"name\":".to_vec()),
        ("two values", b"{} {}".to_vec()),
        ("a NUL", b"{\"name\":\"a\0b\"}".to_vec()),
        ("NULs", vec![0; 100]),
        ("no UTF-8", b"{\"name\":\"\xff\xfe\"}".to_vec()),
        ("half a surrogate", b"{\"name\":\"\\ud800\"}".to_vec()),
        ("a byte order mark", b"\xef\xbb\xbf{}".to_vec()),
        ("UTF-16", utf16),
        ("an unknown key", b"{\"nosuch\":1}".to_vec()),
        ("an empty key", b"{\"\":1}".to_vec()),
        ("a key with a NUL", b"{\"\\u0000\":1}".to_vec()),
        ("__proto__", b"{\"__proto__\":{}}".to_vec()),
        ("one key twice", b"{\"name\":\"a\",\"name\":\"b\"}".to_vec()),
        ("one key twice within", b"{\"name\":{\"a\":1,\"a\":1}}".to_vec()),
        ("10,000 arrays", arrays.into_bytes()),
        ("10,000 objects", objects.into_bytes()),
        ("10,000 brackets", open.into_bytes()),
        ("5,000 keys", wide.into_bytes()),
        ("a form", b"name=a&description=b".to_vec()),
        ("XML", b"<name>a</name>".to_vec()),
        ("trailing commas", b"{\"name\":\"a\",}".to_vec()),
        ("a comment", b"{/*a*/}".to_vec()),
        ("NaN", b"{\"name\":NaN}".to_vec()),
        ("1e999", b"{\"name\":1e999}".to_vec()),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0\x43\xbf\xa6\xa3\x02\0\0\0".to_vec()),
    ];
    let huge = [b"{\"name\":\"".as_slice(), &b"a".repeat(10_000_000), b"\"}"].concat();
    let world = World::new().await;
    world
        .every(|operation| {
            if operation.body.is_none() {
                return Vec::new();
            }
            let mut cases: Vec<_> =
                broken.iter().map(|(what, body)| operation.with_body(what, body.clone(), Expects::Refusal)).collect();
            cases.push(operation.with_body("of 10 MB", huge.clone(), Expects::Refusal));
            cases
        })
        .await;
}

#[tokio::test]
async fn fields_of_another_type_are_refused_by_every_operation_that_has_a_body() {
    let long = "x".repeat(100_000);
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("\u{0}"),
        json!("\u{202e}a"),
        json!("💥"),
        json!("a\r\nb"),
        json!("999999999999999999999999"),
        json!("../.."),
        json!(ORG),
        json!(long),
        json!([]),
        json!([null]),
        json!([[]]),
        json!([{}]),
        json!([1, "a"]),
        json!({}),
        json!({ "a": 1 }),
        json!({ "uid": {} }),
        json!(vec!["a"; 2_000]),
    ];
    let world = World::new().await;
    world
        .every(|operation| {
            let Some(fields) = &operation.body else { return Vec::new() };
            let mut cases = Vec::new();
            for (name, _) in fields {
                for value in &values {
                    let body = json!({ name: value }).to_string();
                    cases.push(operation.with_body(&format!("{body:.60}"), body, Expects::Manners));
                }
                let digits = format!("{{\"{name}\":{}}}", "9".repeat(5_000));
                cases.push(operation.with_body(&format!("{name} of 5,000 digits"), digits, Expects::Manners));
                let twice = format!("{{\"{name}\":null,\"{name}\":null}}");
                cases.push(operation.with_body(&twice, twice.clone(), Expects::Refusal));
            }
            cases
        })
        .await;
}

#[tokio::test]
async fn odd_heads_are_refused_or_harmless_to_every_operation() {
    let odd = [
        ("authorization: Bearer a\r\nauthorization: Bearer b\r\n", Expects::Refusal),
        ("authorization: Basic YTpi\r\n", Expects::Refusal),
        ("authorization: Bearer \r\n", Expects::Refusal),
        ("authorization: Bearer a b\r\n", Expects::Refusal),
        ("host: b\r\n", Expects::Refusal),
        ("content-type: text/xml\r\n", Expects::Manners),
        ("content-type: multipart/form-data; boundary=a\r\n", Expects::Manners),
        ("content-type: application/json; charset=utf-16\r\n", Expects::Manners),
        ("content-type: \r\ncontent-type: a\r\n", Expects::Manners),
        ("content-encoding: gzip\r\n", Expects::Manners),
        ("accept: image/png\r\naccept-encoding: br;q=9\r\n", Expects::Manners),
        ("if-none-match: \"\r\nif-match: *\r\nrange: bytes=0-0\r\n", Expects::Manners),
        ("x-http-method-override: DELETE\r\n", Expects::Manners),
        ("x-forwarded-host: evil.example\r\nforwarded: host=evil.example\r\n", Expects::Manners),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n", Expects::NoHttp),
        ("content-length: 1\r\ncontent-length: 2\r\n", Expects::NoHttp),
        ("content-length: -1\r\n", Expects::NoHttp),
        ("transfer-encoding: gzip\r\n", Expects::NoHttp),
        ("no colon\r\n", Expects::NoHttp),
        ("a\0b: c\r\n", Expects::NoHttp),
    ];
    let world = World::new().await;
    world
        .every(|operation| {
            let mut cases: Vec<_> = odd
                .iter()
                .map(|(headers, expects)| Case {
                    headers: (*headers).to_owned(),
                    ..operation.case(format!("{headers:?}"), *expects)
                })
                .collect();
            // Empty path segments and other versions are other paths.
            for (from, to) in [("/v2/", "//v2/"), ("/v2/", "/V2/"), ("/v2/", "/v2/./"), ("/v2/", "/v2/%2e%2e/v2/")] {
                let target = operation.path.replacen(from, to, 1).replace("{}", ORG).into_bytes();
                cases.push(Case { target, ..operation.case(to, Expects::Refusal) });
            }
            cases
        })
        .await;
}
