//! Hostile and malformed requests, sent to every operation of the OpenAPI document over a real connection. Each must be
//! answered, with errors in the format of AIP-193 or SCIM, and never with a server fault. Afterwards, everything that
//! was accepted must be readable. The operations, their parameters and the fields of their bodies come from the
//! document, so new kinds are covered automatically.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

#[path = "../../../platform-http/tests/support/mod.rs"]
mod support;

mod console;
mod world;

use serde_json::json;
use support::ORG;
use world::{Case, Expects, World};

#[tokio::test]
async fn invalid_uids_in_paths_are_rejected_by_every_operation() {
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
        .for_each_operation(|operation| {
            (0..operation.variables.len())
                .flat_map(|place| tricks.iter().map(move |trick| (place, trick)))
                .map(|(place, trick)| Case {
                    target: operation.path_with(place, trick.as_bytes()),
                    ..operation.case(format!("{trick:.60}"), Expects::WellFormed)
                })
                .collect()
        })
        .await;
}

#[tokio::test]
async fn invalid_bytes_in_paths_are_rejected_by_every_operation() {
    let world = World::new().await;
    world
        .for_each_operation(|operation| {
            let raw: [&[u8]; 7] = [b"/\xff\xfe", b"/\0", b"/\x01", b"/\x7f", "/💥".as_bytes(), b"?\xff", b"?a=\0"];
            let raw = raw.map(|bytes| Case {
                target: [&operation.path(), bytes].concat(),
                ..operation.case(format!("{bytes:?}"), Expects::NotHttp)
            });
            raw.into_iter().collect()
        })
        .await;
}

#[tokio::test]
async fn queries_are_parsed_strictly_by_every_operation() {
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
        .for_each_operation(|operation| {
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
            .map(|query| operation.with_query(query, operation.unknown_parameters()))
            .into();
            cases.push(operation.with_query("&&&", Expects::WellFormed));
            cases.push(operation.with_query(&many, operation.unknown_parameters()));
            cases.push(operation.with_query(&long, Expects::Refusal));
            for name in &operation.query {
                cases.extend(values.map(|value| operation.with_query(format!("{name}={value}"), Expects::WellFormed)));
                let snake = name
                    .chars()
                    .map(|c| if c.is_uppercase() { format!("_{}", c.to_lowercase()) } else { c.to_string() });
                let snake: String = snake.collect();
                // Twice in one spelling, and once in each.
                cases.push(operation.with_query(format!("{name}=1&{name}=1"), Expects::WellFormed));
                cases.push(operation.with_query(format!("{name}=1&{snake}=2"), Expects::WellFormed));
                cases.push(operation.with_query(format!("{name}={}", "9".repeat(20_000)), Expects::WellFormed));
            }
            if operation.takes_only_a_query() {
                cases.push(operation.with_query(&longest, Expects::NotHttp));
            }
            cases
        })
        .await;
}

#[tokio::test]
async fn bodies_that_are_not_json_objects_are_rejected_by_every_operation_with_a_body() {
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
        .for_each_operation(|operation| {
            if !operation.has_body() {
                return Vec::new();
            }
            let mut cases: Vec<_> = broken
                .iter()
                .map(|(what, body)| operation.with_body(what, body.clone(), operation.broken_bodies()))
                .collect();
            cases.push(operation.with_body("of 10 MB", huge.clone(), operation.broken_bodies()));
            cases
        })
        .await;
}

#[tokio::test]
async fn fields_of_the_wrong_type_are_rejected_by_every_operation_with_a_body() {
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
        .for_each_operation(|operation| {
            let mut cases = Vec::new();
            for name in &operation.fields {
                for value in &values {
                    let body = json!({ name: value }).to_string();
                    cases.push(operation.with_body(&format!("{body:.60}"), body, Expects::WellFormed));
                    // With otherwise valid values, so that the request is not rejected for other fields.
                    let mut body = operation.example.clone();
                    if operation.fields.iter().any(|field| field == "name") {
                        body["name"] = json!(format!("n{}", cases.len()));
                    }
                    body[name] = value.clone();
                    cases.push(operation.with_body(
                        &format!("{name} {value:.60}"),
                        body.to_string(),
                        Expects::WellFormed,
                    ));
                }
                let digits = format!("{{\"{name}\":{}}}", "9".repeat(5_000));
                cases.push(operation.with_body(&format!("{name} of 5,000 digits"), digits, Expects::WellFormed));
                let twice = format!("{{\"{name}\":null,\"{name}\":null}}");
                cases.push(operation.with_body(&twice, twice.clone(), operation.broken_bodies()));
            }
            cases
        })
        .await;
}

#[tokio::test]
async fn odd_headers_are_rejected_or_harmless_for_every_operation() {
    let odd = [
        ("authorization: Bearer a\r\nauthorization: Bearer b\r\n", Expects::Refusal),
        ("authorization: Basic YTpi\r\n", Expects::Refusal),
        ("authorization: Bearer \r\n", Expects::Refusal),
        ("authorization: Bearer a b\r\n", Expects::Refusal),
        ("host: b\r\n", Expects::Refusal),
        ("content-type: text/xml\r\n", Expects::WellFormed),
        ("content-type: multipart/form-data; boundary=a\r\n", Expects::WellFormed),
        ("content-type: application/json; charset=utf-16\r\n", Expects::WellFormed),
        ("content-type: \r\ncontent-type: a\r\n", Expects::WellFormed),
        ("content-encoding: gzip\r\n", Expects::WellFormed),
        ("accept: image/png\r\naccept-encoding: br;q=9\r\n", Expects::WellFormed),
        ("accept-encoding: gzip, deflate, br, zstd\r\n", Expects::WellFormed),
        ("if-none-match: \"\r\nif-match: *\r\nrange: bytes=0-0\r\n", Expects::WellFormed),
        ("x-http-method-override: DELETE\r\n", Expects::WellFormed),
        ("x-forwarded-host: evil.example\r\nforwarded: host=evil.example\r\n", Expects::WellFormed),
        ("transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n", Expects::NotHttp),
        ("content-length: 1\r\ncontent-length: 2\r\n", Expects::NotHttp),
        ("content-length: -1\r\n", Expects::NotHttp),
        ("transfer-encoding: gzip\r\n", Expects::NotHttp),
        ("no colon\r\n", Expects::NotHttp),
        ("a\0b: c\r\n", Expects::NotHttp),
    ];
    let world = World::new().await;
    world
        .for_each_operation(|operation| {
            let mut cases: Vec<_> = odd
                .iter()
                .map(|(headers, expects)| Case {
                    headers: (*headers).to_owned(),
                    ..operation.case(format!("{headers:?}"), *expects)
                })
                .collect();
            // Paths with empty segments or other versions are different paths.
            for to in ["//v2/", "/V2/", "/v2/./", "/v2/%2e%2e/v2/"] {
                let target = operation.path.replacen("/v2/", to, 1).replace("{}", ORG).into_bytes();
                if target != operation.path.replace("{}", ORG).into_bytes() {
                    cases.push(Case { target, ..operation.case(to, Expects::Refusal) });
                }
            }
            cases
        })
        .await;
}
