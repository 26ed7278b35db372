//! Settings and limits of a session. All defaults are defined here, with their reasons.

use core::time::Duration;

use crate::bulk::BulkPolicy;
use crate::wire::CodePoints;

/// The settings that an endpoint announces, and what it tolerates. Each session has its own.
#[derive(Clone, Debug)]
pub struct Config {
    /// Receive window of each stream, in bytes (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window: u32,
    /// Receive window of each connection, in bytes.
    pub connection_window: u32,
    /// Maximum accepted frame payload, in bytes (SETTINGS_MAX_FRAME_SIZE).
    pub max_frame_size: u32,
    /// Maximum number of streams that the peer may have open in the entire session
    /// (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub max_concurrent_streams: u32,
    /// Whether the client accepts pushes (SETTINGS_ENABLE_PUSH).
    pub push: Push,
    /// Whether the server supports extended CONNECT (RFC 8441).
    pub connect_protocol: ConnectProtocol,
    /// Number of bytes that a stream buffers for sending before its send capacity is 0.
    pub send_buffer: usize,
    /// Which streams are bulk, so that the scheduler keeps them apart; `None`: no stream is.
    pub bulk: Option<BulkPolicy>,
    /// Settings of the extension; `None` disables it.
    pub smig: Option<SmigConfig>,
    /// Limits on what the peer may cause.
    pub limits: Limits,
}

/// Whether server push is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// Pushes are rejected (the default: browsers removed support for push).
    Disabled,
    /// Pushes are accepted.
    Enabled,
}

/// Whether extended CONNECT is enabled (RFC 8441).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectProtocol {
    /// It is not announced.
    Disabled,
    /// It is announced.
    Enabled,
}

/// Settings of the extension (spec/smig.md).
#[derive(Clone, Debug)]
pub struct SmigConfig {
    /// Maximum number of simultaneous migrations that are tolerated (SETTINGS_SMIG): unbound
    /// carriers and unanswered offers.
    pub max_open_migrations: u32,
    /// Maximum number of connections in a session, including the first.
    pub max_connections: usize,
    /// Maximum number of migrations of one stream.
    pub max_migrations_per_stream: u8,
    /// Sustained number of migrations per second that a session follows; at once, as many as in [`MIGRATION_BURST_SECONDS`].
    pub migrations_per_second: u32,
    /// How long a client waits for the answer to a JOIN before it closes the connection. A server
    /// answers immediately, or after a request to another of its workers.
    pub join_timeout: Duration,
    /// How long a carrier may remain unbound.
    pub unbound_timeout: Duration,
    /// How long a mover waits for the answer to its MIGRATE before it resets the stream.
    pub answer_timeout: Duration,
    /// Bytes buffered for resumption while a migration is unanswered; the mover pauses at this
    /// limit.
    pub replay_limit: usize,
    /// Settings of resumption; `None` disables it.
    pub resumption: Option<ResumptionConfig>,
    /// Code points of the extension's frames and settings.
    pub code_points: CodePoints,
}

/// Settings of resumption: streams go on after the end of their connection (spec/resumption.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumptionConfig {
    /// How long a stream, and a session without connections, waits to be resumed; the lesser of both ends' values counts
    /// (SETTINGS_SMIG_RESUME). Whole seconds; less than one disables resumption.
    pub linger: Duration,
    /// Maximum number of bytes of body that one stream has sent and keeps until it is known that they were read. What is older is let
    /// go of: a stream that needs it again fails.
    pub max_kept_per_stream: usize,
    /// The same for all streams of a session.
    pub max_kept: usize,
    /// Maximum number of ended streams that a session remembers.
    pub max_ended: usize,
}

impl Default for ResumptionConfig {
    fn default() -> Self {
        Self {
            linger: Duration::from_secs(30),
            max_kept_per_stream: 4 << 20,
            max_kept: 16 << 20,
            max_ended: 512,
        }
    }
}

impl Default for SmigConfig {
    fn default() -> Self {
        Self {
            max_open_migrations: 16,
            max_connections: 4,
            max_migrations_per_stream: 4,
            migrations_per_second: DEFAULT_MIGRATIONS_PER_SECOND,
            join_timeout: Duration::from_secs(10),
            unbound_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            replay_limit: 1 << 20,
            resumption: None,
            code_points: CodePoints::default(),
        }
    }
}

/// The default of [`SmigConfig::migrations_per_second`]. A server that moves many streams stays below it.
pub const DEFAULT_MIGRATIONS_PER_SECOND: u32 = 10;

/// A session follows as many migrations at once as in this time in the long run, in seconds.
pub const MIGRATION_BURST_SECONDS: u32 = 4;

/// Upper bound for [`SmigConfig::max_connections`], whatever the configuration says.
pub const MAX_CONNECTIONS: usize = 16;

/// Limits on what a peer may cause. Exceeding one emits [`crate::Event::LimitHit`], except for
/// [`Self::max_buffered_output`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// Burst of a client's budget: a reset before the complete response was sent, a refused frame or a timeout costs 1; causing this side
    /// to reset a stream costs 2.
    pub reset_burst: u32,
    /// Sustained rate of the same budget, per second (CVE-2023-44487, CVE-2025-8671).
    pub resets_per_second: u32,
    /// Maximum number of CONTINUATION frames in one field block (VU#421644).
    pub max_continuations: u32,
    /// Maximum size of one encoded field block, in bytes.
    pub max_header_block: usize,
    /// Maximum size of one decoded field section, in bytes, plus 32 for each field (CVE-2016-1544).
    pub max_header_list: u32,
    /// Maximum number of fields in one field section; each cookie crumb counts (CVE-2022-41723).
    pub max_fields: u32,
    /// Maximum number of 1xx responses to one request.
    pub max_informational: u32,
    /// Maximum number of consecutive empty frames (CVE-2019-9518).
    pub max_consecutive_empty_frames: u32,
    /// Maximum number of unsent responses to the peer's frames: to PING, SETTINGS, MIGRATE and
    /// JOIN, and RST_STREAM to a server (CVE-2019-9512, -9514, -9515). RST_STREAM to a client is limited by
    /// [`Self::reset_burst`].
    pub max_queued_control_frames: u32,
    /// Maximum number of entries in one SETTINGS frame.
    pub max_settings_entries: usize,
    /// Maximum number of SETTINGS frames in ten seconds.
    pub max_settings_frames: u32,
    /// Maximum number of buffered PRIORITY_UPDATE frames for idle streams (CVE-2019-9513).
    pub max_idle_priority_updates: usize,
    /// Maximum number of DATA frames below 1 KiB that the peer's window forces in ten seconds
    /// (CVE-2019-9511).
    pub max_small_data_frames: u32,
    /// Maximum number of framed and unsent bytes of a connection, without requests; above it, the
    /// connection is not read (CVE-2019-9517).
    pub max_buffered_output: usize,
    /// A stream that has data to send is reset if it transfers fewer than [`Limits::stall_bytes`]
    /// bytes in this time. Of the peer's frames only HEADERS of the stream restart it; a migration
    /// does not.
    pub stall_timeout: Duration,
    /// See [`Limits::stall_timeout`].
    pub stall_bytes: u64,
    /// Timeout for the preface and SETTINGS.
    pub preface_timeout: Duration,
    /// Timeout for one field block.
    pub headers_timeout: Duration,
    /// Timeout for the peer's acknowledgement of this side's SETTINGS.
    pub settings_timeout: Duration,
    /// Timeout for the answer to the PING between the two GOAWAY frames of a graceful shutdown.
    /// Then the second GOAWAY is sent anyway: a peer that answers no PING must not keep the
    /// connection open indefinitely.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reset_burst: 200,
            resets_per_second: 33,
            max_continuations: 8,
            max_header_block: 64 << 10,
            max_header_list: 64 << 10,
            max_fields: 128,
            max_informational: 50,
            max_consecutive_empty_frames: 10,
            max_queued_control_frames: 64,
            max_settings_entries: 32,
            max_settings_frames: 16,
            max_idle_priority_updates: 100,
            max_small_data_frames: 1000,
            max_buffered_output: 256 << 10,
            stall_timeout: Duration::from_secs(60),
            stall_bytes: 1024,
            preface_timeout: Duration::from_secs(5),
            headers_timeout: Duration::from_secs(10),
            settings_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Returns the defaults of a server.
    #[must_use]
    pub fn server() -> Self {
        Self {
            stream_window: 1 << 20,
            connection_window: 4 << 20,
            max_frame_size: 16_384,
            max_concurrent_streams: 128,
            push: Push::Disabled,
            connect_protocol: ConnectProtocol::Enabled,
            send_buffer: 64 << 10,
            bulk: Some(BulkPolicy::default()),
            smig: Some(SmigConfig::default()),
            limits: Limits::default(),
        }
    }

    /// Returns the defaults of a client, with windows for downloads on paths with a large
    /// bandwidth-delay product.
    #[must_use]
    pub fn client() -> Self {
        Self { stream_window: 8 << 20, connection_window: 16 << 20, ..Self::server() }
    }
}
