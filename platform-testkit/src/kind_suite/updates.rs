//! Checks of updates.

use heck::ToSnakeCase;
use platform_engine::{
    kind::{Access, Type, Verb},
    uid::Uid,
};
use serde_json::{Value, json};

use super::{
    KindSuite, Pair,
    steps::{object, overlaid, text, uid_of},
};

/// The methods that checks of updates need.
const WRITES: &[Verb] = &[Verb::Create, Verb::Update];

impl KindSuite<'_> {
    /// Creates and updates ignore output-only fields, whatever their values, and a mask of such fields changes nothing.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn output_only_fields_are_ignored(&self) {
        if !self.begin("output_only_fields_are_ignored", WRITES) {
            return;
        }
        let outputs: Vec<_> = self.fields(Access::OutputOnly).map(|field| field.name).collect();
        let junk = |body: &Value| {
            let mut body = body.clone();
            outputs.iter().for_each(|name| body[*name] = json!([5]));
            body
        };
        for pair in self.fresh_pairs() {
            let a = self.create(&pair.parent, &junk(&pair.a));
            let uid = uid_of(&a);
            self.clock.advance(1000);
            let unchanged = self.update(&uid, &junk(&json!({})), Some(&outputs.join(",")));
            self.equal("update of output-only fields", &unchanged, &a);
            self.same("update with mask *", &self.update(&uid, &junk(&pair.a), Some("*")), &a);
            self.same("update without a mask", &self.update(&uid, &junk(&json!({})), None), &a);
        }
    }

    /// An update of each field that callers can set changes it and no other: without a mask, and with a mask in
    /// camelCase and in snake_case. Without a mask, a message keeps the fields that were not sent. The mask `*`
    /// replaces all. Each change raises `updateTime`.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn each_field_is_updated_alone(&self) {
        if !self.begin("each_field_is_updated_alone", WRITES) {
            return;
        }
        for pair in self.fresh_pairs() {
            let b = self.create(&pair.parent, &pair.b);
            if self.has(Verb::Delete) {
                // Releases the unique values of b, so that a can take them.
                self.done("delete", self.delete(&self.owner, text(&b, "uid")));
            }
            let a = self.create(&pair.parent, &pair.a);
            let uid = uid_of(&a);
            for field in self.settable().filter(|field| pair.b.get(field.name).is_some()) {
                let name = field.name;
                let check = |body: &Value, mask: Option<&str>, value: &Value| {
                    let mut expected = a.clone();
                    expected[name] = value.clone();
                    self.check_update((&pair, &uid, &a), body, mask, name, &expected);
                };
                let Type::Message(inner) = field.ty else {
                    check(&json!({ name: b[name] }), None, &b[name]);
                    check(&pair.b, Some(name), &b[name]);
                    check(&pair.b, Some(&name.to_snake_case()), &b[name]);
                    continue;
                };
                check(&json!({ name: pair.b[name] }), None, &overlaid(inner, &a[name], &b[name]));
                check(&pair.b, Some(name), &b[name]);
            }
            self.clock.advance(1000);
            let replaced = self.update(&uid, &pair.b, Some("*"));
            let mut expected = b.clone();
            for field in self.kind().fields.iter().filter(|f| f.access == Access::Immutable || f.name == "uid") {
                expected[field.name] = a[field.name].clone();
            }
            expected["createTime"] = a["createTime"].clone();
            self.same("update with mask *", &replaced, &expected);
            self.equal("get after an update", &self.read(&uid), &replaced);
            self.equal("updateTime", text(&replaced, "updateTime"), &*self.platform.now().to_string());
        }
    }

    /// Updates a resource with the body `a` of a pair, compares it, and restores it.
    #[track_caller]
    fn check_update(
        &self,
        (pair, uid, a): (&Pair, &Uid, &Value),
        body: &Value,
        mask: Option<&str>,
        name: &str,
        expected: &Value,
    ) {
        self.clock.advance(1000);
        let updated = self.update(uid, body, mask);
        self.same(format_args!("update of {name} with mask {mask:?}"), &updated, expected);
        self.equal(format_args!("get after an update of {name}"), &self.read(uid), &updated);
        if expected != a {
            self.equal("updateTime", text(&updated, "updateTime"), &*self.platform.now().to_string());
        }
        self.same("update back", &self.update(uid, &pair.a, Some("*")), a);
    }

    /// An update with the values that the resource has returns it unchanged, `updateTime` included.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn equal_values_change_nothing(&self) {
        if !self.begin("equal_values_change_nothing", WRITES) {
            return;
        }
        for pair in self.fresh_pairs() {
            let created = self.create(&pair.parent, &pair.a);
            let uid = uid_of(&created);
            self.clock.advance(1000);
            let mut body = object(&pair.a);
            body.retain(|name, _| self.renewed.iter().all(|(renewed, _)| renewed != name));
            let is_whole = body.len() == object(&pair.a).len();
            for mask in [None, is_whole.then_some("*")] {
                let updated = self.update(&uid, &body.clone().into(), mask);
                self.equal(format_args!("update with mask {mask:?}"), &updated, &created);
            }
        }
    }

    /// An update with a mask clears a field that the body lacks, and is rejected if the field is required.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn masked_fields_are_cleared(&self) {
        if !self.begin("masked_fields_are_cleared", WRITES) {
            return;
        }
        let Some(pair) = self.fresh_pairs().pop() else { return };
        let uid = uid_of(&self.create(&pair.parent, &pair.a));
        for field in self.settable().filter(|field| field.oneof.is_none()) {
            let cleared = self.try_update(&self.owner, &uid, &json!({}), Some(field.name));
            if field.required || self.needed.contains(&field.name) {
                self.violates(field.name, cleared, &[field.name]);
            } else {
                let left = self.done(field.name, cleared).get(field.name).cloned();
                let default = field.default.map(|default| default());
                let is_cleared = match &default {
                    Some(_) => left == default,
                    None => [None, Some(json!(false)), Some(json!(0))].contains(&left),
                };
                self.require(is_cleared, field.name, format_args!("must be cleared or have its default, not {left:?}"));
            }
            self.update(&uid, &pair.a, Some("*"));
        }
    }

    /// An update accepts the current value of an immutable field, or none, and rejects another.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn immutable_fields_stay(&self) {
        if !self.begin("immutable_fields_stay", WRITES) {
            return;
        }
        for name in self.fields(Access::Immutable).map(|field| field.name) {
            let Some(pair) = self.fresh_pairs().into_iter().next() else { return };
            let a = self.create(&pair.parent, &pair.a);
            let uid = uid_of(&a);
            for mask in [None, Some(name), Some("*")] {
                let mut other = pair.a.clone();
                other[name] = json!("another");
                let update = self.try_update(&self.owner, &uid, &other, mask);
                self.violates(format_args!("update of {name} with mask {mask:?}"), update, &[name]);
                self.same("update with the same value", &self.update(&uid, &pair.a, mask), &a);
            }
            self.same("update without a value", &self.update(&uid, &json!({}), Some(name)), &a);
        }
    }
}
