//! The configuration of an upstream: plain data with a default for everything but the servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::header::HeaderName;
use http::uri::Authority;
use serde::de::{Deserialize, Deserializer, Error as _};
use smig_proxy::dial::ServerAddr;
use smig_proxy::grpc;
use smig_proxy::upload::{ResponseTimeouts, Upload};
use smig_settings::value::{deserialize_time, deserialize_time_or_never};

/// An upstream: its servers, and how requests are sent to them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamSpec {
    /// The servers among which requests are distributed.
    pub servers: Vec<ServerUrl>,
    /// The load balancing policy.
    #[serde(default)]
    pub balance: Balance,
    /// Timeouts.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Maximum number of open connections to one server, over all workers and HTTP versions.
    #[serde(default = "max_connections")]
    pub max_connections: usize,
    /// Maximum number of requests to one server that wait for a connection, or over HTTP/2 for a stream; further ones
    /// are answered with 503. Over HTTP/2 the limit is at least 16.
    #[serde(default = "max_pending_requests")]
    pub max_pending_requests: usize,
    /// Maximum number of retries of a request, where a retry is safe. In addition, a request is
    /// sent once more if its connection had ended or accepted no more requests.
    #[serde(default = "retries")]
    pub retries: u32,
    /// How long a server's resolved addresses are cached. The system's resolver does not return a time to live.
    #[serde(default = "dns_cache_time", deserialize_with = "deserialize_time")]
    pub dns_cache_time: Duration,
    /// Outlier detection: when a failing server is ejected.
    #[serde(default)]
    pub ejection: Ejection,
    /// Active health checks; off unless set.
    #[serde(default)]
    pub health: Option<HealthSpec>,
    /// TLS settings of connections to the servers.
    #[serde(default)]
    pub tls: TlsSpec,
}

impl UpstreamSpec {
    /// An upstream of these servers, with defaults for all else.
    #[must_use]
    pub fn new(servers: Vec<ServerUrl>) -> Self {
        Self {
            servers,
            balance: Balance::default(),
            timeouts: Timeouts::default(),
            max_connections: max_connections(),
            max_pending_requests: max_pending_requests(),
            retries: retries(),
            dns_cache_time: dns_cache_time(),
            ejection: Ejection::default(),
            health: None,
            tls: TlsSpec::default(),
        }
    }
}

const fn max_connections() -> usize {
    1024
}

const fn max_pending_requests() -> usize {
    1024
}

const fn retries() -> u32 {
    1
}

const fn dns_cache_time() -> Duration {
    Duration::from_secs(10)
}

/// A server: `http://host:port` (HTTP/1.1), `h2c://host:port` (HTTP/2 with prior knowledge),
/// `https://host:port` (HTTP/2 or HTTP/1.1 by ALPN), `smig://host:port` (TLS with migration), or
/// `unix:/path` (HTTP/1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    pub(super) protocol: Protocol,
    pub(super) target: ServerAddr,
}

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1 over cleartext TCP or a Unix socket.
    Http1,
    /// HTTP/2 over cleartext TCP, with prior knowledge.
    H2c,
    /// HTTP/2 or HTTP/1.1 over TLS, by ALPN.
    Https,
    /// HTTP/2 over TLS, with migration.
    Smig,
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(format!("{text:?} is not a socket; write unix:/path/of/the/socket"));
            }
            return Ok(Self { protocol: Protocol::Http1, target: ServerAddr::Unix(path.into()) });
        }
        let (protocol, rest, default_port) = if let Some(rest) = text.strip_prefix("http://") {
            (Protocol::Http1, rest, 80)
        } else if let Some(rest) = text.strip_prefix("h2c://") {
            (Protocol::H2c, rest, 80)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (Protocol::Https, rest, 443)
        } else if let Some(rest) = text.strip_prefix("smig://") {
            (Protocol::Smig, rest, 443)
        } else {
            return Err(format!(
                "{text:?} does not begin with http://, h2c://, https://, smig:// or unix:"
            ));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let authority: Authority = rest
            .parse()
            .ok()
            .filter(|authority: &Authority| !authority.as_str().contains('@'))
            .ok_or_else(|| format!("{text:?}: write host:port after the scheme, without a path"))?;
        let host = authority.host();
        if authority.port_u16().is_none() && authority.as_str() != host {
            return Err(format!("{text:?}: the port is invalid; write a number from 1 to 65535"));
        }
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(format!("{text:?} has no host"));
        }
        let target = ServerAddr::Tcp {
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(default_port),
        };
        Ok(Self { protocol, target })
    }
}

impl ServerUrl {
    /// Returns `host:port`; empty for a Unix socket.
    pub(super) fn authority(&self) -> String {
        match &self.target {
            ServerAddr::Unix(_) => String::new(),
            ServerAddr::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            ServerAddr::Tcp { host, port } => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http1 => "http",
            Protocol::H2c => "h2c",
            Protocol::Https => "https",
            Protocol::Smig => "smig",
        };
        match &self.target {
            ServerAddr::Unix(path) => write!(f, "unix:{}", path.display()),
            ServerAddr::Tcp { .. } => write!(f, "{scheme}://{}", self.authority()),
        }
    }
}

impl<'de> Deserialize<'de> for ServerUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The load balancing policy: `least-request`, `hash:client`, `hash:path`, `hash:header:NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The server with the fewest active requests.
    #[default]
    LeastRequest,
    /// Consistent hashing: the same server for the same key, as long as it is healthy.
    Hash(HashKey),
}

/// The key of consistent hashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Client,
    /// Path and query.
    Path,
    /// The first header field of this name; fewest active requests without one.
    Header(HeaderName),
}

impl FromStr for Balance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "least-request" => Ok(Self::LeastRequest),
            "hash:client" => Ok(Self::Hash(HashKey::Client)),
            "hash:path" => Ok(Self::Hash(HashKey::Path)),
            _ => text
                .strip_prefix("hash:header:")
                .and_then(|name| name.parse().ok())
                .map(|name| Self::Hash(HashKey::Header(name)))
                .ok_or_else(|| {
                    format!(
                        "{text:?} is not least-request, hash:client, hash:path or hash:header:NAME"
                    )
                }),
        }
    }
}

impl<'de> Deserialize<'de> for Balance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Timeouts of the phases of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Timeout of connecting: name lookup, TCP, TLS.
    #[serde(deserialize_with = "deserialize_time")]
    pub connect: Duration,
    /// Timeout of waiting for a connection, or for a stream, when all are in use.
    #[serde(deserialize_with = "deserialize_time")]
    pub queue: Duration,
    /// Timeout from the end of the request (as far as the server accepts it) to the response's
    /// header section; does not begin while the request waits for a connection or a stream. Does
    /// not apply to gRPC, whose calls have deadlines of their own.
    #[serde(deserialize_with = "deserialize_time")]
    pub response_header: Duration,
    /// Timeout between two chunks of a body, while waiting for the server; `"never"`: no limit.
    /// Streams that may idle (gRPC, server-sent events) have no limit either.
    #[serde(deserialize_with = "deserialize_time_or_never")]
    pub stream_idle: Option<Duration>,
    /// Idle timeout of a tunnel (WebSocket, CONNECT).
    #[serde(deserialize_with = "deserialize_time")]
    pub tunnel: Duration,
    /// Idle timeout of pooled connections (HTTP keep-alive, not TCP's probes).
    #[serde(deserialize_with = "deserialize_time")]
    pub keepalive: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            queue: Duration::from_secs(5),
            response_header: Duration::from_secs(60),
            stream_idle: Some(Duration::from_secs(60)),
            tunnel: Duration::from_secs(3600),
            keepalive: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// Returns the timeouts of waiting for the response to a request with this body.
    pub(crate) fn response_timeouts(&self, upload: &Upload) -> ResponseTimeouts {
        ResponseTimeouts::new(upload, self.response_header, self.stream_idle)
    }

    /// Returns the `stream_idle` timeout for the body of a response with these header fields.
    pub(crate) fn stream_idle_of(&self, headers: &http::HeaderMap) -> Option<Duration> {
        self.stream_idle.filter(|_| !grpc::has_no_idle_limit(headers))
    }
}

/// Outlier detection. If no server is healthy, all are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ejection {
    /// Consecutive failures (no connection, no response, or a truncated one) until ejection; 0: never.
    pub consecutive_failures: u32,
    /// Base ejection time, multiplied by the number of consecutive ejections, up to ten.
    #[serde(deserialize_with = "deserialize_time")]
    pub base_time: Duration,
}

impl Default for Ejection {
    fn default() -> Self {
        Self { consecutive_failures: 5, base_time: Duration::from_secs(10) }
    }
}

/// Active health checks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthSpec {
    /// The path of the GET request; 2xx and 3xx are healthy.
    pub path: String,
    /// The authority of the request; the server's own unless set.
    pub host: Option<String>,
    /// Time between two checks.
    #[serde(deserialize_with = "deserialize_time")]
    pub interval: Duration,
    /// Timeout of a check.
    #[serde(deserialize_with = "deserialize_time")]
    pub timeout: Duration,
    /// Consecutive passed checks until a failing server is healthy.
    pub rise: u32,
    /// Consecutive failed checks until a healthy server is not.
    pub fall: u32,
}

impl Default for HealthSpec {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            host: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
        }
    }
}

/// TLS settings of connections to the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSpec {
    /// CA certificates, PEM; the system's unless set.
    pub ca: Option<PathBuf>,
    /// Accepts any certificate: for tests.
    pub insecure: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_urls_are_displayed_as_they_are_parsed() {
        for text in [
            "http://127.0.0.1:8080",
            "h2c://localhost:80",
            "https://[::1]:8443",
            "smig://example.org:443",
            "unix:/run/app.sock",
        ] {
            assert_eq!(text.parse::<ServerUrl>().unwrap().to_string(), text);
        }
        assert_eq!("https://a".parse::<ServerUrl>().unwrap().to_string(), "https://a:443");
        for bad in [
            "127.0.0.1:80",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://u@a",
            "unix:x",
            "http://a:b",
        ] {
            assert!(bad.parse::<ServerUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_specification_is_parsed_from_toml() {
        let spec: UpstreamSpec = toml::from_str(
            r#"
            servers = ["http://127.0.0.1:1", "unix:/a"]
            balance = "hash:header:X-User"
            timeouts = { response_header = "1.5s", stream_idle = "never" }
            health = { path = "/ok", interval = "1min" }
            "#,
        )
        .unwrap();
        assert_eq!(spec.servers.len(), 2);
        assert_eq!(spec.timeouts.response_header, Duration::from_millis(1500));
        assert_eq!(spec.timeouts.stream_idle, None);
        assert_eq!(spec.timeouts.connect, Timeouts::default().connect);
        let name = HeaderName::from_static("x-user");
        assert_eq!(spec.balance, Balance::Hash(HashKey::Header(name)));
        assert!(toml::from_str::<UpstreamSpec>("servers = []\nbalanc = 1").is_err());
        assert!(
            toml::from_str::<UpstreamSpec>("servers = []\ntimeouts = {response_header = 5}")
                .is_err()
        );
    }
}
