//! Repos: where tags of container images live (`docs/api.md`, Repos).

use serde::{Deserialize, Serialize};

use super::{
    super::{check, field, iam::Group},
    repo_follower::{self, PULL, Shown},
};
use crate::{
    BoxFuture,
    access::cap,
    context::Context,
    error::{Error, Result, Violations},
    event::Draft,
    kind::{Change, Domain, Field, Kind, Method, Param, Parent, Resource, Type, Unique},
    store::{Filter, Key, KeyValue, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
};

pub mod overlay;

pub use overlay::CustomOverlay;

/// A repo of container images. A synced repo follows another: it shows the other's tier, bundles, aliases and active
/// tags, and its description where it has none of its own, for as long as the identity that set it to follow can pull
/// from the other and the following has not expired.
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
    /// Until when it follows: for 14 days from when `source` was last set.
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

/// How long a repo follows another from each time that its source is set: 14 days.
const SYNC_MILLIS: i64 = 14 * 24 * 60 * 60 * 1000;

impl Resource for Repo {
    const KIND: &'static Kind = &Kind::new("Repo", "repos", "ReposService", Domain::REGISTRY)
        .parent(Parent::Group)
        .methods(&[
            Method::list(&[cap("repo.list")])
                .params(&[Param::exact("name").about("Only repos with exactly this name.")]),
            Method::get(&[cap("repo.list")]),
            Method::create(&[cap("repo.create")]).event("platform.registry.repo.created.v1"),
            Method::update(&[cap("repo.update")]).event("platform.registry.repo.updated.v1"),
            Method::delete(&[cap("repo.delete")]).event("platform.registry.repo.deleted.v1"),
        ])
        .fields(&[
            Field::UID,
            field::NAME.about("The repo's name, as `^[a-z0-9 ._-]{1,}$`; unique in its group."),
            field::DESCRIPTION,
            Field::enumeration("catalogTier", CATALOG_TIERS).about("The tier of the catalog that the repo belongs to."),
            Field::strings("bundles")
                .about("Keywords that the repo is offered under, such as `base` or `fips`.")
                .distinct()
                .check(check::bundles),
            Field::strings("aliases")
                .about(
                    "Other references that mean the repo, such as `library/nginx:latest`: a path, a colon and a tag.",
                )
                .distinct()
                .check(check::aliases),
            Field::strings("activeTags")
                .about("The tags that are maintained.")
                .max_items(1000)
                .distinct()
                .check(check::tags),
            Field::message("syncConfig", SYNC_CONFIG)
                .about(
                    "The repo that this one follows. Its tier, bundles, aliases and active tags are then those of the \
                     source.",
                )
                .gives(),
            Field::new("customOverlay", Type::Message(overlay::FIELDS)).about(
                "What a custom image adds to the base. Kept and not acted on: this installation builds no images.",
            ),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique {
            space: "repo.name",
            what: "a repo of this name in the group",
            value: check::name_in_parent,
            by: &["name"],
        }]);

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

    fn prepare<'a>(cx: &'a Context<'a>, change: &'a mut Change<Self>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let followed = change.old.as_ref().and_then(Self::source);
            let Some(mut repo) = change.new.take() else {
                followed.into_iter().for_each(|source| repo_follower::end(&mut change.write, &source, &change.uid));
                return Ok(());
            };
            let source = match (&mut repo.sync_config, &change.old) {
                (Some(config), _) if followed.is_none() || change.sets("syncConfig.source") => {
                    Some(follow(cx, change, config).await?)
                }
                (Some(_), Some(old)) => {
                    match repo_follower::shown::<Self>(cx, std::slice::from_ref(old)).await?.pop() {
                        Some(Shown::Source(source)) => source,
                        _ => None,
                    }
                }
                _ => None,
            };
            if let Some(before) = followed.filter(|before| repo.source().as_ref() != Some(before)) {
                repo_follower::end(&mut change.write, &before, &change.uid);
            }
            if let Some(source) = source {
                keep_own(change, &mut repo, &source)?;
            }
            change.new = Some(repo);
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        self.sync_config.is_some()
    }

    /// Shows the values that a repo has from its source, while it may show them.
    fn render<'a>(cx: &'a Context<'a>, repos: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let shown = repo_follower::shown::<Self>(cx, repos).await?;
            for (repo, shown) in repos.iter_mut().zip(shown) {
                let Shown::Source(Some(source)) = shown else { continue };
                repo.catalog_tier = source.catalog_tier;
                repo.bundles = source.bundles;
                repo.aliases = source.aliases;
                repo.active_tags = source.active_tags;
                if repo.description.is_empty() {
                    repo.description = source.description;
                }
            }
            Ok(())
        })
    }

    /// The contract's message has another name for one field than REST.
    fn customize_event(event: &mut Draft) {
        if let Some(config) = event.body.shift_remove("syncConfig") {
            event.body.insert("sync_config".to_owned(), config);
        }
    }
}

impl Repo {
    /// Returns the uid of the repo that this one is set to follow.
    fn source(&self) -> Option<Uid> {
        self.sync_config.as_ref().map(|config| Uid::opaque(&*config.source))
    }
}

/// Follows the repo that the request names, from now on and by the caller's right to pull from it, and returns it.
async fn follow(cx: &Context<'_>, change: &mut Change<Repo>, config: &mut SyncConfig) -> Result<Repo> {
    let source = find_source(cx, config).await?;
    if source.uid == change.uid {
        return Err(Error::invalid_field("syncConfig.source", "must be another repo"));
    }
    let until = cx.now().plus_millis(SYNC_MILLIS);
    config.source = source.uid.to_string();
    config.expiration_time = Some(until);
    // It may have been deleted in between.
    change.write.require_or_fail(Require::Exists(Key::new(Repo::KIND.name, source.uid.clone())), unknown_source());
    repo_follower::begin(cx, &mut change.write, &source.uid, &change.uid, until).await?;
    Ok(source)
}

/// Keeps the own values of a follower, which are shown again when it no longer follows, and refuses changes of values
/// that it has from its source.
fn keep_own(change: &Change<Repo>, repo: &mut Repo, source: &Repo) -> Result<()> {
    let own = change.old.clone().unwrap_or_default();
    let mut violations = Violations::default();
    let mut keep = Keep { change, violations: &mut violations };
    keep.own("catalogTier", &mut repo.catalog_tier, own.catalog_tier, &source.catalog_tier);
    keep.own("bundles", &mut repo.bundles, own.bundles, &source.bundles);
    keep.own("aliases", &mut repo.aliases, own.aliases, &source.aliases);
    keep.own("activeTags", &mut repo.active_tags, own.active_tags, &source.active_tags);
    violations.none_or(())
}

struct Keep<'a> {
    change: &'a Change<Repo>,
    violations: &'a mut Violations,
}

impl Keep<'_> {
    /// Puts a field back to its own value if the request sets it to the value that is shown.
    fn own<T: Default + PartialEq>(&mut self, field: &'static str, value: &mut T, own: T, shown: &T) {
        let left_out = self.change.replaces_all && *value == T::default();
        if self.change.sets(field) && !left_out && value != shown {
            self.violations.add(field, "comes from the repo that this one follows");
        }
        *value = own;
    }
}

fn unknown_source() -> Error {
    Error::invalid_field("syncConfig.source", "is no repo that you can pull from")
}

/// Finds the repo that a sync names: a uid, or an organisation's and a repo's name.
///
/// # Errors
/// INVALID_ARGUMENT, the same for a repo that there is not and one that the caller cannot pull from.
async fn find_source(cx: &Context<'_>, config: &SyncConfig) -> Result<Repo> {
    if let Ok(source) = Uid::parse(&config.source) {
        if !cx.allows(&source, PULL) {
            return Err(unknown_source());
        }
        return cx.read(&source).await?.ok_or_else(unknown_source);
    }
    let mut names = config.source.rsplit('/');
    let (Some(name), Some(organisation)) = (names.next(), names.next()) else { return Err(unknown_source()) };
    let mut query = Query::new(Repo::KIND.name, Scope::Roots);
    query.scopes = organisations(cx, organisation).await?.into_iter().map(Scope::Children).collect();
    query.filters = vec![Filter::AnyOf { key: "name", values: vec![KeyValue::text(name)] }];
    query.limit = 2;
    let mut found = cx.find::<Repo>(query).await?;
    match (found.pop(), found.pop()) {
        (Some(repo), None) => Ok(repo),
        (Some(_), Some(_)) => Err(Error::invalid_field("syncConfig.source", "names several repos; give the uid")),
        _ => Err(unknown_source()),
    }
}

/// Returns the organisations of that name or uid in which the caller can pull.
async fn organisations(cx: &Context<'_>, named: &str) -> Result<Vec<Uid>> {
    if let Ok(uid) = Uid::parse(named) {
        return Ok(if cx.allows(&uid, PULL) { vec![uid] } else { Vec::new() });
    }
    let by_name = Filter::AnyOf { key: "name", values: vec![KeyValue::text(named)] };
    let query = Query { filters: vec![by_name], limit: 100, ..Query::new(Group::KIND.name, Scope::Roots) };
    let items = cx.page(query).await?.items;
    Ok(items.into_iter().map(|item| item.uid).filter(|uid| cx.allows(uid, PULL)).collect())
}
