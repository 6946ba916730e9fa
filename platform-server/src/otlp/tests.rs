//! Traces and metrics, received by a collector in process.

use std::sync::Mutex;

use axum::{Router, body::Body, routing::get};
use metrics::{counter, histogram, with_local_recorder};
use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    metrics::v1::metric,
    trace::v1::Span as Received,
};
use platform_engine::store::{Store, memory::MemoryStore};
use platform_http::{Layers, Limits, serve};
use tokio::net::TcpListener;
use tonic::{Request as Call, Response as Reply, Status as Refused};
use tower::ServiceExt;

use super::*;
use crate::metrics::Timed;

/// A collector that keeps what it receives.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Received>>>,
    metrics: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
}

#[async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Call<ExportTraceServiceRequest>,
    ) -> Result<Reply<ExportTraceServiceResponse>, Refused> {
        let all = request.into_inner().resource_spans.into_iter().flat_map(|of_resource| of_resource.scope_spans);
        self.spans.lock().unwrap().extend(all.flat_map(|of_scope| of_scope.spans));
        Ok(Reply::new(ExportTraceServiceResponse::default()))
    }
}

#[async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Call<ExportMetricsServiceRequest>,
    ) -> Result<Reply<ExportMetricsServiceResponse>, Refused> {
        self.metrics.lock().unwrap().push(request.into_inner());
        Ok(Reply::new(ExportMetricsServiceResponse::default()))
    }
}

impl Collector {
    /// Starts a collector, and returns it with a connection to it.
    async fn start(ratio: f64) -> (Self, Otlp) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let service = Router::new()
            .route_service(
                "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                TraceServiceServer::new(collector.clone()),
            )
            .route_service(
                "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
                MetricsServiceServer::new(collector.clone()),
            );
        tokio::spawn(async move { serve(listener, service, &Limits::default(), std::future::pending()).await });
        (collector, Otlp::connect(&endpoint, ratio, true).unwrap())
    }
}

/// Sends what is pending.
async fn flush(otlp: &Otlp) {
    let otlp = otlp.clone();
    let flush = move || {
        otlp.tracers.force_flush().unwrap();
        otlp.meters.as_ref().unwrap().force_flush().unwrap();
    };
    tokio::task::spawn_blocking(flush).await.unwrap();
}

async fn send(service: impl Service<Request<Body>, Response: Send, Error: fmt::Debug>, traceparent: Option<&str>) {
    let mut request = Request::get("/there");
    if let Some(parent) = traceparent {
        request = request.header("traceparent", parent);
    }
    service.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_traced_request_continues_the_trace_of_its_caller_and_the_store_and_outgoing_requests_are_part_of_it() {
    let (collector, otlp) = Collector::start(0.0).await;
    let store = Timed::around(Arc::new(MemoryStore::default()) as Arc<dyn Store>);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let outgoing = Arc::clone(&sent);
    let app = Router::new().route(
        "/there",
        get(async move || {
            store.get(&[], &[]).await.unwrap();
            let mut headers = HeaderMap::new();
            inject(&mut headers);
            outgoing.lock().unwrap().push(headers.get("traceparent").map(|value| value.to_str().unwrap().to_owned()));
        }),
    );
    let service = traced(Layers::default().around(app), Some(&otlp));
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    send(service.clone(), None).await;
    send(service.clone(), Some(&format!("00-{trace}-{parent}-00"))).await;
    send(service.clone(), Some("00-nonsense")).await;
    send(service.clone(), Some(&format!("00-{trace}-{parent}-01"))).await;
    flush(&otlp).await;

    let spans = collector.spans.lock().unwrap().clone();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    let request = spans.iter().find(|span| span.name == "other").unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(names.iter().filter(|name| **name == "other").count(), 1, "{names:?}");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (trace.to_owned(), parent.to_owned()));
    let has = |key: &str| request.attributes.iter().any(|attribute| attribute.key == key);
    assert!(has("http.response.status_code") && has("request.id") && has("url.path"), "{request:?}");
    let get = spans.iter().find(|span| span.name == "get").unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!((&get.trace_id, &get.parent_span_id), (&request.trace_id, &request.span_id));
    let sent = sent.lock().unwrap().clone();
    assert_eq!(sent[..3], [None, None, None], "requests that are not traced pass nothing on");
    assert_eq!(sent[3].as_deref(), Some(&*format!("00-{trace}-{}-01", hex(&request.span_id))));

    // The metrics have the names and values that Prometheus gets.
    let recorder = otlp.recorder().unwrap();
    with_local_recorder(&recorder, || {
        counter!("platform_requests_total", "code" => "OK").increment(3);
        histogram!("platform_request_seconds").record(0.5);
    });
    flush(&otlp).await;
    let received = collector.metrics.lock().unwrap().clone();
    let all: Vec<_> = received.iter().flat_map(|one| &one.resource_metrics).collect();
    let metrics: Vec<_> = all.iter().flat_map(|one| &one.scope_metrics).flat_map(|one| &one.metrics).cloned().collect();
    let data = |name: &str| metrics.iter().find(|one| one.name == name).and_then(|one| one.data.clone()).unwrap();
    let metric::Data::Sum(sum) = data("platform_requests_total") else { panic!("{metrics:?}") };
    assert_eq!(sum.data_points[0].attributes[0].key, "code");
    let metric::Data::Histogram(histogram) = data("platform_request_seconds") else { panic!("{metrics:?}") };
    assert_eq!(histogram.data_points[0].explicit_bounds, SECONDS);
    assert_eq!(histogram.data_points[0].sum, Some(0.5));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ratio_decides_about_requests_without_a_decision_of_their_caller() {
    for (ratio, at_least, at_most) in [(0.0, 0, 0), (1.0, 200, 200), (0.5, 50, 150)] {
        let (collector, otlp) = Collector::start(ratio).await;
        let app = Router::new().route("/there", get(async || "there"));
        let service = traced(Layers::default().around(app), Some(&otlp));
        for _ in 0..200 {
            send(service.clone(), None).await;
        }
        flush(&otlp).await;
        let spans = collector.spans.lock().unwrap().len();
        assert!((at_least..=at_most).contains(&spans), "{ratio}: {spans}");
    }
}

#[tokio::test]
async fn an_invalid_endpoint_is_rejected_and_without_one_nothing_is_traced() {
    for endpoint in ["not a url", "https://127.0.0.1:4317", "http://"] {
        assert!(Otlp::connect(endpoint, 1.0, false).is_err(), "{endpoint}");
    }
    let app = Router::new().route("/there", get(async || "there"));
    send(traced(Layers::default().around(app), None), None).await;
}
