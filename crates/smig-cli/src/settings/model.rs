//! What the settings of `smig serve` set.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use smig::{Config, MoveRules, SocketOptions};
use smig_files::{Hidden, Links, Listing, Options, Precompressed};
use smig_proto::SmigConfig;

/// The port of a server that was told none.
pub(crate) const DEFAULT_PORT: u16 = 8443;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// Both loopback addresses, the default port; IPv6's is left out where there is none.
    Default,
    /// These.
    At(Vec<SocketAddr>),
}

/// Whether the extension is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    Off,
    On,
}

/// TLS or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Tls,
    Cleartext,
    /// Cleartext on which streams may move as well.
    TrustedCleartext,
}

/// What is written for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessLog {
    Off,
    Text,
    Json,
}

/// Everything about `smig serve` that can be set.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) root: Option<PathBuf>,
    pub(crate) listen: Listen,
    pub(crate) wire: Wire,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) hosts: Vec<String>,
    pub(crate) workers: Option<usize>,
    pub(crate) max_connections: usize,
    pub(crate) handshake_timeout: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) access_log: AccessLog,
    pub(crate) files: Options,
    pub(crate) extension: Extension,
    pub(crate) smig: SmigConfig,
    pub(crate) rules: MoveRules,
    pub(crate) pace_bulk: bool,
    pub(crate) max_hold: Duration,
    pub(crate) interactive: SocketOptions,
    pub(crate) bulk: SocketOptions,
    pub(crate) engine: Config,
}

impl Default for Settings {
    fn default() -> Self {
        let engine = Config::server();
        Self {
            root: None,
            listen: Listen::Default,
            wire: Wire::Tls,
            certificate: None,
            key: None,
            hosts: Vec::new(),
            workers: None,
            max_connections: 65_536,
            handshake_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(30),
            access_log: AccessLog::Off,
            files: Options::default(),
            extension: Extension::On,
            smig: SmigConfig::default(),
            rules: MoveRules::default(),
            pace_bulk: true,
            max_hold: Duration::from_millis(25),
            interactive: SocketOptions::interactive(),
            bulk: SocketOptions::bulk(),
            engine,
        }
    }
}

impl Settings {
    /// The engine's configuration.
    pub(crate) fn engine(&self) -> Config {
        let smig = match self.extension {
            Extension::Off => None,
            Extension::On => Some(self.smig.clone()),
        };
        Config { smig, ..self.engine.clone() }
    }
}

/// `ADDR:PORT`, or `localhost:PORT` for both loopback addresses.
pub(super) fn parse_listen(texts: &[String]) -> Result<Listen, String> {
    let mut addrs = Vec::new();
    for text in texts {
        if let Ok(addr) = text.parse() {
            addrs.push(addr);
        } else if let Some(port) = text.strip_prefix("localhost:").and_then(|p| p.parse().ok()) {
            addrs.push((Ipv4Addr::LOCALHOST, port).into());
            addrs.push((Ipv6Addr::LOCALHOST, port).into());
        } else {
            return Err(format!(
                "{text:?} is no address with a port; write 127.0.0.1:8443, [::1]:8443, \
                 localhost:8443 (both), or [::]:8443 for every interface"
            ));
        }
    }
    Ok(Listen::At(addrs))
}

pub(super) fn show_listen(listen: &Listen) -> String {
    let texts = match listen {
        Listen::Default => vec![format!("localhost:{DEFAULT_PORT}")],
        Listen::At(addrs) => addrs.iter().map(ToString::to_string).collect(),
    };
    show_list(&texts)
}

pub(super) fn show_list(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| show_text(text)).collect();
    format!("[{}]", quoted.join(", "))
}

pub(super) fn show_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

pub(super) const HIDDEN: [(&str, Hidden); 2] =
    [("refuse", Hidden::Refuse), ("serve", Hidden::Serve)];
pub(super) const LINKS: [(&str, Links); 3] =
    [("refuse", Links::Refuse), ("inside", Links::Inside), ("follow", Links::Follow)];
pub(super) const LISTING: [(&str, Listing); 2] = [("off", Listing::Off), ("on", Listing::On)];
pub(super) const PRECOMPRESSED: [(&str, Precompressed); 2] =
    [("serve", Precompressed::Serve), ("ignore", Precompressed::Ignore)];

/// A header's value, or nothing for the empty text.
pub(super) fn parse_header(text: &str) -> Result<Option<HeaderValue>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    HeaderValue::from_str(text)
        .map(Some)
        .map_err(|_| format!("{text:?} has characters that no header may have"))
}
