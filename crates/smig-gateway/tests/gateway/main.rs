//! A gateway over real loopback sockets: its responses, and changes at run time.

mod certificates;
mod reload_and_drain;
mod requests;
mod stalled_clients;
mod support;
