//! Browser sign-ins, with a stand-in for the identity provider.

mod attacks;
mod failures;
mod user_info;

use std::{collections::HashMap, sync::Arc};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{PrivateKey, UnparsedPublicKey, X25519, agree},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use form_urlencoded::parse;
use http::{Request, Response};
use parking_lot::Mutex;
use platform_core::{
    iam::Iam,
    resources::iam::{
        ExternalGroupRoleMapping, Group, GroupInvite, IdentityProvider, OrgKind, person_uid, provider_person_uid, role,
    },
    tokens::{
        Failure, Finished, HeadlessSession, ProviderResponse, RawToken, Redemption, SignIn, SignInService, TokenService,
    },
};
use platform_engine::{
    error::{Code, Error, Result},
    seal::Secret,
    store::{Query, Scope, Store},
    uid::Uid,
};
use platform_keys::{Algorithm, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    common::{API, NOW, OWN, TRUSTED, decode, encode, key},
    fixture::{Fixture, VIEWER, claims_of, token},
};

const TENANT: &str = "https://sign-in.tenant.example";
pub const CALLBACK: (&str, &str) = ("redirect", "http://localhost:8123/callback?token=true&error=true");

/// The data that a provider keeps for a code.
#[derive(Clone)]
struct Grant {
    issuer: &'static str,
    client: String,
    redirect_uri: String,
    challenge: String,
    id_token: String,
}

/// Identity providers that sign persons in without asking. They check codes, clients, redirects and PKCE.
#[derive(Default)]
struct Providers {
    codes: HashMap<String, Grant>,
    /// The `authorization` headers and forms of exchanged codes.
    exchanged: Vec<(String, HashMap<String, String>)>,
    /// Whether codes are exchanged without the check of PKCE.
    ignore_pkce: bool,
    /// The status and the body of the UserInfo endpoint; without it there are no access tokens.
    user_info: Option<(u16, String)>,
    /// The `authorization` headers of requests to the UserInfo endpoint.
    asked: Vec<String>,
}

impl Providers {
    fn exchange(&mut self, request: &Request<Bytes>) -> Response<Bytes> {
        if request.uri().path() == "/userinfo" {
            self.asked.push(request.headers()["authorization"].to_str().unwrap().to_owned());
            let (status, body) = self.user_info.clone().unwrap();
            return Response::builder().status(status).body(body.into()).unwrap();
        }
        let form: HashMap<String, String> = parse(request.body()).into_owned().collect();
        let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let challenge = encode(Sha256::digest(form.get("code_verifier").cloned().unwrap_or_default()));
        let grant = self.codes.remove(&form["code"]);
        self.exchanged.push((authorization.clone().unwrap_or_default(), form.clone()));
        let basic = authorization.map(|value| {
            let pair = STANDARD.decode(value.strip_prefix("Basic ").unwrap()).unwrap();
            // Both parts are encoded as in a form (RFC 6749 section 2.3.1).
            parse(pair.split(|byte| *byte == b':').next().unwrap()).next().unwrap().0.into_owned()
        });
        let client = basic.or_else(|| form.get("client_id").cloned()).unwrap_or_default();
        let is_valid = |grant: &Grant| {
            request.uri().to_string() == format!("{}/token", grant.issuer)
                && form["grant_type"] == "authorization_code"
                && form["redirect_uri"] == grant.redirect_uri
                && client == grant.client
                && (self.ignore_pkce || challenge == grant.challenge)
        };
        match grant.filter(is_valid) {
            Some(grant) => {
                let mut answer = json!({ "id_token": grant.id_token, "token_type": "Bearer" });
                if self.user_info.is_some() {
                    answer["access_token"] = json!("access");
                }
                // A member that means nothing here, twice.
                Response::new(answer.to_string().replacen('{', r#"{"x":1,"x":2,"#, 1).into())
            }
            None => Response::builder().status(400).body(r#"{"error":"invalid_grant"}"#.into()).unwrap(),
        }
    }
}

/// A fixture with the operator's provider, and an organization with a provider of its own.
pub struct Setting {
    pub fixture: Fixture,
    providers: Arc<Mutex<Providers>>,
    org: Uid,
    tenant: Uid,
    tenant_key: SigningKey,
}

/// A browser that was sent to a provider, with the parameters of the authorization request.
pub struct Sent {
    pub browser: String,
    parameters: HashMap<String, String>,
}

impl Setting {
    pub async fn new() -> Self {
        Self::with(json!({ "pkceEnabled": true, "groupsClaim": "roles" })).await
    }

    async fn with(oidc: Value) -> Self {
        let fixture = Fixture::new().await;
        let mut configured = json!({ "issuer": TENANT, "clientId": "tenant client" });
        configured.as_object_mut().unwrap().extend(oidc.as_object().unwrap().clone());
        let provider = json!({ "name": "sign-in", "defaultRole": VIEWER, "oidc": configured });
        let provider: IdentityProvider = serde_json::from_value(provider).unwrap();
        let org = fixture.group("", "tenant").await;
        let tenant = fixture.platform.create(&fixture.operator, &org, &provider).await.unwrap().uid;
        let tenant_key = key(Algorithm::Es256);
        fixture.publish(TENANT, &[tenant_key.verifying()]);
        fixture.publish(TRUSTED, &[fixture.key.verifying()]);
        let providers = Arc::<Mutex<Providers>>::default();
        let answering = Arc::clone(&providers);
        fixture.stub.respond_to(move |request| answering.lock().exchange(request));
        let setting = Self { fixture, providers, org, tenant, tenant_key };
        setting.publish(TENANT, json!({}));
        setting.publish(TRUSTED, json!({}));
        setting
    }

    /// Publishes the discovery document of a provider, with changes.
    fn publish(&self, issuer: &str, changes: Value) {
        let mut document = json!({
            "issuer": issuer,
            "jwks_uri": format!("{issuer}/keys"),
            "authorization_endpoint": format!("{issuer}/auth?tenant=1"),
            "token_endpoint": format!("{issuer}/token"),
            "userinfo_endpoint": format!("{issuer}/userinfo"),
        });
        document.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        self.fixture.stub.respond(&format!("{issuer}/.well-known/openid-configuration"), Ok(document.to_string()));
    }

    pub async fn begin(&self, query: &[(&str, &str)]) -> Result<Sent> {
        let pairs: Vec<_> = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let begun = self.fixture.sts.begin(SignIn::read(&pairs)?, Box::new(())).await?;
        let (_, query) = begun.url.expose().split_once('?').unwrap();
        let parameters = parse(query.as_bytes()).into_owned().collect();
        Ok(Sent { browser: begun.browser.expose().to_owned(), parameters })
    }

    /// Signs a person in at the provider that the browser was sent to, and returns the code.
    pub fn authorize(&self, sent: &Sent, claims: Value) -> String {
        let asked = &sent.parameters;
        let (issuer, key) = match asked["client_id"].as_str() {
            "server" => (TRUSTED, &self.fixture.key),
            _ => (TENANT, &self.tenant_key),
        };
        let mut all = json!({ "iss": issuer, "aud": asked["client_id"], "nonce": asked["nonce"], "exp": NOW + 1200 });
        all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        let grant = Grant {
            issuer,
            client: asked["client_id"].clone(),
            redirect_uri: asked["redirect_uri"].clone(),
            challenge: asked["code_challenge"].clone(),
            id_token: token(key, all),
        };
        let code = format!("code {}", self.providers.lock().codes.len());
        self.providers.lock().codes.insert(code.clone(), grant);
        code
    }

    /// Returns the provider's response to this authorization request.
    pub fn response(&self, sent: &Sent, code: &str) -> ProviderResponse {
        let callback = format!("{OWN}/oauth/callback");
        let provider = sent.parameters["redirect_uri"].strip_prefix(&callback).unwrap().trim_start_matches('/');
        ProviderResponse {
            provider: Uid::parse(provider).ok(),
            state: Secret::new(sent.parameters["state"].as_str()),
            code: Some(Secret::new(code)),
            ..ProviderResponse::default()
        }
    }

    pub async fn complete(&self, response: ProviderResponse, browser: &str) -> Result<String, Failure> {
        let browser = self.fixture.sts.complete(response, browser, Box::new(())).await?;
        Ok(browser.expose().to_owned())
    }

    /// Signs a person in, up to the confirmation. Returns the browser.
    pub async fn up_to_confirmation(&self, query: &[(&str, &str)], claims: Value) -> Result<String, Failure> {
        let sent = self.begin(query).await?;
        let code = self.authorize(&sent, claims);
        self.complete(self.response(&sent, &code), &sent.browser).await
    }

    /// Confirms the sign-in of a browser.
    pub async fn allow(&self, browser: &str) -> Result<Finished, Failure> {
        let asked = self.fixture.sts.confirmation(browser).await?;
        self.fixture.sts.confirm(browser, asked.form_token.expose(), true).await
    }

    async fn sign_in(&self, query: &[(&str, &str)], claims: Value) -> Result<RawToken, Failure> {
        let browser = self.up_to_confirmation(query, claims).await?;
        match self.allow(&browser).await? {
            Finished::Tokens(callback, tokens) => {
                assert_eq!(callback.origin(), "http://localhost:8123");
                Ok(*tokens)
            }
            other => panic!("{other:?}"),
        }
    }

    pub async fn headless(&self, code: &str) -> Result<HeadlessSession> {
        self.fixture.sts.headless_session(code).await
    }
}

/// Returns the code of a failure, and whether it is reported to the program.
#[track_caller]
fn failure<T: std::fmt::Debug>(result: Result<T, Failure>) -> (Code, bool) {
    let failure = result.unwrap_err();
    (failure.error.code(), failure.target.is_some())
}

#[track_caller]
fn code_of<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code()
}

#[tokio::test]
async fn the_authorization_request_has_state_nonce_and_pkce() {
    let setting = Setting::new().await;
    let sent = setting.begin(&[CALLBACK, ("connection", "github"), ("screen_hint", "signup")]).await.unwrap();
    let asked = &sent.parameters;
    for (name, value) in [
        ("tenant", "1"),
        ("response_type", "code"),
        ("client_id", "server"),
        ("redirect_uri", "http://localhost:8080/oauth/callback"),
        ("scope", "openid email profile"),
        ("code_challenge_method", "S256"),
        ("connection", "github"),
        ("screen_hint", "signup"),
    ] {
        assert_eq!(asked[name], value, "{name}");
    }
    let again = setting.begin(&[CALLBACK]).await.unwrap();
    for name in ["state", "nonce", "code_challenge"] {
        assert_eq!(asked[name].len(), 43, "{name}");
        assert_ne!(asked[name], again.parameters[name], "{name}");
    }
    assert_ne!(sent.browser, again.browser);
    let tenant = setting.begin(&[CALLBACK, ("idp_id", &setting.tenant)]).await.unwrap().parameters;
    assert_eq!(tenant["client_id"], "tenant client");
    assert_eq!(tenant["redirect_uri"], format!("{OWN}/oauth/callback/{}", setting.tenant));
}

#[tokio::test]
async fn a_registered_person_gets_a_token_and_a_refresh_token_on_request() {
    let setting = Setting::new().await;
    let person = setting.fixture.sts.register(&setting.fixture.upstream(json!({})), &Default::default()).await.unwrap();
    setting.fixture.bind(&person.identity, VIEWER, &setting.org).await;
    let tokens = setting.sign_in(&[CALLBACK, ("skip_registration", "true")], json!({})).await.unwrap();
    let claims = claims_of(tokens.token.expose());
    assert_eq!((&claims["sub"], &claims["aud"]), (&json!(person.identity), &json!(API)));
    assert!(setting.fixture.sees(tokens.token.expose(), &setting.org).await && tokens.refresh_token.is_empty());

    let asks = [CALLBACK, ("create_refresh_token", "true"), ("audience", "https://one,https://two")];
    let tokens = setting.sign_in(&asks, json!({})).await.unwrap();
    assert_eq!(claims_of(tokens.token.expose())["aud"], json!(["https://one", "https://two"]));
    let next = setting.fixture.refresh(tokens.refresh_token.expose(), json!({ "aud": ["https://one"] })).await.unwrap();
    assert_eq!(claims_of(next.token.token.expose())["sub"], json!(person.identity));

    let folder = setting.fixture.group(&setting.org, "folder").await;
    let narrowed = setting.sign_in(&[CALLBACK, ("scope", &folder)], json!({})).await.unwrap();
    let narrowed = narrowed.token.expose();
    assert!(setting.fixture.sees(narrowed, &folder).await && !setting.fixture.sees(narrowed, &setting.org).await);
}

#[tokio::test]
async fn an_unknown_person_is_registered_unless_the_program_forbids_it() {
    let setting = Setting::new().await;
    let person = person_uid(TRUSTED, "bob");
    let is_registered = async || Iam::of(&setting.fixture.platform).identity(&person).await.unwrap().is_some();
    let claims = json!({ "sub": "bob", "name": "Bob", "email": "bob@example.com", "email_verified": true });
    let skip = [CALLBACK, ("skip_registration", "true")];
    assert_eq!(failure(setting.sign_in(&skip, claims.clone()).await), (Code::NotFound, true));
    assert!(!is_registered().await);

    let browser = setting.up_to_confirmation(&[CALLBACK], claims.clone()).await.unwrap();
    let asked = setting.fixture.sts.confirmation(&browser).await.unwrap();
    assert_eq!((asked.name.as_str(), &asked.person, asked.issuer.as_str()), ("Bob", &person, TRUSTED));
    assert!(!asked.registered && !is_registered().await, "nothing happens before the confirmation");
    let refused = setting.fixture.sts.confirm(&browser, asked.form_token.expose(), false).await;
    assert_eq!(failure(refused), (Code::PermissionDenied, true));
    assert!(!is_registered().await);

    setting.sign_in(&[CALLBACK], claims).await.unwrap();
    let identity = Iam::of(&setting.fixture.platform).identity(&person).await.unwrap().unwrap();
    assert_eq!((identity.name.as_str(), identity.email.as_str()), ("Bob", "bob@example.com"));
}

#[tokio::test]
async fn an_invite_is_redeemed_at_the_sign_in() {
    let setting = Setting::new().await;
    let invite: GroupInvite = serde_json::from_value(json!({ "roleUid": VIEWER, "ttl": "3600s" })).unwrap();
    let invite = setting.fixture.platform.create(&setting.fixture.operator, &setting.org, &invite).await.unwrap();
    let query = [CALLBACK, ("invite", invite.code.expose())];
    let tokens = setting.sign_in(&query, json!({ "sub": "carol" })).await.unwrap();
    assert!(setting.fixture.sees(tokens.token.expose(), &setting.org).await);
    let wrong = setting.sign_in(&[CALLBACK, ("invite", "wrong")], json!({ "sub": "dave" })).await;
    assert_eq!(failure(wrong), (Code::InvalidArgument, true));
    assert!(Iam::of(&setting.fixture.platform).identity(&person_uid(TRUSTED, "dave")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_person_of_an_organizations_provider_has_its_role_and_the_mapped_roles() {
    let setting = Setting::new().await;
    let mapping = ExternalGroupRoleMapping {
        external_group_id: "ops".to_owned(),
        role_uid: role::built_in_uid("editor").unwrap(),
        scope: setting.org.clone(),
        ..ExternalGroupRoleMapping::default()
    };
    setting.fixture.platform.create(&setting.fixture.operator, &setting.tenant, &mapping).await.unwrap();
    let query = [CALLBACK, ("idp_id", setting.tenant.as_str()), ("create_refresh_token", "true")];
    let create = async |tokens: &RawToken, name: &str| {
        let caller = setting.fixture.caller(tokens.token.expose()).await;
        let repo = platform_core::resources::registry::Repo { name: name.to_owned(), ..Default::default() };
        setting.fixture.platform.create(&caller, &setting.org, &repo).await.map(drop).map_err(|error| error.code())
    };
    let viewer = setting.sign_in(&query, json!({ "roles": ["devs"] })).await.unwrap();
    let person = provider_person_uid(&setting.tenant, TENANT, "alice");
    assert_eq!(claims_of(viewer.token.expose())["sub"], json!(person));
    assert!(viewer.refresh_token.is_empty(), "groups are as fresh as the sign-in");
    assert!(setting.fixture.sees(viewer.token.expose(), &setting.org).await);
    assert_eq!(create(&viewer, "one").await, Err(Code::PermissionDenied));
    let editor = setting.sign_in(&query, json!({ "roles": ["ops"] })).await.unwrap();
    assert_eq!(create(&editor, "two").await, Ok(()));
}

#[tokio::test]
async fn the_name_of_a_verified_organization_leads_to_its_only_provider() {
    let setting = Setting::new().await;
    let query = [CALLBACK, ("idp_id", "tenant")];
    assert_eq!(code_of(setting.begin(&query).await.map(drop)), Code::NotFound);
    assert!(!setting.fixture.sts.has_verified_organization("tenant").await.unwrap());
    let mut group = setting.fixture.platform.get::<Group>(&setting.fixture.operator, &setting.org).await.unwrap();
    (group.verified, group.kind) = (true, OrgKind::OrgKindCustomer);
    setting.fixture.platform.update(&setting.fixture.operator, &setting.org, &group, "verified,kind").await.unwrap();
    assert!(setting.fixture.sts.has_verified_organization("tenant").await.unwrap());
    assert_eq!(setting.begin(&query).await.unwrap().parameters["client_id"], "tenant client");
    let mut second =
        setting.fixture.platform.get::<IdentityProvider>(&setting.fixture.operator, &setting.tenant).await.unwrap();
    second.name = "second".to_owned();
    setting.fixture.platform.create(&setting.fixture.operator, &setting.org, &second).await.unwrap();
    assert_eq!(code_of(setting.begin(&query).await.map(drop)), Code::NotFound);
    for unknown in [format!("{}/ffffffffffffffff", setting.org), setting.org.to_string(), "nobody".to_owned()] {
        assert_eq!(code_of(setting.begin(&[CALLBACK, ("idp_id", &unknown)]).await.map(drop)), Code::NotFound);
    }
}

#[tokio::test]
async fn the_token_can_be_that_of_an_identity_that_the_person_may_assume() {
    let setting = Setting::new().await;
    let person = person_uid(TRUSTED, "alice");
    let of_alice = json!({ "claimMatch": { "issuer": OWN, "subject": person } });
    let allowed = setting.fixture.identity(&setting.org, of_alice).await;
    let of_bob = json!({ "claimMatch": { "issuer": OWN, "subject": person_uid(TRUSTED, "bob") } });
    let denied = setting.fixture.identity(&setting.org, of_bob).await;
    let query = [CALLBACK, ("identity", allowed.as_str()), ("create_refresh_token", "true")];
    let tokens = setting.sign_in(&query, json!({})).await.unwrap();
    let claims = claims_of(tokens.token.expose());
    assert_eq!((&claims["sub"], &claims["act"]["sub"]), (&json!(allowed), &json!(person)));
    assert!(tokens.refresh_token.is_empty());
    assert_eq!(
        failure(setting.sign_in(&[CALLBACK, ("identity", &denied)], json!({})).await),
        (Code::Unauthenticated, true)
    );
    setting.sign_in(&[CALLBACK, ("identity", &person)], json!({})).await.unwrap();
}

#[tokio::test]
async fn the_client_secret_is_sent_as_the_provider_accepts_it() {
    let basic = |id: &str, secret: &str| format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
    let setting = Setting::new().await;
    setting.sign_in(&[CALLBACK], json!({})).await.unwrap();
    let (authorization, form) = setting.providers.lock().exchanged.pop().unwrap();
    assert_eq!(authorization, basic("server", "server+secret"));
    assert!(!form.contains_key("client_id") && !form.contains_key("client_secret"));

    let setting = Setting::with(json!({ "clientSecret": "hush" })).await;
    setting.publish(TENANT, json!({ "token_endpoint_auth_methods_supported": ["client_secret_post"] }));
    setting.sign_in(&[CALLBACK, ("idp_id", &setting.tenant)], json!({})).await.unwrap();
    let (authorization, form) = setting.providers.lock().exchanged.pop().unwrap();
    assert_eq!(
        (authorization.as_str(), form["client_id"].as_str(), form["client_secret"].as_str()),
        ("", "tenant client", "hush")
    );

    // A header is in fewer logs than a form.
    let setting = Setting::with(json!({ "clientSecret": "hush" })).await;
    let both = ["client_secret_post", "client_secret_basic"];
    setting.publish(TENANT, json!({ "token_endpoint_auth_methods_supported": both }));
    setting.sign_in(&[CALLBACK, ("idp_id", &setting.tenant)], json!({})).await.unwrap();
    let (authorization, form) = setting.providers.lock().exchanged.pop().unwrap();
    assert_eq!((authorization, form.contains_key("client_secret")), (basic("tenant+client", "hush"), false));

    let setting = Setting::new().await;
    setting.sign_in(&[CALLBACK, ("idp_id", &setting.tenant)], json!({})).await.unwrap();
    let (authorization, form) = setting.providers.lock().exchanged.pop().unwrap();
    assert_eq!((authorization.as_str(), form["client_id"].as_str()), ("", "tenant client"));
    assert!(!form.contains_key("client_secret"));
}

#[tokio::test]
async fn a_provider_without_allowed_endpoints_has_no_sign_in() {
    for (changes, code) in [
        (json!({ "authorization_endpoint": null }), Code::NotFound),
        (json!({ "authorization_endpoint": "http://sign-in.tenant.example/auth" }), Code::NotFound),
        (json!({ "authorization_endpoint": "javascript:alert(1)" }), Code::NotFound),
        (json!({ "issuer": TRUSTED }), Code::FailedPrecondition),
    ] {
        let setting = Setting::new().await;
        setting.publish(TENANT, changes.clone());
        let begun = setting.begin(&[CALLBACK, ("idp_id", &setting.tenant)]).await;
        assert_eq!(code_of(begun.map(drop)), code, "{changes}");
    }
    let setting = Setting::new().await;
    setting.publish(TENANT, json!({ "token_endpoint": "http://169.254.169.254/token" }));
    let completed = setting.up_to_confirmation(&[CALLBACK, ("idp_id", &setting.tenant)], json!({})).await;
    assert_eq!(failure(completed), (Code::FailedPrecondition, true));
    assert!(setting.providers.lock().exchanged.is_empty());
}

/// A headless client: its private key and its code.
pub fn client() -> (PrivateKey, String) {
    let key = PrivateKey::generate(&X25519).unwrap();
    let code = encode(key.compute_public_key().unwrap());
    (key, code)
}

fn decrypt(session: &HeadlessSession, key: &PrivateKey) -> Result<String> {
    let public = decode(std::str::from_utf8(&session.ecdh_public_key).unwrap());
    let (nonce, encrypted) = session.encrypted_idtoken.split_at(NONCE_LEN);
    let failed = || Error::internal("cannot decrypt");
    agree(key, UnparsedPublicKey::new(&X25519, public), failed(), |shared| {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, shared).map_err(|_| failed())?);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| failed())?;
        let mut text = encrypted.to_vec();
        let text = key.open_in_place(nonce, Aad::empty(), &mut text).map_err(|_| failed())?;
        Ok(String::from_utf8(text.to_vec()).unwrap())
    })
}

#[tokio::test]
async fn a_program_with_a_challenge_gets_a_code_and_redeems_it_once_with_its_verifier() {
    let setting = Setting::new().await;
    let verifier = encode([7; 32]);
    let challenge = encode(Sha256::digest(&verifier));
    let query = [("state", "mine"), ("code_challenge", &challenge), ("code_challenge_method", "S256")];
    let query = [&[("redirect", "http://localhost:8123/callback")], &query[..]].concat();
    let browser = setting.up_to_confirmation(&query, json!({})).await.unwrap();
    let Ok(Finished::Code(callback, code)) = setting.allow(&browser).await else { panic!("no code") };
    assert_eq!((callback.origin().as_str(), callback.state()), ("http://localhost:8123", "mine"));
    let redeem_for = async |code: &str, verifier: &str, audiences: &[&str]| {
        let (code, verifier) = (Secret::new(code), Secret::new(verifier));
        let audiences = audiences.iter().map(|&audience| audience.to_owned()).collect();
        setting.fixture.sts.redeem(&Redemption { code, verifier, redirect_uri: None, client: None, audiences }).await
    };
    let redeem = async |code: &str, verifier: &str| redeem_for(code, verifier, &[]).await;
    for (code, verifier) in
        [(code.expose(), encode([8; 32]).as_str()), (code.expose(), ""), ("other", verifier.as_str())]
    {
        assert_eq!(code_of(redeem(code, verifier).await), Code::Unauthenticated);
    }
    for audiences in [&["https://other.example"][..], &[API, "https://other.example"]] {
        let refused = redeem_for(code.expose(), &verifier, audiences).await.unwrap_err();
        assert_eq!((refused.code(), &*refused.violations()[0].field), (Code::InvalidArgument, "audience"));
    }
    let tokens = redeem_for(code.expose(), &verifier, &[API]).await.unwrap();
    assert_eq!(claims_of(tokens.token.expose())["aud"], json!(API));
    assert_eq!(claims_of(tokens.token.expose())["sub"], json!(person_uid(TRUSTED, "alice")));
    assert_eq!(code_of(redeem(code.expose(), &verifier).await), Code::Unauthenticated, "redeemed");
}

#[tokio::test]
async fn a_headless_client_alone_can_decrypt_its_token_and_reads_it_once() {
    let setting = Setting::new().await;
    let (key, code) = client();
    let browser = setting.up_to_confirmation(&[("headless_code", &code)], json!({})).await.unwrap();
    assert_eq!(code_of(setting.headless(&code).await), Code::NotFound, "not confirmed yet");
    assert!(matches!(setting.allow(&browser).await, Ok(Finished::Headless)));
    let session = setting.headless(&code).await.unwrap();
    assert_eq!(code_of(setting.headless(&code).await), Code::NotFound, "read once");
    assert!(decrypt(&session, &client().0).is_err());
    let token = decrypt(&session, &key).unwrap();
    assert_eq!(claims_of(&token)["sub"], json!(person_uid(TRUSTED, "alice")));
    setting.fixture.caller(&token).await;
    assert_eq!(code_of(setting.headless("x").await), Code::InvalidArgument);
    assert_eq!(code_of(setting.headless(&client().1).await), Code::NotFound);
}

#[tokio::test]
async fn a_headless_sign_in_stores_no_refresh_token_which_nobody_gets() {
    let setting = Setting::new().await;
    let (_, code) = client();
    let query = [("headless_code", code.as_str()), ("create_refresh_token", "true")];
    let browser = setting.up_to_confirmation(&query, json!({})).await.unwrap();
    setting.allow(&browser).await.unwrap();
    let page = setting.fixture.store.list(&Query::new("SignIn", Scope::All)).await.unwrap();
    assert!(page.items.is_empty());
}

#[tokio::test]
async fn a_headless_session_lives_ten_minutes_and_is_not_replaced() {
    let setting = Setting::new().await;
    let (key, code) = client();
    let confirm = async |claims: Value| {
        let browser = setting.up_to_confirmation(&[("headless_code", &code)], claims).await.unwrap();
        setting.allow(&browser).await
    };
    confirm(json!({})).await.unwrap();
    assert_eq!(failure(confirm(json!({ "sub": "mallory" })).await), (Code::AlreadyExists, true));
    let session = setting.headless(&code).await.unwrap();
    assert_eq!(claims_of(&decrypt(&session, &key).unwrap())["sub"], json!(person_uid(TRUSTED, "alice")));
    confirm(json!({})).await.unwrap();
    setting.fixture.clock.advance(600_000);
    assert_eq!(code_of(setting.headless(&code).await), Code::NotFound);
}

#[tokio::test]
async fn a_code_that_gives_no_secret_is_rejected() {
    let setting = Setting::new().await;
    // A point of low order, with which every shared secret is zero.
    let claims = json!({ "sub": "carol" });
    let browser = setting.up_to_confirmation(&[("headless_code", &encode([0; 32]))], claims).await.unwrap();
    assert_eq!(failure(setting.allow(&browser).await), (Code::InvalidArgument, true));
    let person = Iam::of(&setting.fixture.platform).identity(&person_uid(TRUSTED, "carol")).await.unwrap();
    assert!(person.is_none(), "rejected before the person is registered");
}

#[tokio::test]
async fn what_is_held_is_released_when_a_sign_in_ends_or_expires() {
    let setting = Setting::new().await;
    let held = Arc::new(());
    let count = || Arc::strong_count(&held) - 1;
    let request = || SignIn::read(&[("redirect".to_owned(), "http://localhost:1/callback".to_owned())]).unwrap();
    for _ in 0..3 {
        setting.fixture.sts.begin(request(), Box::new(Arc::clone(&held))).await.unwrap();
    }
    assert_eq!(count(), 3);
    // Others wait for the person, for the program that redeems the code, and for the one that reads the session.
    let (challenge, headless) = (encode(Sha256::digest("verifier")), client().1);
    let code = [CALLBACK, ("code_challenge", &challenge), ("code_challenge_method", "S256")];
    for (query, is_confirmed) in [(&[CALLBACK][..], false), (&code, true), (&[("headless_code", &headless)], true)] {
        let sent = setting.begin(query).await.unwrap();
        let response = setting.response(&sent, &setting.authorize(&sent, json!({})));
        let completed = setting.fixture.sts.complete(response, &sent.browser, Box::new(Arc::clone(&held))).await;
        if is_confirmed {
            setting.allow(completed.unwrap().expose()).await.unwrap();
        }
    }
    assert_eq!(count(), 6);
    setting.fixture.clock.advance(600_000);
    setting.fixture.sts.forget_expired();
    assert_eq!(count(), 0);
}
