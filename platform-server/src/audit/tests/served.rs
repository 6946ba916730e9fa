//! Requests of real clients that go away, and requests that take too long.

use super::*;

/// Sends the scopes of requests to a test.
#[derive(Clone)]
struct Scopes<S> {
    service: S,
    sender: mpsc::UnboundedSender<Arc<RequestScope>>,
}

impl<S, B> Service<Request<B>> for Scopes<S>
where
    S: Service<Request<B>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (sender, answer) = (self.sender.clone(), self.service.call(request));
        Box::pin(async move {
            sender.send(RequestScope::current().unwrap()).unwrap();
            answer.await
        })
    }
}

/// A server on a port.
struct Served {
    fixture: Fixture,
    address: std::net::SocketAddr,
    scopes: mpsc::UnboundedReceiver<Arc<RequestScope>>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Served {
    async fn start(limits: Limits) -> Self {
        let fixture = Fixture::new(limits.clone()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, scopes) = mpsc::unbounded_channel();
        let service = Scopes { service: fixture.service(), sender };
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(async move {
            serve(listener, service, &limits, async { drop(stopped.await) }).await.unwrap();
        });
        Self { fixture, address, scopes, stop, server }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Writes a request on a new connection over HTTP/1.1.
    async fn send(&self, method: &str, path: &str, body: &Value) -> TcpStream {
        let (mut stream, body) = (self.connect().await, body.to_string());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {OPERATOR}\r\ncontent-length: {}\r\n\r\n",
            body.len() + 1
        );
        stream.write_all(format!("{head}{body}\n").as_bytes()).await.unwrap();
        stream
    }

    async fn http2(&self) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
        let io = TokioIo::new(self.connect().await);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    fn create(number: usize) -> (String, Value) {
        (format!("/registry/v2/repos/{ORG}"), json!({ "name": format!("repo-{number}") }))
    }

    /// Waits until the server knows that the client of the next request has gone.
    async fn abandoned(&mut self) {
        let scope = self.scopes.recv().await.unwrap();
        while !scope.is_abandoned() {
            yield_now().await;
        }
    }

    /// Answers the commits that were held back, waits for the event of the change and for its entry, compares them, and
    /// returns the entry.
    async fn entry(&mut self, has_event: bool) -> Value {
        self.fixture.store.open();
        // A request has ended once nothing holds its scope.
        while self.scopes.try_recv().is_ok() {}
        loop {
            let entries = self.fixture.entries();
            if let Some(entry) = entries.last() {
                let compared = self.fixture.compare(has_event);
                assert_eq!(compared, Ok(1), "{entries:?}");
                return entry.clone();
            }
            yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_change_has_an_entry_with_its_outcome_when_the_client_goes_away_or_the_request_takes_too_long() {
    let limits = Limits { request_time: Duration::from_millis(200), ..Limits::default() };
    let patient = Limits { drain_time: Duration::from_millis(1), ..Limits::default() };

    // The client closes its connection.
    let mut served = Served::start(patient.clone()).await;
    served.fixture.store.close();
    let (path, body) = Served::create(1);
    let stream = served.send("POST", &path, &body).await;
    served.fixture.store.arrived().await;
    drop(stream);
    served.abandoned().await;
    let entry = served.entry(true).await;
    assert_eq!((&entry["code"], &entry["clientGone"]), (&json!("OK"), &json!(true)), "{entry}");

    // The client resets its stream.
    served.fixture.store.close();
    let mut sender = served.http2().await;
    let call = grpc(
        "/chainguard.platform.registry.v2.ReposService/CreateRepo",
        &[ORG.as_bytes(), &message(&[b"", b"repo-2"])],
    );
    let call = tokio::spawn(sender.send_request(call));
    served.fixture.store.arrived().await;
    call.abort();
    served.abandoned().await;
    let entry = served.entry(true).await;
    assert_eq!((&entry["code"], &entry["clientGone"]), (&json!("OK"), &json!(true)), "{entry}");
    assert_eq!(entry["method"], "ReposService.CreateRepo");

    // The deadline of a call passes.
    served.fixture.store.close();
    let mut call = grpc(
        "/chainguard.platform.registry.v2.ReposService/CreateRepo",
        &[ORG.as_bytes(), &message(&[b"", b"repo-3"])],
    );
    call.headers_mut().insert("grpc-timeout", "50m".parse().unwrap());
    let reply = sender.send_request(call).await.unwrap();
    assert_eq!(reply.headers()["grpc-status"], "4");
    let entry = served.entry(true).await;
    assert_eq!((&entry["code"], entry.get("clientGone")), (&json!("DEADLINE_EXCEEDED"), None), "{entry}");

    // The server stops before the client has an answer.
    served.fixture.store.close();
    let (path, body) = Served::create(4);
    let _stream = served.send("POST", &path, &body).await;
    served.fixture.store.arrived().await;
    let (stop, _) = oneshot::channel();
    std::mem::replace(&mut served.stop, stop).send(()).unwrap();
    served.abandoned().await;
    let entry = served.entry(true).await;
    assert_eq!((&entry["code"], &entry["clientGone"]), (&json!("OK"), &json!(true)), "{entry}");
    served.server.await.unwrap();

    // The request limit passes.
    let mut served = Served::start(limits).await;
    served.fixture.store.close();
    let (path, body) = Served::create(5);
    let mut stream = served.send("POST", &path, &body).await;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 504");
    let entry = served.entry(true).await;
    assert_eq!((&entry["code"], entry.get("clientGone")), (&json!("DEADLINE_EXCEEDED"), None), "{entry}");
    assert_eq!(entry["changed"][0]["put"][0], "Repo");
}

#[tokio::test]
async fn the_entries_of_an_import_name_its_group_and_what_each_batch_has_changed() {
    let mut served = Served::start(Limits::default()).await;
    let path = format!("/import/advisories?parent={ORG}");
    let advisory = |number: usize| {
        let mut advisory = serde_json::to_value(Advisory::example()).unwrap();
        advisory["advisoryId"] = format!("CGA-{number:04}-2222-2222").into();
        advisory
    };
    // Its client closes its connection.
    served.fixture.store.close();
    let stream = served.send("POST", &path, &advisory(1)).await;
    served.fixture.store.arrived().await;
    drop(stream);
    served.abandoned().await;
    let entry = served.entry(false).await;
    assert_eq!((&entry["group"], &entry["code"]), (&json!(ORG), &json!("OK")), "{entry}");
    assert_eq!(entry["identity"], OPERATOR);
    let changed = entry["changed"].as_array().unwrap();
    assert!(changed.iter().any(|changed| changed["put"][1].as_str().unwrap().starts_with(ORG)), "{entry}");

    // An import of three batches, each with an entry.
    let body: String = (2..203).map(|number| format!("{}\n", advisory(number))).collect();
    let mut sender = served.http2().await;
    let response = sender.send_request(rest_with("POST", &path, body)).await.unwrap();
    assert_eq!(response.status(), 200);
    let lines = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 3);
    let entries = served.fixture.entries();
    assert_eq!(entries.iter().map(number_changed).collect::<Vec<_>>(), [100, 100, 1], "{entries:?}");
    assert!(entries.iter().all(|entry| entry["group"] == ORG && entry["requestId"] == entries[0]["requestId"]));
    assert_eq!(served.fixture.compare(false), Ok(3));

    // A removal.
    let response = sender.send_request(rest("DELETE", &path, &Value::Null)).await.unwrap();
    assert_eq!(response.status(), 200);
    let entries = served.fixture.entries();
    assert_eq!(entries.iter().map(number_changed).sum::<u64>(), 202, "{entries:?}");
    assert_eq!((&entries[0]["group"], entries.len()), (&json!(ORG), 1));
    assert_eq!(entries[0]["changed"][0]["deleted"][0], "Advisory");
}

/// Returns the number of records of a kind that an entry says were changed.
fn number_changed(entry: &Value) -> u64 {
    entry["changed"].as_array().unwrap().len() as u64 + entry["moreChanged"].as_u64().unwrap_or_default()
}
