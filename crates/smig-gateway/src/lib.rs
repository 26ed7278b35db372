//! Migration for clients and servers without support of their own.
//!
//! A gateway runs in front of servers, an agent next to clients. Between them is one SMig session, in
//! which large streams are paced, or migrate out of the way of small ones.
//!
//! - [`Gateway`]: starts, reloads its configuration without closing connections, and drains;
//! - [`config`]: the configuration file; [`tls`]: certificates by name, reloaded on renewal;
//! - `router`: what answers a request: an upstream, the forward proxy, a redirect or a fixed response;
//! - [`exchange`]: one exchange with an upstream; [`upstream`]: servers, balancing, health, connections;
//! - [`forward_proxy`]: tunnels and requests to other hosts, for authenticated users.

mod background;
pub mod config;
pub mod exchange;
pub mod forward_proxy;
mod gateway;
mod ip_net;
mod router;
pub mod tls;
pub mod upstream;

pub use gateway::{CertificateReloads, Gateway, GatewayError};
