//! Migration for clients and servers without support of their own.
//!
//! A gateway runs in front of servers, an agent next to clients. Between them is one SMig session, in
//! which large streams migrate out of the way of small ones.
//!
//! - `front`: the gateway's service: reverse proxy, forward proxy, redirects and fixed responses;
//! - `proxy`: one exchange with an upstream; `upstream`: servers, balancing, health, connections;
//! - `forward`: tunnels and requests for authenticated users;
//! - `tls`: certificates by name, reloaded on renewal; `config`: the configuration file.

pub mod config;
pub mod forward;
pub mod front;
mod network;
pub mod proxy;
pub mod tls;
pub mod upstream;
