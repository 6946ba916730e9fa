//! Repetitions of requests with an idempotency key.

use platform_engine::request_scope::Shielded;

use super::{canceled::Kept, *};

#[tokio::test]
async fn a_repetition_has_no_entry_of_a_change_and_no_event() {
    let mut fixture = Fixture::new(Limits::default()).await;
    let before = lines(&fixture.log_file(".failed")).len();
    let repo = message(&[b"", b"grpc"]);
    let requests: [&dyn Fn() -> Request<Full<Bytes>>; 2] =
        [&|| rest("POST", &format!("/registry/v2/repos/{ORG}"), &json!({ "name": "rest" })), &|| {
            grpc("/chainguard.platform.registry.v2.ReposService/CreateRepo", &[ORG.as_bytes(), &repo])
        }];
    for (number, request) in requests.iter().enumerate() {
        for round in 0..3 {
            let answer = fixture.service().oneshot(keyed(request(), &number.to_string()));
            let response = Shielded::request(answer, Arc::<Kept>::default()).await.unwrap();
            assert!(response.status().is_success());
            assert_eq!(response.headers().contains_key("idempotency-replayed"), round > 0);
            response.into_body().collect().await.unwrap();
            let changes = lines(&fixture.log_file("")).len();
            assert_eq!(changes, usize::from(round == 0), "round {round}");
            assert_eq!(fixture.compare(true), Ok(changes));
        }
    }
    let replayed = lines(&fixture.log_file(".failed")).split_off(before);
    assert_eq!(replayed.len(), 4);
    assert!(replayed.iter().all(|entry| entry["code"] == "OK" && entry.get("changed").is_none()), "{replayed:?}");
}
