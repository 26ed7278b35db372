//! Socket options of a connection, by its role; its addresses, and what TCP_INFO reports of it.
//!
//! An option that cannot be set does not fail the connection: the failure is logged once per process.

mod addrs;
mod options;
mod pacing;
mod sys;
mod tcp_info;

use std::time::Duration;

pub use addrs::ConnectionAddrs;

pub(crate) use pacing::{PacingRate, RttCheck};
pub(crate) use tcp_info::TcpInfo;

pub(crate) use options::{
    RoleOptions, reset_on_close, set_notsent_lowat, set_pacing_rate, set_window_clamp, tcp_info,
};

/// Socket options of one role. `None` is the system's default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// TCP_NOTSENT_LOWAT, bytes: how much may wait unsent in the kernel, where it can no longer be
    /// reordered.
    pub notsent_lowat: Option<u32>,
    /// TCP_CONGESTION, such as `bbr`.
    pub congestion_control: Option<String>,
    /// SO_MAX_PACING_RATE, bytes per second.
    pub pacing_rate: Option<u64>,
    /// The DSCP mark.
    pub dscp: Dscp,
    /// How long a peer may acknowledge nothing before the connection is closed (TCP keepalive and
    /// TCP_USER_TIMEOUT). It also limits how long the peer's receive buffer may stay full.
    pub user_timeout: Option<Duration>,
    /// How long a peer may be silent, with keepalive probes in the second half of that time. Unlike with
    /// `user_timeout`, which takes precedence, a peer that acknowledges but reads nothing stays connected.
    pub keepalive_timeout: Option<Duration>,
}

impl SocketOptions {
    /// Everything as the system has it.
    pub(crate) const SYSTEM: Self = Self {
        notsent_lowat: None,
        congestion_control: None,
        pacing_rate: None,
        dscp: Dscp::Default,
        user_timeout: None,
        keepalive_timeout: None,
    };

    /// For connections that carry what users wait for.
    #[must_use]
    pub const fn interactive() -> Self {
        Self { notsent_lowat: Some(16 << 10), ..Self::SYSTEM }
    }

    /// For connections that carry large transfers: they yield to others on the path.
    #[must_use]
    pub fn bulk() -> Self {
        Self { dscp: Dscp::LowerEffort, ..Self::interactive() }
    }
}

/// The DSCP mark of a connection's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dscp {
    /// Best effort.
    Default,
    /// Lower effort (RFC 8622): networks that support it forward other traffic first.
    LowerEffort,
}

/// The state of a connection's path, as the kernel measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PathSample {
    /// Delivery rate in bytes per second, if the kernel has measured one.
    pub(crate) delivery_rate: Option<u64>,
    /// Smoothed round-trip time.
    pub(crate) rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub(crate) rtt_deviation: Duration,
    /// Minimum round-trip time, over the kernel's window; zero if it is not known.
    pub(crate) min_rtt: Duration,
    /// Bytes in the socket that were never sent.
    pub(crate) unsent: u32,
    /// Bytes in flight: sent, and neither acknowledged nor SACKed.
    pub(crate) in_flight: u64,
    /// Bytes acknowledged so far, including those SACKed.
    pub(crate) acknowledged: u64,
    /// Packets retransmitted so far.
    pub(crate) retransmitted: u32,
    /// Packets received so far before an earlier one: that one was lost, or overtaken.
    pub(crate) out_of_order: u32,
    /// The congestion window in bytes.
    pub(crate) congestion_window: u64,
    /// Bytes in a full packet.
    pub(crate) mss: u32,
}

impl From<&TcpInfo> for PathSample {
    fn from(info: &TcpInfo) -> Self {
        let bytes = |packets: u32| u64::from(packets) * u64::from(info.snd_mss);
        Self {
            delivery_rate: (info.delivery_rate > 0).then_some(info.delivery_rate),
            rtt: Duration::from_micros(info.rtt.into()),
            rtt_deviation: Duration::from_micros(info.rttvar.into()),
            // The kernel has all ones until the first sample: a handshake may give none.
            min_rtt: match info.min_rtt {
                u32::MAX => Duration::ZERO,
                micros => Duration::from_micros(micros.into()),
            },
            unsent: info.notsent_bytes,
            in_flight: match info.bytes_sent {
                // A kernel before 4.19: small packets count as full ones.
                0 => bytes(info.unacked.saturating_sub(info.sacked)),
                sent => sent
                    .saturating_sub(info.bytes_retrans)
                    .saturating_sub(info.bytes_acked)
                    .saturating_sub(bytes(info.sacked)),
            },
            acknowledged: info.bytes_acked + bytes(info.sacked),
            retransmitted: info.total_retrans,
            congestion_window: bytes(info.snd_cwnd),
            out_of_order: info.rcv_ooopack,
            mss: info.snd_mss,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_in_flight_count_with_their_bytes() {
        let info = TcpInfo {
            snd_mss: 1448,
            unacked: 10,
            bytes_sent: 5_000,
            bytes_retrans: 300,
            bytes_acked: 1_700,
            ..TcpInfo::default()
        };
        assert_eq!(PathSample::from(&info).in_flight, 3_000);
        let old_kernel = TcpInfo { bytes_sent: 0, ..info };
        assert_eq!(PathSample::from(&old_kernel).in_flight, 14_480);
    }

    #[test]
    fn a_round_trip_time_that_was_never_measured_is_not_known() {
        let unmeasured = TcpInfo { min_rtt: u32::MAX, ..TcpInfo::default() };
        assert_eq!(PathSample::from(&unmeasured).min_rtt, Duration::ZERO);
        let measured = TcpInfo { min_rtt: 50_000, ..TcpInfo::default() };
        assert_eq!(PathSample::from(&measured).min_rtt, Duration::from_millis(50));
    }
}
