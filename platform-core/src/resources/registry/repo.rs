//! Repos of container images (`docs/api.md`, Repos).

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Error, Result, Violations},
    event::Draft,
    kind::{Change, Field, Kind, Method, Param, Parent, Resource, Type, Unique},
    store::{Filter, Key, KeyValue, Query, Require, Scope},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};
use strum::VariantNames;

use super::{
    super::{check, domain, field, iam::Group},
    RegistrySettings,
    repo_follower::{self, PULL, Shown},
};
use crate::capabilities::cap;

pub mod overlay;

pub use overlay::CustomOverlay;

/// A repo of container images.
///
/// A synced repo follows another one, its source: it shows the source's tier, bundles, aliases and active tags, and the
/// source's description if it has none of its own, while the identity that set the source can pull from it and until
/// the following expires.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Repo {
    /// The uid of the group and a segment.
    pub uid: Uid,
    /// The name; unique in its group.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// The tier of the catalog that the repo belongs to.
    pub catalog_tier: CatalogTier,
    /// The bundles that the repo is part of.
    pub bundles: Vec<String>,
    /// Other references to the repo.
    pub aliases: Vec<String>,
    /// The names of the maintained tags.
    pub active_tags: Vec<String>,
    /// The repo that this one follows, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_config: Option<SyncConfig>,
    /// The customization of its images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_overlay: Option<CustomOverlay>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// When it was last updated.
    pub update_time: Option<Timestamp>,
}

/// The tier of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the contract names them and says no more")]
#[non_exhaustive]
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

/// The configuration of a repo that follows another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncConfig {
    /// The uid of the source. A request may also name it as `organization/repo`, with or without a host in front.
    pub source: String,
    /// Whether tags are unique in the organization: a setting of its registry, which is not stored with the repo.
    pub unique_tags: bool,
    /// When the following expires: 14 days after `source` was last set, unless the request said otherwise.
    pub expiration_time: Option<Timestamp>,
    /// A destination in Google's registry.
    pub google: String,
    /// A destination in Amazon's registry.
    pub amazon: String,
    /// A destination in Azure's registry.
    pub azure: String,
    /// The build overlay that the installation adds to the images; set by the installation.
    pub apko_overlay: String,
    /// Whether tags at the end of their life are retained for a while; set by the installation.
    pub grace_period: bool,
}

/// The table of [`SyncConfig`].
pub const SYNC_CONFIG: &[Field] = &[
    Field::string("source")
        .about("The repo to follow: its uid, or `organization/repo`. Responses have the uid.")
        .required()
        .uid_of("Repo"),
    Field::bool("uniqueTags")
        .about("Whether the organization has each tag only once: a setting of its registry. Stored, but not acted on.")
        .output_only(),
    Field::timestamp("expirationTime").about("When the repo stops following its source.").output_only(),
    Field::string("google").about("A Google Artifact Registry repository to copy to. Stored, but not acted on."),
    Field::string("amazon").about("An Amazon ECR repository to copy to. Stored, but not acted on."),
    Field::string("azure").about("An Azure registry to copy to. Stored, but not acted on."),
    Field::string("apkoOverlay")
        .about("Additions of the installation to the images; set by the installation.")
        .output_only(),
    Field::bool("gracePeriod")
        .about("Whether expired tags are retained for a while; set by the installation.")
        .output_only(),
];

const EXPIRATION: &str = "syncConfig.expirationTime";

const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// The time that a repo follows another after its source was set: 14 days.
const SYNC_MILLIS: i64 = 14 * DAY_MILLIS;

/// The maximum time that a request may let a repo follow another: 365 days.
const MAX_SYNC_MILLIS: i64 = 365 * DAY_MILLIS;

impl Resource for Repo {
    const KIND: &'static Kind = &Kind::new("Repo", "repos", "ReposService", domain::REGISTRY)
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
            Field::enumeration("catalogTier", CatalogTier::VARIANTS)
                .about("The tier of the catalog that the repo belongs to."),
            Field::strings("bundles")
                .about("Keywords that the repo is offered under, such as `base` or `fips`.")
                .distinct()
                .check(check::bundles),
            Field::strings("aliases")
                .about("Other references to the repo, such as `library/nginx:latest`: a path, a colon and a tag.")
                .distinct()
                .check(check::aliases),
            Field::strings("activeTags")
                .about("The tags that are maintained.")
                .max_items(1000)
                .distinct()
                .check(check::tags),
            Self::SYNC,
            Field::new("customOverlay", Type::Message(overlay::FIELDS)).about(
                "The additions of a custom image to its base. Stored, but not acted on: this installation builds no \
                 images.",
            ),
            Field::CREATE_TIME,
            Field::UPDATE_TIME,
        ])
        .unique(&[Unique::in_parent("repo.name", "A repo of this name in the group", "name").by(&["name"])]);

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
                    config.unique_tags = false;
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
            // Version 1 shows and sets the own values of a follower, and not the inherited ones.
            if let Some(source) = source.filter(|_| !change.rules.converted) {
                retain_own_values(change, &mut repo, &source)?;
            }
            change.new = Some(repo);
            Ok(())
        })
    }

    fn computed(&self) -> bool {
        self.sync_config.is_some()
    }

    /// Replaces the values that a repo inherits by those of its source, if it may show them.
    fn render<'a>(cx: &'a Context<'a>, repos: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let shown = repo_follower::shown::<Self>(cx, repos).await?;
            let roots = repos.iter().filter(|repo| repo.sync_config.is_some()).map(|repo| repo.uid.root().to_owned());
            let settings = RegistrySettings::of_all(cx, roots.collect()).await?;
            for (repo, shown) in repos.iter_mut().zip(shown) {
                if let Some(config) = &mut repo.sync_config {
                    config.unique_tags = settings.get(repo.uid.root()).is_some_and(|settings| settings.unique_tags);
                }
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

    /// Renames the field that has another name in the contract's event than in REST.
    fn customize_event(event: &mut Draft) {
        if let Some(config) = event.body.shift_remove("syncConfig") {
            event.body.insert("sync_config".to_owned(), config);
        }
    }
}

impl Repo {
    /// The field `syncConfig`.
    pub const SYNC: Field = Field::message("syncConfig", SYNC_CONFIG)
        .about(
            "The repo that this one follows. Its tier, bundles, aliases and active tags are then those of the source.",
        )
        .privileged();

    /// Returns the uid of the repo that this one is set to follow.
    fn source(&self) -> Option<Uid> {
        self.sync_config.as_ref().map(|config| Uid::opaque(&*config.source))
    }
}

/// Begins to follow the repo that the request names, by the caller's right to pull from it, and returns that repo.
async fn follow(cx: &Context<'_>, change: &mut Change<Repo>, config: &mut SyncConfig) -> Result<Repo> {
    let source = find_source(cx, config).await?;
    if source.uid == change.uid {
        return Err(Error::invalid_field("syncConfig.source", "must be another repo"));
    }
    let until = expiration(cx, change, config)?;
    config.source = source.uid.to_string();
    config.expiration_time = Some(until);
    // The source may be deleted concurrently.
    change.write.require_or_fail(Require::Exists(Key::new(Repo::KIND.name, source.uid.clone())), unknown_source());
    repo_follower::begin(cx, &mut change.write, &source.uid, &change.uid, until).await?;
    Ok(source)
}

/// Returns when a following that begins now expires: as the request says, if it may say so.
fn expiration(cx: &Context<'_>, change: &Change<Repo>, config: &SyncConfig) -> Result<Timestamp> {
    let sent = config.expiration_time.filter(|_| change.rules.allow(EXPIRATION));
    let Some(until) = sent else { return Ok(cx.now().plus_millis(SYNC_MILLIS)) };
    let stored = change.old.as_ref().and_then(|old| old.sync_config.as_ref()?.expiration_time);
    if stored != Some(until) {
        if until <= cx.now() {
            return Err(Error::invalid_field(EXPIRATION, "must be in the future"));
        }
        if until > cx.now().plus_millis(MAX_SYNC_MILLIS) {
            return Err(Error::invalid_field(EXPIRATION, "must be at most 365 days ahead"));
        }
    }
    Ok(until)
}

/// Retains the stored values of a follower's inherited fields, which are shown again when it no longer follows, and
/// rejects changes of them.
fn retain_own_values(change: &Change<Repo>, repo: &mut Repo, source: &Repo) -> Result<()> {
    let own = change.old.clone().unwrap_or_default();
    let mut violations = Violations::default();
    let mut inherited = InheritedFields { change, violations: &mut violations };
    inherited.retain("catalogTier", &mut repo.catalog_tier, own.catalog_tier, &source.catalog_tier);
    inherited.retain("bundles", &mut repo.bundles, own.bundles, &source.bundles);
    inherited.retain("aliases", &mut repo.aliases, own.aliases, &source.aliases);
    inherited.retain("activeTags", &mut repo.active_tags, own.active_tags, &source.active_tags);
    violations.none_or(())
}

/// The fields that a follower inherits from its source.
struct InheritedFields<'a> {
    change: &'a Change<Repo>,
    violations: &'a mut Violations,
}

impl InheritedFields<'_> {
    /// Sets a field to the repo's own value. Adds a violation if the request sets it to another value than the one
    /// shown; a request that replaces the whole resource may leave it out.
    fn retain<T: Default + PartialEq>(&mut self, field: &'static str, value: &mut T, own: T, shown: &T) {
        let left_out = self.change.replaces_all && *value == T::default();
        if self.change.sets(field) && !left_out && value != shown {
            self.violations.add(field, "is inherited from the repo that this one follows");
        }
        *value = own;
    }
}

fn unknown_source() -> Error {
    Error::invalid_field("syncConfig.source", "must be a repo that you can pull from")
}

/// Finds the source of a sync by its uid, or by the name or uid of its organization and its name.
///
/// # Errors
/// INVALID_ARGUMENT, the same for a repo that does not exist and one that the caller cannot pull from.
async fn find_source(cx: &Context<'_>, config: &SyncConfig) -> Result<Repo> {
    if let Ok(source) = Uid::parse(&config.source) {
        if !cx.allows(&source, PULL) {
            return Err(unknown_source());
        }
        return cx.read(&source).await?.ok_or_else(unknown_source);
    }
    let mut names = config.source.rsplit('/');
    let (Some(name), Some(organization)) = (names.next(), names.next()) else { return Err(unknown_source()) };
    let mut query = Query::new(Repo::KIND.name, Scope::Roots);
    query.scopes = organizations(cx, organization).await?.into_iter().map(Scope::Children).collect();
    query.filters = vec![Filter::AnyOf { key: "name", values: vec![KeyValue::text(name)] }];
    query.limit = 2;
    let mut found = cx.find::<Repo>(query).await?;
    match (found.pop(), found.pop()) {
        (Some(repo), None) => Ok(repo),
        (Some(_), Some(_)) => Err(Error::invalid_field("syncConfig.source", "matches several repos; use the uid")),
        _ => Err(unknown_source()),
    }
}

/// Returns the organizations with that name or uid where the caller can pull.
async fn organizations(cx: &Context<'_>, named: &str) -> Result<Vec<Uid>> {
    if let Ok(uid) = Uid::parse(named) {
        return Ok(if cx.allows(&uid, PULL) { vec![uid] } else { Vec::new() });
    }
    let by_name = Filter::AnyOf { key: "name", values: vec![KeyValue::text(named)] };
    let query = Query { filters: vec![by_name], limit: 100, ..Query::new(Group::KIND.name, Scope::Roots) };
    let items = cx.page(query).await?.items;
    Ok(items.into_iter().map(|item| item.uid()).filter(|uid| cx.allows(uid, PULL)).collect())
}
