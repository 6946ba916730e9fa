//! The check of batch gets.

use futures_lite::future::block_on;
use platform_engine::{
    error::{Code, Result},
    kind::{Parent, Verb},
    uid::Uid,
    verbs::MAX_UIDS,
};
use serde_json::{Value, json};

use super::{
    KindSuite,
    steps::{object, parsed},
};

impl KindSuite<'_> {
    /// A batch get returns what gets return, in the order of the uids, or nothing if one of them fails.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn batch_gets_return_what_gets_return(&self) {
        if !self.begin("batch_gets_return_what_gets_return", &[Verb::Get]) {
            return;
        }
        let (mut uids, _) = self.make_some();
        uids.reverse();
        uids.extend(uids.first().cloned());
        let expected: Vec<_> = uids.iter().map(|uid| self.read(uid)).collect();
        let found = self.done("batch get", self.batch_get(&json!({ "uids": uids })));
        self.equal("resources", &found, &expected);
        let masked = self.done("batch get with a mask", self.batch_get(&json!({ "uids": uids, "readMask": "uid" })));
        let only_uids: Vec<_> = uids.iter().map(|uid| json!({ "uid": uid })).collect();
        self.equal("resources with a mask", &masked, &only_uids);
        if !matches!(self.kind().parent, Parent::None)
            && let Some(one) = uids.first()
        {
            // At the top of the hierarchy, nobody has access to a resource that does not exist.
            let missing = Uid::opaque(format!("{}/ffffffffffffffff", one.root()));
            let code = self.batch_get(&json!({ "uids": [one, missing] })).err().map(|error| error.code());
            let is_absent = matches!(code, Some(Code::NotFound | Code::PermissionDenied));
            self.require(is_absent, "missing uid", format_args!("must be an error, but the result is {code:?}"));
        }
        let many = vec![uids.first(); MAX_UIDS + 1];
        for (request, field) in [
            (json!({}), "uids"),
            (json!({ "uids": [] }), "uids"),
            (json!({ "uids": many }), "uids"),
            (json!({ "uids": [uids.first(), Some(&Uid::opaque(""))] }), "uids[1]"),
            (json!({ "uids": uids, "readMask": "nothing" }), "readMask"),
        ] {
            self.violates(field, self.batch_get(&request), &[field]);
        }
    }

    fn batch_get(&self, request: &Value) -> Result<Vec<Value>> {
        let found = block_on(self.platform.batch_get_erased(&self.owner, &self.registered, &object(request)))?;
        Ok(found.iter().map(|body| parsed(body)).collect())
    }
}
