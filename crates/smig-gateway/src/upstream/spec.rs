//! How an upstream is described: plain data with a default for everything but the servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::header::HeaderName;
use http::uri::Authority;
use serde::de::{Deserialize, Deserializer, Error as _};
use smig_settings::value::{deserialize_time, deserialize_time_or_never};

use crate::proxy::grpc;

/// Where requests go, and how.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamSpec {
    /// The servers; each gets its share of the requests.
    pub servers: Vec<ServerUrl>,
    /// Which server a request goes to.
    #[serde(default)]
    pub balance: Balance,
    /// Time limits.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Connections to one server, of all workers together and by any version of HTTP, that may be open at once.
    #[serde(default = "max_connections")]
    pub max_connections: usize,
    /// Requests to one server that may wait for a connection, or by HTTP/2 for a stream (16 at least);
    /// further ones are answered 503.
    #[serde(default = "max_waiting")]
    pub max_waiting: usize,
    /// How often a request is sent again, where that is safe; 0: never. Beyond that it is sent once more where it met
    /// a kept connection that had ended.
    #[serde(default = "retries")]
    pub retries: u32,
    /// How long the addresses of a server's name are good until it is looked up again. The system's resolver tells
    /// no time to live.
    #[serde(default = "resolve", deserialize_with = "deserialize_time")]
    pub resolve: Duration,
    /// When a server that fails is left alone for a while.
    #[serde(default)]
    pub ejection: Ejection,
    /// Asking servers whether they are well; not done unless set.
    #[serde(default)]
    pub health: Option<HealthSpec>,
    /// Whom TLS to the servers trusts.
    #[serde(default)]
    pub tls: TlsSpec,
}

impl UpstreamSpec {
    /// Servers, and the defaults.
    #[must_use]
    pub fn new(servers: Vec<ServerUrl>) -> Self {
        Self {
            servers,
            balance: Balance::default(),
            timeouts: Timeouts::default(),
            max_connections: max_connections(),
            max_waiting: max_waiting(),
            retries: retries(),
            resolve: resolve(),
            ejection: Ejection::default(),
            health: None,
            tls: TlsSpec::default(),
        }
    }
}

const fn max_connections() -> usize {
    1024
}

const fn max_waiting() -> usize {
    1024
}

const fn retries() -> u32 {
    1
}

const fn resolve() -> Duration {
    Duration::from_secs(10)
}

/// A server: `http://host:port` (HTTP/1.1), `h2c://host:port` (HTTP/2 with prior knowledge),
/// `https://host:port` (HTTP/2 or HTTP/1.1 by ALPN), `smig://host:port` (TLS with migration), or
/// `unix:/path` (HTTP/1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    pub(super) protocol: Protocol,
    pub(super) target: Target,
}

/// What is spoken with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.1 in the clear.
    Http1,
    /// HTTP/2 in the clear, with prior knowledge.
    H2c,
    /// TLS; HTTP/2 or HTTP/1.1.
    Https,
    /// TLS; HTTP/2 with migration.
    Smig,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Host without brackets, and port.
    Tcp { host: String, port: u16 },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(format!("{text:?}: write unix:/path/of/the/socket"));
            }
            return Ok(Self { protocol: Protocol::Http1, target: Target::Unix(path.into()) });
        }
        let (protocol, rest, port) = if let Some(rest) = text.strip_prefix("http://") {
            (Protocol::Http1, rest, 80)
        } else if let Some(rest) = text.strip_prefix("h2c://") {
            (Protocol::H2c, rest, 80)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (Protocol::Https, rest, 443)
        } else if let Some(rest) = text.strip_prefix("smig://") {
            (Protocol::Smig, rest, 443)
        } else {
            return Err(format!(
                "{text:?}: begins with none of http://, h2c://, https://, smig://, unix:"
            ));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let authority: Authority = rest
            .parse()
            .ok()
            .filter(|authority: &Authority| !authority.as_str().contains('@'))
            .ok_or_else(|| format!("{text:?}: write host:port behind the scheme, and no path"))?;
        let host = authority.host();
        if authority.port_u16().is_none() && authority.as_str() != host {
            return Err(format!("{text:?}: the port is not a number"));
        }
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(format!("{text:?}: no host"));
        }
        let target =
            Target::Tcp { host: host.to_owned(), port: authority.port_u16().unwrap_or(port) };
        Ok(Self { protocol, target })
    }
}

impl ServerUrl {
    /// `host:port`; empty for a unix socket.
    pub(super) fn authority(&self) -> String {
        match &self.target {
            Target::Unix(_) => String::new(),
            Target::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Target::Tcp { host, port } => format!("{host}:{port}"),
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
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::Tcp { .. } => write!(f, "{scheme}://{}", self.authority()),
        }
    }
}

impl<'de> Deserialize<'de> for ServerUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Which server a request goes to: `least-loaded`, `hash:client`, `hash:path`, `hash:header:NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The one with the fewest requests under way.
    #[default]
    LeastLoaded,
    /// The same for the same key, as long as it is well.
    Hash(HashKey),
}

/// What is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Client,
    /// Path and query.
    Path,
    /// The first field of this name; least loaded where there is none.
    Header(HeaderName),
}

impl FromStr for Balance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "least-loaded" => Ok(Self::LeastLoaded),
            "hash:client" => Ok(Self::Hash(HashKey::Client)),
            "hash:path" => Ok(Self::Hash(HashKey::Path)),
            _ => text
                .strip_prefix("hash:header:")
                .and_then(|name| name.parse().ok())
                .map(|name| Self::Hash(HashKey::Header(name)))
                .ok_or_else(|| {
                    format!(
                        "{text:?} is none of least-loaded, hash:client, hash:path, hash:header:NAME"
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

/// Time limits of one exchange, each for its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Until there is a connection: name, TCP, TLS.
    #[serde(deserialize_with = "deserialize_time")]
    pub connect: Duration,
    /// How long a request waits for a connection, or for a stream, when all are in use.
    #[serde(deserialize_with = "deserialize_time")]
    pub queue: Duration,
    /// From the end of the request (as far as the server takes it) to the response's head; not for
    /// gRPC, whose calls have deadlines of their own.
    #[serde(deserialize_with = "deserialize_time")]
    pub head: Duration,
    /// Between two pieces of a body, when the server is the one who is waited for; `"never"`: no limit.
    /// What may rest by its nature (gRPC, server-sent events) has none either.
    #[serde(deserialize_with = "deserialize_time_or_never")]
    pub stall: Option<Duration>,
    /// How long a tunnel (WebSocket, CONNECT) may rest.
    #[serde(deserialize_with = "deserialize_time")]
    pub tunnel: Duration,
    /// How long an unused connection is kept.
    #[serde(deserialize_with = "deserialize_time")]
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            queue: Duration::from_secs(5),
            head: Duration::from_secs(60),
            stall: Some(Duration::from_secs(60)),
            tunnel: Duration::from_secs(3600),
            idle: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// The limit between two pieces of the body of a response with this head.
    pub(crate) fn stall_of(&self, headers: &http::HeaderMap) -> Option<Duration> {
        self.stall.filter(|_| !grpc::may_rest(headers))
    }
}

/// When a server that fails is left alone. While none is well, all are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ejection {
    /// Failures in a row (no connection, no response, a broken one); 0: never.
    pub failures: u32,
    /// For how long; each time in a row as long again, up to ten times.
    #[serde(deserialize_with = "deserialize_time")]
    pub time: Duration,
}

impl Default for Ejection {
    fn default() -> Self {
        Self { failures: 5, time: Duration::from_secs(10) }
    }
}

/// How servers are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthSpec {
    /// The path of a GET; a status below 400 is well.
    pub path: String,
    /// The authority that is asked for; the server's own unless set.
    pub host: Option<String>,
    /// Between two questions.
    #[serde(deserialize_with = "deserialize_time")]
    pub interval: Duration,
    /// For one answer.
    #[serde(deserialize_with = "deserialize_time")]
    pub timeout: Duration,
    /// Good answers in a row until a server is used again.
    pub rise: u32,
    /// Bad ones in a row until it is not.
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

/// Whom TLS to the servers trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSpec {
    /// A PEM file of authorities; the system's unless set.
    pub ca: Option<PathBuf>,
    /// Accepts every certificate: for tests.
    pub insecure: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_they_are_shown() {
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
    fn a_description_as_the_file_has_it() {
        let spec: UpstreamSpec = toml::from_str(
            r#"
            servers = ["http://127.0.0.1:1", "unix:/a"]
            balance = "hash:header:X-User"
            timeouts = { head = "1.5s", stall = "never" }
            health = { path = "/ok", interval = "1min" }
            "#,
        )
        .unwrap();
        assert_eq!(spec.servers.len(), 2);
        assert_eq!(spec.timeouts.head, Duration::from_millis(1500));
        assert_eq!(spec.timeouts.stall, None);
        assert_eq!(spec.timeouts.connect, Timeouts::default().connect);
        let name = HeaderName::from_static("x-user");
        assert_eq!(spec.balance, Balance::Hash(HashKey::Header(name)));
        assert!(toml::from_str::<UpstreamSpec>("servers = []\nbalanc = 1").is_err());
        assert!(toml::from_str::<UpstreamSpec>("servers = []\ntimeouts = {head = 5}").is_err());
    }
}
