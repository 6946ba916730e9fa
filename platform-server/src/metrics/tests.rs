//! The text format, and the files of `deploy/` that use the metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use axum::{Router, body::Body, routing::get};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, with_local_recorder};
use platform_http::Layers;
use serde_json::Value;
use tower::ServiceExt;

use super::*;

/// A recorder that remembers the descriptions of metrics and their types.
#[derive(Default)]
struct Described(Mutex<BTreeMap<String, &'static str>>);

impl Described {
    fn add(&self, name: &KeyName, kind: &'static str) {
        self.0.lock().unwrap().insert(name.as_str().to_owned(), kind);
    }
}

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, "counter");
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, "gauge");
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.add(&name, "histogram");
    }
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Returns the types of all metrics by their names.
fn described() -> BTreeMap<String, &'static str> {
    let recorder = Described::default();
    with_local_recorder(&recorder, describe);
    let process = process::ALL.map(|(name, kind, _)| (name.to_owned(), kind));
    recorder.0.into_inner().unwrap().into_iter().chain(process).collect()
}

/// Asserts that a query names only metrics that exist, in the form of their types.
fn check_query(query: &str, metrics: &BTreeMap<String, &'static str>, used: &mut BTreeSet<String>) {
    let opened = query.matches(['(', '{', '[']).count();
    assert_eq!(opened, query.matches([')', '}', ']']).count(), "{query}");
    let is_ours = |word: &&str| word.starts_with("platform_") || word.starts_with("process_");
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(is_ours);
    let mut found = 0;
    for word in words {
        found += 1;
        let parts = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| word.strip_suffix(suffix));
        match (metrics.get(word), parts.and_then(|name| metrics.get(name))) {
            (Some(&"counter"), _) => {
                assert!(query.contains("rate(") || query.contains("increase("), "{query}: {word} is a counter");
            }
            (Some(&"gauge"), _) | (None, Some(&"histogram")) => {}
            other => panic!("{query}: {word} is {other:?}"),
        }
        used.insert(if metrics.contains_key(word) { word } else { parts.unwrap() }.to_owned());
    }
    assert!(found > 0, "{query}");
}

#[test]
fn every_query_of_the_dashboard_and_the_alerts_names_existing_metrics() {
    let metrics = described();
    let mut used = BTreeSet::new();
    let dashboard: Value = serde_json::from_str(include_str!("../../../deploy/grafana/dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row") {
        for target in panel["targets"].as_array().unwrap() {
            check_query(target["expr"].as_str().unwrap(), &metrics, &mut used);
        }
    }
    let unused: Vec<_> = metrics.keys().filter(|name| !used.contains(*name)).collect();
    assert_eq!(unused, ["platform_events_attempt_seconds"], "the dashboard shows all other metrics");
    let rules: Value = serde_saphyr::from_str(include_str!("../../../deploy/prometheus/rules.yml")).unwrap();
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        assert!(rule["alert"].as_str().unwrap().starts_with("Platform"), "{rule}");
        check_query(rule["expr"].as_str().unwrap(), &metrics, &mut used);
        for part in [&rule["labels"]["severity"], &rule["annotations"]["summary"], &rule["annotations"]["description"]]
        {
            assert!(part.as_str().is_some_and(|text| !text.is_empty()), "{rule}");
        }
    }
}

#[test]
fn requests_are_counted_by_method_and_code_with_their_durations_and_sizes() {
    let recorder = builder().unwrap().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    with_local_recorder(&recorder, || {
        describe();
        let app = Router::new().route("/there", get(async || "0123456789"));
        let app = Layers { metrics: true, ..Layers::default() }.around(app);
        for path in ["/there", "/there", "/nowhere"] {
            let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
            runtime.block_on(async {
                let answer = app.clone().oneshot(request).await.unwrap();
                axum::body::to_bytes(Body::new(answer.into_body()), 100).await.unwrap()
            });
        }
    });
    let text = handle.render();
    for line in [
        r#"platform_requests_total{transport="rest",method="other",code="OK"} 2"#,
        r#"platform_requests_total{transport="rest",method="other",code="NOT_FOUND"} 1"#,
        r#"platform_request_seconds_count{transport="rest",method="other"} 3"#,
        r#"platform_response_bytes_sum{transport="rest",method="other"} 20"#,
        r#"platform_response_bytes_bucket{transport="rest",method="other",le="256"} 3"#,
        "# TYPE platform_request_seconds histogram",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}
