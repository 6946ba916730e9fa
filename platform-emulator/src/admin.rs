//! The endpoints under `/_emulator`, which control the emulator over HTTP.

use std::{net::IpAddr, time::Duration};

use http::{Method, Request, Uri, request::Parts, uri::Authority};
use platform_engine::{
    access::Capabilities,
    error::{Code, Error, Result},
    fields::{self, Input},
    kind::{Field, Type},
    offload::Pace,
    request::from_query,
    uid::Uid,
};
use platform_http::{
    Limits, Reply,
    mount::{self, Refusal, Sender},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    emulator::{Body, Emulator, rejected},
    faults::Fault,
    input::{duration, text, time},
    seed::Preset,
    tenant::{TTL, Tenant},
    upstream::{UPSTREAM_ISSUER, Upstream},
};

/// The path below which the endpoints are.
pub(crate) const PREFIX: &str = "/_emulator";

/// The maximum size of a seed in bytes. Our choice.
const MAX_SEED: usize = 16 << 20;

/// The maximum change of the clock by one request. Our choice: a thousand years.
const MAX_ADVANCE: Duration = Duration::from_secs(1000 * 366 * 24 * 3600);

/// The endpoints: their paths, in which `*` matches a name, and their methods.
const ENDPOINTS: &[(&[&str], &[Method])] = &[
    (&[], &[Method::GET]),
    (&["tenants"], &[Method::GET, Method::POST]),
    (&["tenants", "*"], &[Method::DELETE]),
    (&["tenant"], &[Method::GET]),
    (&["tokens"], &[Method::POST]),
    (&["upstreamTokens"], &[Method::POST]),
    (&["reset"], &[Method::POST]),
    (&["seed"], &[Method::POST]),
    (&["snapshots"], &[Method::GET]),
    (&["snapshots", "*"], &[Method::PUT, Method::DELETE]),
    (&["snapshots", "*", "restore"], &[Method::POST]),
    (&["clock"], &[Method::GET, Method::PATCH]),
    (&["faults"], &[Method::GET, Method::POST, Method::DELETE]),
    (&["requests"], &[Method::GET, Method::DELETE]),
    (&["coverage"], &[Method::GET, Method::DELETE]),
];

const TENANT: &[Field] = &[Field::string("name")];
const TOKEN: &[Field] = &[Field::string("identity"), Field::new("ttl", Type::Duration)];
const CLOCK: &[Field] = &[Field::timestamp("time"), Field::new("advance", Type::Duration), Field::bool("frozen")];
const SEED: &[Field] = &[Field::string("preset")];
const REQUESTS: &[Field] = &[Field::string("method")];

/// Returns whether a path belongs to the endpoints.
pub(crate) fn has(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request. No token is needed, because the emulator is for tests; but a page in a browser must not control
/// an emulator that runs on its reader's machine ([`check_sender`]).
pub(crate) async fn answer(emulator: &Emulator, request: Request<Body>) -> Reply {
    let (head, body) = request.into_parts();
    handle(emulator, &head, body).await.unwrap_or_else(|refusal| rejected(emulator, refusal))
}

async fn handle(emulator: &Emulator, head: &Parts, body: Body) -> Result<Reply, Refusal> {
    let limits = &emulator.shared().limits;
    let (path, query) = mount::target(head, limits)?;
    check_sender(head, emulator.url())?;
    let path: Vec<&str> =
        path.strip_prefix(PREFIX).unwrap_or(path).split('/').filter(|name| !name.is_empty()).collect();
    let is_at = |(endpoint, _): &&(&[&str], &[Method])| {
        endpoint.len() == path.len() && endpoint.iter().zip(&path).all(|(own, name)| own == name || *own == "*")
    };
    let (_, methods) = ENDPOINTS.iter().find(is_at).ok_or_else(Refusal::no_path)?;
    if let Some(reply) = mount::check_method(&head.method, methods)? {
        return Ok(reply);
    }
    let tenant = emulator.tenant_of(&head.headers)?;
    let method = if head.method == Method::HEAD { "GET" } else { head.method.as_str() };
    if !matches!(&*path, ["seed"] | ["requests"]) {
        mount::reject_parameters(query)?;
    }
    match (method, &*path) {
        (_, ["seed"]) => seed(&tenant, query, body, limits).await,
        (_, ["requests"]) => {
            let input = read(REQUESTS, from_query(REQUESTS, &mount::pairs(query)?)?);
            let pattern = text(&input, "method");
            input.checked()?;
            if method == "DELETE" {
                tenant.clear_requests();
                return done();
            }
            logged(&tenant, pattern.as_deref().unwrap_or("*")).await
        }
        ("GET", path) => get(emulator, &tenant, path),
        ("DELETE", path) => delete(emulator, &tenant, path),
        (_, path) => change(emulator, &tenant, path, mount::object(body, limits).await?).await,
    }
}

/// Answers with the logged requests whose method matches a pattern.
async fn logged(tenant: &Tenant, pattern: &str) -> Result<Reply, Refusal> {
    let (mut body, mut pace) = (b"{\"requests\":[".to_vec(), Pace::new(tenant.platform().offload()));
    for (at, request) in tenant.requests(pattern).iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        let start = body.len();
        serde_json::to_writer(&mut body, request).map_err(Error::internal)?;
        pace.step(body.len() - start).await;
    }
    body.extend_from_slice(b"]}");
    Ok(mount::json(body))
}

/// Refuses a request that a page of another site may have sent. A page can send requests to addresses of its reader's
/// machine, and a page whose name resolves to such an address can read the replies, too (DNS rebinding). So the host
/// must be one that no other site can take: an address, a name of this machine, or that of the emulator's URL.
fn check_sender(head: &Parts, url: &str) -> Result<()> {
    let denied = |text: &str| Err(Error::new(Code::PermissionDenied, text));
    if mount::sender(head, url) == Sender::OtherPage {
        return denied(
            "Permission denied: Origin: pages of other sites must not control the emulator; remove the header",
        );
    }
    let Some(host) = mount::host(head) else { return Ok(()) };
    let own = url.parse::<Uri>().ok();
    let is_trusted = host.parse::<Authority>().is_ok_and(|host| {
        let name = host.host().to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || own.as_ref().and_then(Uri::host).is_some_and(|own| own.eq_ignore_ascii_case(&name))
    });
    if is_trusted {
        Ok(())
    } else {
        denied(
            "Permission denied: Host: must be an address, localhost, or the host of the emulator's URL; start the emulator \
             with --public-url to use another name",
        )
    }
}

fn get(emulator: &Emulator, tenant: &Tenant, path: &[&str]) -> Result<Reply, Refusal> {
    match path {
        [] => {
            let tenants: Vec<_> = emulator.tenants().iter().map(|tenant| tenant.name().to_owned()).collect();
            reply(&json!({ "version": env!("CARGO_PKG_VERSION"), "url": emulator.url(), "tenants": tenants }))
        }
        ["tenants"] => reply(&json!({ "tenants": emulator.tenants().iter().map(described).collect::<Vec<_>>() })),
        ["tenant"] => reply(&described(tenant)),
        ["snapshots"] => reply(&json!({ "snapshots": tenant.snapshots() })),
        ["clock"] => reply(&clock(tenant)),
        ["faults"] => reply(&faults(tenant)),
        ["coverage"] => reply(&emulator.coverage()?),
        _ => Err(Refusal::no_path()),
    }
}

fn delete(emulator: &Emulator, tenant: &Tenant, path: &[&str]) -> Result<Reply, Refusal> {
    match path {
        ["tenants", name] => emulator.delete_tenant(&mount::variable("name", name)?)?,
        ["snapshots", name] => tenant.delete_snapshot(&mount::variable("name", name)?)?,
        ["faults"] => tenant.clear_faults(),
        ["coverage"] => emulator.clear_coverage(),
        _ => return Err(Refusal::no_path()),
    }
    done()
}

async fn change(
    emulator: &Emulator,
    tenant: &Tenant,
    path: &[&str],
    request: Map<String, Value>,
) -> Result<Reply, Refusal> {
    match path {
        ["tenants"] => {
            let input = read(TENANT, request);
            let name = text(&input, "name").unwrap_or_default();
            input.checked()?;
            let created = emulator.create_tenant(&name).await?;
            let mut body = described(&created);
            set(&mut body, "token", created.token()?.into());
            reply(&body)
        }
        ["tokens"] => {
            let mut input = read(TOKEN, request);
            let ttl = duration(&mut input, "ttl", Duration::from_secs(30 * 24 * 3600)).unwrap_or(TTL);
            let identity = match text(&input, "identity").map(|uid| Uid::parse(&uid)) {
                Some(Err(error)) => {
                    input.violations.add("identity", error.to_string());
                    tenant.operator().clone()
                }
                Some(Ok(uid)) => uid,
                None => tenant.operator().clone(),
            };
            input.checked()?;
            reply(&json!({ "token": tenant.token_for(&identity, ttl)?, "identity": identity }))
        }
        ["upstreamTokens"] => {
            let token = tenant.upstream_token(&Upstream::read(request)?)?;
            reply(&json!({ "token": token, "issuer": UPSTREAM_ISSUER }))
        }
        ["reset"] => {
            read(&[], request).checked()?;
            tenant.reset();
            done()
        }
        ["snapshots", name] => {
            read(&[], request).checked()?;
            tenant.snapshot(&mount::variable("name", name)?)?;
            done()
        }
        ["snapshots", name, _] => {
            read(&[], request).checked()?;
            tenant.restore(&mount::variable("name", name)?)?;
            done()
        }
        ["clock"] => {
            set_clock(tenant, request)?;
            reply(&clock(tenant))
        }
        ["faults"] => {
            tenant.inject(Fault::read(request)?)?;
            reply(&faults(tenant))
        }
        _ => Err(Refusal::no_path()),
    }
}

async fn seed(tenant: &Tenant, query: &str, body: Body, limits: &Limits) -> Result<Reply, Refusal> {
    let input = read(SEED, from_query(SEED, &mount::pairs(query)?)?);
    let preset = text(&input, "preset").map(|preset| preset.parse::<Preset>()).transpose()?;
    input.checked()?;
    let limits = Limits { body: MAX_SEED, ..limits.clone() };
    let yaml = mount::bytes(body, &limits).await?;
    let seeded = match preset {
        Some(_) if !yaml.is_empty() => {
            return Err(Error::invalid_field("body", "must be empty with a preset").into());
        }
        Some(preset) => tenant.seed_preset(preset).await?,
        None => {
            let yaml = std::str::from_utf8(&yaml).map_err(|_| Error::invalid_field("body", "is not valid UTF-8"))?;
            tenant.seed(yaml).await?
        }
    };
    reply(&json!({ "created": seeded.created, "uids": seeded.uids }))
}

/// Sets the clock: first whether it is frozen, so that a frozen clock has exactly the time of the request.
fn set_clock(tenant: &Tenant, request: Map<String, Value>) -> Result<()> {
    let mut input = read(CLOCK, request);
    let set_to = time(&input, "time");
    let advance = duration(&mut input, "advance", MAX_ADVANCE);
    let frozen = input.value("frozen").and_then(Value::as_bool);
    if set_to.is_some() && advance.is_some() {
        input.violations.add("advance", "must not be set together with time");
    }
    input.checked()?;
    if let Some(frozen) = frozen {
        tenant.freeze(frozen);
    }
    if let Some(time) = set_to {
        tenant.set_time(time);
    }
    if let Some(advance) = advance {
        tenant.advance(advance);
    }
    Ok(())
}

fn read(fields: &'static [Field], request: Map<String, Value>) -> Input {
    fields::read(fields, &Capabilities::default(), request, None)
}

fn described(tenant: &Tenant) -> Value {
    json!({ "name": tenant.name(), "organization": tenant.organization(), "operator": tenant.operator() })
}

fn clock(tenant: &Tenant) -> Value {
    json!({ "time": tenant.now(), "frozen": tenant.clock().is_frozen() })
}

fn faults(tenant: &Tenant) -> Value {
    json!({ "faults": tenant.faults().iter().map(Fault::to_json).collect::<Vec<_>>() })
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(members) = object {
        members.insert(name.to_owned(), value);
    }
}

fn reply(value: &impl Serialize) -> Result<Reply, Refusal> {
    Ok(mount::json(serde_json::to_vec(value).map_err(Error::internal)?))
}

fn done() -> Result<Reply, Refusal> {
    Ok(mount::json("{}"))
}
