//! The forward proxy and the agent over real sockets.

mod agent;
mod connect;
mod plain;
mod port;
mod socks;
mod support;
mod tunnel;
