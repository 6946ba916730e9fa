//! Repos: where tags of container images live (`docs/api.md`, Repos).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::{check, iam::Group};
use crate::{
    BoxFuture,
    access::{Capability, cap},
    cx::Cx,
    error::{Error, Result, Violations},
    event::Draft,
    kind::{
        Change, DerivedKey, Domain, Field, Kind, Method, Param, Parent, Resource, Roots, Type, Unique, Verb,
        WhenParentGoes,
    },
    store::{Filter, Key, KeyValue, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
};

pub mod overlay;

pub use overlay::CustomOverlay;

/// A repo of container images. A synced repo follows another: it shows the other's tier, bundles, aliases and active
/// tags, and its description where it has none of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Repo {
    /// The group's and a segment.
    pub uid: Uid,
    /// Unique in its group.
    pub name: String,
    /// What it holds.
    pub description: String,
    /// Where catalogues show it.
    pub catalog_tier: CatalogTier,
    /// The bundles that it is part of.
    pub bundles: Vec<String>,
    /// Other references by which it is known.
    pub aliases: Vec<String>,
    /// The names of the tags that are kept up to date.
    pub active_tags: Vec<String>,
    /// What it follows, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_config: Option<SyncConfig>,
    /// How its images differ from what they are built of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_overlay: Option<CustomOverlay>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

/// Where catalogues show a repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
pub enum CatalogTier {
    #[default]
    CatalogTierUnspecified,
    CatalogTierApplication,
    CatalogTierBase,
    CatalogTierFips,
    CatalogTierAi,
    CatalogTierDevtools,
    CatalogTierCommercial,
}

const CATALOG_TIERS: &[&str] = &[
    "CATALOG_TIER_UNSPECIFIED",
    "CATALOG_TIER_APPLICATION",
    "CATALOG_TIER_BASE",
    "CATALOG_TIER_FIPS",
    "CATALOG_TIER_AI",
    "CATALOG_TIER_DEVTOOLS",
    "CATALOG_TIER_COMMERCIAL",
];

/// How a repo follows another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncConfig {
    /// The uid of the other. A request may also name it as `organisation/repo`, with a host in front or not.
    pub source: String,
    /// Whether the organisation has each tag once; set by the installation.
    pub unique_tags: bool,
    /// Until when it follows; at first, for 14 days.
    pub expiration_time: Option<Timestamp>,
    /// A destination in Google's registry.
    pub google: String,
    /// A destination in Amazon's registry.
    pub amazon: String,
    /// A destination in Azure's registry.
    pub azure: String,
    /// What the installation adds to the images; set by the installation.
    pub apko_overlay: String,
    /// Whether ended tags are kept for a while; set by the installation.
    pub grace_period: bool,
}

const SYNC_CONFIG: &[Field] = &[
    Field::string("source")
        .about("The repo to follow: its uid, or `organization/repo`. Replies have the uid.")
        .required(),
    Field::bool("uniqueTags").about("Whether the tags of the source are unique.").output_only(),
    Field::timestamp("expirationTime").about("Until when the repo follows its source.").output_only(),
    Field::string("google").about("A Google Artifact Registry repository to copy to. Kept and not acted on."),
    Field::string("amazon").about("An Amazon ECR repository to copy to. Kept and not acted on."),
    Field::string("azure").about("An Azure registry to copy to. Kept and not acted on."),
    Field::string("apkoOverlay").about("A build overlay of the source.").output_only(),
    Field::bool("gracePeriod").about("Whether the following goes on although the right to it has ended.").output_only(),
];

/// How long a repo follows another at first: 14 days.
const SYNC_MILLIS: i64 = 14 * 24 * 60 * 60 * 1000;

/// What a caller must hold at a repo that theirs shall follow: what it takes to pull from it.
const PULL: &[Capability] = &[cap("repo.list"), cap("repo.blobs.get")];

impl Resource for Repo {
    const KIND: &'static Kind = &Kind {
        name: "Repo",
        plural: "repos",
        service: "ReposService",
        domain: Domain::REGISTRY,
        parent: Parent::Group,
        methods: &[
            Method::list(&[cap("repo.list")]).params(&[Param::exact("name").about("Only repos with exactly this name.")]),
            Method::get(&[cap("repo.list")]),
            Method::create(&[cap("repo.create")]).event("platform.registry.repo.created.v1"),
            Method::update(&[cap("repo.update")]).event("platform.registry.repo.updated.v1"),
            Method::delete(&[cap("repo.delete")]).event("platform.registry.repo.deleted.v1"),
        ],
        actions: &[],
        fields: &[
            Field::UID,
            Field::string("name").about("The repo's name, as `^[a-z0-9 ._-]{1,}$`; unique in its group.").required().sort(&["name"]).check(check::name),
            Field::string("description").about("A description for people, of at most 512 characters on one line.").max_len(check::MAX_DESCRIPTION).check(check::description),
            Field::enumeration("catalogTier", CATALOG_TIERS).about("The tier of the catalog that the repo belongs to."),
            Field::strings("bundles").about("Keywords that the repo is offered under, such as `base` or `fips`.").distinct().check(check::bundles),
            Field::strings("aliases").about("Other references that mean the repo, such as `library/nginx:latest`: a path, a colon and a tag.").distinct().check(check::aliases),
            Field::strings("activeTags").about("The tags that are maintained.").max_items(1000).distinct().check(check::tags),
            Field::message("syncConfig", SYNC_CONFIG).about("The repo that this one follows. Its tier, bundles, aliases and active tags are then those of the source.").gives(),
            Field::new("customOverlay", Type::Message(overlay::FIELDS)).about("What a custom image adds to the base. Kept and not acted on: this installation builds no images."),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ],
        keys: &[DerivedKey { name: "source", values: |body| source(body).map(KeyValue::text).into_iter().collect() }],
        unique: &[Unique {
            space: "repo.name",
            what: "a repo of this name in the group",
            value: check::name_in_parent,
            by: &["name"],
        }],
        roots: Roots::Granted,
        when_parent_goes: WhenParentGoes::Blocks,
    };

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7/0123456789abcdef"),
            name: "nginx".to_owned(),
            description: "A web server".to_owned(),
            catalog_tier: CatalogTier::CatalogTierApplication,
            bundles: vec!["application".to_owned()],
            aliases: vec!["web/nginx:latest".to_owned()],
            active_tags: vec!["latest".to_owned(), "1.29".to_owned()],
            sync_config: Some(SyncConfig {
                source: "63921b2c44617e3f2603851537be0123af4a57d7/fedcba9876543210".to_owned(),
                unique_tags: true,
                expiration_time: Some(Timestamp::EPOCH.plus_millis(SYNC_MILLIS)),
                google: "europe-docker.pkg.dev/example/mirror".to_owned(),
                amazon: "123456789012.dkr.ecr.eu-central-1.amazonaws.com/mirror".to_owned(),
                azure: "example.azurecr.io/mirror".to_owned(),
                apko_overlay: "example".to_owned(),
                grace_period: true,
            }),
            custom_overlay: Some(CustomOverlay::example()),
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    fn validate(&self, violations: &mut Violations) {
        if let Some(overlay) = &self.custom_overlay {
            overlay.validate(violations);
        }
    }

    fn prepare<'a>(cx: &'a Cx<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let now = cx.now();
            let Some(mut repo) = change.new.take() else { return Ok(()) };
            let before = change.old.as_ref().and_then(|old| old.sync_config.as_ref());
            if let Some(config) = &mut repo.sync_config {
                let source = match before {
                    Some(before) if before.source == config.source => cx.read(&Uid::opaque(&*config.source)).await?,
                    _ => Some(find_source(cx, &change.uid, config).await?),
                };
                if config.expiration_time.is_none() {
                    config.expiration_time = Some(now.plus_millis(SYNC_MILLIS));
                }
                if let Some(source) = source {
                    config.source = source.uid.to_string();
                    follow(cx, change, &mut repo, &source).await?;
                }
            }
            change.new = Some(repo);
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        self.sync_config.is_some()
    }

    /// Shows what a synced repo has from the one that it follows.
    fn render<'a>(cx: &'a Cx<'a>, repos: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let followed = |repo: &Self| repo.sync_config.as_ref().map(|config| Uid::opaque(&*config.source));
            let mut sources: Vec<_> = repos.iter().filter_map(followed).collect();
            sources.sort();
            sources.dedup();
            let found = cx.read_all::<Self>(sources).await?;
            for repo in repos {
                let source = followed(repo).and_then(|uid| found.iter().flatten().find(|source| source.uid == uid));
                if let Some(source) = source {
                    repo.catalog_tier = source.catalog_tier;
                    repo.bundles.clone_from(&source.bundles);
                    repo.aliases.clone_from(&source.aliases);
                    repo.active_tags.clone_from(&source.active_tags);
                    if repo.description.is_empty() {
                        repo.description.clone_from(&source.description);
                    }
                }
            }
            Ok(())
        })
    }

    /// The contract's message has another name for one field than REST.
    fn tell(event: &mut Draft) {
        if let Some(config) = event.body.shift_remove("syncConfig") {
            event.body.insert("sync_config".to_owned(), config);
        }
    }
}

fn source(body: &Value) -> Option<&str> {
    body.get("syncConfig")?.get("source")?.as_str()
}

/// Holds a repo to what it follows: what it has from there cannot be set to anything else, and is not stored.
async fn follow(cx: &Cx<'_>, change: &mut Change<Repo>, repo: &mut Repo, source: &Repo) -> Result<()> {
    let mut violations = Violations::default();
    let mut locked = |field: &str, set: bool, same: bool| {
        if set && !same && change.sets(field) {
            violations.add(field, "comes from the repo that this one follows");
        }
    };
    locked("catalogTier", repo.catalog_tier != CatalogTier::default(), repo.catalog_tier == source.catalog_tier);
    locked("bundles", !repo.bundles.is_empty(), repo.bundles == source.bundles);
    locked("aliases", !repo.aliases.is_empty(), repo.aliases == source.aliases);
    locked("activeTags", !repo.active_tags.is_empty(), repo.active_tags == source.active_tags);
    if source.sync_config.is_some() || source.uid == change.uid {
        violations.add("syncConfig.source", "must be a repo that follows none itself");
    }
    violations.none_or(())?;
    repo.catalog_tier = CatalogTier::default();
    repo.bundles.clear();
    repo.aliases.clear();
    repo.active_tags.clear();
    if let Some(record) = cx.record(Repo::KIND, &source.uid).await? {
        let standing: Repo = serde_json::from_slice(&record.body).map_err(Error::internal)?;
        // What was decided by is what must still stand, and not what came in between.
        if standing != *source {
            return Err(Error::stale());
        }
        let key = Key::new(Repo::KIND.name, source.uid.clone());
        change.write.require_still(Require::Revision(key, record.revision));
    }
    if change.verb == Verb::Update {
        let followers = Require::NoneWith(Repo::KIND.name, "source", KeyValue::text(&change.uid));
        let followed = Error::invalid_field("syncConfig", "must not be set on a repo that others follow");
        change.write.require(followers, followed);
    }
    Ok(())
}

/// Finds the repo that a sync names: a uid, or an organisation's and a repo's name.
///
/// # Errors
/// INVALID_ARGUMENT, the same for a repo that there is not and one that the caller cannot pull from.
async fn find_source(cx: &Cx<'_>, uid: &Uid, config: &SyncConfig) -> Result<Repo> {
    let unknown = || Error::invalid_field("syncConfig.source", "is no repo that you can pull from");
    if let Ok(source) = Uid::parse(&config.source) {
        if !cx.allows(&source, PULL) || source == *uid {
            return Err(unknown());
        }
        return cx.read(&source).await?.ok_or_else(unknown);
    }
    let mut names = config.source.rsplit('/');
    let (Some(name), Some(organisation)) = (names.next(), names.next()) else { return Err(unknown()) };
    let mut query = Query::new(Repo::KIND.name, Scope::Roots);
    query.scopes = organisations(cx, organisation).await?.into_iter().map(Scope::Children).collect();
    query.filters = vec![Filter::AnyOf { key: "name", values: vec![KeyValue::text(name)] }];
    query.limit = 2;
    let mut found = cx.find::<Repo>(query).await?;
    match (found.pop(), found.pop()) {
        (Some(repo), None) => Ok(repo),
        (Some(_), Some(_)) => Err(Error::invalid_field("syncConfig.source", "names several repos; give the uid")),
        _ => Err(unknown()),
    }
}

/// Returns the organisations of that name or uid in which the caller can pull.
async fn organisations(cx: &Cx<'_>, named: &str) -> Result<Vec<Uid>> {
    if let Ok(uid) = Uid::parse(named) {
        return Ok(if cx.allows(&uid, PULL) { vec![uid] } else { Vec::new() });
    }
    let by_name = Filter::AnyOf { key: "name", values: vec![KeyValue::text(named)] };
    let query = Query { filters: vec![by_name], limit: 100, ..Query::new(Group::KIND.name, Scope::Roots) };
    let items = cx.page(query).await?.items;
    Ok(items.into_iter().map(|item| item.uid).filter(|uid| cx.allows(uid, PULL)).collect())
}
