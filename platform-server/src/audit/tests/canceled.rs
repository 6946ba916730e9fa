//! Requests that are canceled at each await in turn.

use std::collections::VecDeque;

use platform_engine::request_scope::{Shielded, Spawn};

use super::*;

/// Keeps the rests of requests until a test runs or drops them.
#[derive(Default)]
pub(super) struct Kept(Mutex<VecDeque<BoxFuture<'static, ()>>>);

impl Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

impl Spawn for Kept {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.0.lock().push_back(future);
    }
}

/// The requests that change something: a name, and the request with this number.
type NewRequest = fn(&Fixture, usize) -> Request<Full<Bytes>>;

/// With whether the changes have events.
const REQUESTS: [(&str, bool, NewRequest); 8] = [
    ("create over REST", true, |_, n| {
        rest("POST", &format!("/registry/v2/repos/{ORG}"), &json!({ "name": format!("rest-{n}") }))
    }),
    ("create with a key", true, |_, n| {
        let body = json!({ "name": format!("keyed-{n}") });
        keyed(rest("POST", &format!("/registry/v2/repos/{ORG}"), &body), &n.to_string())
    }),
    ("create over gRPC", true, |_, n| {
        let repo = message(&[b"", format!("grpc-{n}").as_bytes()]);
        grpc("/chainguard.platform.registry.v2.ReposService/CreateRepo", &[ORG.as_bytes(), &repo])
    }),
    ("create over version 1", true, |_, n| {
        rest("POST", &format!("/registry/v1/repos/{ORG}"), &json!({ "name": format!("v1-{n}") }))
    }),
    ("create by its parent's name", true, |_, n| {
        rest("POST", &format!("/iam/v2/groups/{ORG}"), &json!({ "name": format!("group-{n}") }))
    }),
    ("update", true, |_, n| {
        rest("PATCH", &format!("/iam/v2/groups/{ORG}"), &json!({ "description": format!("of request {n}") }))
    }),
    ("create and give", true, |_, n| {
        let claims = json!({ "issuer": "https://issuer.test", "subject": format!("subject-{n}") });
        rest("POST", &format!("/iam/v2/identities/{ORG}"), &json!({ "name": format!("i-{n}"), "claimMatch": claims }))
    }),
    ("a user over SCIM", false, |fixture, n| {
        let (provider, token) = &fixture.scim;
        let user = json!({
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": format!("user-{n}@example.com"),
        });
        let mut request = rest("POST", &format!("/scim/v2/{provider}/Users"), &user);
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request.headers_mut().insert("content-type", "application/scim+json".parse().unwrap());
        request
    }),
];

/// Drops a request after each number of polls in turn, until one ends before. Returns how many requests were dropped after
/// their commit and before their answer.
async fn cancel_everywhere(
    fixture: &mut Fixture,
    request: NewRequest,
    has_events: bool,
    is_carried: bool,
) -> Result<usize, String> {
    let mut carried = 0;
    for polls in 0.. {
        let kept = Arc::new(Kept::default());
        let answer = fixture.service().oneshot(request(fixture, polls));
        let mut answer = Box::pin(Shielded::request(answer, kept.clone()));
        let mut context = Context::from_waker(Waker::noop());
        let ended = (0..polls).any(|_| answer.as_mut().poll(&mut context).is_ready());
        drop(answer);
        let rests = std::mem::take(&mut *kept.0.lock());
        carried += rests.len();
        for rest in rests {
            if is_carried {
                rest.await;
            }
        }
        let changes = fixture.compare(has_events).map_err(|error| format!("after {polls} polls: {error}"))?;
        if ended {
            assert_eq!(changes, 1);
            return Ok(carried);
        }
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_canceled_at_any_await_has_one_entry_and_one_event_for_each_change() {
    let mut fixture = Fixture::new(Limits::default()).await;
    for (name, has_events, request) in REQUESTS {
        let carried = cancel_everywhere(&mut fixture, request, has_events, true).await;
        // At least before the commit, and after it.
        assert!(*carried.as_ref().unwrap_or_else(|error| panic!("{name}: {error}")) >= 2, "{name}: {carried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_check_of_canceled_requests_notices_a_server_that_does_not_carry_them_to_their_end() {
    for (name, has_events, request) in REQUESTS {
        let mut fixture = Fixture::new(Limits::default()).await;
        let noticed = cancel_everywhere(&mut fixture, request, has_events, false).await;
        assert!(noticed.is_err(), "{name}");
    }
}
