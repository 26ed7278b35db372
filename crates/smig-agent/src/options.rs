//! The options of an agent.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::uri::Authority;
use serde::de::{Deserialize, Deserializer, Error as _};
use smig::Origin;
use smig_admin::AdminSpec;
use smig_admin::telemetry::TelemetrySpec;

/// The gateway and the local ports of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The gateway.
    pub gateway: Origin,
    /// The credentials for the gateway.
    pub credentials: Option<Credentials>,
    /// Addresses of the HTTP proxy.
    pub http: Vec<SocketAddr>,
    /// Addresses of the SOCKS5 proxy.
    pub socks: Vec<SocketAddr>,
    /// Forwarded ports, each with one destination.
    pub forwards: Vec<PortForward>,
    /// Maximum number of concurrent local connections; further ones wait.
    pub max_connections: usize,
    /// Idle timeout of a tunnel, which is then reset; `None`: no limit.
    pub tunnel_idle_timeout: Option<Duration>,
    /// The admin page; disabled if `None`.
    pub admin: Option<AdminSpec>,
    /// The collector of request spans; disabled if `None`.
    pub telemetry: Option<TelemetrySpec>,
}

impl AgentOptions {
    /// An agent without local ports.
    #[must_use]
    pub const fn new(gateway: Origin) -> Self {
        Self {
            gateway,
            credentials: None,
            http: Vec::new(),
            socks: Vec::new(),
            forwards: Vec::new(),
            max_connections: 4096,
            tunnel_idle_timeout: Some(Duration::from_secs(3600)),
            admin: None,
            telemetry: None,
        }
    }
}

/// Credentials for the gateway. Not shown in debug output.
#[derive(Clone)]
pub struct Credentials(HeaderValue);

impl Credentials {
    /// A bearer token. `None` if it is empty or contains an invalid character.
    #[must_use]
    pub fn bearer(token: &str) -> Option<Self> {
        let is_token = |byte: u8| byte.is_ascii_graphic();
        if token.is_empty() || !token.bytes().all(is_token) {
            return None;
        }
        Self::new(&format!("Bearer {token}"))
    }

    /// A user and a password for Basic authentication. `None` if the user contains a colon.
    #[must_use]
    pub fn basic(user: &str, password: &str) -> Option<Self> {
        if user.contains(':') {
            return None;
        }
        Self::new(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }

    fn new(text: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(text).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    pub(crate) fn value(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// A forwarded local port with one destination: `127.0.0.1:50051=host:port`, with `h2c://` or `tcp://` before
/// the host if the protocol is not to be detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortForward {
    /// The local address.
    pub listen: SocketAddr,
    /// The destination; the gateway resolves its name.
    pub target: Authority,
    /// The protocol.
    pub protocol: PortProtocol,
}

/// The protocol on a forwarded port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortProtocol {
    /// HTTP/2 if the client starts with its preface, else a tunnel.
    Detect,
    /// HTTP/2 with prior knowledge, such as gRPC: each request is a stream of its own if the gateway speaks
    /// SMig, else the connection is a tunnel.
    H2c,
    /// Anything: each connection is a tunnel.
    Tcp,
}

impl<'de> Deserialize<'de> for PortForward {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl FromStr for PortForward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid_forward =
            || format!("{text:?} is not a forwarded port; write LOCAL_ADDRESS:PORT=HOST:PORT");
        let (listen, target) = text.split_once('=').ok_or_else(invalid_forward)?;
        let listen = listen.parse().map_err(|_| invalid_forward())?;
        let (protocol, target) = if let Some(target) = target.strip_prefix("h2c://") {
            (PortProtocol::H2c, target)
        } else if let Some(target) = target.strip_prefix("tcp://") {
            (PortProtocol::Tcp, target)
        } else {
            (PortProtocol::Detect, target)
        };
        let target: Authority = target.parse().map_err(|_| invalid_forward())?;
        if target.port_u16().is_none_or(|port| port == 0) || target.as_str().contains('@') {
            return Err(invalid_forward());
        }
        Ok(Self { listen, target, protocol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_ports_are_parsed() {
        let forward: PortForward = "127.0.0.1:50051=db.example:5432".parse().unwrap();
        assert_eq!(forward.listen, "127.0.0.1:50051".parse().unwrap());
        assert_eq!(forward.target, "db.example:5432");
        assert_eq!(forward.protocol, PortProtocol::Detect);
        let forward: PortForward = "[::1]:1=h2c://[::1]:2".parse().unwrap();
        assert_eq!((forward.protocol, forward.target.as_str()), (PortProtocol::H2c, "[::1]:2"));
        for bad in ["1=a:1", "127.0.0.1:1", "127.0.0.1:1=a", "127.0.0.1:1=a:0", "127.0.0.1:1=u@a:1"]
        {
            assert!(bad.parse::<PortForward>().is_err(), "{bad}");
        }
    }

    #[test]
    fn credentials_are_not_in_debug_output() {
        let credentials = Credentials::bearer("secret").unwrap();
        assert!(!format!("{credentials:?}").contains("secret"));
        assert!(Credentials::bearer("a b").is_none());
        assert!(Credentials::bearer("").is_none());
        assert!(Credentials::basic("a:b", "c").is_none());
        assert_eq!(Credentials::basic("ann", "x").unwrap().value(), "Basic YW5uOng=");
    }
}
