//! A gateway over real loopback sockets: what it answers, and what happens while it runs.

mod certificates;
mod requests;
mod running;
mod starving;
mod support;
