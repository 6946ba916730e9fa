//! Searches for the costliest request: `costliest [requests] [seed]`, by default 2,000 requests and seed 1.
//!
//! It sends creates, updates, lists and actions of every kind to a platform in this process. One field of each request is
//! pathological: nested, repeated, or as long or numerous as its bounds allow, or beyond. It measures the processor time
//! from parsing the body to the response, prints the costliest requests, and fails if one takes ten times the goal of
//! 100 ms. Rejected requests are measured, too, because a rejection can be as costly.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program that measures"
)]

use std::{cell::RefCell, collections::BTreeMap, env, fs, process::ExitCode, sync::Arc};

use platform_core::iam::{Bootstrap, Iam};
use platform_engine::{
    access::Caller,
    json,
    kind::{Access, Field, Registered, Type, Verb},
    options::RequestOptions,
    platform::{Platform, Settings},
    request::{ListRequest, list_fields},
    store::memory::MemoryStore,
    timestamp::Timestamp,
    uid::Uid,
};
use platform_testkit::{Rng, SeededEntropy, TestClock};
use pollster::block_on;
use serde_json::{Map, Value, json};

/// The maximum size of a body in bytes that transports accept.
const BODY: usize = 1 << 20;

/// The maximum size of a query in bytes that transports accept.
const QUERY: usize = 32 << 10;

/// The goal, in milliseconds of processor time.
const GOAL: f64 = 100.0;

/// The number of requests that are printed.
const SHOWN: usize = 10;

/// The pieces that texts are generated from.
const PIECES: &[&str] = &[
    "a",
    "é",
    "\u{202e}",
    "\u{1F980}",
    " ",
    "\n",
    "\n\n",
    "\t",
    "> ",
    ">",
    "- ",
    "- a\n",
    "* ",
    "+\n",
    "1. ",
    "1) ",
    "# a\n",
    "a\n=\n",
    "---\n",
    "```\n",
    "~~~a\n",
    "`",
    "``",
    "*",
    "**a ",
    "*a_ ",
    "_",
    "[",
    "![",
    "]",
    "[a](",
    "[a]: b\n",
    "[a]",
    "](b)",
    "(",
    ")",
    "<",
    "<a ",
    "<a href=\"",
    "<div>",
    "</div>",
    "<ul><li>",
    "</li></ul>",
    "<b>",
    "</b>",
    "<p>",
    "<table><tr><td>",
    "<!--",
    "-->",
    "<?",
    "<![CDATA[",
    "<br>",
    "<a@b.c>",
    "<https://e.com>",
    "&amp;",
    "&",
    "&#58;",
    "\\",
    "|",
    "\"",
    "'",
    "{",
    "}",
    "{\"a\":",
    "[[",
    "0",
    ".",
    "/",
    ":",
    "@",
    "%2F",
    "=",
    ",",
    ";",
    "-----BEGIN CERTIFICATE-----\n",
    "-----END CERTIFICATE-----\n",
    "{\"kty\":\"RSA\"},",
    "https://a.example/",
    "a.",
    "a:b,",
    "sha256:",
    "aaaa/",
    ".*",
    ".{60}",
    "a{1000}",
    "(a{0,1000}){0,1000}",
    "\\pL",
    "(?i)\\pL",
    "[\\x00-\\x{10FFFF}]",
    "(?i)[a-z]",
    "[^a]",
    "\\w",
    "\\S",
    "(|)",
    "(((",
    "a|",
    "\\b",
    "x*",
    "()",
];

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let (requests, seed) = (arguments.next().unwrap_or(2_000), arguments.next().unwrap_or(1));
    let search = Search::new(seed);
    let targets = search.targets();
    let mut costliest: BTreeMap<String, Cost> = BTreeMap::new();
    let mut accepted = 0;
    for number in 0..requests {
        // Each target in turn, so that a short search covers all of them.
        let target = &targets[number as usize % targets.len()];
        let cost = search.send(target);
        accepted += u64::from(cost.accepted);
        let known = costliest.entry(target.name()).or_insert_with(|| cost.clone());
        if cost.millis > known.millis {
            *known = cost;
        }
    }
    let mut all: Vec<_> = costliest.into_iter().collect();
    all.sort_by(|(_, a), (_, b)| b.millis.total_cmp(&a.millis));
    println!("{requests} requests of {} fields, seed {seed}; {accepted} accepted", targets.len());
    println!("{:>9} {:>9}  {:48} accepted  generated from", "cpu ms", "bytes", "request and field");
    for (name, cost) in all.iter().take(SHOWN) {
        println!("{:9.1} {:9}  {name:48} {:8}  {}", cost.millis, cost.bytes, cost.accepted, cost.generator);
    }
    let worst = all.first().map_or(0.0, |(_, cost)| cost.millis);
    println!("the costliest takes {worst:.1} ms; the goal is {GOAL} ms");
    if worst < 10.0 * GOAL { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The cost of a request.
#[derive(Debug, Clone)]
struct Cost {
    millis: f64,
    bytes: usize,
    accepted: bool,
    generator: String,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Verb(Verb),
    Action(usize),
}

/// A field of a request.
#[derive(Debug)]
struct Target {
    registered: Registered,
    call: Call,
    path: Vec<&'static str>,
    field: &'static Field,
}

impl Target {
    fn name(&self) -> String {
        let kind = self.registered.kind;
        let method = match self.call {
            Call::Verb(verb) => kind.rpc(verb),
            Call::Action(at) => self.registered.actions[at].name.to_owned(),
        };
        format!("{method} {}", self.path.join("."))
    }
}

struct Search {
    platform: Platform,
    operator: Caller,
    organization: Uid,
    rng: RefCell<Rng>,
}

impl Search {
    fn new(seed: u64) -> Self {
        let (organization, operator) = (Uid::from_digest([0xaa; 20]), Uid::from_digest([0xbb; 20]));
        let settings = Settings { operators: [operator.clone()].into(), ..Settings::default() };
        let store = Arc::new(MemoryStore::new());
        let clock = TestClock::at(Timestamp::from_millis(1_767_225_600_000));
        let platform = platform_v1::builder(store, clock, SeededEntropy::new(7))
            .settings(settings)
            .ephemeral_keys()
            .build()
            .unwrap();
        let first = Bootstrap {
            organization: organization.clone(),
            organization_name: "first".to_owned(),
            operator: operator.clone(),
        };
        block_on(Iam::of(&platform).bootstrap(&first)).unwrap();
        Self { platform, operator: Caller::new(operator), organization, rng: Rng::new(seed).into() }
    }

    fn below(&self, bound: usize) -> usize {
        self.rng.borrow_mut().below(bound)
    }

    fn piece(&self) -> &'static str {
        PIECES[self.below(PIECES.len())]
    }

    /// Returns every field that a request can set.
    fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for registered in self.platform.registered() {
            let kind = registered.kind;
            for verb in [Verb::Create, Verb::Update].into_iter().filter(|verb| kind.method(*verb).is_some()) {
                kind.fields.iter().for_each(|field| add(registered, Call::Verb(verb), &[], field, &mut targets));
            }
            if kind.method(Verb::List).is_some() {
                list_fields(kind).for_each(|field| add(registered, Call::Verb(Verb::List), &[], field, &mut targets));
            }
            for (at, action) in registered.actions.iter().enumerate() {
                action.request.iter().for_each(|field| add(registered, Call::Action(at), &[], field, &mut targets));
            }
        }
        targets
    }

    /// Sends a request whose field is pathological, and measures it.
    fn send(&self, target: &Target) -> Cost {
        let kind = target.registered.kind;
        let max_bytes = if target.call == Call::Verb(Verb::List) { QUERY } else { BODY };
        let (value, generator) = self.value(target.field, &target.field.ty, max_bytes);
        let mut body = match target.call {
            Call::Verb(Verb::Create) => (target.registered.sent)(),
            _ => json!({}),
        };
        put(&mut body, &target.path, value);
        let bytes = serde_json::to_vec(&body).unwrap();
        let uid = format!("{}/0123456789abcdef", self.organization);
        let start = cpu_millis();
        let accepted = match (json::read_object(&bytes, 32), target.call) {
            (Err(_), _) => false,
            (Ok(body), Call::Verb(Verb::List)) => match ListRequest::from_json(kind, body) {
                Ok(request) => {
                    block_on(self.platform.list_erased(Some(&self.operator), &target.registered, &request)).is_ok()
                }
                Err(_) => false,
            },
            (Ok(body), Call::Verb(Verb::Create)) => {
                let create = self.platform.create_erased(
                    &self.operator,
                    &target.registered,
                    &self.organization,
                    &body,
                    RequestOptions::none(),
                );
                block_on(create).is_ok()
            }
            (Ok(body), Call::Verb(_)) => block_on(self.platform.update_erased(
                &self.operator,
                &target.registered,
                &uid,
                &body,
                None,
                RequestOptions::none(),
            ))
            .is_ok(),
            (Ok(body), Call::Action(at)) => {
                block_on(self.platform.run(Some(&self.operator), kind, &target.registered.actions[at], &body)).is_ok()
            }
        };
        Cost { millis: cpu_millis() - start, bytes: bytes.len(), accepted, generator }
    }

    /// Generates a value of a type, and a description of its generator. One in eight values exceeds the field's bounds.
    fn value(&self, field: &Field, ty: &Type, max_bytes: usize) -> (Value, String) {
        let beyond = self.below(8) == 0;
        match ty {
            Type::List(element) => {
                let most = if beyond { max_bytes } else { field.max_items };
                let (one, generator) = self.value(field, element, (max_bytes / most.max(1)).max(8));
                let count = most.min(max_bytes / (one.to_string().len() + 1)).max(1);
                let elements: Vec<_> = (0..count).map(|at| numbered(&one, at, field.distinct)).collect();
                (elements.into(), format!("{count} of {generator}"))
            }
            Type::Map(element) => {
                let most = if beyond { max_bytes } else { field.max_items };
                let (one, generator) = self.value(field, element, (max_bytes / most.max(1)).max(8));
                let count = most.min(max_bytes / (one.to_string().len() + 10)).max(1);
                let entries: Map<_, _> = (0..count).map(|at| (format!("k{at}"), one.clone())).collect();
                (entries.into(), format!("a map of {count} of {generator}"))
            }
            Type::Message(fields) => {
                let fields: Vec<_> = fields.iter().filter(|field| field.access != Access::OutputOnly).collect();
                let mut message = Map::new();
                let mut generator = String::new();
                for inner in &fields {
                    let (value, made) = self.value(inner, &inner.ty, max_bytes / fields.len().max(1));
                    message.insert(inner.name.to_owned(), value);
                    generator = made;
                }
                (message.into(), format!("messages with {generator}"))
            }
            Type::Bool => (self.below(2).eq(&0).into(), "a truth value".to_owned()),
            Type::Int32 | Type::Int64 => (i32::MAX.into(), "a number".to_owned()),
            Type::Enum(names) => (names[self.below(names.len())].into(), "a name".to_owned()),
            Type::Capability => ((100 + self.below(900)).into(), "a number".to_owned()),
            _ => {
                let most = if beyond { max_bytes } else { field.max_len.min(max_bytes) };
                let (text, generator) = self.text(most);
                (text.into(), generator)
            }
        }
    }

    /// Generates a text of about this many bytes: of one piece, of two pieces alternating or one after the other, nested, or
    /// in lines.
    fn text(&self, most: usize) -> (String, String) {
        let (one, two, three) = (self.piece(), self.piece(), self.piece());
        let repeat = |piece: &str, most: usize| piece.repeat((most / piece.len()).max(1));
        let (text, generator) = match self.below(6) {
            0 | 1 => (repeat(one, most), format!("{one:?}")),
            2 => (repeat(&format!("{one}{two}"), most), format!("{one:?} {two:?} in turn")),
            3 => (repeat(one, most / 2) + &repeat(two, most / 2), format!("{one:?} then {two:?}")),
            4 => (
                repeat(one, most / 3) + three + &repeat(two, most / 2),
                format!("{one:?} around {three:?} with {two:?}"),
            ),
            _ => {
                let few = repeat(one, self.below(256) + 1);
                (
                    repeat(&format!("{few}{two}"), most),
                    format!("lines of {} of {one:?} with {two:?}", few.len() / one.len()),
                )
            }
        };
        (text, generator)
    }
}

/// Adds a field as a target; for a message, its fields.
fn add(registered: &Registered, call: Call, path: &[&'static str], field: &'static Field, targets: &mut Vec<Target>) {
    if field.access == Access::OutputOnly {
        return;
    }
    let mut path = path.to_vec();
    path.push(field.name);
    match field.ty {
        Type::Message(fields) => fields.iter().for_each(|field| add(registered, call, &path, field, targets)),
        Type::Bool | Type::Int32 | Type::Int64 | Type::Enum(_) => {}
        _ => targets.push(Target { registered: *registered, call, path, field }),
    }
}

/// Prefixes a text with a number if elements must be distinct.
fn numbered(value: &Value, at: usize, distinct: bool) -> Value {
    match value {
        Value::String(text) if distinct => format!("{at}{text}").into(),
        value => value.clone(),
    }
}

/// Sets the value at a path of an object.
fn put(body: &mut Value, path: &[&'static str], value: Value) {
    let Some((name, rest)) = path.split_first() else {
        *body = value;
        return;
    };
    if !body.is_object() {
        *body = json!({});
    }
    put(&mut body[*name], rest, value);
}

/// Returns the processor time that this thread has used, in milliseconds.
fn cpu_millis() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok());
    nanos.expect("the kernel reports the processor time of threads") as f64 / 1e6
}
