//! What a scenario says, as types. The words of the file are the names of the fields.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::value::{Size, Span};
use crate::link::LinkSpec;

/// Bodies of at least this size are big unless the scenario says otherwise.
const BIG: u64 = 256 << 10;

/// One setting to measure in: everything but how often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The bottleneck between the two hosts: a profile's name, or a table.
    pub link: LinkSpec,
    /// Further links beside it; each with addresses of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_links: Vec<LinkSpec>,
    /// How the hosts' TCP is set up.
    #[serde(default)]
    pub hosts: Hosts,
    /// The servers by name; all in one host, each on a port of its own.
    pub servers: BTreeMap<String, ServerSpec>,
    /// The clients by name; all in one host.
    pub clients: BTreeMap<String, ClientSpec>,
    /// What is transferred.
    pub workload: Workload,
    /// What makes a run count.
    #[serde(default)]
    pub accept: Accept,
    /// What is written down beside the objects.
    #[serde(default)]
    pub record: Record,
}

/// The two hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hosts {
    /// Where the servers run.
    pub server: HostSettings,
    /// Where the clients run.
    pub client: HostSettings,
}

impl Hosts {
    /// Whether CUBIC is to have HyStart, if that is said.
    #[must_use]
    pub fn hystart(&self) -> Option<bool> {
        self.server.hystart.or(self.client.hystart)
    }
}

/// One host's TCP; what is absent is Linux's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSettings {
    /// `cubic`, `bbr`, `reno`, as the kernel has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Initial congestion window, segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Least, initial and largest send buffer (`tcp_wmem`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<[Size; 3]>,
    /// Least, initial and largest receive buffer (`tcp_rmem`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<[Size; 3]>,
    /// Selective acknowledgements (`tcp_sack`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sack: Option<bool>,
    /// `TCP_NOTSENT_LOWAT` of every socket that does not set its own (`tcp_notsent_lowat`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_sent_low_water: Option<Size>,
    /// Whether CUBIC has HyStart: one setting of the whole machine, so of both hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hystart: Option<bool>,
    /// Files below `/proc/sys/net`, such as `"ipv4/tcp_ecn" = "1"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
}

/// Whose server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is the server of its name")]
pub enum ServerKind {
    Smig,
    Nginx,
    H2o,
    Nghttpd,
    Haproxy,
    Caddy,
    Go,
}

/// A server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Whose.
    pub kind: ServerKind,
    /// Settings by section, as `smig serve --config` takes them (`smig config example`).
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub settings: toml::Table,
    /// h2o: whether it keeps the kernel's buffer short to send what is urgent first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_optimization: Option<bool>,
    /// Lines for its configuration, in the part about the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Another program than the one in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
}

/// Which client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientKind {
    /// HTTP/2 with streams that can move.
    Smig,
    /// HTTP/2 without.
    H2,
    /// HTTP/1.1.
    Http1,
}

/// Which of several connections a request takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// Small ones the first, big ones the others in turn.
    #[default]
    BigApart,
    /// Each in turn.
    InTurn,
}

/// Whether priorities (RFC 9218) are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priorities {
    /// They are not.
    #[default]
    Silent,
    /// As the transfers have them; else small ones `u=1`, big ones `u=5, i`.
    Sent,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSpec {
    /// Which kind.
    pub kind: ClientKind,
    /// Its server's name; the only one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The link that it goes by: 0, the first, if absent.
    #[serde(default, skip_serializing_if = "is_first")]
    pub link: usize,
    /// h2: connections, 1 if absent; http1: at most, 6 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// h2 with several connections: which request takes which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// smig: when the client itself moves a stream; `"never"` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate: Option<Moving>,
    /// smig: connections kept ready to move to; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spares: Option<usize>,
    /// Whether priorities are sent.
    #[serde(default)]
    pub priorities: Priorities,
    /// Receive window of each stream; 8 MiB if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_window: Option<Size>,
    /// Receive window of each connection; 16 MiB if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_window: Option<Size>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_first(link: &usize) -> bool {
    *link == 0
}

/// When a client moves a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Moving {
    /// Never; the server may.
    Never,
    /// When so much of its response has come.
    At(Size),
}

impl TryFrom<String> for Moving {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let at = text.strip_prefix("at:").and_then(|size| Size::parse(size.trim()));
        match (text.as_str(), at) {
            ("never", _) => Ok(Self::Never),
            (_, Some(size)) => Ok(Self::At(size)),
            _ => Err(format!("{text:?} is none of \"never\", \"at:SIZE\" such as \"at:100kB\"")),
        }
    }
}

impl From<Moving> for String {
    fn from(moving: Moving) -> Self {
        match moving {
            Moving::Never => "never".into(),
            Moving::At(size) => format!("at:{}", size.0),
        }
    }
}

/// What is transferred.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// From open connections to the first transfer.
    #[serde(default = "settle")]
    pub settle: Span,
    /// What has not ended by then is given up; several times the likely length if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// Transfers by name.
    pub transfers: BTreeMap<String, Transfer>,
}

const fn settle() -> Span {
    Span(Duration::from_millis(500))
}

/// Which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "seen from the client")]
pub enum Direction {
    #[default]
    Download,
    Upload,
}

/// How one request follows another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// By the clock, whether or not the last one has ended.
    #[default]
    Periodic,
    /// With independent pauses of this mean, whether or not the last one has ended.
    Poisson,
    /// So long after the last one has ended.
    OneByOne,
}

/// What a transfer is to those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "they say it")]
pub enum Role {
    Small,
    Big,
}

/// One or several objects by one rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Its client's name; the only one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The body's size, or several to be taken in turn.
    pub size: Sizes,
    /// Which way.
    #[serde(default)]
    pub direction: Direction,
    /// The first request, from the beginning of the run.
    #[serde(default)]
    pub start: Span,
    /// Requests; 1 if absent, or as many as come with `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// From one request to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// How they follow each other.
    #[serde(default)]
    pub arrival: Arrival,
    /// Requests come until the transfer of this name has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Big or small; by size if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// A priority field value (RFC 9218), sent if the client sends priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// When the client cancels it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
}

/// When a client cancels a download: whichever comes first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// When so much has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Size>,
    /// So long after the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// What of the client ends.
    #[serde(default)]
    pub how: CancelHow,
}

/// What of a client ends when it cancels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CancelHow {
    /// The stream; with HTTP/1.1 its connection.
    #[default]
    Stream,
    /// All connections to the server at once, as when a browser is closed.
    Close,
}

/// One size or several.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Sizes(pub Vec<Size>);

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Sizes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"10kB\", or an array of sizes")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Sizes, E> {
                let wrong = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                Ok(Sizes(vec![Size::parse(text).ok_or_else(wrong)?]))
            }

            fn visit_i64<E: serde::de::Error>(self, octets: i64) -> Result<Sizes, E> {
                let wrong = |_| E::invalid_value(serde::de::Unexpected::Signed(octets), &self);
                Ok(Sizes(vec![Size(u64::try_from(octets).map_err(wrong)?)]))
            }

            fn visit_u64<E: serde::de::Error>(self, octets: u64) -> Result<Sizes, E> {
                Ok(Sizes(vec![Size(octets)]))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> Result<Sizes, A::Error> {
                let mut sizes = Vec::new();
                while let Some(size) = seq.next_element()? {
                    sizes.push(size);
                }
                Ok(Sizes(sizes))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// What makes a run count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Accept {
    /// A run in which one packet in a hundred was later than this does not count.
    pub lateness_p99: Span,
    /// How often a run is tried.
    pub attempts: u32,
}

impl Default for Accept {
    fn default() -> Self {
        Self { lateness_p99: Span(Duration::from_millis(2)), attempts: 3 }
    }
}

/// What is written down beside the objects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// How often the octets of a big transfer are written down.
    pub progress: Span,
    /// Queue, TCP, streams and marks on one clock, in a file of its own for each run
    /// (`smig lab timeline`).
    #[serde(skip_serializing_if = "is_off")]
    pub timeline: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_off(is_on: &bool) -> bool {
    !*is_on
}

impl Default for Record {
    fn default() -> Self {
        Self { progress: Span(Duration::from_millis(250)), timeline: false }
    }
}

impl ServerKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Smig, Self::Nginx, Self::H2o, Self::Nghttpd, Self::Haproxy, Self::Caddy, Self::Go];

    /// The word in the file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Smig => "smig",
            Self::Nginx => "nginx",
            Self::H2o => "h2o",
            Self::Nghttpd => "nghttpd",
            Self::Haproxy => "haproxy",
            Self::Caddy => "caddy",
            Self::Go => "go",
        }
    }

    /// Whether it takes request bodies as the lab sends them.
    #[must_use]
    pub const fn takes_uploads(self) -> bool {
        matches!(self, Self::Smig | Self::Go)
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Transfer {
    /// The size of the object with this number, from 0.
    #[must_use]
    pub fn size_of(&self, number: u32) -> u64 {
        let sizes = &self.size.0;
        sizes.get(number as usize % sizes.len().max(1)).map_or(0, |size| size.0)
    }

    /// What an object of this size is.
    #[must_use]
    pub fn role_of(&self, size: u64) -> Role {
        self.role.unwrap_or(if size >= BIG { Role::Big } else { Role::Small })
    }

    /// Requests if nothing ends them earlier.
    #[must_use]
    pub fn most(&self) -> u32 {
        match (self.count, &self.until) {
            (Some(count), _) => count,
            (None, Some(_)) => u32::MAX,
            (None, None) => 1,
        }
    }
}

impl Scenario {
    /// The name of a client's server, which [`super::load`] has checked to be there.
    #[must_use]
    pub fn server_of<'a>(&'a self, client: &'a ClientSpec) -> Option<&'a str> {
        client.server.as_deref().or_else(|| self.servers.keys().next().map(String::as_str))
    }

    /// The name of a transfer's client, which [`super::load`] has checked to be there.
    #[must_use]
    pub fn client_of<'a>(&'a self, transfer: &'a Transfer) -> Option<&'a str> {
        transfer.client.as_deref().or_else(|| self.clients.keys().next().map(String::as_str))
    }
}
