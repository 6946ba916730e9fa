//! Calls over real connections. Rules of the API are tested in core and over REST: what is here is that gRPC says the
//! same, and what it has of its own.

#![allow(unreachable_pub, reason = "a test's own modules")]

mod support;

mod resources;

mod refusals;

mod connections;
