//! Providers that refuse a sign-in, or cannot complete it for now.

use http::Response;
use platform_core::tokens::{Failure, ProviderResponse, Target};
use platform_engine::error::Code;

use super::{CALLBACK, Setting, failure};

#[tokio::test]
async fn an_error_of_the_provider_is_reported_without_its_text() {
    let setting = Setting::new().await;
    let sent = setting.begin(&[CALLBACK]).await.unwrap();
    let response = ProviderResponse {
        code: None,
        error: Some(format!("access_denied<script>{}", "x".repeat(100))),
        ..setting.response(&sent, "")
    };
    let Failure { error, target } = setting.complete(response, &sent.browser).await.unwrap_err();
    assert!(matches!(target, Some(Target::Loopback(_))));
    assert!(error.message().contains("access_deniedscript") && error.message().len() < 120, "{error:?}");
}

#[tokio::test]
async fn a_provider_that_fails_for_now_does_not_look_like_one_that_refuses() {
    let setting = Setting::new().await;
    for (error, expected) in [
        ("temporarily_unavailable", Code::Unavailable),
        ("server_error", Code::Unavailable),
        ("access_denied", Code::Unauthenticated),
        ("interaction_required", Code::Unauthenticated),
    ] {
        let sent = setting.begin(&[CALLBACK]).await.unwrap();
        let error = Some(error.to_owned());
        let response = ProviderResponse { code: None, error, ..setting.response(&sent, "") };
        assert_eq!(failure(setting.complete(response, &sent.browser).await), (expected, true));
    }
    for (status, body, expected) in [
        (503, "", Code::Unavailable),
        (500, "{}", Code::Unavailable),
        (429, "{}", Code::Unavailable),
        (408, "", Code::Unavailable),
        (400, r#"{"error":"temporarily_unavailable"}"#, Code::Unavailable),
        (400, r#"{"error":"invalid_grant"}"#, Code::Unauthenticated),
        (401, r#"{"error":"invalid_client"}"#, Code::Unauthenticated),
        (200, "{}", Code::Unauthenticated),
    ] {
        setting.fixture.stub.respond_to(move |_| Response::builder().status(status).body(body.into()).unwrap());
        let sent = setting.begin(&[CALLBACK]).await.unwrap();
        let completed = setting.complete(setting.response(&sent, "code"), &sent.browser).await;
        assert_eq!(failure(completed), (expected, true), "{status} {body}");
    }
}
