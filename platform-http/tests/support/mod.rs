//! Shared test support: a platform on the memory store whose tokens are uids, and a minimal client.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses its part")]

pub mod limited;
pub mod peer;
pub mod setting;

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use platform_http::{BoxError, Limits, Rest, serve};
use serde_json::Value;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tower::{Service, ServiceExt};

pub use setting::{NoTokens, OPERATOR, ORG, UidIsToken, platform};

/// Returns the REST API of a platform with one organization and its operator.
pub async fn rest(limits: Limits) -> Rest {
    Rest::new(Arc::new(platform().await), Arc::new(UidIsToken), limits).unwrap()
}

/// Response, completely read.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub async fn of<B: http_body::Body<Error: std::fmt::Debug>>(response: Response<B>) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Returns the JSON of a successful response.
    pub fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        self.json()
    }

    /// Returns status, code and message of an error, after checking its format.
    pub fn refusal(&self) -> (u16, i64, String) {
        let body = self.json();
        assert_eq!(self.headers["content-type"], "application/json");
        assert_eq!(body["details"][0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{body}");
        let message = body["message"].as_str().unwrap().to_owned();
        (self.status.as_u16(), body["code"].as_i64().unwrap(), message)
    }

    /// Returns the fields that the error names.
    pub fn fields(&self) -> Vec<String> {
        let violations = self.json()["details"][1]["fieldViolations"].clone();
        violations.as_array().unwrap().iter().map(|one| one["field"].as_str().unwrap().to_owned()).collect()
    }
}

/// Calls a service as the operator.
pub async fn call<S>(service: &S, method: Method, path: &str, body: impl Into<Bytes>) -> Answer
where
    S: Service<Request<Full<Bytes>>, Response = platform_http::Reply, Error = Infallible> + Clone,
{
    call_as(service, Some(OPERATOR), method, path, body).await
}

/// Calls a service with this token.
pub async fn call_as<S>(service: &S, token: Option<&str>, method: Method, path: &str, body: impl Into<Bytes>) -> Answer
where
    S: Service<Request<Full<Bytes>>, Response = platform_http::Reply, Error = Infallible> + Clone,
{
    let token = token.map(|token| ("authorization", format!("Bearer {token}")));
    send(service, method, path, token.as_slice(), body).await
}

/// Calls a service with exactly these headers.
pub async fn send<S>(
    service: &S,
    method: Method,
    path: &str,
    headers: &[(&'static str, String)],
    body: impl Into<Bytes>,
) -> Answer
where
    S: Service<Request<Full<Bytes>>, Response = platform_http::Reply, Error = Infallible> + Clone,
{
    let request = Request::builder().method(method).uri(path);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    let request = request.body(Full::new(body.into())).unwrap();
    Answer::of(service.clone().oneshot(request).await.unwrap()).await
}

pub async fn get(service: &Rest, path: &str) -> Answer {
    call(service, Method::GET, path, "").await
}

pub async fn post(service: &Rest, path: &str, body: Value) -> Answer {
    call(service, Method::POST, path, body.to_string()).await
}

pub async fn patch(service: &Rest, path: &str, body: Value) -> Answer {
    call(service, Method::PATCH, path, body.to_string()).await
}

pub async fn delete(service: &Rest, path: &str) -> Answer {
    call(service, Method::DELETE, path, "").await
}

/// Service that listens on a free loopback port until it is dropped or stopped.
pub struct Listening {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<std::io::Result<()>>,
}

impl Listening {
    pub async fn new(limits: Limits) -> Self {
        Self::serving(rest(limits.clone()).await, limits).await
    }

    pub async fn serving<S, R>(service: S, limits: Limits) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<R>, Error = Infallible, Future: Send> + Clone + Send,
        S: 'static,
        R: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(async move { serve(listener, service, &limits, async { drop(stopped.await) }).await });
        Self { address, stop, done }
    }

    /// Stops the server and returns the task in which it finishes.
    pub fn stop(self) -> JoinHandle<std::io::Result<()>> {
        let _ = self.stop.send(());
        self.done
    }
}
