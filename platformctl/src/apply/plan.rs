//! The steps of an `apply`, one for each document.

use std::collections::HashMap;

use platform_engine::{
    kind::{Access, By, Kind, Parent, Type, Verb},
    uid::Uid,
};
use serde_json::{Map, Value};

use crate::{
    document::Placed,
    failure::{Exit, Failure, Result},
    kinds::{command_name, needs_parent, noun},
    names::{self, Found, name_field, only},
    session::Session,
    value::{self, InputOnly},
};

/// The step for a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Create,
    Update,
    /// A create that replaces an existing resource, for a kind that has no update.
    Replace,
}

/// The plan for a document.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) placed: Placed,
    pub(super) kind: &'static Kind,
    pub(super) action: Action,
    /// The uid of an existing resource.
    pub(super) uid: Option<String>,
    /// The uid of the parent; empty if there is none, or if it does not exist yet.
    pub(super) parent: String,
    /// The path of names, or else the uid.
    pub(super) name: String,
    pub(super) mask: Vec<String>,
    pub(super) body: Map<String, Value>,
    /// The fields that differ: now, and as the document has them.
    pub(super) before: Map<String, Value>,
    pub(super) after: Map<String, Value>,
    /// Whether it depends on a resource that is created first, so that it must be made again.
    pub(super) is_provisional: bool,
}

/// Makes plans.
pub(super) struct Planner<'a, 's> {
    session: &'s Session<'a>,
    /// The places of the documents, by the resources that they describe.
    described: HashMap<(&'static str, String), String>,
}

impl<'a, 's> Planner<'a, 's> {
    pub(super) fn new(session: &'s Session<'a>) -> Self {
        Self { session, described: HashMap::new() }
    }

    /// Makes the plans for all documents, in their order.
    ///
    /// # Errors
    /// With everything that is wrong with any document. Nothing has been changed.
    pub(super) fn plan_all(&mut self, documents: Vec<Placed>) -> Result<Vec<Plan>> {
        let mut plans = Vec::new();
        let mut problems: Option<Failure> = None;
        for placed in documents {
            let place = placed.place.clone();
            match self.plan(placed).and_then(|plan| self.once(plan)) {
                Ok(plan) => {
                    if plan.action == Action::Create {
                        self.session.names.plan(plan.kind, plan.name.clone());
                    }
                    plans.push(plan);
                }
                // Other documents cannot be read either.
                Err(failure) if matches!(failure.exit(), Exit::Unavailable | Exit::Denied) => return Err(failure),
                Err(failure) => {
                    let problem = failure.while_(place).to_string();
                    let problem = problem.trim_end().trim_start_matches("error: ").replace('\n', "\n  ");
                    let all = problems.take().unwrap_or_else(|| Failure::usage("nothing was changed"));
                    problems = Some(all.note(problem));
                }
            }
        }
        problems.map_or(Ok(plans), Err)
    }

    /// Rejects a second document for one resource. New resources without names cannot be distinguished here.
    fn once(&mut self, plan: Plan) -> Result<Plan> {
        if plan.uid.is_none() && name_field(plan.kind).is_none() && !plan.kind.parent.shares_uid() {
            return Ok(plan);
        }
        let what = plan.uid.clone().unwrap_or_else(|| plan.name.clone());
        match self.described.insert((plan.kind.name, what), plan.placed.place.clone()) {
            Some(other) => Err(Failure::usage(format!("describes the same {} as {other}", noun(plan.kind)))),
            None => Ok(plan),
        }
    }

    /// Makes the plan for a document.
    pub(super) fn plan(&mut self, placed: Placed) -> Result<Plan> {
        let session = self.session;
        let document = &placed.document;
        let kind = session.kinds.find(&document.kind)?.kind;
        let mut fields = document.fields.clone();
        check_fields(kind, &fields)?;
        let mut is_provisional = names::resolve(&session.names, kind.fields, &mut fields)?;

        let mut parent = String::new();
        let mut parent_path = document.parent.clone().unwrap_or_default().trim_matches('/').to_owned();
        match (&document.parent, session.kinds.parent(kind)) {
            (Some(text), Some(parent_kind)) if !parent_path.is_empty() => {
                match session.names.find(parent_kind, text)? {
                    Found::Uid(uid) => parent = uid,
                    Found::Planned => is_provisional = true,
                }
            }
            (Some(_), None) => return Err(Failure::usage(format!("a {} has no parent", noun(kind)))),
            _ if document.uid.is_some() => {}
            _ if needs_parent(kind) == Some(true) => return Err(Failure::usage("parent is required")),
            _ => parent_path.clear(),
        }
        let is_parent_planned = parent.is_empty() && !parent_path.is_empty();

        let existing = match &document.uid {
            Some(uid) => Some(session.api.get(kind, uid)?),
            // A resource that does not exist yet has neither children nor references to it.
            None if is_parent_planned || is_provisional && name_field(kind).is_none() => None,
            None => self.existing(kind, &parent, &fields)?,
        };
        let own = name_field(kind).and_then(|field| fields.get(field.name)).and_then(Value::as_str).unwrap_or_default();
        let name = match (parent_path.as_str(), own) {
            _ if kind.parent.shares_uid() => parent_path.clone(),
            ("", own) => own.to_owned(),
            (parent, "") => parent.to_owned(),
            (parent, own) => format!("{parent}/{own}"),
        };
        let plan = Plan {
            kind,
            action: Action::Create,
            uid: None,
            parent,
            name,
            mask: Vec::new(),
            body: Map::new(),
            before: Map::new(),
            after: Map::new(),
            is_provisional,
            placed,
        };
        match existing {
            None => create(plan, fields),
            Some(existing) => update(plan, &fields, &existing),
        }
    }

    /// Finds the resource that fields describe below a parent: the one of their name; or of a kind without names, the
    /// one that has the required and immutable values.
    fn existing(&self, kind: &'static Kind, parent: &str, fields: &Map<String, Value>) -> Result<Option<Value>> {
        let session = self.session;
        let found = |result: Result<Value>| match result {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.is("NOT_FOUND") => Ok(None),
            Err(failure) => Err(failure),
        };
        if kind.parent.shares_uid() {
            return found(session.api.get(kind, parent));
        }
        let key: Vec<_> = match name_field(kind) {
            Some(field) => vec![field],
            None => {
                let is_key = |access| matches!(access, Access::Immutable | Access::Mutable);
                let is_shown = kind.fields.iter().filter(|field| is_key(field.access) && !field.once);
                is_shown.filter(|field| field.required || field.access == Access::Immutable).collect()
            }
        };
        let wanted: Vec<_> = key
            .into_iter()
            .filter_map(|field| {
                Some((
                    field,
                    fields
                        .iter()
                        .find(|(key, _)| value::field(kind.fields, key).is_some_and(|one| one.name == field.name))?
                        .1,
                ))
            })
            .collect();
        if wanted.is_empty() {
            let name = name_field(kind).map_or("a required field", |field| field.name);
            return Err(Failure::usage(format!("{name} is required, or uid")));
        }
        let mut query = Vec::new();
        if !matches!(kind.parent, Parent::None) {
            let parent = if parent.is_empty() { "/" } else { parent };
            query.push(("uidp.children_of".to_owned(), parent.to_owned()));
        }
        let params = kind.method(Verb::List).map(|list| list.params).unwrap_or_default();
        for (field, value) in &wanted {
            let filter = params.iter().find(|param| param.by == By::Value(field.name));
            if let (Some(param), Some(text)) = (filter, value.as_str()) {
                query.push((param.field.name.to_owned(), text.to_owned()));
            }
        }
        let mut pages = session.api.pages(kind, query)?;
        let mut matching = Vec::new();
        while let Some(page) = pages.next(platform_engine::request::MAX_PAGE_SIZE)? {
            let is_it = |item: &Value| {
                wanted
                    .iter()
                    .all(|(field, value)| value::is_same(field, value, item.get(field.name).unwrap_or(&Value::Null)))
            };
            matching.extend(page.items.into_iter().filter(is_it));
        }
        match matching.len() {
            0 => Ok(None),
            1 => {
                let uid = matching.first().and_then(|item| item.get("uid")).and_then(Value::as_str).unwrap_or_default();
                // Lists may omit fields.
                let has_more = kind.fields.iter().any(|field| field.unlisted) && kind.serves(Verb::Get);
                if has_more { session.api.get(kind, uid).map(Some) } else { Ok(matching.pop()) }
            }
            _ => only(kind, "the document", &matching).map(|_| None),
        }
    }
}

/// Rejects unknown fields and values that YAML has read as another type, before anything is looked up by them.
fn check_fields(kind: &'static Kind, fields: &Map<String, Value>) -> Result<()> {
    let mut problems = Vec::new();
    for (key, value) in fields {
        match value::field(kind.fields, key) {
            None => problems.push(format!("{key}: unknown field")),
            Some(field) if matches!(field.ty, Type::String) && (value.is_number() || value.is_boolean()) => {
                problems.push(format!("{key}: must be a string: quote it"));
            }
            Some(_) => {}
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.into_iter().fold(Failure::usage(format!("invalid {}", noun(kind))), Failure::note))
    }
}

fn create(plan: Plan, fields: Map<String, Value>) -> Result<Plan> {
    if !plan.kind.serves(Verb::Create) {
        let message =
            format!("there is no such {}, and {} cannot be created", noun(plan.kind), command_name(plan.kind));
        return Err(Failure::new(Exit::NotFound, message));
    }
    let mut body = fields;
    body.retain(|key, _| value::field(plan.kind.fields, key).is_some_and(|field| field.access != Access::OutputOnly));
    Ok(Plan { after: body.clone(), body, ..plan })
}

fn update(plan: Plan, fields: &Map<String, Value>, existing: &Value) -> Result<Plan> {
    let kind = plan.kind;
    let mut changes = value::changes(kind.fields, fields, existing, InputOnly::Keep);
    let uid = existing.get("uid").and_then(Value::as_str).unwrap_or(&plan.parent).to_owned();
    let replaces = kind.method(Verb::Create).is_some_and(|create| create.served && create.upsert.is_some());
    if !changes.violations.is_empty() {
        let failure = Failure::usage(format!("invalid {} {uid}", noun(kind)));
        return Err(changes.violations.into_iter().fold(failure, Failure::note));
    }
    let action = match changes.mask.is_empty() {
        true => Action::Nothing,
        false if kind.serves(Verb::Update) => Action::Update,
        false if replaces => Action::Replace,
        false => {
            let failure = Failure::usage(format!("{} cannot be changed; delete {uid} first", command_name(kind)));
            return Err(changes.mask.iter().fold(failure, |failure, path| failure.note(format!("{path}: differs"))));
        }
    };
    let (before, after) = (changes.before, changes.body.clone());
    let body = match action {
        Action::Replace => {
            let mut body = value::settable(kind.fields, existing);
            body.append(&mut changes.body);
            body
        }
        _ => changes.body,
    };
    let parent = if plan.parent.is_empty() { Uid::opaque(uid.as_str()).parent() } else { None };
    let parent = parent.map_or(plan.parent, |parent| parent.as_str().to_owned());
    let is_provisional = plan.is_provisional && action != Action::Nothing;
    let name = if plan.name.is_empty() { uid.clone() } else { plan.name };
    Ok(Plan { action, uid: Some(uid), parent, name, mask: changes.mask, body, before, after, is_provisional, ..plan })
}
