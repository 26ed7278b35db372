//! What is recorded of the demonstration. Serialised, this is the `--json`
//! output: names end in their unit.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::link::{LinkReport, LinkSpec};
use crate::millis;

/// What one run does differently from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// HTTP/2 on one connection, nothing tuned.
    PlainHttp2,
    /// The same with `TCP_NOTSENT_LOWAT` on the server's socket.
    NotsentLowat,
    /// The big file moves to a connection of its own.
    Smig,
}

impl Variant {
    /// In the order they are run.
    pub const ALL: [Self; 3] = [Self::PlainHttp2, Self::NotsentLowat, Self::Smig];

    /// The name for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::PlainHttp2 => "Plain HTTP/2",
            Self::NotsentLowat => "HTTP/2 + TCP_NOTSENT_LOWAT",
            Self::Smig => "SMig",
        }
    }

    /// The name for narrow places.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::PlainHttp2 => "plain HTTP/2",
            Self::NotsentLowat => "NOTSENT_LOWAT",
            Self::Smig => "SMig",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}

/// A TCP connection, numbered from 1 in the order of opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConnectionId(pub u32);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

/// What all runs have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoSetup {
    /// The emulated link.
    pub link: LinkSpec,
    /// What is compared, in the order of the runs.
    pub variants: Vec<Variant>,
    /// The hosts' congestion control.
    pub congestion_control: String,
    /// That of SMig's connections for big files; the hosts' when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_congestion_control: Option<String>,
    /// How long SMig's server holds the big file back for one small object, at most.
    #[serde(with = "millis", rename = "max_hold_ms")]
    pub max_hold: Duration,
    /// Size of a small object.
    pub object_bytes: u64,
    /// From one small request to the next.
    #[serde(with = "millis", rename = "object_interval_ms")]
    pub object_interval: Duration,
    /// Size of the big file.
    pub big_file_bytes: u64,
    /// What one [`BulkSample`] covers.
    #[serde(with = "millis", rename = "sample_interval_ms")]
    pub sample_interval: Duration,
    /// The program and its version.
    pub program: String,
    /// The kernel's name and version.
    pub kernel: String,
}

impl DemoSetup {
    /// How long a run is going to be, from the link's rate: what TCP, TLS and small objects take
    /// is a guess.
    #[must_use]
    pub fn likely_length(&self) -> Duration {
        let rate = self.link.to_client.rate.as_bits_per_second() as f64;
        let small = self.object_bytes as f64 * 8.0 / self.object_interval.as_secs_f64().max(1e-3);
        let left = (rate - small).max(rate / 10.0);
        let file = self.big_file_bytes as f64 * 8.0 / left * 1.05;
        // Small objects alone come first.
        self.object_interval * 6 + Duration::try_from_secs_f64(file).unwrap_or(Duration::MAX / 2)
    }
}

/// What else was on its way when a small object was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Nothing.
    Unloaded,
    /// The big file.
    BigFile,
}

/// One small object.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SmallObject {
    /// When it was asked for.
    #[serde(with = "millis", rename = "at_ms")]
    pub at: Duration,
    /// From the request to its last byte.
    #[serde(with = "millis", rename = "took_ms")]
    pub took: Duration,
    /// What it had to share the link with.
    pub load: Load,
}

/// Bytes of the big file that came on one connection in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BulkSample {
    /// The interval's end; its length is [`DemoSetup::sample_interval`].
    #[serde(with = "millis", rename = "at_ms")]
    pub at: Duration,
    /// Where they came.
    pub connection: ConnectionId,
    /// How many.
    pub bytes: u64,
}

/// The big file's stream went on on another connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// When the client knew.
    #[serde(with = "millis", rename = "at_ms")]
    pub at: Duration,
    /// The connection it left.
    pub from: ConnectionId,
    /// The connection it went to.
    pub to: ConnectionId,
}

/// All body bytes that one connection brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionBytes {
    /// The connection.
    pub connection: ConnectionId,
    /// Bytes, of small objects and the big file together.
    pub bytes: u64,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoRun {
    /// What it did differently.
    pub variant: Variant,
    /// In order of their requests.
    pub objects: Vec<SmallObject>,
    /// In order of time.
    pub bulk: Vec<BulkSample>,
    /// When the big file was asked for; absent before that.
    #[serde(default, with = "optional_millis", rename = "bulk_started_ms")]
    pub bulk_started: Option<Duration>,
    /// When its last byte came; absent when it did not.
    #[serde(default, with = "optional_millis", rename = "bulk_finished_ms")]
    pub bulk_finished: Option<Duration>,
    /// In order of time.
    pub moves: Vec<Move>,
    /// One entry for each connection.
    pub connections: Vec<ConnectionBytes>,
    /// What went wrong: whole sentences.
    pub problems: Vec<String>,
    /// What the emulated link counted; absent while the run goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkReport>,
}

impl DemoRun {
    /// A run of which nothing is known yet.
    #[must_use]
    pub const fn new(variant: Variant) -> Self {
        Self {
            variant,
            objects: Vec::new(),
            bulk: Vec::new(),
            bulk_started: None,
            bulk_finished: None,
            moves: Vec::new(),
            connections: Vec::new(),
            problems: Vec::new(),
            link: None,
        }
    }

    /// Bytes of the big file so far.
    #[must_use]
    pub fn bulk_bytes(&self) -> u64 {
        self.bulk.iter().map(|sample| sample.bytes).sum()
    }

    /// From the request for the big file to its last byte.
    #[must_use]
    pub fn bulk_took(&self) -> Option<Duration> {
        self.bulk_finished?.checked_sub(self.bulk_started?)
    }

    /// The last moment that anything is known of.
    #[must_use]
    pub fn end(&self) -> Duration {
        let objects = self.objects.iter().map(|object| object.at + object.took);
        let bulk = self.bulk.iter().map(|sample| sample.at);
        objects.chain(bulk).chain(self.bulk_finished).max().unwrap_or_default()
    }
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoResult {
    /// What the runs have in common.
    pub setup: DemoSetup,
    /// In the order they were run.
    pub runs: Vec<DemoRun>,
}

/// As [`millis`], for a moment that may not have come.
mod optional_millis {
    use super::{Deserialize, Duration, Serialize, millis};
    use serde::{Deserializer, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Millis(#[serde(with = "millis")] Duration);

    pub(super) fn serialize<S: Serializer>(
        moment: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        moment.map(Millis).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Millis>::deserialize(deserializer)?.map(|Millis(moment)| moment))
    }
}
