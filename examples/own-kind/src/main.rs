//! Adds your own kind of resource and serves it over REST next to the kinds of the contract: `ticket.rs` defines the
//! kind, and `.kind::<Ticket>()` below registers it.
//!
//! `cargo run -p own-kind` prints example requests.

use std::sync::Arc;

use platform_core::{
    access::{Authenticator, Caller},
    error::Result,
    iam::{Bootstrap, Iam},
    store::memory::MemoryStore,
    uid::Uid,
};
use platform_http::{Limits, Rest, SystemClock, SystemEntropy, serve};

mod ticket;

use ticket::Ticket;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let me = Uid::parse("00000000000000000000000000000000000000aa")?;
    let organization = Uid::parse("00000000000000000000000000000000000000bb")?;
    let platform = platform_core::builder(Arc::new(MemoryStore::new()), SystemClock, SystemEntropy)
        .kind::<Ticket>()
        .ephemeral_keys()
        .build()?;
    let first =
        Bootstrap { organization: organization.clone(), organization_name: "mine".into(), operator: me.clone() };
    Iam::of(&platform).bootstrap(&first).await?;

    // In process, with typed resources:
    let caller = Caller::new(me.clone());
    let ticket = Ticket { title: "water the plants".to_owned(), ..Ticket::default() };
    let ticket = platform.create(&caller, &organization, &ticket).await?;
    #[expect(clippy::print_stdout, reason = "the example's output")]
    let print = |line: String| println!("{line}");
    print(format!("created {} at {:?}", ticket.uid, ticket.create_time));

    // The same over REST:
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/tickets/v2/tickets", listener.local_addr()?);
    print(format!("try: curl -H 'Authorization: Bearer me' '{url}?order_by=title'"));
    print(format!("     curl -H 'Authorization: Bearer me' -d '{{\"title\":\"sweep\"}}' '{url}/{organization}'"));
    let rest = Rest::new(Arc::new(platform), Arc::new(AllowAll(me)), Limits::default())?;
    serve(listener, rest, &Limits::default(), std::future::pending()).await?;
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
