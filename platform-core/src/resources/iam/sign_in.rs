//! Sign-ins: what keeps a person signed in by refresh tokens, of which only hashes are stored
//! (`docs/api.md`, Refresh tokens).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{super::field, Identity};
use crate::{
    context::Context,
    error::{Error, Result},
    kind::{Action, Domain, Field, Kind, Parent, Resource, Roots, Type},
    store::{Delete, Epoch, Key, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};

/// A standing sign-in. Our own kind, which no method returns: the contract has refresh tokens and not where they are
/// kept. It goes with the person.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SignIn {
    /// The person's and a segment.
    pub uid: Uid,
    /// Who vouched for the person.
    pub issuer: String,
    /// For whom its access tokens may be.
    pub audiences: Vec<String>,
    /// Until when it stands at most, however often it is refreshed.
    pub expire_time: Option<Timestamp>,
    /// When the person signed in.
    pub create_time: Option<Timestamp>,
    /// When it was last refreshed.
    pub update_time: Option<Timestamp>,
}

impl Resource for SignIn {
    const KIND: &'static Kind = &Kind::new("SignIn", "signIns", "SignInsService", Domain::IAM)
        .parent(Parent::Of("Identity"))
        .fields(&[
            Field::UID,
            Field::string("issuer").about("Who vouched for the person.").output_only(),
            Field::strings("audiences").about("The audiences that access tokens may have.").output_only(),
            Field::timestamp("expireTime").about("Until when the sign-in can be refreshed.").output_only(),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .roots(Roots::Personal)
        .cascade();

    const ACTIONS: &'static [Action] =
        &[Action::post("EndSignIns", "signIns:end", |cx, request| Box::pin(end_all(cx, request)))
            .request(&[field::uid("identityUid").about("The person whose sign-ins are ended.")])
            .response(&[Field::new("ended", Type::Int32).about("How many sign-ins were ended.")])];

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

/// What is stored of a sign-in and never returned.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Private {
    /// The SHA-256, in hex, of the secret that all refresh tokens of the sign-in share.
    family_hash: String,
    /// That of the secret that only the latest has.
    token_hash: String,
    /// What whoever issues the tokens wants to remember.
    state: Value,
}

/// A sign-in to begin.
#[derive(Debug, Clone)]
pub struct NewSignIn<'a> {
    /// The person.
    pub identity: &'a Uid,
    /// Who vouched for them.
    pub issuer: &'a str,
    /// For whom access tokens may be.
    pub audiences: &'a [String],
    /// Until when it stands.
    pub expire_time: Timestamp,
    /// The secret that all its refresh tokens share.
    pub family: &'a [u8],
    /// The secret of the first.
    pub token: &'a [u8],
    /// What to remember with it.
    pub state: Value,
}

/// The sign-in that a refresh token stands for, as it was when the token was presented.
#[derive(Debug, Clone)]
pub struct Presented {
    /// The person.
    pub identity: Uid,
    /// The sign-in.
    pub sign_in: SignIn,
    /// What was to be remembered with it.
    pub state: Value,
    revision: u64,
}

/// One answer for whatever is wrong with a refresh token.
fn refused() -> Error {
    Error::unauthenticated("The refresh token is not valid")
}

fn hash(secret: &[u8]) -> String {
    hex::encode(Sha256::digest(secret))
}

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
    let private = Private { family_hash: hash(new.family), token_hash: hash(new.token), state: new.state };
    let mut write = Write::default();
    let person = Key::new(Identity::KIND.name, new.identity.clone());
    write.require_or_fail(Require::Exists(person), refused());
    write.require_or_retry(Require::Absent(Key::new(SignIn::KIND.name, sign_in.uid.clone())));
    make_room(cx, new.identity, now, &mut write).await?;
    write.put(&sign_in.uid, &sign_in, private_bytes(&private)?)?;
    cx.commit(write).await?;
    Ok(sign_in)
}

/// The most sign-ins of a person at a time; our choice. A new one ends the oldest.
pub(crate) const MAX_SIGN_INS: usize = 100;

/// The most sign-ins of a person that are read when a new one begins.
const MOST_SWEPT: usize = 2 * MAX_SIGN_INS;

/// Deletes the expired sign-ins of a person, and the oldest of the others, so that with a new one there are at most
/// [`MAX_SIGN_INS`]. Each new sign-in requires and raises an epoch of the person, so that concurrent ones cannot exceed
/// the limit.
async fn make_room(cx: &Context<'_>, person: &Uid, now: Timestamp, write: &mut Write) -> Result<()> {
    let epoch: Epoch = format!("signIns/{person}").into();
    let mut of_person = Query::new(SignIn::KIND.name, Scope::Children(person.clone()));
    (of_person.limit, of_person.epochs) = (MOST_SWEPT, [Epoch::clone(&epoch)].into());
    let page = cx.platform().store().list(&of_person).await?;
    write.require_or_retry(Require::Epoch(Epoch::clone(&epoch), page.epochs.first().copied().unwrap_or_default()));
    write.raise(epoch);
    let mut standing = Vec::new();
    for item in page.items {
        let old: SignIn = serde_json::from_slice(&item.body).map_err(Error::internal)?;
        match old.expire_time.is_none_or(|until| until <= now) {
            true => write.delete(Delete::Key(Key::new(SignIn::KIND.name, old.uid))),
            false => standing.push((old.create_time, old.uid)),
        }
    }
    standing.sort();
    let too_many = (standing.len() + 1).saturating_sub(MAX_SIGN_INS);
    for (_, uid) in standing.into_iter().take(too_many) {
        write.delete(Delete::Key(Key::new(SignIn::KIND.name, uid)));
    }
    Ok(())
}

fn private_bytes(private: &Private) -> Result<Bytes> {
    serde_json::to_vec(private).map(Bytes::from).map_err(Error::internal)
}

/// Returns the sign-in whose latest refresh token has these secrets. One that was used up before ends the sign-in:
/// either its thief or its owner comes second, and nobody can tell which.
pub(crate) async fn present(cx: &Context<'_>, uid: &Uid, family: &[u8], token: &[u8]) -> Result<Presented> {
    let record = cx.record(SignIn::KIND, uid).await?.ok_or_else(refused)?;
    let sign_in: SignIn = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    let private: Private = serde_json::from_slice(&record.private).map_err(Error::internal)?;
    let is = |stored: &str, secret: &[u8]| bool::from(stored.as_bytes().ct_eq(hash(secret).as_bytes()));
    let (of_family, latest) = (is(&private.family_hash, family), is(&private.token_hash, token));
    let over = sign_in.expire_time.is_none_or(|until| until <= cx.now());
    if of_family && (over || !latest) {
        end(cx, uid).await?;
    }
    if over || !of_family || !latest {
        return Err(refused());
    }
    let identity = uid.parent().unwrap_or_default();
    Ok(Presented { identity, sign_in, state: private.state, revision: record.revision })
}

/// Uses up the refresh token that was presented, in favour of one with this secret. When another came first with the
/// same, the sign-in ends.
pub(crate) async fn renew(cx: &Context<'_>, presented: &Presented, family: &[u8], next: &[u8]) -> Result<()> {
    let uid = &presented.sign_in.uid;
    let key = Key::new(SignIn::KIND.name, uid.clone());
    let mut write = Write::default();
    write.require_or_retry(Require::Revision(key, presented.revision));
    let person = Key::new(Identity::KIND.name, presented.identity.clone());
    write.require_or_fail(Require::Exists(person), refused());
    let update_time = presented.sign_in.update_time.max(Some(cx.now()));
    let private = Private { family_hash: hash(family), token_hash: hash(next), state: presented.state.clone() };
    write.put(uid, &SignIn { update_time, ..presented.sign_in.clone() }, private_bytes(&private)?)?;
    match cx.commit(write).await {
        Err(error) if error.is_stale() => {
            end(cx, uid).await?;
            Err(refused())
        }
        done => done.map(drop),
    }
}

/// Ends a sign-in; one that has ended stays so.
pub(crate) async fn end(cx: &Context<'_>, uid: &Uid) -> Result<()> {
    let mut write = Write::default();
    write.delete(Delete::Key(Key::new(SignIn::KIND.name, uid.clone())));
    cx.commit(write).await.map(drop)
}

/// Ends all sign-ins of the caller, or, for the operator, of any identity. Tells how many.
async fn end_all(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let own = &cx.caller().identity;
    let asked = request.get("identityUid").and_then(Value::as_str).map(Uid::opaque);
    let of = asked.unwrap_or_else(|| own.clone());
    if cx.caller().narrowing.is_some() || (of != *own && !cx.is_operator()) {
        return Err(Error::denied());
    }
    let standing = Query { count: true, limit: 1, ..Query::new(SignIn::KIND.name, Scope::Children(of.clone())) };
    let ended = cx.page(standing).await?.total.unwrap_or_default();
    if ended > 0 {
        let mut write = Write::default();
        write.delete(Delete::Below(of, vec![SignIn::KIND.name]));
        cx.commit(write).await?;
    }
    Ok(json!({ "ended": ended }))
}
