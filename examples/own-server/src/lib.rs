//! A service of your own made of a whole server: tickets (see `examples/own-kind`) in addition to the kinds of Platform API v2.
//!
//! | Program | Has |
//! |---|---|
//! | `ticket-server` | the binary `platform-server` with tickets: REST, gRPC, the console, every command, backups, audit, metrics |
//! | `ticketctl` | the command line `platformctl` with tickets |
//! | `ticket-desk` | a `main` of its own, with an endpoint of its own |

use own_kind::ticket::Ticket;
use platform_engine::kind::Registered;
use platform_http::openapi::Info;
use platform_server::Kinds;

/// The kinds of this service, in addition to those of the API.
pub const OWN: &[Registered] = &[Registered::of::<Ticket>()];

/// The kinds of the server.
pub const TICKETS: Kinds = Kinds::with(OWN)
    .descriptors(own_kind::DESCRIPTORS)
    .info(Info::new("Ticket API", env!("CARGO_PKG_VERSION")).description("Tickets of the groups of a company."));
