//! The sections of the file: plain data with defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use smig_settings::value::{deserialize_time, parse_addresses};

use crate::ip_net::IpNet;

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenSpec {
    /// `ADDR:PORT`, or `localhost:PORT` for both loopback addresses.
    #[serde(deserialize_with = "deserialize_addresses")]
    pub address: Vec<SocketAddr>,
    /// The protocol.
    #[serde(default)]
    pub protocol: ListenSecurity,
    /// The HTTPS port to which every request is redirected; for cleartext listeners.
    pub redirect_to_https: Option<u16>,
}

fn deserialize_addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
    parse_addresses(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// Whether connections of a listener use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenSecurity {
    /// HTTP/2 and HTTP/1.1 over TLS, by ALPN; streams can migrate.
    #[default]
    Tls,
    /// HTTP/1.1, and HTTP/2 with prior knowledge; streams do not migrate.
    Cleartext,
    /// Like `Cleartext`, but streams migrate: there is no protection against attackers on the path.
    TrustedCleartext,
}

/// A certificate, served for the names that it contains.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateSpec {
    /// The certificate chain, leaf first; PEM.
    pub chain: PathBuf,
    /// The private key; PEM.
    pub key: PathBuf,
}

/// TLS settings of the listeners.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenTlsSpec {
    /// CA certificates for clients' certificates; PEM. Unless set, none are requested.
    pub client_ca: Option<PathBuf>,
    /// Whether clients must present a certificate.
    pub client_certificate: ClientCertificateMode,
    /// Interval at which the certificate files are checked for changes.
    #[serde(deserialize_with = "deserialize_time")]
    pub reload_interval: Duration,
}

impl Default for ListenTlsSpec {
    fn default() -> Self {
        Self {
            client_ca: None,
            client_certificate: ClientCertificateMode::Optional,
            reload_interval: Duration::from_secs(5),
        }
    }
}

/// Whether clients must present a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientCertificateMode {
    /// A client without a certificate is served.
    Optional,
    /// The handshake fails without a certificate.
    Required,
}

/// A route: which requests it matches, and its action. The longest path of the best matching host wins: an
/// exact name before a wildcard, a longer wildcard before a shorter one, and no host last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// Host names, `*.NAME` for all subdomains; empty: any host.
    #[serde(default)]
    pub host: OneOrMany,
    /// Path prefix: `/api` matches itself and all paths below it, `/api/` only those below it.
    #[serde(default = "default_path")]
    pub path: String,
    /// The upstream that handles the requests.
    pub upstream: Option<String>,
    /// Replaces `path` in requests to the upstream.
    pub prefix_rewrite: Option<String>,
    /// The URL to redirect to; the request's path and query are appended.
    pub redirect: Option<String>,
    /// The status of a redirect (308 by default), or of a response that the gateway generates.
    pub status: Option<u16>,
    /// The body of a response that the gateway generates.
    pub body: Option<String>,
    /// Whether responses migrate.
    #[serde(default)]
    pub migrate: RouteMigration,
    /// Whether long responses are limited to the rate of the path, if `migration.pace_bulk` is true, and uploads of clients
    /// without SMig, if `migration.pace_uploads` is; `None`: they are.
    pub pace_bulk: Option<bool>,
    /// Changes to the fields of requests to the upstream.
    #[serde(default)]
    pub request_headers: HeaderSpec,
    /// Changes to the fields of responses to the client.
    #[serde(default)]
    pub response_headers: HeaderSpec,
}

fn default_path() -> String {
    "/".to_owned()
}

/// One string, or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "this takes a string or an array of strings")]
pub enum OneOrMany {
    /// One string.
    One(String),
    /// A list, possibly empty.
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    /// Returns all strings.
    #[must_use]
    pub const fn all(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts.as_slice(),
        }
    }
}

/// Whether a route's responses migrate to another connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteMigration {
    /// By the migration policy.
    #[default]
    Auto,
    /// As soon as possible.
    Always,
    /// Never.
    Never,
}

/// Changes to header fields: first `remove`, then `set` (replaces existing fields), then `add` (keeps existing
/// fields).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderSpec {
    /// Names.
    pub remove: Vec<String>,
    /// Names and values.
    pub set: BTreeMap<String, String>,
    /// Names and values.
    pub add: BTreeMap<String, String>,
}

/// The fields that inform upstreams about the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardedSpec {
    /// The fields to send.
    pub fields: ForwardedFields,
    /// Networks of trusted proxies, whose forwarding fields are passed on. Those of all other peers are
    /// removed.
    pub trusted_proxies: Vec<IpNet>,
}

/// The sets of fields that name the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardedFields {
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// All of them.
    Both,
    /// None.
    Off,
}

/// The access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogSpec {
    /// The format of its lines.
    pub format: smig_admin::access_log::AccessLogFormat,
    /// The file to append to; standard output unless set. Reopened on a reload.
    pub file: Option<PathBuf>,
}
