//! Settings of the registry of an organization.

use platform_core::resources::registry::RegistrySettings;
use platform_engine::{
    conversion::Conversion,
    kind::{Action, Domain, Field, Resource},
};

use super::REGISTRY;

const PATH: &str = "settings/{registryId=**}";

pub(super) const GET: Action = Action::get_as::<Message>("GetRegistrySettings", PATH, &[REGISTRY_ID]);
pub(super) const UPDATE: Action = Action::replace_as::<Message>("UpdateRegistrySettings", PATH);

const REGISTRY_ID: Field = RegistrySettings::KIND.show("uid").named("registryId");

struct Message;

impl Conversion for Message {
    type Resource = RegistrySettings;
    const DOMAIN: Domain = REGISTRY;
    const PATH: &'static str = "settings";
    const MESSAGE: &'static str = "RegistrySettings";
    const FIELDS: &'static [Field] =
        &[REGISTRY_ID, RegistrySettings::KIND.show("uniqueTags"), RegistrySettings::KIND.show("eolGracePeriod")];
}
