//! Attacks on browser sign-ins, and the checks that stop them.

use std::sync::Arc;

use http::Response;
use platform_core::tokens::{ProviderResponse, SignInService};
use platform_engine::{error::Code, seal::Secret};
use platform_keys::Algorithm;
use serde_json::{Value, json};

use super::{CALLBACK, Setting, TENANT, code_of, failure};
use crate::{
    common::{API, NOW, TRUSTED, key},
    fixture::{claims_of, token},
};

#[tokio::test]
async fn session_fixation_a_response_counts_only_in_the_browser_that_began() {
    let setting = Setting::new().await;
    // The attacker begins a sign-in, signs in with their own account, and makes the victim's browser open the response.
    let attacker = setting.begin(&[CALLBACK]).await.unwrap();
    let code = setting.authorize(&attacker, json!({ "sub": "mallory" }));
    let victim = setting.begin(&[CALLBACK]).await.unwrap();
    for browser in [victim.browser.as_str(), "", "x"] {
        let result = setting.complete(setting.response(&attacker, &code), browser).await;
        assert_eq!(failure(result), (Code::Unauthenticated, false));
    }
    assert!(setting.providers.lock().exchanged.is_empty(), "the code was not used");
    // A cookie that an attacker knew before the sign-in does not confirm it.
    let code = setting.authorize(&victim, json!({}));
    let next = setting.complete(setting.response(&victim, &code), &victim.browser).await.unwrap();
    assert_ne!(next, victim.browser);
    assert_eq!(code_of(setting.fixture.sts.confirmation(&victim.browser).await.map(drop)), Code::Unauthenticated);
    assert_eq!(failure(setting.allow(&victim.browser).await), (Code::Unauthenticated, false));
    setting.allow(&next).await.unwrap();
}

#[tokio::test]
async fn csrf_a_confirmation_needs_the_token_of_its_form() {
    let setting = Setting::new().await;
    let browser = setting.up_to_confirmation(&[CALLBACK], json!({})).await.unwrap();
    let other = setting.up_to_confirmation(&[CALLBACK], json!({ "sub": "mallory" })).await.unwrap();
    let form_token = async |browser: &str| setting.fixture.sts.confirmation(browser).await.unwrap().form_token;
    for wrong in [Secret::default(), Secret::new("x"), form_token(&other).await] {
        let result = setting.fixture.sts.confirm(&browser, wrong.expose(), true).await;
        assert_eq!(failure(result), (Code::Unauthenticated, false));
    }
    setting.allow(&browser).await.unwrap();
    assert_eq!(failure(setting.allow(&browser).await), (Code::Unauthenticated, false), "a form counts once");
}

#[tokio::test]
async fn a_response_counts_once_and_for_ten_minutes() {
    let setting = Setting::new().await;
    let sent = setting.begin(&[CALLBACK]).await.unwrap();
    let code = setting.authorize(&sent, json!({}));
    setting.fixture.clock.advance(599_999);
    let browser = setting.complete(setting.response(&sent, &code), &sent.browser).await.unwrap();
    let again = setting.authorize(&sent, json!({}));
    let replayed = setting.complete(setting.response(&sent, &again), &sent.browser).await;
    assert_eq!(failure(replayed), (Code::Unauthenticated, false));
    let late = setting.begin(&[CALLBACK]).await.unwrap();
    setting.fixture.clock.advance(600_000);
    let code = setting.authorize(&late, json!({}));
    let expired = setting.complete(setting.response(&late, &code), &late.browser).await;
    assert_eq!(failure(expired), (Code::Unauthenticated, false));
    assert_eq!(failure(setting.allow(&browser).await), (Code::Unauthenticated, false));
}

#[tokio::test]
async fn mix_up_a_code_is_never_sent_to_another_provider() {
    let setting = Setting::new().await;
    // The attacker's provider sends the browser on to the honest one, which answers at its own callback.
    let sent = setting.begin(&[CALLBACK, ("idp_id", &setting.tenant)]).await.unwrap();
    let code = setting.authorize(&sent, json!({}));
    let honest = ProviderResponse { provider: None, ..setting.response(&sent, &code) };
    assert_eq!(failure(setting.complete(honest, &sent.browser).await), (Code::Unauthenticated, false));
    // The honest provider names itself.
    let sent = setting.begin(&[CALLBACK, ("idp_id", &setting.tenant)]).await.unwrap();
    let named = ProviderResponse { issuer: Some(TRUSTED.to_owned()), ..setting.response(&sent, &code) };
    assert_eq!(failure(setting.complete(named, &sent.browser).await), (Code::Unauthenticated, false));
    assert!(setting.providers.lock().exchanged.is_empty());
    let sent = setting.begin(&[CALLBACK, ("idp_id", &setting.tenant)]).await.unwrap();
    let code = setting.authorize(&sent, json!({}));
    let right = ProviderResponse { issuer: Some(TENANT.to_owned()), ..setting.response(&sent, &code) };
    setting.complete(right, &sent.browser).await.unwrap();
}

#[tokio::test]
async fn a_provider_that_announces_iss_must_send_it() {
    let setting = Setting::new().await;
    setting.publish(TENANT, json!({ "authorization_response_iss_parameter_supported": true }));
    let sent = setting.begin(&[CALLBACK, ("idp_id", &setting.tenant)]).await.unwrap();
    let code = setting.authorize(&sent, json!({}));
    assert_eq!(
        failure(setting.complete(setting.response(&sent, &code), &sent.browser).await),
        (Code::Unauthenticated, true)
    );
    assert!(setting.providers.lock().exchanged.is_empty());
    let sent = setting.begin(&[CALLBACK, ("idp_id", &setting.tenant)]).await.unwrap();
    let code = setting.authorize(&sent, json!({}));
    let named = ProviderResponse { issuer: Some(TENANT.to_owned()), ..setting.response(&sent, &code) };
    setting.complete(named, &sent.browser).await.unwrap();
}

#[tokio::test]
async fn a_token_of_the_provider_that_is_of_another_kind_is_no_id_token() {
    let setting = Setting::new().await;
    for (typ, is_accepted) in [("JWT", true), ("logout+jwt", false), ("secevent+jwt", false)] {
        let sent = setting.begin(&[CALLBACK]).await.unwrap();
        let code = setting.authorize(&sent, json!({}));
        {
            let codes = &mut setting.providers.lock().codes;
            let id_token = &mut codes.get_mut(&code).unwrap().id_token;
            *id_token = setting.fixture.key.sign(typ, claims_of(id_token).as_object().unwrap()).unwrap();
        }
        let completed = setting.complete(setting.response(&sent, &code), &sent.browser).await;
        assert_eq!(completed.is_ok(), is_accepted, "{typ}");
    }
}

#[tokio::test]
async fn code_injection_a_code_of_another_sign_in_is_rejected() {
    for ignore_pkce in [false, true] {
        let setting = Setting::new().await;
        setting.providers.lock().ignore_pkce = ignore_pkce;
        // The attacker stole the victim's code and uses it in their own sign-in.
        let victim = setting.begin(&[CALLBACK]).await.unwrap();
        let stolen = setting.authorize(&victim, json!({ "sub": "victim" }));
        let attacker = setting.begin(&[CALLBACK]).await.unwrap();
        let injected = setting.complete(setting.response(&attacker, &stolen), &attacker.browser).await;
        assert_eq!(failure(injected), (Code::Unauthenticated, true), "PKCE ignored: {ignore_pkce}");
    }
}

#[tokio::test]
async fn an_id_token_must_be_for_this_client_and_this_sign_in() {
    let setting = Setting::new().await;
    for (claims, accepted) in [
        (json!({}), true),
        (json!({ "azp": "server" }), true),
        (json!({ "aud": ["server", "another"], "azp": "server" }), true),
        (json!({ "aud": ["server", "another"] }), true),
        (json!({ "aud": ["server", "server"] }), true),
        (json!({ "aud": ["server", "another"], "azp": "another" }), false),
        (json!({ "aud": ["another", "yet another"] }), false),
        (json!({ "aud": ["server", "another"], "nonce": "x" }), false),
        (json!({ "aud": ["server"], "azp": null }), true),
        (json!({ "exp": f64::from(2_000_000_000) + 0.5, "iat": NOW as f64 - 0.25 }), true),
        (json!({ "azp": "another" }), false),
        (json!({ "azp": 1 }), false),
        (json!({ "aud": "another" }), false),
        (json!({ "aud": API }), false),
        (json!({ "nonce": null }), false),
        (json!({ "nonce": "" }), false),
        (json!({ "nonce": "x" }), false),
        (json!({ "iss": TENANT }), false),
        (json!({ "exp": NOW - 61 }), false),
        (json!({ "iat": NOW + 61 }), false),
    ] {
        let result = setting.up_to_confirmation(&[CALLBACK], claims.clone()).await;
        assert_eq!(result.is_ok(), accepted, "{claims}: {result:?}");
    }
    // A token that another issuer signed, and an id token that expires before the person confirms.
    setting.fixture.stub.respond_to({
        let (providers, other) = (Arc::clone(&setting.providers), key(Algorithm::Es256));
        move |request| {
            let answer: Value = serde_json::from_slice(providers.lock().exchange(request).body()).unwrap();
            let claims = claims_of(answer["id_token"].as_str().unwrap());
            Response::new(json!({ "id_token": token(&other, claims) }).to_string().into())
        }
    });
    assert_eq!(failure(setting.up_to_confirmation(&[CALLBACK], json!({})).await), (Code::Unauthenticated, true));
    let setting = Setting::new().await;
    let browser = setting.up_to_confirmation(&[CALLBACK], json!({ "exp": NOW + 60 })).await.unwrap();
    setting.fixture.clock.advance(120_000);
    assert_eq!(failure(setting.allow(&browser).await), (Code::Unauthenticated, true));
}
