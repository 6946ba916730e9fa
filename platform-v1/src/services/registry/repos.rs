//! Repos. A repo and its readme are one message.

use std::collections::BTreeMap;

use platform_core::{
    capabilities::cap,
    resources::registry::{Repo, RepoFollower, RepoReadme, repo::SYNC_CONFIG},
};
use platform_engine::{
    BoxFuture,
    context::Context,
    conversion::{self, Conversion, ListConversion},
    error::{Error, Result},
    kind::{Action, Authorization, Domain, Field, Registered, Resource, Type, WriteRules},
    store::{Query, Scope},
    uid::Uid,
    write::Write,
};
use serde_json::{Map, Value, json};

use super::super::{ITEM_ID, REGISTRY, UIDP};

pub(super) const CREATE: Action = Action::create_as::<Message>("CreateRepo", "repos/{parentId=**}");
pub(super) const UPDATE: Action = Action::replace_as::<Message>("UpdateRepo", "repos/{id=**}");
pub(super) const LIST: Action = Action::list_as::<Filtered>("ListRepos", "repos");
pub(super) const DELETE: Action = Action::delete_as::<Message>("DeleteRepo", "repos/{id=**}");
pub(super) const COUNT_BY_SOURCE: Action =
    Action::get("GetRepoCountBySource", "repocountbysource/{id=**}", |cx, request| {
        Box::pin(count_by_source(cx, request))
    })
    .request(&[Field::string("id").about("A repo, or a group of repos, that other repos follow.")])
    .response(&[Field::new("count", Type::Int64).about("The number of repos that follow them.")])
    .authorization(Authorization::At("id", &[cap("repo.list")]));

struct Message;

impl Conversion for Message {
    type Resource = Repo;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "repos";
    const MESSAGE: &'static str = "Repo";
    const ITEM: &'static str = "repo";
    const UPSERT: &'static str = "name";
    const PREVENT_UPSERT: &'static str = "preventExisting";
    const FIELDS: &'static [Field] = &[
        Repo::KIND.show("uid").named("id"),
        Repo::KIND.show("name"),
        Repo::KIND.show("catalogTier").ty(Type::Enum(CATALOG_TIER)),
        Repo::KIND.show("bundles"),
        Field::string("readme").of("").unread().about("The readme in Markdown; HTML in it must be safe."),
        // The published JSON name of this field is in snake_case.
        Repo::KIND.show("syncConfig").named("sync_config").ty(Type::Message(SYNC)),
        Repo::KIND.show("customOverlay").ty(Type::Message(OVERLAY)),
        Repo::KIND.show("aliases"),
        Repo::KIND.show("createTime"),
        Repo::KIND.show("activeTags"),
        Repo::KIND.show("description"),
    ];
    const WRITES: &'static [Field] =
        &Repo::KIND.fields_with::<{ Repo::KIND.fields.len() }>(&[Repo::SYNC.ty(Type::Message(SETTABLE_SYNC))]);

    /// Adds the change of the readme.
    fn prepare<'a>(
        cx: &'a Context<'a>,
        uid: &'a Uid,
        message: &'a Map<String, Value>,
        write: &'a mut Write,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let readme = Registered::of::<RepoReadme>();
            let content = message.get("readme").cloned().unwrap_or_default();
            let body = Map::from_iter([("content".to_owned(), content)]);
            let rules = WriteRules::converted(RepoReadme::KIND);
            let prepared = cx.prepare_update(&readme, uid, &body, "*", rules).await;
            write.append(prepared.map_err(|error| error.rename_fields(|_| "readme".to_owned()))?);
            Ok(())
        })
    }

    /// Adds the readmes, and shows the repos that follow others with their own values, as they were written: a client
    /// that manages a repo by PUT would take inherited values for a change that somebody else has made.
    fn complete<'a>(cx: &'a Context<'a>, messages: &'a mut [Map<String, Value>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let uid = |message: &Map<String, Value>| {
                Uid::opaque(message.get("id").and_then(Value::as_str).unwrap_or_default())
            };
            let readmes = cx.read_all::<RepoReadme>(messages.iter().map(uid)).await?;
            let followers: Vec<_> =
                messages.iter().filter(|message| message.contains_key("sync_config")).map(uid).collect();
            let own = conversion::shown_all::<Self>(cx, followers.iter().cloned()).await?;
            let mut own: BTreeMap<_, _> = followers.into_iter().zip(own).collect();
            for (message, readme) in messages.iter_mut().zip(readmes) {
                message.insert("readme".to_owned(), readme.unwrap_or_default().content.into());
                let Some(Some(own)) = own.remove(&uid(message)) else { continue };
                let inherited = ["catalogTier", "bundles", "aliases", "activeTags", "description"];
                message.extend(own.into_iter().filter(|(name, _)| inherited.contains(&&**name)));
            }
            Ok(())
        })
    }
}

const CATALOG_TIER: &[&str] = &["UNKNOWN", "APPLICATION", "BASE", "FIPS", "AI", "DEVTOOLS", "COMMERCIAL"];

const SYNC: &[Field] = &[
    Field::string("source").about("The repo to follow: its uid, or `organization/repo`. Responses have the uid."),
    Field::bool("uniqueTags").about("Whether the organization has each tag only once: a setting of its registry."),
    Field::timestamp("expiration").of("expirationTime").about(
        "When the repo stops following its source, at most 365 days ahead; 14 days after the request by default.",
    ),
    Field::string("google").about("A Google Artifact Registry repository to copy to. Stored, but not acted on."),
    Field::string("amazon").about("An Amazon ECR repository to copy to. Stored, but not acted on."),
    Field::string("azure").about("An Azure registry to copy to. Stored, but not acted on."),
    Field::bool("syncApks")
        .of("")
        .about("Whether to copy packages, too. Not stored: this installation copies nothing."),
    Field::string("apkoOverlay").about("Additions to the images. Stored, but not acted on."),
    Field::bool("gracePeriod").about("Whether expired tags are retained for a while. Stored, but not acted on."),
];

/// The table of a sync's configuration in which callers set what version 2 only shows.
const SETTABLE_SYNC: &[Field] = &settable();

const fn settable() -> [Field; SYNC_CONFIG.len()] {
    let mut fields = [Field::UID; SYNC_CONFIG.len()];
    let (mut rest, mut out) = (SYNC_CONFIG, fields.as_mut_slice());
    while let ([field, tail @ ..], [slot, slots @ ..]) = (rest, out) {
        // A setting of the organization's registry.
        *slot = if matches!(field.name.as_bytes(), b"uniqueTags") { *field } else { field.mutable() };
        (rest, out) = (tail, slots);
    }
    fields
}

const OVERLAY: &[Field] = &[
    Field::message(
        "contents",
        &[
            Field::strings("packages").about("Packages to install."),
            Field::strings("runtimeRepositories").about("Package repositories that the image uses at run time."),
            Field::new("runtimeKeyring", Type::List(&Type::Message(NAMED_CONTENT)))
                .about("Keys that the image trusts for packages at run time."),
        ],
    )
    .about("Packages and package repositories to add to the image."),
    Field::string_map("environment").about("Environment variables. Names that begin with `CHAINGUARD_` are reserved."),
    Field::string_map("annotations").about(
        "Annotations of the image. Names that begin with `dev.chainguard.` or `org.opencontainers.` are reserved.",
    ),
    Field::message("accounts", ACCOUNTS).about("Users and groups of the image."),
    Field::message(
        "certificates",
        &[
            Field::new("additional", Type::List(&Type::Message(NAMED_CONTENT))).about("Certificates to add."),
            Field::strings("providers").about("Packages that provide certificates."),
        ],
    )
    .about("Certificates that the image trusts."),
];

const NAMED_CONTENT: &[Field] =
    &[Field::string("name").about("The file's name."), Field::string("content").about("The content, in PEM.")];

const ACCOUNTS: &[Field] = &[
    Field::new(
        "groups",
        Type::List(&Type::Message(&[
            Field::new("gid", Type::Int32).about("The group's numeric Unix identifier."),
            Field::string("groupName").of("groupname").about("The group's name."),
            Field::strings("members").about("The names of the group's members."),
        ])),
    )
    .about("Groups to add."),
    Field::new(
        "users",
        Type::List(&Type::Message(&[
            Field::new("uid", Type::Int32).about("The user's numeric Unix identifier."),
            Field::string("userName").of("username").about("The user's name."),
            Field::new("gid", Type::Int32).about("The numeric identifier of the user's primary group.").optional(),
            Field::string("groupName").about("The name of the user's primary group."),
            Field::string("shell").about("The user's login shell."),
            Field::string("homeDir").about("The user's home directory."),
        ])),
    )
    .about("Users to add."),
    Field::string("runAs").about("The user that the image runs as."),
];

struct Filtered;

impl ListConversion for Filtered {
    type Item = Message;
    const REQUEST: &'static [Field] =
        &[UIDP, Field::string("name").about("Only repos with exactly this name."), ITEM_ID];
    const RESPONSE: &'static [Field] = &[Field::new("items", Type::List(&Type::Message(Message::FIELDS)))
        .about("The repos, in the order of their uids.")];
}

/// Counts the repos that follow a repo, or the repos of a group.
async fn count_by_source(cx: &Context<'_>, request: Map<String, Value>) -> Result<Value> {
    let uid = request.get("id").and_then(Value::as_str).unwrap_or_default();
    let uid = Uid::parse(uid).map_err(|rule| Error::invalid_field("id", rule.to_string()))?;
    let followers = Query { limit: 1, count: true, ..Query::new(RepoFollower::KIND.name, Scope::Subtree(uid)) };
    let count = cx.page(followers).await?.total.unwrap_or_default();
    Ok(json!({ "count": count.to_string() }))
}
