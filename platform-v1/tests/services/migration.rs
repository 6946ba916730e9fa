//! The requests in the migration page exist.

use std::collections::BTreeSet;

use platform_core::resources::KINDS;
use platform_engine::kind::{Kind, Parent, Registered, Verb};
use platform_v1::services::SERVICES;

const PAGE: &str = include_str!("../../../docs/how-to/migrate-from-version-1.md");

/// Returns a path with `{}` for each variable.
fn form(path: &str, is_variable: impl Fn(&str) -> bool) -> String {
    let segments = path.split('/').map(|segment| {
        let (name, verb) = segment.split_once(':').map_or((segment, None), |(name, verb)| (name, Some(verb)));
        let name = if is_variable(name) { "{}" } else { name };
        verb.map_or(name.to_owned(), |verb| format!("{name}:{verb}"))
    });
    segments.collect::<Vec<_>>().join("/")
}

fn standard(kind: &Kind) -> impl Iterator<Item = (&'static str, String)> {
    kind.served().map(move |method| {
        let (one, all) = match kind.parent {
            Parent::Singleton(of, segment) => (format!("{}/{{}}/{segment}", of.plural), String::new()),
            _ => (format!("{}/{{}}", kind.plural), method.path.unwrap_or(kind.plural).to_owned()),
        };
        match method.verb {
            Verb::List => ("GET", all),
            Verb::Get => ("GET", one),
            Verb::Create => ("POST", one),
            Verb::Update => ("PATCH", one),
            Verb::Delete => ("DELETE", one),
        }
    })
}

/// Returns the methods of these kinds, such as `GET /iam/v2/groups/{}`.
fn methods(registered: &[Registered]) -> BTreeSet<String> {
    let of_kind = |one: &Registered| {
        let kind = one.kind;
        let actions = one.actions.iter().map(|action| (action.http.name(), action.path.to_owned()));
        let (domain, version) = (kind.domain.name, kind.domain.version());
        let named = move |(http, path): (&'static str, String)| {
            format!("{http} /{domain}/{version}/{}", form(&path, |segment| segment.starts_with('{')))
        };
        actions.chain(standard(kind)).map(named).collect::<Vec<_>>()
    };
    registered.iter().flat_map(of_kind).collect()
}

#[test]
fn the_requests_of_the_migration_page_exist() {
    let known: BTreeSet<_> = methods(KINDS).into_iter().chain(methods(SERVICES)).collect();
    let is_request =
        |text: &&str| ["GET /", "POST /", "PUT /", "PATCH /", "DELETE /"].iter().any(|verb| text.starts_with(verb));
    let requests: Vec<_> = PAGE.split('`').skip(1).step_by(2).filter(is_request).collect();
    assert!(requests.len() > 50, "{}", requests.len());
    let is_placeholder = |segment: &str| !segment.is_empty() && segment.chars().all(|c| c.is_ascii_uppercase());
    for request in requests {
        let path = form(request.split('?').next().unwrap(), is_placeholder);
        // The HTTP method is the first word and no placeholder.
        assert!(known.contains(&path), "{request}: {path}");
    }
}
