//! Sign-ins, which refresh tokens extend. Only hashes of the tokens are stored (`docs/api.md`, Refresh tokens).

use bytes::Bytes;
use platform_engine::{
    context::Context,
    error::{Error, Result},
    kind::{Action, Field, Kind, Parent, Resource, Roots, Type, parent_uid},
    store::{Delete, Epoch, Key, Query, Record, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::super::domain;
use super::{super::field, Identity};

/// A current sign-in of a person. Our own kind, which no method returns: the contract has refresh tokens, but no
/// resource that stores them. It is deleted with the person.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SignIn {
    /// The uid of the person and a segment.
    pub uid: Uid,
    /// The issuer that authenticated the person.
    pub issuer: String,
    /// The audiences that its access tokens may have.
    pub audiences: Vec<String>,
    /// When the sign-in ends, however often it is refreshed.
    pub expire_time: Option<Timestamp>,
    /// When the person signed in.
    pub create_time: Option<Timestamp>,
    /// When the sign-in was last refreshed.
    pub update_time: Option<Timestamp>,
}

impl Resource for SignIn {
    const KIND: &'static Kind = &Kind::new("SignIn", "signIns", "SignInsService", domain::IAM)
        .parent(Parent::Of(Identity::KIND))
        .unlimited()
        .fields(&[
            Field::UID,
            Field::string("issuer").about("The issuer that authenticated the person.").output_only(),
            Field::strings("audiences").about("The audiences that access tokens may have.").output_only(),
            Field::timestamp("expireTime").about("When the sign-in ends, however often it is refreshed.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .roots(Roots::Personal)
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::post("EndSignIns", "signIns:end", |cx, request| Box::pin(end_all(cx, request)))
            .previewed()
            .request(&[field::uid("identityUid").about("The person whose sign-ins are ended; by default the caller.")])
            .response(&[Field::new("ended", Type::Int32).about("The number of sign-ins that were ended.")])];

    fn without_secrets(private: Bytes) -> Result<Bytes> {
        // Without the hashes, no refresh token is valid.
        let private: Private = serde_json::from_slice(&private).map_err(Error::internal)?;
        private_bytes(&Private { state: private.state, ..Private::default() })
    }

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            issuer: "https://issuer.example.com".to_owned(),
            audiences: vec!["https://platform.example.com".to_owned()],
            expire_time: Some(Timestamp::EPOCH),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }
}

/// The private part of a sign-in, which is stored and never returned.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Private {
    /// The SHA-256, in hex, of the secret that all refresh tokens of the sign-in share.
    family_hash: String,
    /// The SHA-256, in hex, of the secret that only the latest refresh token has.
    token_hash: String,
    /// State of the token issuer.
    state: Value,
    /// The values of a later release, which are kept.
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// A sign-in to begin.
#[derive(Debug, Clone)]
pub struct NewSignIn<'a> {
    /// The person.
    pub identity: &'a Uid,
    /// The issuer that authenticated the person.
    pub issuer: &'a str,
    /// The audiences that access tokens may have.
    pub audiences: &'a [String],
    /// When the sign-in ends.
    pub expire_time: Timestamp,
    /// The secret that all its refresh tokens share.
    pub family: &'a [u8],
    /// The secret of the first refresh token.
    pub token: &'a [u8],
    /// State of the token issuer, stored with the sign-in.
    pub state: Value,
}

/// The sign-in of a refresh token, as it was when the token was presented.
#[derive(Debug, Clone)]
pub struct Presented {
    /// The person.
    pub identity: Uid,
    /// The sign-in.
    pub sign_in: SignIn,
    /// State of the token issuer, stored with the sign-in.
    pub state: Value,
    /// The record of the sign-in, whose revision a renewal requires.
    stored: Record,
}

/// Returns the error for an invalid refresh token, the same for every reason.
fn invalid_token() -> Error {
    Error::unauthenticated("The refresh token is not valid")
}

fn hash(secret: &[u8]) -> String {
    hex::encode(Sha256::digest(secret))
}

/// Begins a sign-in and ends the person's oldest ones over the limit.
pub(crate) async fn begin(cx: &Context<'_>, new: NewSignIn<'_>) -> Result<SignIn> {
    let now = cx.now();
    let sign_in = SignIn {
        uid: new.identity.new_child(cx.platform().entropy()),
        issuer: new.issuer.to_owned(),
        audiences: new.audiences.to_vec(),
        expire_time: Some(new.expire_time),
        create_time: Some(now),
        update_time: Some(now),
    };
    let private =
        Private { family_hash: hash(new.family), token_hash: hash(new.token), state: new.state, ..Private::default() };
    let mut write = Write::default();
    let person = Key::new(Identity::KIND.name, new.identity.clone());
    write.require_or_fail(Require::Exists(person), invalid_token());
    write.require_or_retry(Require::Absent(Key::new(SignIn::KIND.name, sign_in.uid.clone())));
    end_oldest(cx, new.identity, now, &mut write).await?;
    write.put(&sign_in.uid, &sign_in, private_bytes(&private)?)?;
    cx.commit(write).await?;
    Ok(sign_in)
}

/// The maximum number of current sign-ins per person; our choice. A new one ends the oldest.
pub(crate) const MAX_SIGN_INS: usize = 100;

/// The maximum number of a person's sign-ins that are read when a new one begins.
const MAX_EXAMINED: usize = 2 * MAX_SIGN_INS;

/// Deletes the expired sign-ins of a person, and the oldest of the others, so that with a new one there are at most
/// [`MAX_SIGN_INS`]. Each new sign-in requires and raises an epoch of the person, so that concurrent ones cannot exceed
/// the limit.
async fn end_oldest(cx: &Context<'_>, person: &Uid, now: Timestamp, write: &mut Write) -> Result<()> {
    let epoch: Epoch = Epoch::new("signIns", person.clone());
    let mut of_person = Query::new(SignIn::KIND.name, Scope::Children(person.clone()));
    of_person.limit = MAX_EXAMINED;
    cx.require_epochs(write, vec![epoch.clone()]).await?;
    write.raise(epoch);
    let page = cx.page(of_person).await?;
    let mut current = Vec::new();
    for item in page.items {
        let old: SignIn = serde_json::from_slice(&item.body).map_err(Error::internal)?;
        if old.expire_time.is_none_or(|until| until <= now) {
            write.delete(Delete::Key(Key::new(SignIn::KIND.name, old.uid)));
        } else {
            current.push((old.create_time, old.uid));
        }
    }
    current.sort();
    let surplus = (current.len() + 1).saturating_sub(MAX_SIGN_INS);
    for (_, uid) in current.into_iter().take(surplus) {
        write.delete(Delete::Key(Key::new(SignIn::KIND.name, uid)));
    }
    Ok(())
}

fn private_bytes(private: &Private) -> Result<Bytes> {
    serde_json::to_vec(private).map(Bytes::from).map_err(Error::internal)
}

/// Returns the sign-in whose latest refresh token has these secrets.
///
/// A refresh token that was already used ends the sign-in: it was stolen, and either the thief or the owner uses it for
/// the second time, which cannot be distinguished.
pub(crate) async fn present(cx: &Context<'_>, uid: &Uid, family: &[u8], token: &[u8]) -> Result<Presented> {
    let record = cx.record(SignIn::KIND, uid).await?.ok_or_else(invalid_token)?;
    let sign_in: SignIn = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    let private: Private = serde_json::from_slice(&record.private).map_err(Error::internal)?;
    let is = |stored: &str, secret: &[u8]| bool::from(stored.as_bytes().ct_eq(hash(secret).as_bytes()));
    let (of_family, latest) = (is(&private.family_hash, family), is(&private.token_hash, token));
    let expired = sign_in.expire_time.is_none_or(|until| until <= cx.now());
    if of_family && (expired || !latest) {
        end(cx, uid).await?;
    }
    if expired || !of_family || !latest {
        return Err(invalid_token());
    }
    let identity = parent_uid(uid)?;
    Ok(Presented { identity, sign_in, state: private.state, stored: record })
}

/// Replaces the presented refresh token by one with the secret `next`. Ends the sign-in if a concurrent request has
/// used the same token first.
pub(crate) async fn renew(cx: &Context<'_>, presented: &Presented, family: &[u8], next: &[u8]) -> Result<()> {
    let uid = &presented.sign_in.uid;
    let stored = &presented.stored;
    let mut write = Write::default();
    write.require_or_retry(Require::Revision(stored.key.clone(), stored.revision));
    let person = Key::new(Identity::KIND.name, presented.identity.clone());
    write.require_or_fail(Require::Exists(person), invalid_token());
    let update_time = presented.sign_in.update_time.max(Some(cx.now()));
    let before: Private = serde_json::from_slice(&stored.private).map_err(Error::internal)?;
    let private = Private { family_hash: hash(family), token_hash: hash(next), ..before };
    write.replace(stored, &SignIn { update_time, ..presented.sign_in.clone() }, private_bytes(&private)?)?;
    match cx.commit(write).await {
        Err(error) if error.is_stale() => {
            end(cx, uid).await?;
            Err(invalid_token())
        }
        done => done.map(drop),
    }
}

/// Ends a sign-in, if it has not ended yet.
pub(crate) async fn end(cx: &Context<'_>, uid: &Uid) -> Result<()> {
    let mut write = Write::default();
    write.delete(Delete::Key(Key::new(SignIn::KIND.name, uid.clone())));
    cx.commit(write).await.map(drop)
}

/// Ends all sign-ins of the caller or, for the operator, of any identity, and returns their number.
async fn end_all(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let own = &cx.demand_caller_itself()?.identity;
    let requested = request.get("identityUid").and_then(Value::as_str).map(Uid::opaque);
    let person = requested.unwrap_or_else(|| own.clone());
    if person != *own && !cx.is_operator() {
        return Err(Error::denied());
    }
    let count = Query { count: true, limit: 1, ..Query::new(SignIn::KIND.name, Scope::Children(person.clone())) };
    let ended = cx.page(count).await?.total.unwrap_or_default();
    if ended > 0 {
        let mut write = Write::default();
        write.delete(Delete::Below(person, vec![SignIn::KIND.name]));
        cx.commit(write).await?;
    }
    Ok(json!({ "ended": ended }))
}
