//! Schema of a scenario. The keys of the file are the names of the fields, unless `rename` says otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smig_link::LinkSpec;

use super::client_link::ClientLink;
use super::command::{ClientCommand, ServerCommand};
use super::device_event::DeviceEvent;
use super::hosts::{HostRole, Hosts};
use super::page::Page;
use super::value::{Size, TimeSpan};

/// Bodies of at least this size are big unless the scenario sets their class.
const MIN_BIG_BYTES: u64 = 256 << 10;

/// One condition: everything to measure except the number of repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Bottleneck link between the two hosts: a profile's name, or a table.
    pub link: LinkSpec,
    /// Further links in parallel, each with its own addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_links: Vec<LinkSpec>,
    /// Changes of the client's devices during a run, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<DeviceEvent>,
    /// TCP settings of the hosts.
    #[serde(default)]
    pub hosts: Hosts,
    /// Servers by name, each on its own port.
    pub servers: BTreeMap<String, ServerSpec>,
    /// Clients by name; all on one host.
    pub clients: BTreeMap<String, ClientSpec>,
    /// Transfers to run.
    pub workload: Workload,
    /// Criteria for a run to count.
    #[serde(default)]
    pub accept: ValidityBounds,
    /// Recordings in addition to the objects.
    #[serde(default)]
    pub record: RecordingOptions,
}

/// Server implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "named after the server; Command is any other program")]
pub enum ServerKind {
    Smig,
    Nginx,
    H2o,
    Nghttpd,
    Haproxy,
    Caddy,
    Go,
    Http3,
    Command,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_server(host: &HostRole) -> bool {
    *host == HostRole::Server
}

/// Specification of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Server implementation.
    pub kind: ServerKind,
    /// The host that it runs on; on the clients' host it listens on the loopback, so only that host reaches it.
    #[serde(default, skip_serializing_if = "is_server")]
    pub host: HostRole,
    /// Congestion control of its connections; that of its host if absent. It has an address of its own then, on the first link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Settings by section, as `smig serve --config` takes them (`smig config example`).
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub settings: toml::Table,
    /// nginx: whether it offers HTTP/2. Without, the players and browsers that load pages from it use HTTP/1.1, whatever their kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<bool>,
    /// h2o: whether it keeps the kernel's send buffer short, so that urgent data is sent first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_optimization: Option<bool>,
    /// Lines to add to the server section of its configuration file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Path of a program to run instead of the one in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// command: the program, and how it is started and stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<ServerCommand>,
}

/// Client implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientKind {
    /// HTTP/2 with stream migration.
    Smig,
    /// HTTP/2 without stream migration.
    H2,
    /// HTTP/1.1.
    Http1,
    /// HTTP/3, by quic-go; its server is of the kind of this name.
    Http3,
    /// Chromium, which loads pages.
    Chromium,
    /// Any program.
    Command,
}

/// How requests are assigned to several connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// Small ones to the first connection, big ones to the others in turn.
    #[default]
    BigApart,
    /// Round-robin.
    InTurn,
}

/// Whether the client sends priorities (RFC 9218).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priorities {
    /// It does not.
    #[default]
    Silent,
    /// As set by the transfers; by default `u=1` for small ones and `u=5, i` for big ones.
    Sent,
}

/// Specification of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSpec {
    /// Client implementation.
    pub kind: ClientKind,
    /// Name of its server; optional if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The link that it uses; the first if absent.
    #[serde(default, skip_serializing_if = "ClientLink::is_first")]
    pub link: ClientLink,
    /// h2: number of connections, 1 if absent; http1: maximum number of connections, 6 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// h2 with several connections: assignment of requests to connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Assignment>,
    /// smig: when the client itself migrates a stream; `"never"` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate: Option<ClientMigration>,
    /// smig: number of spare connections kept ready for migrations; 1 if absent. With more than three, its session may have as
    /// many connections more than four: the server must allow them too (`settings.smig.max_connections`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spares: Option<usize>,
    /// smig: maximum number of connections with a server that does not support SMig; 1 if absent. Results count
    /// them as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_connections: Option<usize>,
    /// smig: whether bulk from such a server is paced by the receive window; false if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_pacing: Option<bool>,
    /// smig, h2: whether the client sends as other libraries do: bulk is not paced, and the socket takes whatever it has
    /// room for. False if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_sending: Option<bool>,
    /// chromium: whether it speaks HTTP/2; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<bool>,
    /// chromium: whether it takes frames of the screen, by which SpeedIndex is computed; false if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<bool>,
    /// Whether the client sends priorities.
    #[serde(default)]
    pub priorities: Priorities,
    /// Flow-control window of each stream; 8 MiB if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_window: Option<Size>,
    /// Flow-control window of each connection; 16 MiB if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_window: Option<Size>,
    /// command: the program, and how its results are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<ClientCommand>,
}

/// When a client migrates a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ClientMigration {
    /// Never; the server may.
    Never,
    /// After this many bytes of the response have arrived.
    At(Size),
}

impl TryFrom<String> for ClientMigration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let at = text.strip_prefix("at:").and_then(|size| Size::parse(size.trim()));
        match (text.as_str(), at) {
            ("never", _) => Ok(Self::Never),
            (_, Some(size)) => Ok(Self::At(size)),
            _ => Err(format!("{text:?} is not \"never\" or \"at:SIZE\", such as \"at:100kB\"")),
        }
    }
}

impl From<ClientMigration> for String {
    fn from(migration: ClientMigration) -> Self {
        match migration {
            ClientMigration::Never => "never".into(),
            ClientMigration::At(size) => format!("at:{}", size.0),
        }
    }
}

/// The transfers and pages of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Delay between the opening of the connections and the first transfer.
    #[serde(default = "default_settle_time")]
    pub settle: TimeSpan,
    /// Transfers that are unfinished after this time are aborted; a multiple of the estimated
    /// duration if absent. What arrives after a cancel is measured beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<TimeSpan>,
    /// Transfers by name.
    #[serde(default)]
    pub transfers: BTreeMap<String, Transfer>,
    /// Pages by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pages: BTreeMap<String, Page>,
}

const fn default_settle_time() -> TimeSpan {
    TimeSpan(Duration::from_millis(500))
}

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "seen from the client")]
pub enum TransferDirection {
    #[default]
    Download,
    Upload,
}

/// Arrival process of the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalProcess {
    /// At fixed intervals, whether or not the previous request has ended.
    #[default]
    Periodic,
    /// At exponentially distributed intervals with this mean, whether or not the previous one has
    /// ended.
    Poisson,
    /// After a fixed delay since the end of the previous request.
    #[serde(rename = "one-by-one")]
    ClosedLoop,
}

/// Size class of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum SizeClass {
    Small,
    #[serde(rename = "big")]
    Large,
}

/// One or several objects that follow one rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Name of its client; optional if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Body size, or several sizes to use in turn.
    pub size: Sizes,
    /// Direction of the transfer.
    #[serde(default)]
    pub direction: TransferDirection,
    /// Time of the first request since the start of the run.
    #[serde(default)]
    pub start: TimeSpan,
    /// Number of requests; if absent 1, or unlimited with `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Interval between requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<TimeSpan>,
    /// Arrival process of the requests.
    #[serde(default)]
    pub arrival: ArrivalProcess,
    /// Issue requests until the transfer of this name has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Size class of the objects; determined by size if absent. The key is hashed with the trial.
    #[serde(rename = "role", default, skip_serializing_if = "Option::is_none")]
    pub size_class: Option<SizeClass>,
    /// Priority field value (RFC 9218), sent if the client sends priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// When the client cancels the transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
}

/// When a client cancels a download: at the first of these events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// After this many bytes have arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Size>,
    /// After this time since the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<TimeSpan>,
    /// What the client ends.
    #[serde(default)]
    pub how: CancelScope,
}

/// What a client ends when it cancels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CancelScope {
    /// The stream; with HTTP/1.1 the connection.
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

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Sizes, E> {
                let wrong = |_| E::invalid_value(serde::de::Unexpected::Signed(bytes), &self);
                Ok(Sizes(vec![Size(u64::try_from(bytes).map_err(wrong)?)]))
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Sizes, E> {
                Ok(Sizes(vec![Size(bytes)]))
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

/// Criteria for a run to count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValidityBounds {
    /// Maximum 99th percentile of the packets' lateness.
    pub lateness_p99: TimeSpan,
    /// Maximum number of attempts for a run.
    pub attempts: u32,
}

impl Default for ValidityBounds {
    fn default() -> Self {
        Self { lateness_p99: TimeSpan(Duration::from_millis(2)), attempts: 3 }
    }
}

/// Recordings in addition to the objects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordingOptions {
    /// Interval at which the progress of a big transfer is recorded.
    pub progress: TimeSpan,
    /// Whether to record a timeline: queue, TCP, streams and marks on one clock, in a separate file
    /// for each run (`smig lab timeline`).
    #[serde(skip_serializing_if = "is_off")]
    pub timeline: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_off(is_on: &bool) -> bool {
    !*is_on
}

impl Default for RecordingOptions {
    fn default() -> Self {
        Self { progress: TimeSpan(Duration::from_millis(250)), timeline: false }
    }
}

impl ServerKind {
    /// Returns the kind as written in a scenario file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Smig => "smig",
            Self::Nginx => "nginx",
            Self::H2o => "h2o",
            Self::Nghttpd => "nghttpd",
            Self::Haproxy => "haproxy",
            Self::Caddy => "caddy",
            Self::Go => "go",
            Self::Http3 => "http3",
            Self::Command => "command",
        }
    }

    /// Returns whether the server answers as the servers of a recorded page did.
    #[must_use]
    pub const fn replays(self) -> bool {
        matches!(self, Self::Smig | Self::Nginx | Self::H2o | Self::Haproxy)
    }

    /// Returns whether the server accepts request bodies; assumed for a command.
    #[must_use]
    pub const fn accepts_uploads(self) -> bool {
        matches!(self, Self::Smig | Self::Go | Self::Http3 | Self::Command)
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Transfer {
    /// Returns the size of the object with this number, from 0.
    #[must_use]
    pub fn size_of(&self, number: u32) -> u64 {
        let sizes = &self.size.0;
        sizes.get(number as usize % sizes.len().max(1)).map_or(0, |size| size.0)
    }

    /// Returns the size class of an object of this size.
    #[must_use]
    pub fn size_class_of(&self, size: u64) -> SizeClass {
        self.size_class.unwrap_or(if size >= MIN_BIG_BYTES {
            SizeClass::Large
        } else {
            SizeClass::Small
        })
    }

    /// Returns the maximum number of requests.
    #[must_use]
    pub fn max_objects(&self) -> u32 {
        match (self.count, &self.until) {
            (Some(count), _) => count,
            (None, Some(_)) => u32::MAX,
            (None, None) => 1,
        }
    }
}

impl Scenario {
    /// Returns whether a page is loaded by a browser.
    #[must_use]
    pub fn is_browser_page(&self, page: &Page) -> bool {
        let client = self.client_of(page.client.as_deref()).and_then(|name| self.clients.get(name));
        client.is_some_and(|client| client.kind == ClientKind::Chromium)
    }

    /// Returns the pages that browsers load.
    pub(crate) fn browser_pages(&self) -> impl Iterator<Item = &Page> {
        self.workload.pages.values().filter(|page| self.is_browser_page(page))
    }

    /// Returns the name of a client's server; [`super::load`] has checked that it exists.
    #[must_use]
    pub fn server_of<'a>(&'a self, client: &'a ClientSpec) -> Option<&'a str> {
        client.server.as_deref().or_else(|| self.servers.keys().next().map(String::as_str))
    }

    /// Returns the name of the client of a transfer or page that names this one; [`super::load`] has checked that it exists.
    #[must_use]
    pub fn client_of<'a>(&'a self, named: Option<&'a str>) -> Option<&'a str> {
        named.or_else(|| self.clients.keys().next().map(String::as_str))
    }
}
