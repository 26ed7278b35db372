//! The demonstration's record. Serialised, it is the `--json` output: names end in their unit.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use smig_link::millis;
use smig_link::{LinkReport, LinkSpec};

/// The variant of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// HTTP/2 on one connection, nothing tuned.
    PlainHttp2,
    /// The same with `TCP_NOTSENT_LOWAT` on the server's socket.
    NotsentLowat,
    /// The big file is sent at the rate of the path, on the one connection of any client.
    Serve,
    /// The client has the extension, too: the big file migrates to a connection of its own.
    Smig,
}

impl Variant {
    /// All variants, in the order of the runs.
    pub const ALL: [Self; 4] = [Self::PlainHttp2, Self::NotsentLowat, Self::Serve, Self::Smig];

    /// Returns the name in scenarios and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlainHttp2 => "plain-http2",
            Self::NotsentLowat => "notsent-lowat",
            Self::Serve => "serve",
            Self::Smig => "smig",
        }
    }

    /// Returns the display name.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::PlainHttp2 => "Plain HTTP/2",
            Self::NotsentLowat => "HTTP/2 + TCP_NOTSENT_LOWAT",
            Self::Serve => "smig serve, any client",
            Self::Smig => "SMig at both ends",
        }
    }

    /// Returns a short display name.
    #[must_use]
    pub const fn short_title(self) -> &'static str {
        match self {
            Self::PlainHttp2 => "plain HTTP/2",
            Self::NotsentLowat => "NOTSENT_LOWAT",
            Self::Serve => "any client",
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

/// The setup that all runs share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoSetup {
    /// The emulated link.
    pub link: LinkSpec,
    /// The variants, in the order of the runs.
    pub variants: Vec<Variant>,
    /// The hosts' congestion control.
    pub congestion_control: String,
    /// Congestion control of SMig's connections for big files; the hosts' if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_congestion_control: Option<String>,
    /// Most small objects, as time on the path, for which the big file of SMig's server still has to make room.
    #[serde(with = "millis", rename = "max_bulk_deferral_ms")]
    pub max_bulk_deferral: Duration,
    /// Size of a small object in bytes.
    pub object_bytes: u64,
    /// Interval between requests for small objects.
    #[serde(with = "millis", rename = "object_interval_ms")]
    pub object_interval: Duration,
    /// Size of the big file in bytes.
    pub big_file_bytes: u64,
    /// The interval of one [`BigFileSample`], except the last of a run.
    #[serde(with = "millis", rename = "sample_interval_ms")]
    pub sample_interval: Duration,
    /// The program and its version.
    pub program: String,
    /// The kernel's name and version.
    pub kernel: String,
}

impl DemoSetup {
    /// Estimates the duration of a run from the link's rate and the overhead of TCP, TLS and small
    /// objects.
    #[must_use]
    pub fn expected_duration(&self) -> Duration {
        let link_bits_per_s = self.link.to_client.rate.mean_bits_per_second() as f64;
        let small_objects_bits_per_s =
            self.object_bytes as f64 * 8.0 / self.object_interval.as_secs_f64().max(1e-3);
        let remaining_bits_per_s =
            (link_bits_per_s - small_objects_bits_per_s).max(link_bits_per_s / 10.0);
        let file_seconds = self.big_file_bytes as f64 * 8.0 / remaining_bits_per_s * 1.05;
        // The small objects before the big file: the default of `DemoOptions::unloaded_objects`.
        self.object_interval * 6
            + Duration::try_from_secs_f64(file_seconds).unwrap_or(Duration::MAX / 2)
    }
}

/// The load on the link when a small object was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundLoad {
    /// Nothing.
    Unloaded,
    /// The big file.
    BigFile,
}

/// One small object.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SmallObject {
    /// When it was requested.
    #[serde(with = "millis", rename = "at_ms")]
    pub requested_at: Duration,
    /// The time from the request to its last byte.
    #[serde(with = "millis", rename = "took_ms")]
    pub duration: Duration,
    /// The concurrent load on the link.
    pub load: BackgroundLoad,
}

/// Bytes of the big file that arrived on one connection in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BigFileSample {
    /// The interval's end. It began at the end of the previous one, but not earlier than
    /// [`DemoSetup::sample_interval`] before.
    #[serde(with = "millis", rename = "at_ms")]
    pub interval_end: Duration,
    /// The connection.
    pub connection: ConnectionId,
    /// The number of bytes.
    pub bytes: u64,
}

/// A migration of the big file's stream to another connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Migration {
    /// When the client observed the migration.
    #[serde(with = "millis", rename = "at_ms")]
    pub observed_at: Duration,
    /// The source connection.
    pub from: ConnectionId,
    /// The target connection.
    pub to: ConnectionId,
}

/// All body bytes that arrived on one connection.
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
    /// The variant.
    pub variant: Variant,
    /// Small objects, in the order of their requests.
    pub objects: Vec<SmallObject>,
    /// Samples of the big file, in chronological order.
    #[serde(rename = "bulk")]
    pub big_file_samples: Vec<BigFileSample>,
    /// When the big file was requested; `None` before that.
    #[serde(default, with = "optional_millis", rename = "bulk_started_ms")]
    pub big_file_started_at: Option<Duration>,
    /// When its last byte arrived; `None` if it did not.
    #[serde(default, with = "optional_millis", rename = "bulk_finished_ms")]
    pub big_file_finished_at: Option<Duration>,
    /// Migrations, in chronological order.
    pub migrations: Vec<Migration>,
    /// Bytes of each connection.
    pub connections: Vec<ConnectionBytes>,
    /// Problems, in complete sentences.
    pub problems: Vec<String>,
    /// Counters of the emulated link; `None` while the run is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkReport>,
}

impl DemoRun {
    /// Returns an empty run.
    #[must_use]
    pub const fn new(variant: Variant) -> Self {
        Self {
            variant,
            objects: Vec::new(),
            big_file_samples: Vec::new(),
            big_file_started_at: None,
            big_file_finished_at: None,
            migrations: Vec::new(),
            connections: Vec::new(),
            problems: Vec::new(),
            link: None,
        }
    }

    /// Returns the bytes of the big file so far.
    #[must_use]
    pub fn big_file_bytes(&self) -> u64 {
        self.big_file_samples.iter().map(|sample| sample.bytes).sum()
    }

    /// Returns the length of a sample's interval. It is shorter than `sample_interval` if the previous sample or the
    /// request is more recent than that, as for the sample at the big file's end.
    pub(super) fn interval_of(
        &self,
        sample: &BigFileSample,
        sample_interval: Duration,
    ) -> Duration {
        let end = sample.interval_end;
        let next_index = self.big_file_samples.partition_point(|other| other.interval_end < end);
        let previous_end = self.big_file_samples[..next_index].last().map(|it| it.interval_end);
        let begin = previous_end.max(self.big_file_started_at);
        begin.map_or(sample_interval, |begin| end.saturating_sub(begin).min(sample_interval))
    }

    /// Returns the rate of one sample in Mbit/s.
    pub(super) fn sample_mbit_per_s(
        &self,
        sample: &BigFileSample,
        sample_interval: Duration,
    ) -> f64 {
        let seconds = self.interval_of(sample, sample_interval).as_secs_f64();
        sample.bytes as f64 * 8e-6 / seconds.max(1e-3)
    }

    /// Returns the time from the request for the big file to its last byte.
    #[must_use]
    pub fn big_file_duration(&self) -> Option<Duration> {
        self.big_file_finished_at?.checked_sub(self.big_file_started_at?)
    }

    /// Returns the time of the last record.
    #[must_use]
    pub fn end(&self) -> Duration {
        let objects = self.objects.iter().map(|object| object.requested_at + object.duration);
        let bulk = self.big_file_samples.iter().map(|sample| sample.interval_end);
        objects.chain(bulk).chain(self.big_file_finished_at).max().unwrap_or_default()
    }
}

/// The result of the demonstration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoResult {
    /// The setup that the runs share.
    pub setup: DemoSetup,
    /// The runs, in chronological order.
    pub runs: Vec<DemoRun>,
}

/// Like [`millis`], for a time that may be absent.
mod optional_millis {
    use super::{Deserialize, Duration, Serialize, millis};
    use serde::{Deserializer, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Millis(#[serde(with = "millis")] Duration);

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(Millis).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Millis>::deserialize(deserializer)?.map(|Millis(time)| time))
    }
}
