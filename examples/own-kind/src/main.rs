//! Adds a kind of resource of your own and serves it over REST and gRPC next to the kinds of the contract: `ticket.rs`
//! defines the kind, and `.kind::<Ticket>()` below registers it.
//!
//! `cargo run -p own-kind` prints example requests. After a change of the table, run `cargo run -p own-kind -- proto`,
//! which writes `proto/`.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use own_kind::ticket::{CloseTicket, Ticket};
use platform_console::{Console, Options};
use platform_core::iam::{Bootstrap, Iam};
use platform_engine::{
    access::{Authenticator, Caller},
    error::Result,
    kind::Registered,
    request::ListRequest,
    store::memory::MemoryStore,
    uid::Uid,
};
use platform_grpc::{Grpc, proto};
use platform_http::{Limits, Rest, openapi::Info, serve};
use platform_system::{SystemClock, SystemEntropy};

/// Title and description of the service in its OpenAPI document, at `/openapi.json`.
const INFO: Info<'_> =
    Info::new("Ticket API", env!("CARGO_PKG_VERSION")).description("Tickets of the groups of a company.");

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    #[expect(clippy::print_stdout, reason = "the example's output")]
    let print = |line: String| println!("{line}");
    if std::env::args().nth(1).as_deref() == Some("proto") {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        let changed = proto::update(&[Registered::of::<Ticket>()], &folder)?;
        changed.iter().for_each(|path| print(format!("wrote {}", path.display())));
        return Ok(());
    }

    let me = Uid::parse("00000000000000000000000000000000000000aa")?;
    let organization = Uid::parse("00000000000000000000000000000000000000bb")?;
    let platform = platform_core::builder(Arc::new(MemoryStore::new()), SystemClock, SystemEntropy)
        .kind::<Ticket>()
        .descriptors(own_kind::DESCRIPTORS)
        .ephemeral_keys()
        .build()?;
    let first =
        Bootstrap { organization: organization.clone(), organization_name: "mine".into(), operator: me.clone() };
    Iam::of(&platform).bootstrap(&first).await?;

    // In process, with typed resources:
    let caller = Caller::new(me.clone());
    let ticket = Ticket { title: "water the plants".to_owned(), ..Ticket::default() };
    let ticket = platform.create(&caller, &organization, &ticket).await?;
    let request = CloseTicket { uid: ticket.uid };
    let closed: Ticket = platform.run_named::<Ticket, _>(Some(&caller), "CloseTicket", &request).await?;
    print(format!("closed {} at {}", closed.uid, closed.close_time.context("a time")?));
    let done = ListRequest::of::<Ticket>().filter("state", "STATE_DONE").page_size(10).build()?;
    print(format!("{} tickets are done", platform.list::<Ticket>(&caller, &done).await?.total_count));

    // The same over REST and gRPC:
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let url = format!("http://{address}/tickets/v1/tickets");
    print(format!("try: curl -H 'Authorization: Bearer me' '{url}?order_by=title'"));
    print(format!("     curl -H 'Authorization: Bearer me' -d '{{\"title\":\"sweep\"}}' '{url}/{organization}'"));
    print(format!("     http://{address}/console in a browser, with any token"));
    print(format!("     grpcurl -plaintext {address} describe example.tickets.v1.TicketsService"));
    let (platform, authenticator) = (Arc::new(platform), Arc::new(AllowAll(me)));
    let limits = Limits::default();
    // Lists, forms and the action of tickets in the browser, from the same table:
    let console = Console::new(&platform, &Options::new("Tickets", format!("http://{address}")));
    let rest = Rest::new(Arc::clone(&platform), authenticator.clone(), limits.clone())?.mount(console);
    let rest = rest.with_openapi(|rest| rest.openapi(INFO));
    let grpc = Grpc::new(platform, authenticator, limits.clone())?;
    serve(listener, grpc.or_else_http(rest), &limits, std::future::pending()).await?;
    Ok(())
}

/// Authenticates every caller as one identity. For this example only.
#[derive(Debug)]
struct AllowAll(Uid);

#[async_trait::async_trait]
impl Authenticator for AllowAll {
    async fn authenticate(&self, _token: &str) -> Result<Caller> {
        Ok(Caller::new(self.0.clone()))
    }
}
