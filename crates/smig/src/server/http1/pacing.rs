//! Limits long responses to the measured rate of the path, as sessions limit bulk over HTTP/2.
//!
//! The kernel paces the whole connection (SO_MAX_PACING_RATE) while a long response is on it, because it carries one
//! response at a time: nothing else waits behind it, and the process needs no wake-ups. The gain is for the other
//! connections that share the path. Each connection measures for itself: an address may be that of many users.

use std::time::Duration;

use smig_pace::{MIN_PACED_RTT, Pacer, RateSample};
use smig_proto::{BulkHint, BulkInput, BulkPolicy, BulkReason, Instant, Priority};
use tokio::net::TcpStream;

use crate::socket::{self, PathSample};

/// Interval between two checks of whether the round-trip time is long enough for pacing.
const RTT_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// What decides whether a response is bulk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseExtent {
    /// Number of the response on its connection.
    pub(super) number: u64,
    /// The length of its body, if known.
    pub(super) length: Option<u64>,
    pub(super) hint: BulkHint,
    /// Whether it switches protocols.
    pub(super) is_tunnel: bool,
}

/// The pacing of one connection.
#[derive(Debug)]
pub(super) struct ResponsePacing {
    /// `None`: nothing is paced.
    policy: Option<BulkPolicy>,
    /// The current response, and the bytes written of it.
    response: ResponseExtent,
    written: u64,
    bulk: Option<BulkReason>,
    pacer: Option<Box<Pacer>>,
    next_rtt_check: Option<Instant>,
    /// The limit that the socket has; `u64::MAX` is none.
    applied_cap: u64,
}

impl ResponsePacing {
    pub(super) const fn new(policy: Option<BulkPolicy>) -> Self {
        let response =
            ResponseExtent { number: 0, length: None, hint: BulkHint::None, is_tunnel: false };
        Self {
            policy,
            response,
            written: 0,
            bulk: None,
            pacer: None,
            next_rtt_check: None,
            applied_cap: u64::MAX,
        }
    }

    /// Updates the socket's limit, before a part of `response` is written.
    pub(super) fn before_write(&mut self, now: Instant, tcp: &TcpStream, response: ResponseExtent) {
        let Some(policy) = &self.policy else { return };
        if response.number != self.response.number {
            (self.response, self.written, self.bulk) = (response, 0, None);
        }
        self.bulk = policy.decide(&BulkInput {
            length: response.length,
            bytes_without_pause: self.written,
            current: self.bulk,
            is_tunnel: response.is_tunnel,
            has_migrated: false,
            priority: Priority::default(),
            hint: response.hint,
        });
        self.sample_if_due(now, tcp);
    }

    /// Records how many bytes of the response were written.
    pub(super) const fn after_write(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    /// Measures the path if that is due, and updates the socket's limit.
    pub(super) fn sample_if_due(&mut self, now: Instant, tcp: &TcpStream) {
        if self.bulk.is_none() {
            self.pacer = None;
            return self.apply(tcp, u64::MAX);
        }
        let is_due = match &self.pacer {
            Some(pacer) => pacer.is_due(now),
            None => self.next_rtt_check.is_none_or(|at| now >= at),
        };
        if !is_due {
            return;
        }
        let Some(info) = socket::tcp_info(tcp) else {
            self.pacer = None;
            return;
        };
        let sample = PathSample::from(&info);
        if self.pacer.is_none() {
            self.next_rtt_check = Some(now + RTT_CHECK_INTERVAL);
            if sample.min_rtt < MIN_PACED_RTT {
                return;
            }
        }
        let pacer = self.pacer.get_or_insert_with(|| Box::new(Pacer::new(now, sample.min_rtt)));
        if sample.in_flight == 0 {
            pacer.on_idle(now);
        } else {
            pacer.on_sample(
                now,
                RateSample {
                    acknowledged: sample.acknowledged,
                    sent: sample.acknowledged + sample.in_flight,
                    rtt: sample.rtt,
                    in_flight: sample.in_flight,
                    rtt_deviation: sample.rtt_deviation,
                    min_rtt: sample.min_rtt,
                    retransmitted: u64::from(sample.retransmitted),
                    mss: sample.mss,
                },
            );
        }
        let rate = pacer.bounds().rate;
        self.apply(tcp, rate);
    }

    /// Returns when [`Self::sample_if_due`] must be called, while output waits for the socket.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pacer.as_ref()?.deadline()
    }

    fn apply(&mut self, tcp: &TcpStream, cap: u64) {
        // A change of 1/128 or less is not worth a system call.
        if cap.abs_diff(self.applied_cap) > self.applied_cap / 128 {
            self.applied_cap = cap;
            socket::set_pacing_rate(tcp, cap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn response(number: u64, length: Option<u64>) -> ResponseExtent {
        ResponseExtent { number, length, ..ResponseExtent::default() }
    }

    #[tokio::test]
    async fn a_response_is_bulk_by_its_length_or_by_what_was_written() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut pacing = ResponsePacing::new(Some(BulkPolicy::default()));
        let mut write = |response, bytes| {
            pacing.before_write(Instant::from_nanos(0), &tcp, response);
            pacing.after_write(bytes);
            pacing.bulk
        };
        assert_eq!(write(response(1, Some(10_000)), 10_000), None);
        assert_eq!(write(response(2, Some(1 << 20)), 100), Some(BulkReason::Size));
        assert_eq!(write(response(3, None), 100 << 10), None);
        assert_eq!(write(response(3, None), 1), Some(BulkReason::UnknownLength));
        assert_eq!(write(response(4, None), 1), None);
        let hint = BulkHint::Interactive;
        let exempt = ResponseExtent { hint, ..response(5, Some(1 << 30)) };
        assert_eq!(write(exempt, 100), None);
        let mut unpaced = ResponsePacing::new(None);
        unpaced.before_write(Instant::from_nanos(0), &tcp, response(1, Some(1 << 30)));
        assert_eq!(unpaced.bulk, None);
    }
}
