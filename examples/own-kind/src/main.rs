//! A kind of your own, served over REST beside those of the contract: `ticket.rs` is the kind, and `.kind::<Ticket>()`
//! below is its registration.
//!
//! `cargo run -p own-kind` prints what to try.

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
    let organisation = Uid::parse("00000000000000000000000000000000000000bb")?;
    let platform =
        platform_core::builder(Arc::new(MemoryStore::new()), SystemClock, SystemEntropy).kind::<Ticket>().build();
    let first =
        Bootstrap { organization: organisation.clone(), organization_name: "mine".into(), operator: me.clone() };
    Iam::of(&platform).bootstrap(&first).await?;

    // Typed, in process:
    let caller = Caller::new(me.clone());
    let ticket = Ticket { title: "water the plants".to_owned(), ..Ticket::default() };
    let ticket = platform.create(&caller, &organisation, &ticket).await?;
    #[expect(clippy::print_stdout, reason = "the example's output")]
    let say = |line: String| println!("{line}");
    say(format!("created {} at {:?}", ticket.uid, ticket.create_time));

    // The same over REST:
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/tickets/v2/tickets", listener.local_addr()?);
    say(format!("try: curl -H 'Authorization: Bearer me' '{url}?order_by=title'"));
    say(format!("     curl -H 'Authorization: Bearer me' -d '{{\"title\":\"sweep\"}}' '{url}/{organisation}'"));
    let rest = Rest::new(Arc::new(platform), Arc::new(Anybody(me)), Limits::default())?;
    serve(listener, rest, &Limits::default(), std::future::pending()).await?;
    Ok(())
}

/// Takes everybody for one identity: an example has no secrets.
#[derive(Debug)]
struct Anybody(Uid);

#[async_trait::async_trait]
impl Authenticator for Anybody {
    async fn authenticate(&self, _token: &str) -> Result<Caller> {
        Ok(Caller::new(self.0.clone()))
    }
}
