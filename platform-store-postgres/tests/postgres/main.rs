//! Tests of what the PostgreSQL store adds to the contract. Without a server, they print a line that begins with NOT RUN.

mod common;

mod faults;
mod plans;
mod several;
