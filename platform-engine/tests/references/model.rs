//! Random calls, of which some run before the commit of another: no reference dangles after any of them.

use super::*;

/// One call. The numbers select among the resources that were created so far, deleted ones too.
#[derive(Debug, Clone)]
enum Call {
    Create { kind: usize, parent: usize, to: [usize; 4] },
    Update { uid: usize, to: [usize; 4] },
    Delete { uid: usize },
}

fn call() -> impl Strategy<Value = Call> {
    let to = || prop::array::uniform4(0..1000_usize);
    prop_oneof![
        4 => (0..1000_usize, 0..1000_usize, to()).prop_map(|(kind, parent, to)| Call::Create { kind, parent, to }),
        1 => (0..1000_usize, to()).prop_map(|(uid, to)| Call::Update { uid, to }),
        2 => (0..1000_usize).prop_map(|uid| Call::Delete { uid }),
    ]
}

/// The resources that were created so far.
type Created = Arc<Mutex<Vec<(&'static Kind, String)>>>;

fn run(world: &World, created: &Created, kinds: &[&'static Kind], call: &Call) {
    let all = created.lock().unwrap().clone();
    // The last ones are the most interesting, and the organization is the first.
    let of = |name: Option<&str>, at: usize| {
        let of_kind: Vec<_> = all.iter().filter(|(kind, _)| name.is_none_or(|name| kind.name == name)).collect();
        let recent = of_kind.len().min(4);
        (recent > 0).then(|| of_kind[of_kind.len() - 1 - at % recent].clone())
    };
    let body = |kind: &Kind, to: &[usize; 4]| {
        let fields = kind.fields.iter().filter_map(|field| Some((field.name, field.reference?)));
        let set = fields.zip(to).filter(|(_, at)| **at % 4 > 0 || kind.name == "Badge");
        let set = set.filter_map(|((name, reference), at)| Some((name, of(Some(reference.kind.name), *at)?.1)));
        Value::Object(set.map(|(name, uid)| (name.to_owned(), uid.into())).collect())
    };
    let done = match call {
        Call::Create { kind, parent, to } => {
            let kind = kinds[kind % kinds.len()];
            let parent = of(kind.parent.kind(), *parent).map_or_else(|| world.org.clone(), |(_, uid)| uid);
            let done = world.try_create(kind.name, &parent, body(kind, to));
            done.map(|uid| created.lock().unwrap().push((kind, uid)))
        }
        Call::Update { uid, to } => {
            let (kind, uid) = of(None, *uid).unwrap();
            world.update(kind.name, &uid, body(kind, to))
        }
        Call::Delete { uid } => {
            let (kind, uid) = of(None, *uid).unwrap();
            world.delete(kind.name, &uid)
        }
    };
    if let Err(error) = done {
        let expected = [Code::InvalidArgument, Code::NotFound, Code::FailedPrecondition, Code::AlreadyExists];
        assert!(expected.contains(&error.code()), "{error:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_reference_dangles_whatever_is_interposed(
        kinds in prop::sample::subsequence(KINDS.iter().map(|known| known.kind).collect::<Vec<_>>(), 2..=5),
        calls in prop::collection::vec((call(), prop::collection::vec(call(), 0..4)), 1..30),
    ) {
        let world = World::new();
        let created: Created = Arc::new(Mutex::new(vec![(Group::KIND, world.org.clone())]));
        for (first, then) in calls {
            let (of_then, of_kinds) = (Arc::clone(&created), kinds.clone());
            world.interpose(
                |world| run(world, &created, &kinds, &first),
                move |world| then.iter().for_each(|call| run(world, &of_then, &of_kinds, call)),
            );
            prop_assert_eq!(world.dangling(), Vec::<String>::new());
        }
    }
}
