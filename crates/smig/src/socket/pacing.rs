//! What both HTTP versions need of a socket to pace bulk: its limit, when to look at its path, and what the pacer learns.

use std::time::Duration;

use smig_pace::ConnSample;
use smig_proto::Instant;
use tokio::net::TcpStream;

use super::{PathSample, set_pacing_rate};

/// Interval between two checks of whether the round-trip time is long enough for pacing.
const RTT_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// When to check next whether a path's round-trip time is long enough for pacing.
#[derive(Debug, Default)]
pub(crate) struct RttCheck {
    next: Option<Instant>,
}

impl RttCheck {
    /// Returns whether a check is due; the next one is due after an interval.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next.is_none_or(|at| now >= at);
        if is_due {
            self.next = Some(now + RTT_CHECK_INTERVAL);
        }
        is_due
    }
}

/// The limit of a socket's sending rate (SO_MAX_PACING_RATE), bytes per second; `u64::MAX` is none.
#[derive(Debug)]
pub(crate) struct PacingRate {
    /// The limit of the connection's role.
    role_limit: u64,
    applied: u64,
}

impl PacingRate {
    /// The limit of a socket with the options of its role.
    pub(crate) fn new(role_limit: Option<u64>) -> Self {
        let role_limit = role_limit.unwrap_or(u64::MAX);
        Self { role_limit, applied: role_limit }
    }

    /// Returns the current limit.
    pub(crate) const fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns whether the current limit is below the role's own.
    pub(crate) const fn is_lowered(&self) -> bool {
        self.applied < self.role_limit
    }

    /// Limits the rate to `rate`, or to the role's own limit if that is lower.
    pub(crate) fn set(&mut self, tcp: &TcpStream, rate: u64) {
        let rate = rate.min(self.role_limit);
        // A change of 1/128 or less is not worth a system call.
        if rate.abs_diff(self.applied) > self.applied / 128 {
            self.apply(tcp, rate);
        }
    }

    /// Returns to the role's own limit.
    pub(crate) fn lift(&mut self, tcp: &TcpStream) {
        if self.is_lowered() {
            self.apply(tcp, self.role_limit);
        }
    }

    fn apply(&mut self, tcp: &TcpStream, rate: u64) {
        self.applied = rate;
        set_pacing_rate(tcp, rate);
    }
}

impl PathSample {
    /// Returns what pacing measures of this socket.
    pub(crate) fn conn_sample(&self) -> ConnSample {
        ConnSample {
            acknowledged: self.acknowledged,
            in_flight: self.in_flight,
            outstanding: self.in_flight + u64::from(self.unsent),
            rtt: self.rtt,
            rtt_deviation: self.rtt_deviation,
            min_rtt: self.min_rtt,
            retransmitted: u64::from(self.retransmitted),
            congestion_window: self.congestion_window,
            delivery_rate: self.delivery_rate.unwrap_or(0),
            mss: self.mss,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::tcp_info;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_lifted_limit_is_that_of_the_role() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket_limit = || tcp_info(&tcp).unwrap().max_pacing_rate;
        let mut rate = PacingRate::new(None);
        rate.set(&tcp, 1_000_000);
        assert_eq!((socket_limit(), rate.is_lowered()), (1_000_000, true));
        rate.set(&tcp, 1_005_000);
        assert_eq!(socket_limit(), 1_000_000, "the change is too small");
        rate.lift(&tcp);
        assert_eq!((socket_limit(), rate.is_lowered()), (u64::MAX, false));
        let mut rate = PacingRate::new(Some(500_000));
        rate.set(&tcp, 400_000);
        rate.lift(&tcp);
        assert_eq!((socket_limit(), rate.is_lowered()), (500_000, false));
        rate.set(&tcp, 450_000);
        rate.set(&tcp, 497_000);
        rate.lift(&tcp);
        assert_eq!((socket_limit(), rate.is_lowered()), (500_000, false), "however small the step");
    }

    #[test]
    fn the_path_is_checked_now_and_then() {
        let (mut check, at_ms) =
            (RttCheck::default(), |ms: u64| Instant::from_nanos(ms * 1_000_000));
        assert!(check.is_due(at_ms(0)));
        assert!(!check.is_due(at_ms(199)));
        assert!(check.is_due(at_ms(200)));
        assert!(!check.is_due(at_ms(399)));
    }
}
