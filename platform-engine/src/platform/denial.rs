//! Explains denials to callers who may see the place.

use super::Platform;
use crate::{
    access::{CapabilitySet, Denied, Explanation},
    context::Context,
    error::Error,
    uid::Uid,
};

/// The maximum number of bytes of each list in an explanation. An error of gRPC has room for 4 KiB of details.
const MAX_LIST: usize = 1 << 10;

/// The maximum number of bytes of the names of groups; longer ones are left out.
const MAX_NAMES: usize = 256;

impl Platform {
    /// Returns a denial with its explanation, if the authority gives one. The operation was decided with current grants.
    ///
    /// An explanation depends on the uid of the request, the caller's grants and the roles that the caller may see, and
    /// not on whether the resource exists. A failure of the store leaves the denial as it is.
    pub(crate) async fn explained(&self, cx: &Context<'_>, error: Error) -> Error {
        let (Some(denial), Some(caller)) = (error.denial(), cx.caller()) else { return error };
        let missing = denial.missing.iter().filter_map(|name| self.capabilities.by_name(name));
        let (place, missing) = (Uid::opaque(denial.place.clone()), missing.collect::<CapabilitySet>());
        let held = place.ancestry().map(|above| (Uid::opaque(above), cx.held_at(above))).collect();
        let denied = Denied { caller, place: &place, missing, held };
        let explanation = self.authority.explain(self.store(), &self.capabilities, &denied).await;
        let Ok(Some(Explanation { roles, bindings, names: groups })) = explanation else { return error };
        let names = self.capabilities.in_set(missing).map(|capability| capability.name().to_owned());
        let bindings = bindings.into_iter().map(|(role, group)| format!("{role}@{group}"));
        let mut metadata = vec![
            ("capabilities", joined(names)),
            ("place", place.to_string()),
            ("roles", joined(roles.into_iter())),
            ("bindings", joined(bindings)),
        ];
        let groups = groups.join("/");
        if !groups.is_empty() && groups.len() <= MAX_NAMES {
            metadata.push(("names", groups));
        }
        // The identity holds the capabilities; its token does not allow them.
        if caller.narrowing.is_some() && cx.grants().at(&place).is_superset(&missing) {
            metadata.push(("narrowed", "true".to_owned()));
        }
        error.with_metadata(metadata)
    }
}

/// Returns a list separated by commas, as far as it is within the bound.
fn joined(items: impl Iterator<Item = String>) -> String {
    let mut list = String::new();
    for item in items {
        if list.len() + item.len() + 1 > MAX_LIST {
            break;
        }
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&item);
    }
    list
}
