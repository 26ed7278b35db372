//! A gateway over real loopback sockets: its responses, and changes at run time.

mod certificates;
mod requests;
mod running;
mod starving;
mod support;
