//! The error of a delete that children prevent (`docs/api.md`, Deletes and References).

use super::Context;
use crate::{
    error::{Error, Result},
    kind::{OnParentDelete, Verb},
    store::{Query, Scope},
    write::{NotEmpty, spoken},
};

impl Context<'_> {
    /// Returns the error of a delete that children prevent: one violation for each kind that is in the way and that the
    /// caller may list there, with the number of its resources at any depth, which the metadata has too. Of other kinds,
    /// only the one whose requirement failed is named.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn not_empty(&self, failed: &NotEmpty) -> Result<Error> {
        let NotEmpty { kind, uid, child: first } = failed;
        let (mut violations, mut counts) = (Vec::new(), Vec::new());
        let restricting = self.platform.dependents().below(kind).into_iter();
        for (child, same_uid) in restricting.filter(|(child, _)| child.on_parent_delete == OnParentDelete::Restrict) {
            let why = format!("cannot delete {} with child {}", spoken(kind.name), spoken(child.plural));
            let list = child.method(Verb::List).filter(|list| list.served);
            let count = match list.filter(|list| self.allows(uid, list.capabilities)) {
                None => 0,
                Some(_) => {
                    let scope = if same_uid { Scope::Exact(uid.clone()) } else { Scope::Subtree(uid.clone()) };
                    let page = self.page(Query { limit: 0, count: true, ..Query::new(child.name, scope) }).await?;
                    // A group is in its own subtree.
                    page.total.unwrap_or_default().saturating_sub(u64::from(child.name == kind.name))
                }
            };
            if count > 0 {
                violations.push(format!("{why} ({count})"));
                counts.push((child.plural, count.to_string()));
            } else if child.name == first.name {
                violations.push(why);
            }
        }
        let why = format!("cannot delete {} with child {}", spoken(kind.name), spoken(first.plural));
        Ok(Error::blocked_by("RESOURCE_NOT_EMPTY", &why, violations).with_metadata(counts))
    }
}
