//! The agent: a local proxy whose traffic is carried by one session to a gateway.
//!
//! Each connection or request to a local port becomes a stream of the session: a CONNECT tunnel, or a request.
//! The session itself belongs to the client ([`smig::Client`]); `uplink` keeps it connected, and
//! reports why it is not.

mod agent;
mod config;
mod error;
mod http_proxy;
mod listen;
mod local_socket;
mod options;
mod pac;
mod port_forward;
mod shared;
mod socks5;
mod uplink;

pub use agent::{Agent, client_builder, engine_config};
pub use config::{AgentConfig, AgentLimits, GatewaySpec, LocalListeners, example};
pub use options::{AgentOptions, Credentials, PortForward, PortProtocol};
pub use uplink::UplinkState;
