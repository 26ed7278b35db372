//! The file that describes an agent.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use smig::Origin;
use smig_settings::value::{deserialize_time, deserialize_time_or_never};
use smig_settings::{Document, Fault, Faults};

use super::spec::PortForward;
use crate::admin::AdminSpec;
use crate::telemetry::TelemetrySpec;

/// The keys of the file's top.
const KEYS: [&str; 5] = ["gateway", "listen", "limits", "admin", "telemetry"];

/// What an agent is told.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentFile {
    /// By whom its traffic goes.
    pub gateway: GatewaySpec,
    /// Where programs find it.
    pub listen: EntranceSpec,
    /// What one agent may hold.
    pub limits: LimitSpec,
    /// The live page; absent: none.
    pub admin: Option<AdminSpec>,
    /// The collector that gets spans of requests; absent: none.
    pub telemetry: Option<TelemetrySpec>,
}

/// The gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaySpec {
    /// `https://host:port`.
    #[serde(deserialize_with = "gateway_url")]
    pub url: Origin,
    /// A file with the token that it wants.
    pub token_file: Option<PathBuf>,
    /// Basic authentication as this user; the token is the password.
    pub user: Option<String>,
    /// Authorities of its certificate, PEM; the system's unless set.
    pub ca: Option<PathBuf>,
    /// Accept every certificate.
    #[serde(default)]
    pub insecure: bool,
    /// Until one attempt to connect is given up.
    #[serde(default = "connect_timeout", deserialize_with = "deserialize_time")]
    pub connect_timeout: Duration,
    /// Whether streams may move.
    #[serde(default = "yes")]
    pub migrate: bool,
    /// Connections that are kept ready for moves.
    #[serde(default = "one")]
    pub spares: usize,
}

/// Local ports.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EntranceSpec {
    /// Of the HTTP proxy.
    pub http: Vec<SocketAddr>,
    /// Of the SOCKS5 proxy.
    pub socks: Vec<SocketAddr>,
    /// That lead to one destination each.
    pub forward: Vec<PortForward>,
}

impl Default for EntranceSpec {
    fn default() -> Self {
        let http = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8118))];
        Self { http, socks: Vec::new(), forward: Vec::new() }
    }
}

/// What one agent may hold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSpec {
    /// Local connections at once; further ones wait.
    pub max_connections: usize,
    /// How long a tunnel may rest; `"never"`: as long as it likes.
    #[serde(deserialize_with = "deserialize_time_or_never")]
    pub tunnel_idle: Option<Duration>,
    /// For what runs when the agent ends.
    #[serde(deserialize_with = "deserialize_time")]
    pub drain_timeout: Duration,
}

impl Default for LimitSpec {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            tunnel_idle: Some(Duration::from_secs(3600)),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

const fn connect_timeout() -> Duration {
    Duration::from_secs(10)
}

const fn yes() -> bool {
    true
}

const fn one() -> usize {
    1
}

fn gateway_url<'de, D: Deserializer<'de>>(from: D) -> Result<Origin, D::Error> {
    let uri: Uri = String::deserialize(from)?.parse().map_err(D::Error::custom)?;
    GatewaySpec::origin(&uri).map_err(D::Error::custom)
}

impl GatewaySpec {
    /// A gateway, and everything else as usual.
    #[must_use]
    pub const fn new(url: Origin) -> Self {
        Self {
            url,
            token_file: None,
            user: None,
            ca: None,
            insecure: false,
            connect_timeout: connect_timeout(),
            migrate: yes(),
            spares: one(),
        }
    }

    /// What a URL says of a gateway.
    ///
    /// # Errors
    /// It is not `https://host:port`.
    pub fn origin(uri: &Uri) -> Result<Origin, String> {
        if uri.scheme_str() != Some("https") {
            return Err("the gateway's URL begins with https://".to_owned());
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("a gateway is https://host:port, without a path".to_owned());
        }
        Origin::of(uri).map_err(|error| error.to_string())
    }
}

impl AgentFile {
    /// Reads a file. Paths in it are looked for in its folder.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Faults::unreadable(path, "the configuration file", &error))?;
        Self::parse(&text, path)
            .map_err(|faults| Faults { file: path.display().to_string(), faults })
    }

    /// Reads a file's text; `path` is where it is from.
    ///
    /// # Errors
    /// Every fault, in the file's order.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Vec<Fault>> {
        let mut document = Document::parse(text).map_err(|fault| vec![fault])?;
        let gateway = document.one::<GatewaySpec>("gateway").map(|placed| placed.value);
        let listen = document.one::<EntranceSpec>("listen");
        let listen = listen.map(|placed| placed.value).unwrap_or_default();
        let limits = document.one::<LimitSpec>("limits");
        let admin = document.one::<AdminSpec>("admin").map(|placed| placed.value);
        let telemetry = document.one::<TelemetrySpec>("telemetry").map(|placed| placed.value);
        if listen.http.is_empty() && listen.socks.is_empty() && listen.forward.is_empty() {
            document.fault(&["listen".to_owned()], "the agent listens nowhere");
        }
        if gateway.is_none() && !document.has_faults() {
            let what = "which one? Write [gateway] and url = \"https://...\"";
            document.fault(&["gateway".to_owned()], what);
        }
        document.finish(&KEYS)?;
        // Without a gateway there was a fault.
        let mut gateway = gateway.ok_or_else(Vec::new)?;
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = whole.parent().unwrap_or(&whole);
        let join = |path: &mut PathBuf| *path = folder.join(&*path);
        gateway.token_file.as_mut().map(join);
        gateway.ca.as_mut().map(join);
        let mut telemetry = telemetry;
        if let Some(telemetry) = &mut telemetry {
            telemetry.ca.as_mut().map(join);
        }
        let limits = limits.map(|placed| placed.value).unwrap_or_default();
        Ok(Self { gateway, listen, limits, admin, telemetry })
    }

    /// Whether a file is an agent's: no other program's has this section.
    #[must_use]
    pub fn is_one(path: &Path) -> bool {
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
    use crate::config::tests::{shown, uncommented};

    fn parse(text: &str) -> Result<AgentFile, Vec<String>> {
        AgentFile::parse(text, Path::new("/etc/smig/agent.toml"))
            .map_err(|faults| faults.into_iter().map(shown).collect())
    }

    #[test]
    fn the_example_parses_as_it_is_and_with_every_key_in_force() {
        let defaults = AgentFile {
            gateway: GatewaySpec::new(Origin::https("gateway.example", 443)),
            listen: EntranceSpec::default(),
            limits: LimitSpec::default(),
            admin: None,
            telemetry: None,
        };
        assert_eq!(parse(example()).unwrap(), defaults);
        let whole = uncommented(example());
        let all = parse(&whole).unwrap_or_else(|faults| panic!("{faults:#?}"));
        assert_eq!(all.limits, defaults.limits);
        assert_eq!(all.listen.forward.len(), 1);
        assert_eq!(all.gateway.token_file.as_deref(), Some(Path::new("/etc/smig/token")));
        assert!(all.admin.is_some());
        assert_eq!(all.telemetry.unwrap().sample, Some(1.0));
        for key in KEYS {
            assert!(whole.contains(&format!("[{key}]")), "{key}");
        }
    }

    #[test]
    fn every_fault_is_named_with_its_line_and_key() {
        assert_eq!(
            parse("[gateway]\nurl = 'http://a'\n[limit]\n[listen]\nhtp = []\n").unwrap_err(),
            [
                "2: gateway.url: the gateway's URL begins with https://",
                "3: limit: unknown key; did you mean limits?",
                "5: listen.htp: unknown key; did you mean http?",
            ]
        );
        let nowhere = parse("[gateway]\nurl = 'https://a'\n[listen]\nhttp = []\n").unwrap_err();
        assert_eq!(nowhere, ["3: listen: the agent listens nowhere"]);
        let nobody = parse("[admin]\nlisten = '127.0.0.1:1'\n").unwrap_err();
        assert!(nobody[0].contains("gateway: which one?"), "{nobody:?}");
    }
}
