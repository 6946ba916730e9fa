//! Settings of an organization's registry (`docs/api.md`, Registry settings).

use std::collections::{BTreeMap, BTreeSet};

use platform_engine::{
    BoxFuture,
    context::Context,
    error::{Result, Violations},
    kind::{Field, Kind, Method, Parent, Resource},
    timestamp::Timestamp,
    uid::Uid,
};
use serde::{Deserialize, Serialize};

use super::super::{domain, iam::Group};
use crate::capabilities::cap;

/// The settings of an organization's registry, which all have their defaults at first. Our own kind: version 2 of the
/// contract shows their effects only. It is here, although only version 1 sets it, because [`Repo`](super::Repo) reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistrySettings {
    /// The uid of the organization.
    pub uid: Uid,
    /// Whether each tag exists only once. Stored, but not acted on.
    pub unique_tags: bool,
    /// Whether tags stay available for a time after the end of life of their image's main package.
    pub eol_grace_period: bool,
    /// When they were first set; before that, when the organization was created.
    pub create_time: Option<Timestamp>,
    /// When they were last set; before that, when the organization was last updated.
    pub update_time: Option<Timestamp>,
}

impl Resource for RegistrySettings {
    const KIND: &'static Kind =
        &Kind::new("RegistrySettings", "registrySettings", "RegistrySettingsService", domain::REGISTRY)
            .parent(Parent::Singleton(Group::KIND, "registrySettings"))
            .methods(&[
                Method::get(&[cap("registry.settings.list")]).unserved(),
                Method::update(&[cap("registry.settings.update")]).unserved(),
            ])
            .fields(&[
                Field::string("uid").about("The organization's uid.").output_only(),
                Field::bool("uniqueTags").about("Whether each tag exists only once. Stored, but not acted on."),
                Field::bool("eolGracePeriod").about(
                    "Whether tags stay available for a time after the end of life of their image's main package.",
                ),
                Field::CREATE_TIME,
                Field::UPDATE_TIME,
            ])
            .cascade();

    fn example() -> Self {
        Self {
            uid: Uid::opaque("63921b2c44617e3f2603851537be0123af4a57d7"),
            unique_tags: true,
            eol_grace_period: true,
            create_time: Some(Timestamp::EPOCH),
            update_time: Some(Timestamp::EPOCH),
        }
    }

    fn computed(&self) -> bool {
        true
    }

    /// Fills in the times of settings that were never set: those of the organization.
    fn render<'a>(cx: &'a Context<'a>, settings: &'a mut [Self]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let groups = cx.read_all::<Group>(settings.iter().map(|settings| settings.uid.clone())).await?;
            for (settings, group) in settings.iter_mut().zip(groups) {
                let group = group.unwrap_or_default();
                settings.create_time = settings.create_time.or(group.create_time);
                settings.update_time = settings.update_time.or(group.update_time);
            }
            Ok(())
        })
    }

    fn validate(&self, violations: &mut Violations) {
        if !self.uid.is_root() {
            violations.add("uid", "must be an organization: a folder has the settings of its organization");
        }
    }
}

impl RegistrySettings {
    /// Returns the settings of these organizations that have some, by uid.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn of_all(cx: &Context<'_>, organizations: BTreeSet<String>) -> Result<BTreeMap<String, Self>> {
        if organizations.is_empty() {
            return Ok(BTreeMap::new());
        }
        let settings = cx.read_all::<Self>(organizations.iter().map(|uid| Uid::opaque(&**uid))).await?;
        let settings = organizations.into_iter().zip(settings);
        Ok(settings.filter_map(|(uid, settings)| Some((uid, settings?))).collect())
    }
}
