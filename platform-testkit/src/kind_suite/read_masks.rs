//! The check of read masks: each field is shown alone.

use futures_lite::future::block_on;
use platform_engine::{
    aip::read_mask,
    kind::{Field, Type, Verb},
    options::RequestOptions,
};
use serde_json::{Map, Value};

use super::{
    KindSuite,
    steps::{parsed, uid_of},
};

impl KindSuite<'_> {
    /// A list and a get with a read mask show the field of the mask, in messages too, and nothing else.
    ///
    /// # Panics
    /// When the rule does not hold.
    pub fn read_masks_show_their_fields(&self) {
        if !self.begin("read_masks_show_their_fields", &[Verb::List]) {
            return;
        }
        self.make_some();
        let listed = self.walk(&self.owner, &[]);
        let uids = if self.has(Verb::Get) { listed.iter().map(uid_of).collect() } else { Vec::new() };
        let read: Vec<_> = uids.iter().map(|uid| self.read(uid)).collect();
        for path in paths(self.kind().fields, "") {
            let masked = |items: &[Value]| items.iter().map(|item| part(item, &path)).collect::<Vec<_>>();
            self.equal(&path, &self.walk(&self.owner, &[("read_mask", &path)]), &masked(&listed));
            let options = RequestOptions::default().read_mask(path.clone());
            let get = |uid| block_on(self.platform.get_erased(&self.owner, &self.registered, uid, &options));
            let found: Vec<_> = uids.iter().map(|uid| parsed(&self.done(&path, get(uid)).body)).collect();
            self.equal(&path, &found, &masked(&read));
        }
        let unknown = RequestOptions::default().read_mask("uid,nothing".to_owned());
        for uid in &uids {
            let get = block_on(self.platform.get_erased(&self.owner, &self.registered, uid, &unknown));
            self.violates("get with an unknown field", get, &[read_mask::NAME]);
        }
        let list = self.list(&self.owner, &[("readMask", "uid,nothing")]);
        self.violates("list with an unknown field", list, &[read_mask::NAME]);
    }
}

/// Returns the paths of all fields, at the top and in messages.
fn paths(fields: &'static [Field], above: &str) -> Vec<String> {
    let mut all = Vec::new();
    for field in fields {
        let path = format!("{above}{}", field.name);
        if let Type::Message(inner) | Type::List(&Type::Message(inner)) = field.ty {
            all.extend(paths(inner, &format!("{path}.")));
        }
        all.push(path);
    }
    all
}

/// Returns a value with one path of it.
fn part(value: &Value, path: &str) -> Value {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match value {
        Value::Object(object) => {
            let shown = object.get(first).map(|inner| rest.map_or_else(|| inner.clone(), |rest| part(inner, rest)));
            shown.map(|inner| (first.to_owned(), inner)).into_iter().collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| part(item, path)).collect(),
        other => other.clone(),
    }
}
