//! The whole interface, one line per method, generated from the kind tables: a new method requires a line in
//! `tests/surface.txt`.

use std::fmt;

use platform_engine::kind::{Authorization, Kind, Method, Parent, Registered, Verb};

use crate::{listed, snapshot::assert_snapshot};

/// A method of a service.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) rpc: String,
    pub(crate) http: String,
    pub(crate) needs: String,
    pub(crate) event: &'static str,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {}", self.rpc, self.http, self.needs)?;
        if self.event.is_empty() { Ok(()) } else { write!(f, " | {}", self.event) }
    }
}

/// Returns the methods and actions of a kind, sorted by name.
pub(crate) fn rows(registered: &Registered) -> Vec<Row> {
    let kind = registered.kind;
    let names = |capabilities: &[platform_engine::access::Capability]| {
        capabilities.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(" ")
    };
    let methods = kind.served().map(|method| Row {
        rpc: format!("{}.{}", kind.service, rpc(kind, method)),
        http: format!("{} /{}/v2/{}", http(method.verb), kind.domain.name, path(kind, method)),
        needs: if method.open { "nothing".to_owned() } else { names(method.capabilities) },
        event: method.event.unwrap_or_default(),
    });
    let actions = registered.actions.iter().map(|action| Row {
        rpc: format!("{}.{}", kind.service, kind.operation(action)),
        http: match action.path {
            "" => "gRPC only".to_owned(),
            path => format!("{} /{}/{}/{path}", action.http.name(), kind.domain.name, kind.domain.version()),
        },
        needs: match action.authorization {
            Authorization::Public => "nothing".to_owned(),
            Authorization::Authenticated => "a token".to_owned(),
            Authorization::At(_, capabilities)
            | Authorization::Anywhere(capabilities)
            | Authorization::FiltersResult(capabilities) => names(capabilities),
            Authorization::As(kind, verb, _) => names(kind.method(verb).expect("the kind has it").capabilities),
        },
        event: action.event.unwrap_or_default(),
    });
    let mut rows: Vec<_> = methods.chain(actions).collect();
    rows.sort_by(|a, b| a.rpc.cmp(&b.rpc));
    rows
}

fn rpc(kind: &Kind, method: &Method) -> String {
    let noun = if method.verb == Verb::List { kind.plural } else { kind.name };
    let (first, rest) = noun.split_at(1);
    format!("{}{}{rest}", method.verb.name(), first.to_uppercase())
}

fn http(verb: Verb) -> &'static str {
    match verb {
        Verb::List | Verb::Get => "GET",
        Verb::Create => "POST",
        Verb::Update => "PATCH",
        Verb::Delete => "DELETE",
    }
}

fn path(kind: &Kind, method: &Method) -> String {
    if let Parent::Singleton(parent, name) = kind.parent {
        return format!("{}/{{uid=**}}/{name}", parent.plural);
    }
    match method.verb {
        Verb::List => method.path.unwrap_or(kind.plural).to_owned(),
        Verb::Create => format!("{}/{{parent=**}}", kind.plural),
        Verb::Get | Verb::Update | Verb::Delete => format!("{}/{{uid=**}}", kind.plural),
    }
}

#[test]
fn the_surface_matches_the_committed_file() {
    let mut found = String::from("# Every method: RPC | HTTP method and path | required capabilities | event.\n");
    for registered in listed().filter(|registered| !rows(registered).is_empty()) {
        found.push_str(&format!("\n## {}\n\n", registered.kind.name));
        rows(registered).iter().for_each(|row| found.push_str(&format!("{row}\n")));
    }
    assert_snapshot("tests/surface.txt", &found);
}
