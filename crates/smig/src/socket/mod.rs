//! What the kernel is told about a connection, by the role that the connection plays.
//!
//! Owns the choice of socket options; never fails a connection because the kernel lacks one: an
//! option that cannot be set is logged once a process and left alone.

mod options;
mod sys;
mod tcp_info;

use std::time::Duration;

pub(crate) use tcp_info::TcpInfo;

pub(crate) use options::{
    abandon_on_close, apply, set_not_sent_low_water, set_pacing_rate, tcp_info,
};

/// Socket options of one role. What is `None` stays at the system's default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// TCP_NOTSENT_LOWAT, octets: how much may wait unsent in the kernel, where it can no longer be
    /// reordered.
    pub not_sent_low_water: Option<u32>,
    /// TCP_CONGESTION, such as `bbr`.
    pub congestion_control: Option<String>,
    /// SO_MAX_PACING_RATE, octets a second.
    pub pacing_rate: Option<u64>,
    /// The DSCP mark.
    pub mark: Mark,
    /// How long a peer may acknowledge nothing until the connection is given up (TCP keep-alive and
    /// TCP_USER_TIMEOUT). That is also how long it may leave its receive buffer full.
    pub dead_after: Option<Duration>,
    /// How long a peer may be silent, half of it before it is asked whether it is there (TCP keep-alive).
    /// One that answers and reads nothing is left alone, unlike by `dead_after`, which goes before.
    pub silent_for: Option<Duration>,
}

impl SocketOptions {
    /// For connections that carry what people wait for.
    #[must_use]
    pub const fn interactive() -> Self {
        Self {
            not_sent_low_water: Some(16 << 10),
            congestion_control: None,
            pacing_rate: None,
            mark: Mark::Default,
            dead_after: None,
            silent_for: None,
        }
    }

    /// For connections that carry big transfers: they yield to others on the path.
    #[must_use]
    pub fn bulk() -> Self {
        Self { mark: Mark::LowerEffort, ..Self::interactive() }
    }
}

/// The DSCP mark of a connection's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Best effort.
    Default,
    /// Lower effort (RFC 8622): networks that know it let other traffic go first.
    LowerEffort,
}

/// How fast a connection sends, as the kernel measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PathSample {
    /// Delivery rate, octets a second, if the kernel has measured one.
    pub(crate) delivery_rate: Option<u64>,
    /// Smoothed round-trip time.
    pub(crate) rtt: Duration,
    /// How far single round trips are from it, on average.
    pub(crate) deviation: Duration,
    /// Least round-trip time seen lately.
    pub(crate) min_rtt: Duration,
    /// Octets in the socket that were never sent.
    pub(crate) not_sent: u32,
    /// Octets sent of which nothing was heard.
    pub(crate) in_flight: u64,
    /// Octets acknowledged so far, also those behind a gap.
    pub(crate) acknowledged: u64,
    /// Octets in a full packet.
    pub(crate) packet: u32,
}

impl From<&TcpInfo> for PathSample {
    fn from(info: &TcpInfo) -> Self {
        let octets = |packets: u32| u64::from(packets) * u64::from(info.snd_mss);
        Self {
            delivery_rate: (info.delivery_rate > 0).then_some(info.delivery_rate),
            rtt: Duration::from_micros(info.rtt.into()),
            deviation: Duration::from_micros(info.rttvar.into()),
            min_rtt: Duration::from_micros(info.min_rtt.into()),
            not_sent: info.not_sent_bytes,
            in_flight: octets(info.unacked.saturating_sub(info.sacked)),
            acknowledged: info.bytes_acked + octets(info.sacked),
            packet: info.snd_mss,
        }
    }
}
