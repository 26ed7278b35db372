//! The agent's configuration file.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use smig::Origin;
use smig_admin::AdminSpec;
use smig_admin::telemetry::TelemetrySpec;
use smig_settings::value::{deserialize_time, deserialize_time_or_never};
use smig_settings::{Diagnostic, Diagnostics, Document};

use crate::options::PortForward;

/// The top-level keys of the file.
const KEYS: [&str; 5] = ["gateway", "listen", "limits", "admin", "telemetry"];

/// The configuration of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentConfig {
    /// The gateway that carries its traffic.
    pub gateway: GatewaySpec,
    /// The local ports.
    pub listen: LocalListeners,
    /// Resource limits.
    pub limits: AgentLimits,
    /// The admin page; disabled if absent.
    pub admin: Option<AdminSpec>,
    /// The collector of request spans; disabled if absent.
    pub telemetry: Option<TelemetrySpec>,
}

/// How to reach the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySpec {
    /// `https://host`, or `https://host:port`; the default port is 443.
    #[serde(deserialize_with = "deserialize_gateway_url")]
    pub url: Origin,
    /// A file with the token for the gateway.
    pub token_file: Option<PathBuf>,
    /// The user of Basic authentication; the token is the password.
    pub user: Option<String>,
    /// CA certificates for the gateway, PEM; the system's unless set.
    pub ca: Option<PathBuf>,
    /// Accepts any certificate.
    #[serde(default)]
    pub insecure: bool,
    /// Timeout of one connection attempt.
    #[serde(default = "default_connect_timeout", deserialize_with = "deserialize_time")]
    pub connect_timeout: Duration,
    /// Whether SMig is negotiated with the gateway, so that streams may migrate. Otherwise the connections are plain
    /// HTTP/2.
    #[serde(default = "default_migrate")]
    pub migrate: bool,
    /// Number of spare connections kept open for migrations.
    #[serde(default = "default_spares")]
    pub spares: usize,
    /// Maximum number of connections with a gateway that speaks plain HTTP/2; unless set 2, or 1 without
    /// [`migrate`](Self::migrate).
    pub plain_connections: Option<NonZeroUsize>,
    /// Whether bulk of a gateway that speaks plain HTTP/2 is paced by the receive window.
    #[serde(default)]
    pub receive_pacing: bool,
}

/// Local ports.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalListeners {
    /// Addresses of the HTTP proxy.
    pub http: Vec<SocketAddr>,
    /// Addresses of the SOCKS5 proxy.
    pub socks: Vec<SocketAddr>,
    /// Forwarded ports, each with one destination.
    pub forward: Vec<PortForward>,
}

impl Default for LocalListeners {
    fn default() -> Self {
        let http = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8118))];
        Self { http, socks: Vec::new(), forward: Vec::new() }
    }
}

/// Resource limits of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentLimits {
    /// Maximum number of concurrent local connections; further ones wait.
    pub max_connections: usize,
    /// Idle timeout of a tunnel; `"never"`: no limit.
    #[serde(deserialize_with = "deserialize_time_or_never")]
    pub tunnel_idle_timeout: Option<Duration>,
    /// How long active exchanges may continue at shutdown.
    #[serde(deserialize_with = "deserialize_time")]
    pub drain_timeout: Duration,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            tunnel_idle_timeout: Some(Duration::from_secs(3600)),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

const fn default_connect_timeout() -> Duration {
    Duration::from_secs(10)
}

const fn default_migrate() -> bool {
    true
}

const fn default_spares() -> usize {
    1
}

fn deserialize_gateway_url<'de, D: Deserializer<'de>>(from: D) -> Result<Origin, D::Error> {
    let uri: Uri = String::deserialize(from)?.parse().map_err(D::Error::custom)?;
    GatewaySpec::origin_from_uri(&uri).map_err(D::Error::custom)
}

impl GatewaySpec {
    /// A gateway, with defaults for all else.
    #[must_use]
    pub const fn new(url: Origin) -> Self {
        Self {
            url,
            token_file: None,
            user: None,
            ca: None,
            insecure: false,
            connect_timeout: default_connect_timeout(),
            migrate: default_migrate(),
            spares: default_spares(),
            plain_connections: None,
            receive_pacing: false,
        }
    }

    /// Returns the maximum number of connections with a gateway that speaks plain HTTP/2.
    #[must_use]
    pub fn max_plain_connections(&self) -> usize {
        let default = if self.migrate { 2 } else { 1 };
        self.plain_connections.map_or(default, NonZeroUsize::get)
    }

    /// Returns the gateway's origin from its URL.
    ///
    /// # Errors
    /// The URL is not `https://host` or `https://host:port`.
    pub fn origin_from_uri(uri: &Uri) -> Result<Origin, String> {
        if uri.scheme_str() != Some("https") {
            return Err("the gateway's URL must begin with https://".to_owned());
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("write the gateway as https://host:port, without a path".to_owned());
        }
        Origin::from_uri(uri).map_err(|error| error.to_string())
    }
}

impl AgentConfig {
    /// Reads a file. Relative paths in it are resolved against its directory.
    ///
    /// # Errors
    /// All faults of the file.
    pub fn load(path: &Path) -> Result<Self, Diagnostics> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Diagnostics::unreadable(path, "the configuration file", &error))?;
        Self::parse(&text, path)
            .map_err(|faults| Diagnostics { file: path.display().to_string(), diagnostics: faults })
    }

    /// Parses a file's text; `path` is where it was read.
    ///
    /// # Errors
    /// Every fault, in the file's order.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Vec<Diagnostic>> {
        let mut document = Document::parse(text).map_err(|fault| vec![fault])?;
        let has_gateway = document.has_unread("gateway");
        let gateway = document.take::<GatewaySpec>("gateway").map(|section| section.value);
        let listen = document.take::<LocalListeners>("listen");
        let listen = listen.map(|section| section.value).unwrap_or_default();
        let limits = document.take::<AgentLimits>("limits");
        let admin = document.take::<AdminSpec>("admin").map(|section| section.value);
        let telemetry = document.take::<TelemetrySpec>("telemetry").map(|section| section.value);
        if listen.http.is_empty() && listen.socks.is_empty() && listen.forward.is_empty() {
            document.report(&["listen".to_owned()], "no addresses; add http, socks or forward");
        }
        if !has_gateway {
            let what = "no gateway; add [gateway] with url = \"https://...\"";
            document.report(&["gateway".to_owned()], what);
        }
        document.finish(&KEYS)?;
        // A gateway that is missing or invalid was reported as a fault above.
        let mut gateway = gateway.ok_or_else(Vec::new)?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let directory = absolute.parent().unwrap_or(&absolute);
        let resolve = |path: &mut PathBuf| *path = directory.join(&*path);
        gateway.token_file.as_mut().map(resolve);
        gateway.ca.as_mut().map(resolve);
        let mut telemetry = telemetry;
        if let Some(telemetry) = &mut telemetry {
            telemetry.ca.as_mut().map(resolve);
        }
        let limits = limits.map(|section| section.value).unwrap_or_default();
        Ok(Self { gateway, listen, limits, admin, telemetry })
    }

    /// Returns whether a file configures an agent: only an agent's file has the section `gateway`.
    #[must_use]
    pub fn is_agent_config(path: &Path) -> bool {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("gateway"))
    }
}

/// A file with every key, its meaning and its default.
#[must_use]
pub const fn example() -> &'static str {
    include_str!("example.toml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use smig_settings::uncomment_keys;

    fn parse(text: &str) -> Result<AgentConfig, Vec<String>> {
        AgentConfig::parse(text, Path::new("/etc/smig/agent.toml"))
            .map_err(|faults| faults.into_iter().map(|fault| fault.to_string()).collect())
    }

    #[test]
    fn the_example_parses_with_and_without_commented_keys() {
        let defaults = AgentConfig {
            gateway: GatewaySpec::new(Origin::https("gateway.example", 443)),
            listen: LocalListeners::default(),
            limits: AgentLimits::default(),
            admin: None,
            telemetry: None,
        };
        assert_eq!(parse(example()).unwrap(), defaults);
        let uncommented_text = uncomment_keys(example());
        let full_config = parse(&uncommented_text).unwrap_or_else(|faults| panic!("{faults:#?}"));
        assert_eq!(full_config.limits, defaults.limits);
        assert_eq!(full_config.listen.forward.len(), 1);
        assert_eq!(full_config.gateway.token_file.as_deref(), Some(Path::new("/etc/smig/token")));
        assert!(full_config.admin.is_some());
        assert_eq!(full_config.telemetry.unwrap().sample_ratio, Some(1.0));
        for key in KEYS {
            assert!(uncommented_text.contains(&format!("[{key}]")), "{key}");
        }
    }

    #[test]
    fn every_fault_is_named_with_its_line_and_key() {
        assert_eq!(
            parse("[gateway]\nurl = 'http://a'\n[limit]\n[listen]\nhtp = []\n").unwrap_err(),
            [
                "2: gateway.url: the gateway's URL must begin with https://",
                "3: limit: unknown key; did you mean limits?",
                "5: listen.htp: unknown key; did you mean http?",
            ]
        );
        let no_addresses =
            parse("[gateway]\nurl = 'https://a'\n[listen]\nhttp = []\n").unwrap_err();
        assert_eq!(no_addresses, ["3: listen: no addresses; add http, socks or forward"]);
        let wrong_port = parse("[gateway]\nurl = 'https://a:99999'\n").unwrap_err();
        assert!(wrong_port[0].contains("2: gateway.url"), "{wrong_port:?}");
        assert!(wrong_port[0].contains("write a number from 1 to 65535"), "{wrong_port:?}");
        let no_gateway = parse("[admin]\nlisten = '127.0.0.1:1'\n").unwrap_err();
        assert!(no_gateway[0].contains("gateway: no gateway"), "{no_gateway:?}");
        let neither = parse("[listen]\nhttp = []\n").unwrap_err();
        assert_eq!(neither.len(), 2, "{neither:?}");
        assert!(neither[0].contains("gateway: no gateway"), "{neither:?}");
        assert!(neither[1].contains("listen: no addresses"), "{neither:?}");
    }
}
