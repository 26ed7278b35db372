//! Both sides of this crate over real loopback sockets.

mod chaos;
mod http2;
mod migration;
mod other_protocols;
mod support;
