//! How much of one connection's data is taken from the engine at a time, and how much of it waits in the socket.
//!
//! What is in the socket can no longer be reordered, so little is written ahead of what the path carries, and less while
//! bulk is bounded. While bulk is written before it is due, the kernel paces the connection, with all
//! its data; otherwise only at the rate that the role's options set, if any.

use smig_pace::{Bounds, PacedConn, UnsentLimit};
use smig_proto::{ConnectionRole, Transmitted};
use tokio::net::TcpStream;

use crate::socket::{self, PacingRate, RoleOptions, SocketOptions};

/// The least that is taken from the engine at a time after the socket was full, since sealed bytes can no longer be reordered;
/// more where TCP_NOTSENT_LOWAT is higher.
const MIN_BATCH_BYTES: usize = 16 << 10;
/// Bytes taken at a time while the socket accepts everything.
pub(super) const MAX_BATCH_BYTES: usize = 256 << 10;
/// Bytes of interactive data after which a piece of bulk is due, although there is more interactive data.
const MAX_INTERACTIVE_RUN_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct ConnPacing {
    pub(super) paced: PacedConn,
    /// The bounds within which bulk is released, if it is limited.
    bounds: Option<Bounds>,
    role_options: RoleOptions,
    rate: PacingRate,
    /// TCP_NOTSENT_LOWAT.
    unsent: UnsentLimit,
    batch_bytes: usize,
    min_batch_bytes: usize,
    bytes_since_sample: usize,
    /// Bytes of interactive data since the last call of [`Self::take_interactive_sent`].
    interactive_sent: u64,
    /// Bytes of interactive data since the last bulk.
    interactive_run: usize,
}

impl Default for ConnPacing {
    fn default() -> Self {
        Self {
            paced: PacedConn::default(),
            bounds: None,
            role_options: RoleOptions::default(),
            rate: PacingRate::new(None),
            unsent: UnsentLimit::default(),
            batch_bytes: MIN_BATCH_BYTES,
            min_batch_bytes: MIN_BATCH_BYTES,
            bytes_since_sample: 0,
            interactive_sent: 0,
            interactive_run: 0,
        }
    }
}

impl ConnPacing {
    /// Sets the socket options of the connection's role. There are no bounds until the next call of
    /// [`Self::set_bounds`].
    pub(super) fn set_role(
        &mut self,
        tcp: &TcpStream,
        role: ConnectionRole,
        options: &SocketOptions,
    ) {
        self.paced.set_for_bulk(role == ConnectionRole::Bulk);
        self.unsent = UnsentLimit::new(options.notsent_lowat.unwrap_or(0));
        self.rate.lift(tcp);
        self.role_options.apply(tcp, options);
        (self.rate, self.bounds) = (PacingRate::new(options.pacing_rate), None);
    }

    /// Prepares the socket for the roles of another session.
    pub(super) fn leave_session(&mut self, tcp: &TcpStream) {
        self.role_options.restore_congestion_control(tcp);
    }

    /// Sets the bounds of bulk, if the connection has any now. What is written ahead must not be sent at once: then the
    /// kernel paces it, but no slower than the path, because it paces other data of the connection too.
    pub(super) fn set_bounds(&mut self, tcp: &TcpStream, bounds: Bounds) {
        let has_bulk = self.paced.is_for_bulk() || self.paced.has_bulk();
        let is_bounded = bounds.rate != u64::MAX && has_bulk;
        if is_bounded && bounds.write_ahead > 0 {
            self.rate.set(tcp, bounds.rate.max(bounds.path_rate));
        } else {
            self.rate.lift(tcp);
        }
        // The next sample may be far: the current limit was set for the bounds, perhaps of bulk that has ended before others'.
        if bounds.rate == u64::MAX
            && (self.bounds.is_some() || self.unsent.is_lowered())
            && let Some(usual) = self.unsent.reset()
        {
            socket::set_notsent_lowat(tcp, usual);
        }
        self.bounds = is_bounded.then_some(bounds);
    }

    /// Returns the rate, in bytes per second, to which all bulk of the session together is limited, if this connection carries
    /// any; otherwise the limit of its socket.
    pub(super) fn cap(&self) -> Option<u64> {
        let cap = self.bounds.map_or_else(|| self.rate.applied(), |bounds| bounds.rate);
        (cap != u64::MAX).then_some(cap)
    }

    /// Returns how many bytes to take from the engine at a time.
    pub(super) const fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Records what was taken from the engine, unless it is a piece of bulk.
    pub(super) fn on_taken(&mut self, taken: Transmitted) {
        let interactive_bytes = self.count(taken);
        if taken.bytes >= self.batch_bytes {
            self.batch_bytes = (self.batch_bytes * 2).min(MAX_BATCH_BYTES);
        }
        self.interactive_sent += interactive_bytes as u64;
    }

    /// Records that a piece of bulk was taken from the engine.
    pub(super) fn on_piece(&mut self, taken: Transmitted) {
        self.count(taken);
    }

    /// Returns the bytes of it that are interactive.
    fn count(&mut self, taken: Transmitted) -> usize {
        let interactive_bytes = taken.bytes - taken.bulk_bytes;
        self.interactive_run =
            if taken.bulk_bytes > 0 { 0 } else { self.interactive_run + interactive_bytes };
        self.bytes_since_sample += taken.bytes;
        interactive_bytes
    }

    /// Returns whether interactive data has occupied the socket for so long that a piece of bulk is due beside it.
    pub(super) const fn is_piece_overdue(&self) -> bool {
        self.interactive_run >= MAX_INTERACTIVE_RUN_BYTES
    }

    /// Returns the bytes of interactive data that were sent since the previous call.
    pub(super) fn take_interactive_sent(&mut self) -> u64 {
        core::mem::take(&mut self.interactive_sent)
    }

    /// Records that the socket is full: smaller batches from now on.
    pub(super) const fn on_socket_full(&mut self) {
        self.batch_bytes = self.min_batch_bytes;
    }

    /// Returns whether much was sent since the last sample.
    pub(super) const fn is_sample_old(&self) -> bool {
        self.bytes_since_sample >= MAX_BATCH_BYTES
    }

    /// Takes the delivery rate, bytes per second, and sets TCP_NOTSENT_LOWAT to what it sends in a few milliseconds.
    pub(super) fn on_sample(&mut self, tcp: &TcpStream, delivery_rate: Option<u64>) {
        self.bytes_since_sample = 0;
        let Some(rate) = delivery_rate else { return };
        let is_for_bulk = self.paced.is_for_bulk();
        if let Some(limit) = self.unsent.update(rate, is_for_bulk, self.bounds) {
            socket::set_notsent_lowat(tcp, limit);
            self.min_batch_bytes = (limit as usize).clamp(MIN_BATCH_BYTES, MAX_BATCH_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use std::time::Duration;
    use tokio::net::TcpListener;

    use super::*;
    use crate::socket::{Dscp, tcp_info};
    use smig_proto::Instant;

    /// What the roles' options set.
    fn socket_state(tcp: &TcpStream) -> impl PartialEq + std::fmt::Debug {
        let socket = SockRef::from(tcp);
        (
            socket.tcp_notsent_lowat().unwrap(),
            socket.tcp_congestion().unwrap(),
            tcp_info(tcp).unwrap().max_pacing_rate,
            socket.tos_v4().unwrap(),
            (socket.tcp_user_timeout().unwrap(), socket.keepalive().unwrap()),
        )
    }

    #[tokio::test]
    async fn the_socket_takes_what_its_role_allows_again_after_the_bulk_of_all_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let options = SocketOptions { notsent_lowat: Some(16 << 10), ..SocketOptions::SYSTEM };
        let lowat = || SockRef::from(&tcp).tcp_notsent_lowat().unwrap();
        let bounds = Bounds { rate: 1_000_000, max_outstanding: 50_000, ..Bounds::NONE };
        let mut pacing = ConnPacing::default();
        pacing.set_role(&tcp, ConnectionRole::Interactive, &options);
        pacing.paced.set_has_bulk(Instant::from_nanos(0), true);
        pacing.set_bounds(&tcp, bounds);
        pacing.on_sample(&tcp, Some(100_000));
        assert_eq!(lowat(), 4 << 10);
        // This connection's bulk ends before another's.
        pacing.paced.set_has_bulk(Instant::from_nanos(1), false);
        pacing.set_bounds(&tcp, bounds);
        pacing.set_bounds(&tcp, Bounds::NONE);
        assert_eq!(lowat(), 16 << 10);
    }

    #[tokio::test]
    async fn a_bulk_role_of_system_defaults_undoes_the_interactive_options() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let of_system = socket_state(&tcp);
        let interactive = SocketOptions {
            notsent_lowat: Some(16 << 10),
            congestion_control: Some("reno".into()),
            pacing_rate: Some(1_000_000),
            dscp: Dscp::LowerEffort,
            user_timeout: Some(Duration::from_secs(30)),
            keepalive_timeout: None,
        };
        let mut pacing = ConnPacing::default();
        pacing.set_role(&tcp, ConnectionRole::Interactive, &interactive);
        let of_role = socket_state(&tcp);
        assert_ne!(of_role, of_system);
        pacing.set_role(&tcp, ConnectionRole::Bulk, &SocketOptions::SYSTEM);
        assert_eq!(socket_state(&tcp), of_system);
        assert_eq!(pacing.cap(), None);
        pacing.set_role(&tcp, ConnectionRole::Bulk, &interactive);
        assert_eq!(socket_state(&tcp), of_role);
        // A connection that joins another session takes its socket there.
        pacing.leave_session(&tcp);
        let mut pacing = ConnPacing::default();
        pacing.set_role(&tcp, ConnectionRole::Interactive, &interactive);
        pacing.set_role(&tcp, ConnectionRole::Bulk, &SocketOptions::SYSTEM);
        assert_eq!(socket_state(&tcp), of_system);
    }
}
