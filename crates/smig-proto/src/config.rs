//! Settings and limits of a session. Every default is named here with its reason.

use core::time::Duration;

use crate::wire::CodePoints;

/// What an endpoint offers and tolerates. Applies to each session alone.
#[derive(Clone, Debug)]
pub struct Config {
    /// The receive window of each stream, octets (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window: u32,
    /// The receive window of each connection, octets.
    pub connection_window: u32,
    /// The longest frame payload that we accept, octets (SETTINGS_MAX_FRAME_SIZE).
    pub max_frame_size: u32,
    /// Streams that the peer may have open in the whole session (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub max_concurrent_streams: u32,
    /// Whether the client accepts pushes (SETTINGS_ENABLE_PUSH).
    pub push: Push,
    /// Whether the server takes extended CONNECT (RFC 8441).
    pub connect_protocol: ConnectProtocol,
    /// How many octets a stream buffers for sending before it asks to wait.
    pub send_buffer: usize,
    /// The extension's own settings; `None` switches it off.
    pub smig: Option<SmigConfig>,
    /// Bounds on what the peer may cause.
    pub limits: Limits,
}

/// Whether pushes are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// They are not (the default; browsers dropped push).
    Disabled,
    /// They are.
    Enabled,
}

/// Whether extended CONNECT is offered (RFC 8441).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectProtocol {
    /// It is not.
    Disabled,
    /// It is.
    Enabled,
}

/// Settings of the extension (spec/smig.md).
#[derive(Clone, Debug)]
pub struct SmigConfig {
    /// Migrations tolerated at once (SETTINGS_SMIG): unbound carriers and unanswered offers.
    pub tolerated: u32,
    /// Connections of a session at most, the first included.
    pub max_connections: usize,
    /// Moves of one stream at most.
    pub max_moves: u8,
    /// Migrations a second in a session that are followed, sustained.
    pub migrations_per_second: u32,
    /// How long a client waits for the answer to a JOIN before it gives the connection up: a server
    /// decides at once, or asks another of its workers.
    pub join_timeout: Duration,
    /// How long a carrier may stay unbound.
    pub unbound_timeout: Duration,
    /// How long a mover waits for the answer to its MIGRATE before it resets the stream.
    pub answer_timeout: Duration,
    /// Octets kept for resumption while a migration is not acknowledged; the mover pauses there.
    pub replay_limit: usize,
    /// Code points on the wire.
    pub code_points: CodePoints,
}

impl Default for SmigConfig {
    fn default() -> Self {
        Self {
            tolerated: 16,
            max_connections: 4,
            max_moves: 4,
            migrations_per_second: 10,
            join_timeout: Duration::from_secs(10),
            unbound_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            replay_limit: 1 << 20,
            code_points: CodePoints::default(),
        }
    }
}

/// The hard cap of connections in a session, whatever the configuration says.
pub const MAX_CONNECTIONS: usize = 16;

/// Bounds on what a peer may cause. Crossing one is an event ([`crate::Event::LimitHit`]).
#[derive(Clone, Debug)]
pub struct Limits {
    /// Streams that the peer may reset, or have us reset (weight 2): at once.
    pub reset_burst: u32,
    /// The same: each second, sustained (CVE-2023-44487, CVE-2025-8671).
    pub resets_per_second: u32,
    /// CONTINUATION frames of one header block (VU#421644).
    pub max_continuations: u32,
    /// Octets of one encoded header block.
    pub max_header_block: usize,
    /// Octets of one decoded header section, 32 added a field (CVE-2016-1544).
    pub max_header_list: u32,
    /// Fields of one header section, each cookie crumb counted (CVE-2022-41723).
    pub max_fields: u32,
    /// 1xx responses to one request.
    pub max_informational: u32,
    /// Empty frames in a row (CVE-2019-9518).
    pub max_empty_frames: u32,
    /// Answers owed and unsent: PING, SETTINGS, MIGRATE, and RST_STREAM to a server (CVE-2019-9512, -9514,
    /// -9515). A client pays for RST_STREAM by [`Self::reset_burst`].
    pub max_queued_answers: u32,
    /// Entries of one SETTINGS frame.
    pub max_settings_entries: usize,
    /// SETTINGS frames in ten seconds.
    pub max_settings_frames: u32,
    /// PRIORITY_UPDATE for streams that are not open yet (CVE-2019-9513).
    pub max_idle_priorities: usize,
    /// DATA frames under 1 KB that the peer's window forced in ten seconds (CVE-2019-9511).
    pub max_tiny_frames: u32,
    /// Framed and unsent octets of a connection, requests apart; above it the peer is not read
    /// (CVE-2019-9517).
    pub max_unsent: usize,
    /// A stream that has octets to send and moves fewer than [`Limits::stall_octets`] in this time
    /// is reset, whatever frames the peer sends meanwhile. Migration does not restart it.
    pub stall_timeout: Duration,
    /// See [`Limits::stall_timeout`].
    pub stall_octets: u64,
    /// Time for the preface and SETTINGS.
    pub preface_timeout: Duration,
    /// Time for one header block.
    pub headers_timeout: Duration,
    /// Time for the peer to acknowledge our SETTINGS.
    pub settings_timeout: Duration,
    /// Time for the peer to answer the PING between the two GOAWAY of an orderly end. Then the second
    /// is sent all the same: who answers no PING must not keep a connection for ever.
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
            max_empty_frames: 10,
            max_queued_answers: 64,
            max_settings_entries: 32,
            max_settings_frames: 16,
            max_idle_priorities: 100,
            max_tiny_frames: 1000,
            max_unsent: 256 << 10,
            stall_timeout: Duration::from_secs(60),
            stall_octets: 1024,
            preface_timeout: Duration::from_secs(5),
            headers_timeout: Duration::from_secs(10),
            settings_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Defaults of a server.
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
            smig: Some(SmigConfig::default()),
            limits: Limits::default(),
        }
    }

    /// Defaults of a client: windows of a downloader on a long fat link.
    #[must_use]
    pub fn client() -> Self {
        Self { stream_window: 8 << 20, connection_window: 16 << 20, ..Self::server() }
    }
}
