//! The action that revokes tokens of an identity (`docs/api.md`, Revocation of tokens), and the end of sessions of
//! browsers.
//!
//! Revocations are in the private part of the identity's record, which the resolution of grants reads in any case, and
//! raise the identity's epoch, which every call requires. So they need no further read, and take effect when they are
//! acknowledged, as changes of role bindings do.

use platform_engine::{
    access::{Capability, Credential, Revocations},
    context::Context,
    error::{Code, Error, Result},
    kind::{Action, Field, Resource, Type},
    store::{Delete, Query, Record, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
    write::Write,
};
use serde_json::{Map, Value, json};

use super::{Identity, Private};
use crate::{
    capabilities::cap,
    iam::identity_epoch,
    resources::{field, iam::SignIn},
};

/// The capability to revoke the tokens of another identity.
const UPDATE: &[Capability] = &[cap("identity.update")];

/// The tolerated difference of clocks.
const LEEWAY_MILLIS: i64 = 2 * 60 * 1000;

/// How long the id of a revoked token is kept: the longest lifetime of a token of the installation, 30 days, and the
/// tolerated difference of clocks.
const KEPT_MILLIS: i64 = 30 * 24 * 60 * 60 * 1000 + LEEWAY_MILLIS;

/// The length of a token's id: 16 bytes in hex.
const ID_LEN: usize = 32;

pub(super) const REVOKE: Action =
    Action::post("RevokeTokens", "identities/{identityUid=**}:revokeTokens", |cx, request| {
        Box::pin(revoke(cx, request))
    })
    .previewed()
    .request(&[
        field::uid("identityUid").about("The identity whose tokens are revoked.").required().uid_of("Identity"),
        Field::string("tokenId")
            .about("Only the token with this id, its claim `jti`.")
            .max_len(2 * ID_LEN)
            .check(token_id)
            .oneof("only"),
        Field::timestamp("beforeTime")
            .about("Only the tokens that were issued in this second or before; not in the future.")
            .oneof("only"),
    ])
    .response(&[
        Field::timestamp("revokeTime").about("When the tokens were revoked."),
        Field::new("endedSignIns", Type::Int32).about("The number of sign-ins that were ended with their tokens."),
    ]);

fn token_id(value: &Value) -> std::result::Result<(), String> {
    let id = value.as_str().unwrap_or_default();
    let is_id = id.len() == ID_LEN && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_id { Ok(()) } else { Err(format!("must be {ID_LEN} digits in lower-case hex")) }
}

/// Returns the revocations in the private part of an identity's record.
pub(crate) fn revocations_of(private: &[u8]) -> Result<Revocations> {
    Ok(Private::read(private)?.revocations)
}

/// Checks that a token is not revoked by the private part of its identity's record.
///
/// # Errors
/// UNAUTHENTICATED when it is.
pub(crate) fn check_not_revoked(private: &[u8], credential: Option<&Credential>) -> Result<()> {
    match credential {
        Some(credential) if !revocations_of(private)?.admit(credential) => Err(Error::revoked_token()),
        _ => Ok(()),
    }
}

async fn revoke(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let caller = cx.demand_caller()?;
    let text = |name: &str| request.get(name).and_then(Value::as_str);
    let identity = Uid::opaque(text("identityUid").unwrap_or_default());
    let is_own = caller.identity == identity && caller.narrowing.is_none();
    // A person belongs to no group: only the person and the operator may revoke the person's tokens.
    if !is_own && !cx.is_operator() {
        if identity.is_root() { return Err(Error::denied()) } else { cx.demand(&identity, UPDATE)? }
    }
    let now = cx.now();
    let before = text("beforeTime").map(Timestamp::parse).transpose();
    let before = before.map_err(|_| Error::invalid_field("beforeTime", "must be a timestamp"))?;
    if before.is_some_and(|before| before > now) {
        return Err(Error::invalid_field("beforeTime", "must not be in the future"));
    }
    let missing = || Error::not_found(Identity::KIND, identity.as_str());
    let record = cx.record(Identity::KIND, &identity).await?.ok_or_else(missing)?;
    let mut private = Private::read(&record.private)?;
    let mut write = Write::default();
    let mut ended = 0;
    match (text("tokenId"), before) {
        (Some(id), _) => {
            if !private.revocations.revoke_token(id, now.plus_millis(KEPT_MILLIS), now) {
                return Err(Error::new(
                    Code::ResourceExhausted,
                    format!(
                        "at most {} tokens of an identity can be revoked one by one within 30 days: revoke all of them, \
                         or those before a time",
                        Revocations::MAX_TOKENS
                    ),
                ));
            }
        }
        // A sign-in that began before gets no more access tokens, because they count as issued when it began.
        (None, Some(before)) => private.revocations.revoke_before(before),
        (None, None) => {
            private.revocations.revoke_all(now);
            let sign_ins = Query::new(SignIn::KIND.name, Scope::Children(identity.clone()));
            ended = cx.page(Query { count: true, limit: 1, ..sign_ins }).await?.total.unwrap_or_default();
            if ended > 0 {
                write.delete(Delete::Below(identity.clone(), vec![SignIn::KIND.name]));
            }
        }
    }
    commit(cx, write, &record, &private).await?;
    Ok(json!({ "revokeTime": now, "endedSignIns": ended }))
}

/// Ends a session of a browser, whose cookie expires at `until` at the latest. Does nothing if the identity does not
/// exist.
pub(crate) async fn end_session(cx: &Context<'_>, uid: &Uid, id: &str, until: Timestamp) -> Result<()> {
    let Some(record) = cx.record(Identity::KIND, uid).await? else { return Ok(()) };
    let mut private = Private::read(&record.private)?;
    private.revocations.end_session(id, until.plus_millis(LEEWAY_MILLIS), cx.now());
    commit(cx, Write::default(), &record, &private).await
}

/// Replaces the private part of an identity's record, and makes every server resolve its grants again.
async fn commit(cx: &Context<'_>, mut write: Write, record: &Record, private: &Private) -> Result<()> {
    write.require_or_retry(Require::Revision(record.key.clone(), record.revision));
    let stored: Identity = serde_json::from_slice(&record.body).map_err(Error::internal)?;
    write.replace(record, &stored, private.write()?)?;
    write.raise(identity_epoch(&record.key.uid));
    cx.commit(write).await.map(drop)
}
