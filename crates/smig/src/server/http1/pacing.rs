//! Limits long responses to the measured rate of the path, as sessions limit bulk over HTTP/2.
//!
//! The kernel paces the whole connection (SO_MAX_PACING_RATE) while a long response is on it, because it carries one
//! response at a time: nothing else waits behind it, and the process needs no wake-ups. The gain is for the other
//! connections that share the path. Each connection measures for itself: an address may be that of many users.

use std::time::Duration;

use smig_pace::{MIN_PACED_RTT, Pacer};
use smig_proto::{BulkHint, BulkInput, BulkPolicy, BulkReason, Instant, Priority};
use tokio::net::TcpStream;

use crate::socket::{self, PacingRate, PathSample, RttCheck};

/// Time without output after which a sample that is due is late because of the application, not of this process. A
/// shorter lateness makes no round of the pacer late.
const MIN_PAUSE: Duration = Duration::from_millis(10);

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
    response: ResponseExtent,
    /// Bytes of the response that were written since its last pause.
    bytes_since_pause: u64,
    bulk: Option<BulkReason>,
    pacer: Option<Box<Pacer>>,
    rtt_check: RttCheck,
    rate: PacingRate,
    /// When output was last written, or waited for the socket.
    active_at: Instant,
    /// Output waits for the socket.
    is_blocked: bool,
}

impl ResponsePacing {
    pub(super) fn new(policy: Option<BulkPolicy>) -> Self {
        Self {
            policy,
            response: ResponseExtent::default(),
            bytes_since_pause: 0,
            bulk: None,
            pacer: None,
            rtt_check: RttCheck::default(),
            rate: PacingRate::new(None),
            active_at: Instant::from_nanos(0),
            is_blocked: false,
        }
    }

    /// Updates the socket's limit, before a part of `response` is written.
    pub(super) fn before_write(&mut self, now: Instant, tcp: &TcpStream, response: ResponseExtent) {
        let Some(policy) = &self.policy else { return };
        if response.number != self.response.number || self.has_paused(now, policy.quiet_time) {
            (self.bytes_since_pause, self.bulk) = (0, None);
        }
        self.response = response;
        self.bulk = policy.decide(&BulkInput {
            length: response.length,
            min_left: 0,
            bytes_without_pause: self.bytes_since_pause,
            current: self.bulk,
            is_tunnel: response.is_tunnel,
            has_migrated: false,
            priority: Priority::default(),
            hint: response.hint,
        });
        self.sample_if_due(now, tcp);
    }

    /// Records how many bytes of the response were written.
    pub(super) const fn after_write(&mut self, now: Instant, bytes: usize) {
        self.bytes_since_pause += bytes as u64;
        self.active_at = now;
    }

    /// Records that output waits for the socket.
    pub(super) const fn on_blocked(&mut self) {
        self.is_blocked = true;
    }

    /// Records that no output waits for the socket any more.
    pub(super) const fn on_unblocked(&mut self, now: Instant) {
        if self.is_blocked {
            (self.is_blocked, self.active_at) = (false, now);
        }
    }

    /// Returns whether the application had nothing to send for this time.
    fn has_paused(&self, now: Instant, time: Duration) -> bool {
        !self.is_blocked && now.saturating_duration_since(self.active_at) >= time
    }

    /// Handles that the socket has all of the response: nothing measures the path until the next one.
    pub(super) fn on_response_flushed(&mut self, now: Instant, tcp: &TcpStream) {
        if !self.rate.is_lowered() {
            return;
        }
        self.rate.lift(tcp);
        if let Some(pacer) = &mut self.pacer {
            pacer.on_idle(now);
        }
    }

    /// Measures the path if that is due, and updates the socket's limit.
    pub(super) fn sample_if_due(&mut self, now: Instant, tcp: &TcpStream) {
        if self.bulk.is_none() {
            return self.end(tcp);
        }
        let is_due = match &self.pacer {
            Some(pacer) => pacer.is_due(now),
            None => self.rtt_check.is_due(now),
        };
        if is_due {
            let Some(info) = socket::tcp_info(tcp) else { return self.end(tcp) };
            self.on_sample(now, &PathSample::from(&info));
        }
        if let Some(pacer) = &self.pacer {
            // The kernel keeps the rate even if this process is late: what is written ahead needs no bound.
            self.rate.set(tcp, pacer.bounds().rate);
        }
    }

    fn on_sample(&mut self, now: Instant, sample: &PathSample) {
        if self.pacer.is_none() && sample.min_rtt < MIN_PACED_RTT {
            return;
        }
        let has_paused = self.has_paused(now, MIN_PAUSE);
        let pacer = self.pacer.get_or_insert_with(|| {
            Box::new(Pacer::new(now, sample.min_rtt, sample.conn_sample().confirmed_rate()))
        });
        if sample.in_flight == 0 || has_paused {
            pacer.on_idle(now);
        } else {
            pacer.on_sample(now, sample.conn_sample().into());
        }
    }

    /// Ends pacing.
    fn end(&mut self, tcp: &TcpStream) {
        self.pacer = None;
        self.rate.lift(tcp);
    }

    /// Returns when [`Self::sample_if_due`] must be called, while output waits for the socket.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pacer.as_ref()?.deadline()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use tokio::net::TcpListener;

    fn response(number: u64, length: Option<u64>) -> ResponseExtent {
        ResponseExtent { number, length, ..ResponseExtent::default() }
    }

    fn at_ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    async fn connection() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).await.unwrap()
    }

    fn pacing() -> ResponsePacing {
        ResponsePacing::new(Some(BulkPolicy::default()))
    }

    /// Begins a bulk response on a path with an RTT of 50 ms, whatever the socket says.
    fn paced(tcp: &TcpStream) -> ResponsePacing {
        let mut pacing = pacing();
        pacing.pacer = Some(Box::new(Pacer::new(at_ms(0), Duration::from_millis(50), 0.0)));
        pacing.before_write(at_ms(0), tcp, response(1, Some(1 << 20)));
        pacing
    }

    #[tokio::test]
    async fn a_response_is_bulk_by_its_length_or_by_what_was_written() {
        let tcp = connection().await;
        let mut pacing = pacing();
        let mut write = |response, bytes| {
            pacing.before_write(at_ms(0), &tcp, response);
            pacing.after_write(at_ms(0), bytes);
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
        unpaced.before_write(at_ms(0), &tcp, response(1, Some(1 << 30)));
        assert_eq!(unpaced.bulk, None);
    }

    #[tokio::test]
    async fn a_response_of_unknown_length_that_pauses_is_not_bulk() {
        let tcp = connection().await;
        let mut pacing = pacing();
        let write = |pacing: &mut ResponsePacing, millis| {
            pacing.before_write(at_ms(millis), &tcp, response(1, None));
            pacing.after_write(at_ms(millis), 60 << 10);
            pacing.bulk
        };
        for n in 0..10 {
            assert_eq!(write(&mut pacing, 1000 * n), None, "{n}");
        }
        assert_eq!(write(&mut pacing, 9_500), None);
        assert_eq!(write(&mut pacing, 9_600), Some(BulkReason::UnknownLength));
        // What waits for the socket is no pause.
        pacing.on_blocked();
        assert_eq!(write(&mut pacing, 12_000), Some(BulkReason::UnknownLength));
        pacing.on_unblocked(at_ms(13_000));
        assert_eq!(write(&mut pacing, 13_999), Some(BulkReason::UnknownLength));
        assert_eq!(write(&mut pacing, 14_999), None);
    }

    #[tokio::test]
    async fn the_limit_is_lifted_when_the_socket_has_all_and_when_nothing_can_be_measured() {
        let tcp = connection().await;
        let mut pacing = paced(&tcp);
        assert!(pacing.rate.is_lowered());
        pacing.on_response_flushed(at_ms(1), &tcp);
        assert_eq!(socket::tcp_info(&tcp).unwrap().max_pacing_rate, u64::MAX);
        pacing.before_write(at_ms(2), &tcp, response(2, Some(1 << 20)));
        assert!(pacing.rate.is_lowered(), "the next one is limited from the start");
        // A socket without TCP_INFO.
        let (end, _other_end) = UnixStream::pair().unwrap();
        end.set_nonblocking(true).unwrap();
        let std_stream = std::net::TcpStream::from(OwnedFd::from(end));
        let unmeasurable = TcpStream::from_std(std_stream).unwrap();
        pacing.sample_if_due(at_ms(1000), &unmeasurable);
        assert!(!pacing.rate.is_lowered());
    }

    #[tokio::test]
    async fn a_pause_of_the_application_is_no_lateness_of_the_process() {
        let tcp = connection().await;
        let sample = |acknowledged| PathSample {
            rtt: Duration::from_millis(50),
            min_rtt: Duration::from_millis(50),
            in_flight: 20_000,
            acknowledged,
            mss: 1448,
            ..PathSample::default()
        };
        for is_blocked in [false, true] {
            let mut pacing = paced(&tcp);
            pacing.after_write(at_ms(0), 100_000);
            pacing.is_blocked = is_blocked;
            pacing.on_sample(at_ms(7), &sample(10_000));
            pacing.on_sample(at_ms(100), &sample(20_000));
            let is_late = pacing.pacer.unwrap().bounds().write_ahead > 0;
            assert_eq!(is_late, is_blocked, "blocked: {is_blocked}");
        }
    }
}
