//! A program with a `main` and an endpoint of its own, which takes the options of `serve`:
//! `cargo run -p own-server --bin ticket-desk -- --data-dir desk-data`.

use own_kind::ticket::Ticket;
use platform_engine::request::ListRequest;
use platform_http::{
    Reply,
    mount::{self, Body, Call, Mount, Refusal},
};
use platform_server::{Config, Error, Server};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let config = Config::read(std::env::args_os())?;
    let server = Server::builder(config).kinds(own_server::TICKETS).mount(OpenTickets).start().await?;
    #[expect(clippy::print_stdout, reason = "scripts read the URL")]
    {
        println!("Listening on {}", server.url());
    }
    server.run().await
}

/// Answers `GET /desk/open` with the number of open tickets that the caller can list.
#[derive(Debug)]
struct OpenTickets;

#[async_trait::async_trait]
impl Mount for OpenTickets {
    fn has(&self, path: &str) -> bool {
        path == "/desk/open"
    }

    async fn answer(&self, call: Call<'_>, _body: Body<'_>) -> Result<Reply, Refusal> {
        if let Some(reply) = call.check_method(&[http::Method::GET])? {
            return Ok(reply);
        }
        let caller = call.caller().await?;
        let open = ListRequest::of::<Ticket>().filter("state", "STATE_OPEN").page_size(1).build()?;
        let count = call.platform.list::<Ticket>(&caller, &open).await?.total_count;
        Ok(mount::json(serde_json::json!({ "open": count }).to_string()))
    }
}
