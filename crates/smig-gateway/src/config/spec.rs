//! What the file says: plain data, each with its default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use smig_settings::value::{deserialize_time, parse_addresses};

use crate::network::Network;

/// An address to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenSpec {
    /// `ADDR:PORT`, or `localhost:PORT` for both loopback addresses.
    #[serde(deserialize_with = "addresses")]
    pub address: Vec<SocketAddr>,
    /// What is spoken there.
    #[serde(default)]
    pub protocol: ListenProtocol,
    /// The port of https to which every request is redirected; for cleartext.
    pub redirect_to_https: Option<u16>,
}

fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
    parse_addresses(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenProtocol {
    /// HTTP/2 and HTTP/1.1 by ALPN; streams can move.
    #[default]
    Tls,
    /// HTTP/1.1, and HTTP/2 with prior knowledge; no stream moves.
    Cleartext,
    /// The same, and streams move nevertheless: protects against nobody on the path.
    TrustedCleartext,
}

/// A certificate, used for the names that are in it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateSpec {
    /// The chain, its own certificate first; PEM.
    pub chain: PathBuf,
    /// The private key; PEM.
    pub key: PathBuf,
}

/// How TLS is spoken with clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTlsSpec {
    /// The authorities of clients' certificates; PEM. Clients are asked for none unless it is set.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is served.
    pub client_certificate: ClientCertificate,
    /// How often certificates' files are looked at for a change.
    #[serde(deserialize_with = "deserialize_time")]
    pub watch: Duration,
}

impl Default for ClientTlsSpec {
    fn default() -> Self {
        Self {
            client_ca: None,
            client_certificate: ClientCertificate::Optional,
            watch: Duration::from_secs(5),
        }
    }
}

/// Whether a client without a certificate is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientCertificate {
    /// It is.
    Optional,
    /// It gets no connection.
    Required,
}

/// Which requests are answered how. The longest path of the best host counts: an exact name before a
/// wildcard, a long wildcard before a short one, and last no host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSpec {
    /// Names, `*.NAME` for all below it; empty: every name.
    #[serde(default)]
    pub host: OneOrMore,
    /// `/api` stands for itself and all below it, `/api/` for what is below it.
    #[serde(default = "root")]
    pub path: String,
    /// The upstream that answers.
    pub upstream: Option<String>,
    /// Takes the place of `path` in what the upstream is asked for.
    pub replace_path: Option<String>,
    /// A URL to redirect to; path and query of the request are put behind it.
    pub redirect: Option<String>,
    /// The status of a redirect (308), or of an answer of the gateway's own.
    pub status: Option<u16>,
    /// The body of an answer of its own.
    pub text: Option<String>,
    /// Whether responses move.
    #[serde(default, rename = "move")]
    pub moves: MoveSpec,
    /// Changes to requests on their way to the upstream.
    #[serde(default)]
    pub request_headers: HeaderSpec,
    /// Changes to responses on their way to the client.
    #[serde(default)]
    pub response_headers: HeaderSpec,
}

fn root() -> String {
    "/".to_owned()
}

/// A text, or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "this takes a string or an array of strings")]
pub enum OneOrMore {
    /// One.
    One(String),
    /// None or more.
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

impl OneOrMore {
    /// All of them.
    #[must_use]
    pub const fn all(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts.as_slice(),
        }
    }
}

/// Whether a route's responses move to another connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveSpec {
    /// As the policy says.
    #[default]
    Policy,
    /// As soon as possible.
    Soon,
    /// They stay.
    Never,
}

/// Changes to header fields: first `remove`, then `set` (in the place of what is there), then `add`
/// (beside it).
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

/// What upstreams are told of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardedSpec {
    /// By which fields.
    pub send: ForwardedFields,
    /// Peers that are proxies themselves: what they say of their clients is passed on. From all
    /// others it is removed.
    pub trust: Vec<Network>,
}

/// The fields that name the client.
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

/// What is written of each request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogSpec {
    /// The form of its lines.
    pub format: crate::front::access_log::Format,
    /// Where to; standard output unless set. Opened again on a reload.
    pub file: Option<PathBuf>,
}
