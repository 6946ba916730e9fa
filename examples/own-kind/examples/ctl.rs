//! The command line for the kinds of the platform and the kind of this example: `platformctl` with `tickets`.

use std::process::ExitCode;

use own_kind::ticket::Ticket;
use platform_core::resources::KINDS;
use platform_engine::kind::Registered;

fn main() -> ExitCode {
    platformctl::main_with(&[KINDS, &[Registered::of::<Ticket>()]].concat())
}
