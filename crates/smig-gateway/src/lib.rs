//! Migration for clients and servers that know nothing of it.
//!
//! A gateway stands next to servers, an agent next to clients; between them runs one SMig session, in
//! which a stream that turns out to be big moves out of the way of the small ones.
//!
//! - `front`: the service that a gateway answers with: reverse proxy, forward proxy, or an answer of its own;
//! - `proxy`: one exchange with an upstream; `upstream`: where requests go;
//! - `forward`: tunnels and requests for authenticated users; `tunnel`: octets both ways;
//! - `tls`: certificates by name, watched for renewal; `config`: the file that says all of this;
//! - `agent`: the client's side: a local proxy whose traffic travels in one session;
//! - `admin`: what both show while they run; `telemetry`: spans on their way to a collector.

pub mod admin;
pub mod agent;
pub mod config;
pub mod forward;
pub mod front;
mod network;
pub mod proxy;
pub mod telemetry;
pub mod tls;
pub mod tunnel;
pub mod upstream;
