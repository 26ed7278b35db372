//! The forward proxy over real sockets.

mod connect;
mod plain;
#[expect(dead_code, reason = "the agent's tests use the rest")]
mod support;
mod tunnel;
