//! Lingering close of an HTTP/1.1 connection whose client may still be sending (RFC 9112 section 9.6).
//!
//! If a socket is closed with unread input, the kernel sends an RST, and the client may lose the end of the
//! response. So input is read and discarded until the client closes its half, too, or has acknowledged the whole
//! response and is silent, or exceeds a limit.
//!
//! hyper has finished by then: its buffers and the TLS state are freed. The connection counts as open until the end,
//! for the server and for its client's address, and a draining server waits for it, within its limit.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use smig_proto::Instant;

use crate::clock;
use crate::deadlines::{MinProgress, ProgressClock};
use crate::socket::{TcpInfo, reset_on_close, tcp_info};
use crate::transport::{HalfClosedTransport, Transport};

/// How long a client that has acknowledged the whole response may go on sending. What it has acknowledged may still
/// be unread, and many systems discard that on an RST. The same as nginx's `lingering_time`.
const LINGER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may be silent then if it may have more to send. The same as nginx's `lingering_timeout`.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bounds both while the server drains. The same as over HTTP/2.
const DRAINING_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of bytes discarded. The rest stays in the receive buffer, which soon closes the client's window.
const MAX_DISCARDED_BYTES: u64 = 256 << 20;
/// When to check first whether the client has acknowledged the whole response, since no event reports it: not before
/// the input that has arrived is read, ...
const FIRST_CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// ...then at doubled intervals, up to this one.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Reads from one connection before it yields to other tasks.
const MAX_READS_PER_TURN: u32 = 16;

/// Holds the transport of a connection after hyper's last output.
#[derive(Debug, Default)]
pub(super) struct LingerSlot(Mutex<Option<LingeringConn>>);

/// A connection whose own half is closed.
#[derive(Debug)]
pub(super) struct LingeringConn {
    transport: HalfClosedTransport,
    /// Part of the last request was not read.
    is_unread: bool,
}

impl LingerSlot {
    /// Stores a transport whose own half is closed.
    pub(super) fn put(&self, transport: Transport, is_unread: bool) {
        let lingering = LingeringConn { transport: transport.into_half_closed(), is_unread };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(lingering);
    }

    pub(super) fn take(&self) -> Option<LingeringConn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Why a connection is finally closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LingerEnd {
    /// The client has the whole response and has closed its half, or the connection failed.
    ClosedByClient,
    /// The client has the whole response and is silent, or the server drains.
    Silent,
    /// The client has the whole response and keeps sending.
    LimitReached,
    /// The client receives the response too slowly. The connection is reset.
    Stalled,
}

/// Reads and discards input on a connection whose own half is closed, and closes it at the end. `min_progress`: the progress
/// that is required of the client as it receives; `draining`: completes when the server drains.
pub(super) async fn linger(
    LingeringConn { mut transport, is_unread }: LingeringConn,
    min_progress: MinProgress,
    draining: impl Future<Output = ()>,
) -> LingerEnd {
    let mut draining = pin!(draining);
    let mut client = ClientProgress::new(min_progress, clock::now(), is_unread);
    let mut reads = 0;
    loop {
        let now = clock::now();
        if client.is_due(now) {
            client.check(now, tcp_info(transport.tcp()));
        }
        match client.linger_end(now) {
            Some(LingerEnd::Stalled) => {
                reset_on_close(transport.tcp());
                return LingerEnd::Stalled;
            }
            Some(end) => return end,
            None => {}
        }
        // Input that has arrived precedes timers that have expired.
        tokio::select! {
            biased;
            read = poll_fn(|cx| transport.poll_discard(cx)), if client.discard_budget > 0 && !client.has_ended => match read {
                // The client may still be receiving the response.
                Ok(0) => client.on_end(clock::now()),
                Err(_) => return LingerEnd::ClosedByClient,
                Ok(count) => client.on_read(count, clock::now()),
            },
            () = tokio::time::sleep_until(clock::to_tokio(client.next_event())) => {}
            () = &mut draining, if client.draining_since.is_none() => client.draining_since = Some(clock::now()),
        }
        reads += 1;
        if reads % MAX_READS_PER_TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// State of the client.
#[derive(Debug)]
struct ClientProgress {
    /// Next check of the socket, while the client has not acknowledged everything.
    next_check: Instant,
    /// Interval to the check after that.
    check_interval: Duration,
    progress: ProgressClock,
    stalled: bool,
    /// Since when the client has the whole response.
    delivered_at: Option<Instant>,
    draining_since: Option<Instant>,
    last_read_at: Instant,
    /// Part of a request was unread at the end, or input has arrived since. When the client has acknowledged the
    /// FIN, what it was sending has arrived.
    is_sending: bool,
    /// Bytes that may still be discarded.
    discard_budget: u64,
    /// The client has closed its half.
    has_ended: bool,
}

impl ClientProgress {
    fn new(min_progress: MinProgress, now: Instant, is_sending: bool) -> Self {
        Self {
            next_check: now + FIRST_CHECK_INTERVAL,
            check_interval: FIRST_CHECK_INTERVAL,
            progress: ProgressClock::new(min_progress, now),
            stalled: false,
            delivered_at: None,
            draining_since: None,
            last_read_at: now,
            is_sending,
            discard_budget: MAX_DISCARDED_BYTES,
            has_ended: false,
        }
    }

    fn on_read(&mut self, count: usize, now: Instant) {
        (self.last_read_at, self.is_sending) = (now, true);
        self.discard_budget = self.discard_budget.saturating_sub(count as u64);
    }

    /// Checks at once: most clients have the whole response when they close.
    fn on_end(&mut self, now: Instant) {
        (self.has_ended, self.next_check) = (true, now);
    }

    fn is_due(&self, now: Instant) -> bool {
        self.delivered_at.is_none() && now >= self.next_check
    }

    /// Checks the client's progress. If the kernel does not report it, the response counts as delivered.
    fn check(&mut self, now: Instant, info: Option<TcpInfo>) {
        self.next_check = now + self.check_interval;
        self.check_interval =
            (self.check_interval * 2).min(MAX_CHECK_INTERVAL).min(self.progress.tick());
        match info.filter(TcpInfo::is_delivering) {
            Some(info) => self.stalled = self.progress.is_late(now, info.bytes_acked),
            None => self.delivered_at = Some(now),
        }
    }

    /// Returns when to close the connection of a client that has the whole response, as far as is known now.
    fn close_time(&self, delivered_at: Instant) -> Instant {
        if !self.is_sending {
            return delivered_at;
        }
        let late = (delivered_at + LINGER_TIMEOUT)
            .min(delivered_at.max(self.last_read_at) + SILENCE_TIMEOUT);
        self.draining_since
            .map_or(late, |since| late.min(delivered_at.max(since) + DRAINING_TIMEOUT))
    }

    fn next_event(&self) -> Instant {
        self.delivered_at.map_or(self.next_check, |delivered| self.close_time(delivered))
    }

    fn linger_end(&self, now: Instant) -> Option<LingerEnd> {
        match self.delivered_at {
            None => self.stalled.then_some(LingerEnd::Stalled),
            Some(_) if self.has_ended => Some(LingerEnd::ClosedByClient),
            Some(delivered_at) => {
                if self.discard_budget == 0 || now >= delivered_at + LINGER_TIMEOUT {
                    return Some(LingerEnd::LimitReached);
                }
                (now >= self.close_time(delivered_at)).then_some(LingerEnd::Silent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const MIN_SEND_PROGRESS: MinProgress =
        MinProgress { bytes: 1024, within: Duration::from_secs(60) };

    /// Returns the server's end of a connection, and the client's. Time is paused from here on.
    async fn pair() -> (Transport, TcpStream) {
        // The clock's origin is its first use in any test, and it cannot represent earlier times.
        clock::now();
        tokio::time::pause();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(addr), listener.accept());
        (Transport::cleartext(server.unwrap().0).unwrap(), client.unwrap())
    }

    /// Returns how a connection ends whose own half is closed and acknowledged, and after what time.
    async fn linger_result(
        mut server: Transport,
        is_unread: bool,
        draining: impl Future<Output = ()>,
    ) -> (LingerEnd, Duration) {
        poll_fn(|cx| server.poll_close_write(cx)).await.unwrap();
        while tcp_info(server.tcp()).unwrap().is_delivering() {
            tokio::task::yield_now().await;
        }
        let lingering = LingeringConn { transport: server.into_half_closed(), is_unread };
        let since = tokio::time::Instant::now();
        let end = linger(lingering, MIN_SEND_PROGRESS, draining).await;
        (end, since.elapsed())
    }

    /// Not before the limit, and after it at most the first check and the timers' delay.
    fn is_about(time: Duration, limit: Duration) -> bool {
        time >= limit && time <= limit + FIRST_CHECK_INTERVAL * 2
    }

    #[tokio::test]
    async fn a_silent_client_is_closed_after_the_silence_timeout() {
        let (server, _client) = pair().await;
        let (end, after) = linger_result(server, true, std::future::pending()).await;
        assert!(
            end == LingerEnd::Silent && is_about(after, SILENCE_TIMEOUT),
            "{end:?} after {after:?}"
        );
    }

    #[tokio::test]
    async fn a_client_with_a_complete_request_and_response_is_closed_at_once() {
        let (server, _client) = pair().await;
        let (end, after) = linger_result(server, false, std::future::pending()).await;
        assert!(
            end == LingerEnd::Silent && is_about(after, Duration::ZERO),
            "{end:?} after {after:?}"
        );
    }

    #[tokio::test]
    async fn a_client_that_keeps_sending_is_closed() {
        let (server, mut client) = pair().await;
        let going_on = async {
            // What is written after the close fails.
            while client.write_all(b"more").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let ended = linger_result(server, true, std::future::pending());
        tokio::pin!(going_on, ended);
        let (end, after) = tokio::select! {
            ended = &mut ended => ended,
            () = &mut going_on => panic!("the client cannot go on"),
        };
        // Paused time may advance before data arrives: silence, at worst.
        let limit = if end == LingerEnd::LimitReached { LINGER_TIMEOUT } else { SILENCE_TIMEOUT };
        let goes_on = matches!(end, LingerEnd::LimitReached | LingerEnd::Silent);
        assert!(goes_on && after >= limit, "{end:?} after {after:?}");
        assert!(after <= LINGER_TIMEOUT + FIRST_CHECK_INTERVAL * 2, "{after:?}");
    }

    #[tokio::test]
    async fn draining_shortens_the_timeout() {
        let (server, _client) = pair().await;
        let (end, after) = linger_result(server, true, std::future::ready(())).await;
        assert!(
            end == LingerEnd::Silent && is_about(after, DRAINING_TIMEOUT),
            "{end:?} after {after:?}"
        );
    }

    #[tokio::test]
    async fn a_client_that_closes_is_closed_at_once() {
        let (server, mut client) = pair().await;
        client.write_all(&[b'x'; 100_000]).await.unwrap();
        drop(client);
        assert_eq!(
            linger_result(server, false, std::future::pending()).await.0,
            LingerEnd::ClosedByClient
        );
        // Not even until the next check.
        let now = Instant::from_nanos(0) + LINGER_TIMEOUT;
        let mut client = ClientProgress::new(MIN_SEND_PROGRESS, now, false);
        client.on_end(now);
        assert!(client.is_due(now));
        client.check(now, Some(TcpInfo::default()));
        assert_eq!(client.linger_end(now), Some(LingerEnd::ClosedByClient));
    }

    /// However long that takes, also while the server drains: within the drain's own limit.
    #[tokio::test]
    async fn an_undelivered_response_has_the_send_timeout_even_while_draining() {
        let (server, _client) = pair().await;
        expect_stalled(server).await;
    }

    /// A closed half says nothing about the other one.
    #[tokio::test]
    async fn a_half_closed_client_is_waited_for_until_it_stalls() {
        let (server, mut client) = pair().await;
        client.shutdown().await.unwrap();
        expect_stalled(server).await;
    }

    async fn expect_stalled(mut server: Transport) {
        server.tcp().writable().await.unwrap();
        while server.tcp().try_write(&[b'x'; 64 << 10]).is_ok() {}
        poll_fn(|cx| server.poll_close_write(cx)).await.unwrap();
        let lingering = LingeringConn { transport: server.into_half_closed(), is_unread: false };
        let since = tokio::time::Instant::now();
        let end = linger(lingering, MIN_SEND_PROGRESS, std::future::ready(())).await;
        let after = since.elapsed();
        assert!(
            end == LingerEnd::Stalled && after >= MIN_SEND_PROGRESS.within,
            "{end:?} after {after:?}"
        );
    }

    #[test]
    fn discarded_input_is_bounded() {
        let at = |seconds| Instant::from_nanos(0) + Duration::from_secs(seconds);
        let mut client = ClientProgress::new(MIN_SEND_PROGRESS, at(0), false);
        let delivering = TcpInfo { unacked: 1, ..TcpInfo::default() };
        client.check(at(0), Some(delivering));
        client.on_read(usize::MAX, at(1));
        // Unread input does no harm before the close, which follows when the client has the whole response.
        assert_eq!((client.discard_budget, client.linger_end(at(1))), (0, None));
        client.check(at(2), Some(TcpInfo::default()));
        assert_eq!(client.linger_end(at(2)), Some(LingerEnd::LimitReached));
    }

    #[test]
    fn a_sending_client_reaches_the_limit_and_a_silent_one_the_timeout() {
        let at = |seconds| Instant::from_nanos(0) + Duration::from_secs(seconds);
        let mut client = ClientProgress::new(MIN_SEND_PROGRESS, at(0), false);
        client.on_read(1, at(1));
        client.check(at(1), Some(TcpInfo::default()));
        for second in (4..=31).step_by(3) {
            assert_eq!(
                client.linger_end(at(second)),
                if second < 31 { None } else { Some(LingerEnd::LimitReached) }
            );
            client.on_read(1, at(second));
        }
        let mut client = ClientProgress::new(MIN_SEND_PROGRESS, at(0), false);
        client.check(at(1), Some(TcpInfo::default()));
        client.on_read(1, at(10));
        assert_eq!(
            (client.next_event(), client.linger_end(at(14)), client.linger_end(at(15))),
            (at(15), None, Some(LingerEnd::Silent))
        );
        client.draining_since = Some(at(11));
        assert_eq!(client.linger_end(at(12)), Some(LingerEnd::Silent));
    }
}
