//! Every exchange refuses a bearer that ended a moment ago, whatever ended it: all ways to use a credential, and for
//! each of them all ways to end it.

use platform_core::{
    iam::Iam,
    resources::iam::{DirectoryUser, Group, Identity, IdentityProvider, person_uid, provider_person_uid},
    tokens::TokenService,
};
use platform_engine::{
    error::{Code, Result},
    kind::{Resource, Type},
    uid::Uid,
};
use platform_keys::{Algorithm, SigningKey};
use serde_json::{Value, json};
use strum::VariantArray;

use crate::{
    aws::{Signed, caller_of_aws},
    common::{API, NOW, OWN, TRUSTED, at, key},
    exchange::static_keys,
    fixture::{Fixture, VIEWER, token},
    providers::{TENANT, Tenant, enable, tenant},
};

const ROBOTS: &str = "https://robots.example";
/// The time at which the static keys and the upstream tokens expire; the latter are accepted for another minute.
const UPSTREAM_EXPIRES: i64 = NOW + 600;
const KEYS_EXPIRE: i64 = NOW + 500;
const DAY: i64 = 24 * 3600;

/// A use of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
enum Use {
    /// A token of a tenant's issuer, exchanged for an identity of a group.
    ClaimMatch,
    /// The same, verified with the keys of the identity.
    StaticKeys,
    /// A signed request to AWS.
    Aws,
    /// A token of a trusted issuer, exchanged for the registered person.
    Person,
    /// A token of an organization's provider.
    ProviderPerson,
    /// The same, of a user whom the directory provisions.
    Provisioned,
    /// A token of this server, exchanged for the same identity.
    OwnToken,
    /// A token of this server, exchanged for an identity whose claim match names this server.
    OwnTokenForAnother,
    /// A token of this server of a provider's person, exchanged.
    OwnTokenOfProvider,
    Refresh,
    RefreshOfProvider,
    WhoAmI,
    /// A token of a trusted issuer, by which the person's name and email addresses are updated.
    Register,
    Unregister,
    /// A request to the API.
    Api,
    /// A request to the API with the token of a trusted issuer itself.
    ApiByUpstream,
}

use Use::*;

/// The end of a credential or of its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
enum End {
    /// The credential expires.
    Expires,
    IdentityIsDeleted,
    AllTokensAreRevoked,
    TokensBeforeNowAreRevoked,
    /// The identity is assumed by another subject, by other keys, or by another caller of AWS.
    RelationshipChanges,
    ProviderIsDeleted,
    ProviderChangesIssuer,
    /// The provider admits the users of its directory only.
    ScimIsEnabled,
    UserIsDeactivated,
    UserIsDeleted,
    SignOut,
    /// The identity whose token is exchanged for another identity is deleted.
    BearerIsDeleted,
    /// The tokens of that identity are revoked.
    BearerIsRevoked,
}

use End::*;

impl Use {
    /// Returns whether the credential can be used after the end, and so must be refused.
    fn is_ended_by(self, end: End) -> bool {
        let is_of_provider = matches!(self, ProviderPerson | Provisioned | OwnTokenOfProvider | RefreshOfProvider);
        match end {
            Expires | AllTokensAreRevoked | TokensBeforeNowAreRevoked => true,
            // These register the person again.
            IdentityIsDeleted => !matches!(self, ProviderPerson | Provisioned | Register),
            RelationshipChanges => matches!(self, ClaimMatch | StaticKeys | Aws | OwnTokenForAnother),
            ProviderIsDeleted | ProviderChangesIssuer => is_of_provider,
            ScimIsEnabled => matches!(self, ProviderPerson | OwnTokenOfProvider | RefreshOfProvider),
            UserIsDeactivated | UserIsDeleted => self == Provisioned,
            SignOut => matches!(self, Refresh | RefreshOfProvider),
            BearerIsDeleted | BearerIsRevoked => self == OwnTokenForAnother,
        }
    }

    /// Returns when the credential expires, in seconds, leeway included.
    fn expires(self) -> i64 {
        match self {
            ClaimMatch | Person | ProviderPerson | Provisioned | Register | ApiByUpstream => UPSTREAM_EXPIRES + 60,
            StaticKeys => KEYS_EXPIRE,
            Aws => NOW + 15 * 60,
            // Nothing is issued for less than a second.
            OwnToken | OwnTokenForAnother | OwnTokenOfProvider => NOW + 3600,
            Refresh | RefreshOfProvider => NOW + 30 * DAY,
            WhoAmI | Unregister | Api => NOW + 3600 + 60,
        }
    }
}

/// A credential that was used successfully, or whose equal was, where it can be used once.
struct Scene {
    fixture: Fixture,
    tenant: Tenant,
    case: Use,
    /// The identity that is used.
    identity: Uid,
    /// The identity of the token that is exchanged, if it is another one.
    bearer: Uid,
    credential: String,
    /// The last segment of the uid of the directory's user.
    user: String,
}

impl Scene {
    async fn new(case: Use) -> Self {
        let fixture = Fixture::new().await;
        let tenant = tenant(&fixture, TENANT, json!({})).await;
        let upstream = fixture.upstream(json!({ "exp": UPSTREAM_EXPIRES }));
        let by_provider = tenant.token(json!({ "exp": UPSTREAM_EXPIRES }));
        let mut user = String::new();
        let robot: SigningKey = key(Algorithm::Es256);
        let (identity, credential) = match case {
            ClaimMatch => (fixture.alice().await, upstream.clone()),
            StaticKeys => {
                let mut body = static_keys(&robot, ROBOTS, "robot");
                body["staticKeys"]["expirationTime"] = json!(at(KEYS_EXPIRE));
                let identity = fixture.identity(&fixture.org, body).await;
                (identity, token(&robot, json!({ "iss": ROBOTS, "sub": "robot" })))
            }
            Aws => {
                let identity = caller_of_aws(&fixture).await;
                let credential = Signed::new(&identity).credential();
                (identity, credential)
            }
            Person | Register | ApiByUpstream => (person(&fixture).await, upstream.clone()),
            ProviderPerson => (provider_person_uid(&tenant.provider, TENANT, "alice"), by_provider.clone()),
            Provisioned => {
                enable(&fixture, &tenant).await;
                user = provision(&fixture, &tenant).await;
                (provider_person_uid(&tenant.provider, TENANT, "alice"), by_provider.clone())
            }
            OwnToken | WhoAmI | Unregister | Api => {
                let person = person(&fixture).await;
                let tokens = fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
                (person, tokens.token.expose().to_owned())
            }
            OwnTokenForAnother => {
                let bearer = fixture.alice().await;
                let token = fixture.assume(&upstream, &bearer).await.unwrap().token.expose().to_owned();
                let trusting = json!({ "claimMatch": { "issuer": OWN, "subject": bearer } });
                (fixture.identity(&fixture.org, trusting).await, token)
            }
            Refresh => {
                let person = person(&fixture).await;
                let tokens = fixture.exchange(&upstream, json!({ "aud": [API] })).await.unwrap();
                (person, tokens.refresh_token.expose().to_owned())
            }
            OwnTokenOfProvider | RefreshOfProvider => {
                let tokens = fixture.exchange(&by_provider, tenant.request()).await.unwrap();
                let token = if case == RefreshOfProvider { tokens.refresh_token } else { tokens.token };
                (provider_person_uid(&tenant.provider, TENANT, "alice"), token.expose().to_owned())
            }
        };
        let bearer = match case {
            OwnTokenForAnother => Uid::opaque(crate::fixture::claims_of(&credential)["sub"].as_str().unwrap()),
            _ => identity.clone(),
        };
        let mut scene = Self { fixture, tenant, case, identity, bearer, credential, user };
        // Used once before the end, so that results are cached and a later refusal has no other reason.
        match case {
            Unregister => {}
            Refresh | RefreshOfProvider => {
                let next = scene.fixture.refresh(&scene.credential, json!({ "aud": [API] })).await.unwrap();
                scene.credential = next.refresh_token.token.expose().to_owned();
            }
            _ => scene.attempt().await.unwrap_or_else(|error| panic!("{case:?}: {error}")),
        }
        scene
    }

    async fn attempt(&self) -> Result<()> {
        let Self { fixture, credential, identity, .. } = self;
        let sts = &fixture.sts;
        match self.case {
            ClaimMatch | StaticKeys | Aws | OwnTokenForAnother => fixture.assume(credential, identity).await.map(drop),
            Person | OwnToken | OwnTokenOfProvider => {
                fixture.exchange(credential, json!({ "aud": [API] })).await.map(drop)
            }
            ProviderPerson | Provisioned => fixture.exchange(credential, self.tenant.request()).await.map(drop),
            Refresh | RefreshOfProvider => fixture.refresh(credential, json!({ "aud": [API] })).await.map(drop),
            WhoAmI => sts.who_am_i(credential).await.map(drop),
            Register => sts.register(credential, &Default::default()).await.map(drop),
            Unregister => sts.unregister(credential, identity).await,
            Api | ApiByUpstream => {
                use platform_engine::access::Authenticator;
                let caller = fixture.verifier.authenticate(credential).await?;
                fixture.platform.get::<Group>(&caller, &fixture.org).await.map(drop)
            }
        }
    }

    async fn end(&self, end: End) {
        let Self { fixture, tenant, .. } = self;
        let (platform, operator) = (&fixture.platform, &fixture.operator);
        match end {
            Expires => fixture.clock.set(at(self.case.expires())),
            IdentityIsDeleted => platform.delete::<Identity>(operator, &self.identity).await.unwrap(),
            BearerIsDeleted => platform.delete::<Identity>(operator, &self.bearer).await.unwrap(),
            BearerIsRevoked => run(fixture, "RevokeTokens", json!({ "identityUid": self.bearer })).await,
            AllTokensAreRevoked => run(fixture, "RevokeTokens", json!({ "identityUid": self.identity })).await,
            TokensBeforeNowAreRevoked => {
                let request = json!({ "identityUid": self.identity, "beforeTime": at(NOW) });
                run(fixture, "RevokeTokens", request).await;
            }
            SignOut => run(fixture, "EndSignIns", json!({ "identityUid": self.identity })).await,
            RelationshipChanges => {
                let mut identity = platform.get::<Identity>(operator, &self.identity).await.unwrap();
                if let Some(claims) = &mut identity.claim_match {
                    claims.subject = "somebody else".to_owned();
                }
                if let Some(keys) = &mut identity.static_keys {
                    let other = static_keys(&key(Algorithm::Es256), ROBOTS, "robot");
                    keys.issuer_keys = other["staticKeys"]["issuerKeys"].as_str().unwrap().to_owned();
                }
                if let Some(aws) = &mut identity.aws_identity {
                    aws.user_id = "somebody else".to_owned();
                }
                platform.update(operator, &self.identity, &identity, "*").await.unwrap();
            }
            ProviderIsDeleted => platform.delete::<IdentityProvider>(operator, &tenant.provider).await.unwrap(),
            ProviderChangesIssuer => {
                let mut provider = platform.get::<IdentityProvider>(operator, &tenant.provider).await.unwrap();
                provider.oidc.as_mut().unwrap().issuer = "https://elsewhere.example".to_owned();
                platform.update(operator, &tenant.provider, &provider, "oidc.issuer").await.unwrap();
            }
            ScimIsEnabled => enable(fixture, tenant).await,
            UserIsDeactivated => {
                let change = |user| Ok(DirectoryUser { active: false, ..user });
                Iam::of(platform).update_directory_user(&tenant.provider, &self.user, change).await.unwrap();
            }
            UserIsDeleted => Iam::of(platform).delete_directory_user(&tenant.provider, &self.user).await.unwrap(),
        }
    }
}

async fn run(fixture: &Fixture, name: &str, request: Value) {
    let found =
        fixture.platform.registered().iter().find_map(|registered| {
            Some((registered.kind, registered.actions.iter().find(|action| action.name == name)?))
        });
    let (kind, action) = found.unwrap();
    fixture.platform.run(Some(&fixture.operator), kind, action, request.as_object().unwrap()).await.unwrap();
}

/// Registers the person of the trusted issuer with a role.
async fn person(fixture: &Fixture) -> Uid {
    let person = person_uid(TRUSTED, "alice");
    fixture.sts.register(&fixture.upstream(json!({})), &Default::default()).await.unwrap();
    fixture.bind(&person, VIEWER, &fixture.org).await;
    person
}

/// Provisions the person of the provider, and returns the last segment of the user's uid.
async fn provision(fixture: &Fixture, tenant: &Tenant) -> String {
    let user = DirectoryUser {
        user_name: "alice".to_owned(),
        external_id: "alice".to_owned(),
        active: true,
        ..DirectoryUser::default()
    };
    let user = Iam::of(&fixture.platform).create_directory_user(&tenant.provider, user).await.unwrap();
    user.uid.last_segment().to_owned()
}

#[tokio::test]
async fn every_use_of_a_credential_is_refused_after_every_end_of_it() {
    for case in Use::VARIANTS {
        for end in End::VARIANTS.iter().filter(|end| case.is_ended_by(**end)) {
            let scene = Scene::new(*case).await;
            scene.end(*end).await;
            let refused = scene.attempt().await;
            let codes = [Code::Unauthenticated, Code::NotFound, Code::PermissionDenied];
            let code = refused.map_err(|error| error.code());
            assert!(code.is_err_and(|code| codes.contains(&code)), "{case:?} after {end:?}: {code:?}");
        }
    }
}

#[tokio::test]
async fn a_credential_is_used_until_the_moment_at_which_it_expires() {
    for case in Use::VARIANTS {
        let scene = Scene::new(*case).await;
        // In whole seconds, by which a token that is exchanged must be valid for one more.
        scene.fixture.clock.set(at(case.expires() - 1));
        scene.attempt().await.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    }
}

#[tokio::test]
async fn a_person_who_was_deleted_is_registered_again_without_anything_of_before() {
    for case in [ProviderPerson, Provisioned] {
        let scene = Scene::new(case).await;
        let before = scene.fixture.exchange(&scene.credential, scene.tenant.request()).await.unwrap();
        scene.fixture.platform.delete::<Identity>(&scene.fixture.operator, &scene.identity).await.unwrap();
        scene.attempt().await.unwrap();
        let (access, refresh) = (before.token.expose(), before.refresh_token.expose());
        assert!(!scene.fixture.sees(access, &scene.tenant.org).await, "{case:?}");
        assert!(scene.fixture.sts.who_am_i(access).await.is_err(), "{case:?}");
        assert!(scene.fixture.refresh(refresh, json!({ "aud": [API] })).await.is_err(), "{case:?}");
    }
}

#[test]
fn every_relationship_of_an_identity_has_a_use() {
    let relationships = Identity::KIND.fields.iter().filter(|field| field.oneof == Some("relationship"));
    let names: Vec<_> = relationships.map(|field| (field.name, matches!(field.ty, Type::Message(_)))).collect();
    // A service principal is a name, by which no token is exchanged.
    let known = [("claimMatch", true), ("awsIdentity", true), ("staticKeys", true), ("servicePrincipal", false)];
    assert_eq!(names.len(), known.len(), "{names:?}");
    assert!(known.iter().all(|known| names.contains(known)), "{names:?}");
}
