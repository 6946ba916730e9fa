//! Tests of the rules that hold for every kind, driven by the kind tables. A new kind is covered by its entry in
//! `KINDS` and by a fixture with the facts that its table does not have.

use platform_core::{
    access::Capability,
    error::{Code, Result},
    kind::{Access, Field, Kind, Parent, Registered, Type, Verb},
    uid::Uid,
};
use serde_json::{Value, json};

use self::fixtures::{FIXTURES, Fixture, Pair, WITHOUT_METHODS, attempt};
use crate::common::{World, code, object, owner_capabilities, text, uid_of, violated_fields};

pub(crate) mod fixtures;
mod lists;

/// A world with an organization, and the kind under test.
struct Case {
    world: World,
    organization: Uid,
    kind: &'static Kind,
    fixture: &'static Fixture,
}

impl Case {
    fn new(fixture: &'static Fixture) -> Self {
        let world = World::new();
        let organization = uid_of(&world.create(&world.operator, "Group", "", json!({ "name": "own.test" })).unwrap());
        let kind = world.kind(fixture.kind).kind;
        Self { world, organization, kind, fixture }
    }

    fn has(&self, verb: Verb) -> bool {
        self.kind.method(verb).is_some()
    }

    fn pairs(&self) -> Vec<Pair> {
        let example = (self.world.kind(self.kind.name).example)();
        (self.fixture.pairs)(&self.world, &self.organization, example)
    }

    /// Creates a resource, replacing the existing one if a parent has at most one.
    fn create(&self, parent: &Uid, body: &Value) -> Value {
        if matches!(self.kind.parent, Parent::Sole(_)) {
            let _ = self.world.delete(&self.world.operator, self.kind.name, parent);
        }
        let created = self.world.create(&self.world.operator, self.kind.name, parent, body.clone());
        created.unwrap_or_else(|error| panic!("{error} {:?}: {body}", error.violations()))
    }

    fn update(&self, uid: &str, body: Value, mask: Option<&str>) -> Result<Value> {
        self.world.update(&self.world.operator, self.kind.name, uid, body, mask)
    }

    fn get(&self, uid: &str) -> Value {
        self.world.get(&self.world.operator, self.kind.name, uid).unwrap()
    }

    /// Creates resources: some at the same time, some later, some with equal values.
    fn make_some(&self) -> Vec<Value> {
        if let Some(make) = self.fixture.make {
            let one = |later| {
                self.world.clock.advance(later);
                make(&self.world, &self.organization)
            };
            let uids = [0, 0, 7].map(one);
            if !self.has(Verb::Get) {
                let all = self.world.walk(&self.world.operator, self.kind.name, self.fixture.query);
                return uids
                    .iter()
                    .filter_map(|uid| all.iter().find(|one| text(one, "uid") == &**uid).cloned())
                    .collect();
            }
            return uids.iter().map(|uid| self.get(uid)).collect();
        }
        let mut made = Vec::new();
        if matches!(self.kind.parent, Parent::Sole(_)) {
            for at in [0, 0, 7] {
                self.world.clock.advance(at);
                for pair in self.pairs() {
                    made.push(self.create(&pair.parent, &pair.a));
                }
                for pair in self.pairs() {
                    made.push(self.create(&pair.parent, &pair.b));
                }
            }
            return made;
        }
        for _ in 0..2 {
            for pair in self.pairs().into_iter().skip(usize::from(!made.is_empty() && self.kind.name == "Group")) {
                made.push(self.create(&pair.parent, &pair.a));
                made.push(self.create(&pair.parent, &pair.b));
                self.world.clock.advance(7);
            }
        }
        made.iter().map(|resource| self.get(text(resource, "uid"))).collect()
    }
}

/// Runs a check for each kind that has the verb, and prints the kind, so that a failure names it.
fn for_each_kind_with(verb: Verb, check: impl Fn(&Case)) {
    for fixture in FIXTURES {
        let case = Case::new(fixture);
        if case.has(verb) {
            println!("{}", fixture.kind);
            check(&case);
        }
    }
}

fn settable(field: &Field) -> bool {
    matches!(field.access, Access::Mutable | Access::InputOnly)
}

/// Compares two resources except for the fields that the server sets at each write.
#[track_caller]
fn assert_same(case: &Case, expected: &Value, found: &Value) {
    for field in case.kind.fields {
        let compared = field.access != Access::OutputOnly || matches!(field.name, "uid" | "createTime");
        if compared {
            let [expected, found] = [expected, found].map(|body| without_expiration(body.get(field.name)));
            assert_eq!(expected, found, "{}.{}", case.kind.name, field.name);
        }
    }
}

/// Returns a value without the expiry of a following, which each update that sets the source renews.
fn without_expiration(value: Option<&Value>) -> Option<Value> {
    let mut value = value.cloned()?;
    if let Some(object) = value.as_object_mut().filter(|object| object.contains_key("source")) {
        object.remove("expirationTime");
    }
    Some(value)
}

/// Returns a message after an update without a mask: each sent field is set and clears the rest of its oneof.
fn overlaid(fields: &[Field], old: &Value, sent: &Value) -> Value {
    let (Value::Object(old), Value::Object(sent)) = (old, sent) else { return sent.clone() };
    let mut new = old.clone();
    for (name, value) in sent {
        let field = fields.iter().find(|field| field.name == name).expect("a field");
        if field.access == Access::OutputOnly {
            continue;
        }
        for other in fields.iter().filter(|other| other.oneof.is_some() && other.oneof == field.oneof) {
            if other.name != name {
                new.remove(other.name);
            }
        }
        let value = match (&field.ty, new.get(name)) {
            (Type::Message(inner), Some(old)) => overlaid(inner, old, value),
            _ => value.clone(),
        };
        new.insert(name.clone(), value);
    }
    new.into()
}

fn snake(name: &str) -> String {
    name.chars()
        .flat_map(|c| c.is_ascii_uppercase().then_some('_').into_iter().chain([c.to_ascii_lowercase()]))
        .collect()
}

#[test]
fn every_kind_has_a_fixture() {
    let world = World::new();
    for Registered { kind, .. } in world.platform.registered() {
        let known = FIXTURES.iter().any(|fixture| fixture.kind == kind.name);
        let none = WITHOUT_METHODS.contains(&kind.name);
        assert!(known != none, "{} needs a fixture in tests/engine/kinds/fixtures.rs", kind.name);
        assert_eq!(none, kind.methods.is_empty(), "{}", kind.name);
    }
}

#[test]
fn an_example_has_each_declared_field_in_order_and_in_canonical_form() {
    let world = World::new();
    for Registered { kind, example, .. } in world.platform.registered() {
        let example = example();
        let other_form = |field: &&Field| {
            let set = |other: &Field| other.oneof == field.oneof && example.get(other.name).is_some();
            field.oneof.is_some() && example.get(field.name).is_none() && kind.fields.iter().any(set)
        };
        let declared: Vec<_> = kind
            .fields
            .iter()
            .filter(|field| !other_form(field) && (field.access != Access::InputOnly || field.always))
            .map(|field| field.name)
            .collect();
        let found = object(example);
        assert_eq!(found.keys().collect::<Vec<_>>(), declared, "{}", kind.name);
    }
}

#[test]
fn the_bodies_of_a_fixture_set_every_settable_field() {
    for_each_kind_with(Verb::Create, |case| {
        let pairs = case.pairs();
        for field in case.kind.fields.iter().filter(|field| field.access != Access::OutputOnly) {
            let set = |body: &Value| body.get(field.name).is_some() || field.access == Access::InputOnly;
            assert!(pairs.iter().any(|pair| set(&pair.a) || set(&pair.b)), "{}.{}", case.kind.name, field.name);
        }
    });
}

#[test]
fn a_create_returns_the_same_resource_as_a_get_with_the_server_set_fields() {
    for_each_kind_with(Verb::Create, |case| {
        for pair in case.pairs() {
            for body in [&pair.a, &pair.b] {
                let created = case.create(&pair.parent, body);
                let uid = uid_of(&created);
                let parent = if case.kind.parent.shares_uid() { Some(uid.clone()) } else { uid.parent() };
                assert_eq!(parent.unwrap_or_default(), pair.parent);
                let mut stored = object(created.clone());
                for field in case.kind.fields.iter().filter(|field| field.once) {
                    assert!(stored.shift_remove(field.name).is_some(), "{}.{}", case.kind.name, field.name);
                }
                assert_eq!(Value::Object(stored), case.get(&uid));
                for field in case.kind.fields.iter().filter(|field| field.access == Access::Mutable) {
                    if let (Some(sent), Some(found)) = (body.get(field.name), created.get(field.name)) {
                        let expected = match field.ty {
                            Type::Message(inner) => overlaid(inner, found, sent),
                            _ => sent.clone(),
                        };
                        assert_eq!(&expected, found, "{}.{}", case.kind.name, field.name);
                    }
                }
                assert_eq!(text(&created, "createTime"), case.world.platform.now().to_string());
                assert_eq!(created["createTime"], created["updateTime"]);
                assert!(
                    case.kind
                        .fields
                        .iter()
                        .all(|f| f.access != Access::InputOnly || created.get(f.name).is_none_or(Value::is_null))
                );
            }
        }
    });
}

#[test]
fn output_only_fields_are_ignored_in_creates_and_updates() {
    for_each_kind_with(Verb::Update, |case| {
        let junk = |body: &Value| {
            let mut body = body.clone();
            for field in case.kind.fields.iter().filter(|field| field.access == Access::OutputOnly) {
                body[field.name] = json!([5]);
            }
            body
        };
        let outputs: Vec<_> =
            case.kind.fields.iter().filter(|f| f.access == Access::OutputOnly).map(|f| f.name).collect();
        for pair in case.pairs() {
            let a = case.create(&pair.parent, &junk(&pair.a));
            let uid = uid_of(&a);
            case.world.clock.advance(1000);
            let unchanged = case.update(&uid, junk(&json!({})), Some(&outputs.join(","))).unwrap();
            assert_eq!(unchanged, a, "{}", case.kind.name);
            assert_same(case, &a, &case.update(&uid, junk(&pair.a), Some("*")).unwrap());
            assert_same(case, &a, &case.update(&uid, junk(&json!({})), None).unwrap());
        }
    });
}

#[test]
fn each_settable_field_is_updated_with_and_without_a_mask_and_others_are_unchanged() {
    for_each_kind_with(Verb::Update, |case| {
        let now = || case.world.platform.now().to_string();
        for pair in case.pairs() {
            let b = case.create(&pair.parent, &pair.b);
            if case.has(Verb::Delete) {
                // Releases the unique values of b, so that a can take them.
                case.world.delete(&case.world.operator, case.kind.name, text(&b, "uid")).unwrap();
            }
            let a = case.create(&pair.parent, &pair.a);
            let uid = uid_of(&a);
            for field in case.kind.fields.iter().filter(|field| settable(field) && pair.b.get(field.name).is_some()) {
                let name = field.name;
                let Type::Message(inner) = field.ty else {
                    check(case, &a, &uid, json!({ name: b[name] }), None, name, b[name].clone(), &pair);
                    check(case, &a, &uid, pair.b.clone(), Some(name), name, b[name].clone(), &pair);
                    check(case, &a, &uid, pair.b.clone(), Some(&snake(name)), name, b[name].clone(), &pair);
                    continue;
                };
                let merged = overlaid(inner, &a[name], &b[name]);
                check(case, &a, &uid, json!({ name: pair.b[name] }), None, name, merged, &pair);
                check(case, &a, &uid, pair.b.clone(), Some(name), name, b[name].clone(), &pair);
            }
            case.world.clock.advance(1000);
            let replaced = case.update(&uid, pair.b.clone(), Some("*")).unwrap();
            let mut expected = b.clone();
            for field in case.kind.fields.iter().filter(|f| f.access == Access::Immutable || f.name == "uid") {
                expected[field.name] = a[field.name].clone();
            }
            expected["createTime"] = a["createTime"].clone();
            assert_same(case, &expected, &replaced);
            assert_eq!(replaced, case.get(&uid));
            assert_eq!(text(&replaced, "updateTime"), now());
        }
    });
}

/// Updates `a`, asserts that only one field changed, and restores it.
#[allow(clippy::too_many_arguments, reason = "each argument is one part of the asserted update")]
#[track_caller]
fn check(case: &Case, a: &Value, uid: &Uid, body: Value, mask: Option<&str>, name: &str, value: Value, pair: &Pair) {
    case.world.clock.advance(1000);
    let updated = case.update(uid, body, mask).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut expected = a.clone();
    expected[name] = value;
    assert_same(case, &expected, &updated);
    assert_eq!(updated, case.get(uid), "{name}");
    if expected != *a {
        assert_eq!(text(&updated, "updateTime"), case.world.platform.now().to_string(), "{name}");
    }
    let back = case.update(uid, pair.a.clone(), Some("*")).unwrap();
    assert_same(case, a, &back);
}

#[test]
fn an_update_with_equal_values_returns_the_resource_unchanged() {
    for_each_kind_with(Verb::Update, |case| {
        for pair in case.pairs() {
            let created = case.create(&pair.parent, &pair.a);
            let uid = uid_of(&created);
            case.world.clock.advance(1000);
            let mut body = object(pair.a.clone());
            // Setting the source again renews the following.
            let renews = body.remove("syncConfig").is_some();
            for mask in [None, (!renews).then_some("*")] {
                let updated = case.update(&uid, body.clone().into(), mask).unwrap();
                assert_eq!(updated, created, "{} {mask:?}", case.kind.name);
            }
        }
    });
}

#[test]
fn a_masked_field_that_the_body_lacks_is_cleared_unless_it_is_required() {
    for_each_kind_with(Verb::Update, |case| {
        let Some(pair) = case.pairs().pop() else { return };
        let uid = uid_of(&case.create(&pair.parent, &pair.a));
        for field in case.kind.fields.iter().filter(|field| settable(field) && field.oneof.is_none()) {
            let cleared = case.update(&uid, json!({}), Some(field.name));
            let needed = field.required || (case.kind.name, field.name) == ("Role", "capabilities");
            if needed {
                assert_eq!(violated_fields(cleared), [field.name], "{}", case.kind.name);
            } else {
                let left = cleared.unwrap().get(field.name).cloned();
                let empty = [None, Some(json!(false)), Some(json!(0))];
                assert!(empty.contains(&left), "{}.{}: {left:?}", case.kind.name, field.name);
            }
            case.update(&uid, pair.a.clone(), Some("*")).unwrap();
        }
    });
}

#[test]
fn a_singleton_exists_from_the_start_and_is_updated_without_a_create() {
    for fixture in FIXTURES {
        let case = Case::new(fixture);
        let (Parent::Singleton(..), Some(make)) = (case.kind.parent, fixture.make) else { continue };
        let uid = make(&case.world, &case.organization);
        assert_eq!(object(case.get(&uid)).keys().collect::<Vec<_>>(), ["uid", "createTime", "updateTime"]);
        let example = (case.world.kind(fixture.kind).example)();
        let written = case.update(&uid, example.clone(), None).unwrap();
        for field in case.kind.fields.iter().filter(|field| settable(field)) {
            assert_eq!(written[field.name], example[field.name]);
        }
        assert_eq!(written, case.get(&uid));
        case.world.delete(&case.world.operator, case.kind.parent.kind().unwrap(), &uid).unwrap();
        assert_eq!(code(case.world.get(&case.world.operator, fixture.kind, &uid)), Code::NotFound);
    }
}

#[test]
fn an_immutable_field_accepts_its_current_value_and_rejects_another() {
    let mut seen = 0;
    for_each_kind_with(Verb::Update, |case| {
        for field in case.kind.fields.iter().filter(|field| field.access == Access::Immutable) {
            let pair = case.pairs().remove(0);
            let a = case.create(&pair.parent, &pair.a);
            let uid = uid_of(&a);
            let name = field.name;
            for mask in [None, Some(name), Some("*")] {
                let mut other = pair.a.clone();
                other[name] = json!("another");
                assert_eq!(violated_fields(case.update(&uid, other, mask)), [name], "{mask:?}");
                assert_same(case, &a, &case.update(&uid, pair.a.clone(), mask).unwrap());
            }
            assert_same(case, &a, &case.update(&uid, json!({}), Some(name)).unwrap());
        }
    });
    FIXTURES.iter().for_each(|fixture| {
        let case = Case::new(fixture);
        seen += case.kind.fields.iter().filter(|field| field.access == Access::Immutable).count();
    });
    assert!(seen > 0, "some kind has an immutable field");
}

#[test]
fn a_deleted_resource_is_not_found_with_its_type_and_uid() {
    for_each_kind_with(Verb::Delete, |case| {
        let world = &case.world;
        for resource in case.make_some() {
            let uid = text(&resource, "uid");
            world.delete(&world.operator, case.kind.name, uid).unwrap();
            let attempts = [
                world.get(&world.operator, case.kind.name, uid).map(drop),
                world.delete(&world.operator, case.kind.name, uid),
            ];
            for attempt in attempts {
                // The operator's binding, which made the organization visible, was deleted with it.
                let expected = if case.kind.name == "Group" && !uid.contains('/') {
                    Code::PermissionDenied
                } else {
                    Code::NotFound
                };
                let error = attempt.expect_err("an error");
                assert_eq!(error.code(), expected);
                if expected == Code::NotFound {
                    let info = &world.status(&error)["details"][1];
                    assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ResourceInfo");
                    assert_eq!(info["resourceType"], case.kind.resource_type("platform.test"));
                    assert_eq!(info["resourceName"], uid);
                }
            }
            let left = world.walk(&world.operator, case.kind.name, &[]);
            assert!(left.iter().all(|item| text(item, "uid") != uid));
        }
    });
}

#[test]
fn each_method_requires_each_of_its_capabilities_and_no_other() {
    for fixture in FIXTURES {
        let case = Case::new(fixture);
        let world = &case.world;
        for method in case.kind.methods.iter().filter(|method| !method.open) {
            let needed: Vec<_> = method.capabilities.iter().map(|capability| capability.name()).collect();
            let all: Vec<_> = needed.iter().chain(fixture.extra_capabilities).copied().collect();
            let able = world.holder(&case.organization, &all);
            assert!(
                attempt(world, fixture, &case.organization, &able, method.verb),
                "{}: {:?} with {all:?}",
                fixture.kind,
                method.verb
            );
            for missing in &needed {
                let others: Vec<_> =
                    owner_capabilities().into_iter().map(Capability::name).filter(|name| name != missing).collect();
                let unable = world.holder(&case.organization, &others);
                assert!(
                    !attempt(world, fixture, &case.organization, &unable, method.verb),
                    "{}: {:?} without {missing}",
                    fixture.kind,
                    method.verb
                );
            }
        }
    }
}

#[test]
fn unknown_keys_and_parameters_are_rejected_by_name() {
    for fixture in FIXTURES {
        let case = Case::new(fixture);
        let (world, kind) = (&case.world, case.kind.name);
        if case.has(Verb::List) {
            let listed = world.list(&world.operator, kind, &[("nonsense", "1")]).map(drop);
            assert_eq!(violated_fields(listed), ["nonsense"]);
        }
        for pair in case.pairs() {
            let mut body = pair.a.clone();
            body["nonsense"] = json!(1);
            assert_eq!(violated_fields(world.create(&world.operator, kind, &pair.parent, body)), ["nonsense"]);
            let uid = uid_of(&case.create(&pair.parent, &pair.a));
            if case.has(Verb::Update) {
                for mask in [None, Some("*"), Some(case.kind.fields[1].name)] {
                    assert_eq!(violated_fields(case.update(&uid, json!({ "nonsense": 1 }), mask)), ["nonsense"]);
                }
                assert_eq!(violated_fields(case.update(&uid, json!({}), Some("nonsense"))), ["update_mask"]);
            }
        }
    }
}
