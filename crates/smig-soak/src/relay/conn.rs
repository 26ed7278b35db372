//! One connection through the relay.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{Kill, KilledRole, PlannedFault, RelayDirection, RelayFault, RelayState};

/// Maximum number of bytes per read.
const MAX_READ_BYTES: usize = 64 << 10;
/// Maximum number of bytes per read while a direction is slow, and the delay before each read.
const MAX_SLOW_READ_BYTES: usize = 16 << 10;
const SLOW_READ_DELAY: Duration = Duration::from_millis(1);
/// In the summary, a further connection that relayed fewer bytes counts as [`KilledRole::Other`].
const MIN_BULK_BYTES: u64 = 256 << 10;
/// How long both ends may take to close after a connection was closed with FIN.
const FIN_TIMEOUT: Duration = Duration::from_secs(2);

/// One connection: its planned faults and its state.
#[derive(Debug)]
pub(crate) struct RelayedConn {
    number: usize,
    starts_session: bool,
    up: DirectionState,
    down: DirectionState,
    has_ended: AtomicBool,
    reset_requested: Notify,
}

/// One direction: its planned faults and its state.
#[derive(Debug)]
struct DirectionState {
    faults: Vec<(u64, RelayFault)>,
    relayed_bytes: AtomicU64,
    is_stalled: AtomicBool,
}

/// How the relay ended a connection before its ends closed it.
#[derive(Clone, Copy, Debug)]
enum KillMethod {
    Reset,
    Fin,
}

impl DirectionState {
    fn new(number: usize, direction: RelayDirection, planned_faults: &[PlannedFault]) -> Self {
        let own = planned_faults
            .iter()
            .filter(|fault| (fault.conn, fault.direction) == (number, direction));
        let mut faults: Vec<_> = own.map(|fault| (fault.offset, fault.fault)).collect();
        faults.sort_by_key(|&(at, _)| at);
        Self { faults, relayed_bytes: AtomicU64::new(0), is_stalled: AtomicBool::new(false) }
    }
}

impl RelayedConn {
    pub(super) fn new(
        number: usize,
        earlier_conns: &[Arc<Self>],
        planned_faults: &[PlannedFault],
    ) -> Self {
        Self {
            number,
            starts_session: earlier_conns.iter().all(|conn| conn.has_ended.load(Ordering::Relaxed)),
            up: DirectionState::new(number, RelayDirection::Up, planned_faults),
            down: DirectionState::new(number, RelayDirection::Down, planned_faults),
            has_ended: AtomicBool::new(false),
            reset_requested: Notify::new(),
        }
    }

    pub(super) fn request_reset(&self) {
        self.reset_requested.notify_one();
    }

    fn role(&self) -> KilledRole {
        let relayed_bytes = |half: &DirectionState| half.relayed_bytes.load(Ordering::Relaxed);
        if self.starts_session {
            KilledRole::Interactive
        } else if relayed_bytes(&self.up) + relayed_bytes(&self.down) >= MIN_BULK_BYTES {
            KilledRole::Bulk
        } else {
            KilledRole::Other
        }
    }
}

impl fmt::Display for RelayedConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let describe_direction = |half: &DirectionState| {
            let relayed_bytes = half.relayed_bytes.load(Ordering::Relaxed);
            let stalled = if half.is_stalled.load(Ordering::Relaxed) { " (stalled)" } else { "" };
            format!("{relayed_bytes}{stalled}")
        };
        let state = if self.has_ended.load(Ordering::Relaxed) { "ended" } else { "open" };
        let (up, down) = (describe_direction(&self.up), describe_direction(&self.down));
        write!(f, "connection {} {state}, up {up}, down {down}", self.number)
    }
}

/// Marks a connection as ended on drop, however its task ends.
struct EndedGuard(Arc<RelayedConn>);

impl Drop for EndedGuard {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Relays a connection from its first byte to its end.
pub(super) async fn relay(mut client: TcpStream, conn: Arc<RelayedConn>, state: Arc<RelayState>) {
    let _ended = EndedGuard(Arc::clone(&conn));
    let Ok(mut server) = TcpStream::connect(state.server_addr).await else {
        state.failed_connects.fetch_add(1, Ordering::Relaxed);
        return;
    };
    for tcp in [&client, &server] {
        // A failure only adds delay.
        let _ = tcp.set_nodelay(true);
    }
    let outcome = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let up = relay_direction(client_read, server_write, &conn.up, &state);
        let down = relay_direction(server_read, client_write, &conn.down, &state);
        tokio::select! {
            outcome = async { tokio::try_join!(up, down) } => outcome.map(|_| ()),
            () = conn.reset_requested.notified() => Err(EndReason::Aborted),
        }
    };
    match outcome {
        Ok(()) => {}
        Err(EndReason::Aborted) => reset_on_drop(&client, &server),
        Err(EndReason::Killed(method)) => {
            state.record_kill(Kill { role: conn.role() });
            match method {
                KillMethod::Reset => reset_on_drop(&client, &server),
                KillMethod::Fin => close_gracefully(client, server).await,
            }
        }
    }
}

/// Why both directions end.
#[derive(Clone, Copy, Debug)]
enum EndReason {
    /// One end reset the connection, or the run requested a reset: both ends must see one.
    Aborted,
    /// A planned fault kills the connection.
    Killed(KillMethod),
}

impl From<io::Error> for EndReason {
    fn from(_: io::Error) -> Self {
        Self::Aborted
    }
}

/// Relays one direction until its sender closes it.
async fn relay_direction(
    mut reader: ReadHalf<'_>,
    mut writer: WriteHalf<'_>,
    direction_state: &DirectionState,
    state: &RelayState,
) -> Result<(), EndReason> {
    let mut buffer = vec![0; MAX_READ_BYTES];
    let mut faults: VecDeque<_> = direction_state.faults.iter().copied().collect();
    let (mut relayed_bytes, mut slow_until) = (0, 0);
    loop {
        while let Some(&(at, fault)) = faults.front()
            && at <= relayed_bytes
        {
            faults.pop_front();
            match fault {
                RelayFault::Reset => return Err(EndReason::Killed(KillMethod::Reset)),
                RelayFault::Fin => return Err(EndReason::Killed(KillMethod::Fin)),
                RelayFault::Slow(bytes) => slow_until = relayed_bytes + bytes,
                RelayFault::Stall(time) if !state.is_run_over.load(Ordering::Relaxed) => {
                    direction_state.is_stalled.store(true, Ordering::Relaxed);
                    tokio::time::sleep(time).await;
                    direction_state.is_stalled.store(false, Ordering::Relaxed);
                }
                RelayFault::Stall(_) => {}
            }
        }
        let is_slow = relayed_bytes < slow_until && !state.is_run_over.load(Ordering::Relaxed);
        if is_slow {
            tokio::time::sleep(SLOW_READ_DELAY).await;
        }
        let max_read = if is_slow { MAX_SLOW_READ_BYTES } else { MAX_READ_BYTES };
        let to_next_fault = faults.front().map_or(u64::MAX, |&(at, _)| at - relayed_bytes);
        let limit = max_read.min(usize::try_from(to_next_fault).unwrap_or(usize::MAX));
        let read_len = reader.read(buffer.get_mut(..limit).unwrap_or_default()).await?;
        if read_len == 0 {
            writer.shutdown().await?;
            return Ok(());
        }
        writer.write_all(buffer.get(..read_len).unwrap_or_default()).await?;
        relayed_bytes += read_len as u64;
        direction_state.relayed_bytes.store(relayed_bytes, Ordering::Relaxed);
    }
}

/// Makes both ends receive a TCP reset when the sockets are dropped.
fn reset_on_drop(client: &TcpStream, server: &TcpStream) {
    for tcp in [client, server] {
        // It fails on a closed socket, which needs no reset.
        let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
    }
}

/// Closes both with FIN and discards what they still send, since closing a socket with unread bytes
/// sends a reset.
async fn close_gracefully(client: TcpStream, server: TcpStream) {
    let drain = async |mut tcp: TcpStream| {
        if tcp.shutdown().await.is_err() {
            return;
        }
        let mut buffer = vec![0; MAX_READ_BYTES];
        while matches!(tcp.read(&mut buffer).await, Ok(1..)) {}
    };
    let both = async { tokio::join!(drain(client), drain(server)) };
    // An end that has not closed in time receives a reset.
    let _ = timeout(FIN_TIMEOUT, both).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::net::TcpListener;

    async fn connect_through_relay(
        faults: Vec<PlannedFault>,
    ) -> (super::super::Relay, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server_addr = listener.local_addr().unwrap();
        let relay = super::super::Relay::start(server_addr, faults).await.unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], relay.port()));
        let client = TcpStream::connect(addr).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (relay, client, server)
    }

    fn planned_fault(offset: u64, fault: RelayFault) -> PlannedFault {
        PlannedFault { conn: 0, direction: RelayDirection::Up, offset, fault }
    }

    #[tokio::test]
    async fn a_connection_is_killed_after_the_planned_byte() {
        for (fault, kind) in
            [(RelayFault::Fin, None), (RelayFault::Reset, Some(io::ErrorKind::ConnectionReset))]
        {
            let (relay, mut client, mut server) =
                connect_through_relay(vec![planned_fault(1000, fault)]).await;
            client.write_all(&[7; 5000]).await.unwrap();
            let mut received = Vec::new();
            let end = server.read_to_end(&mut received).await;
            assert_eq!(end.err().map(|error| error.kind()), kind);
            if kind.is_none() {
                assert_eq!(received.len(), 1000);
            }
            assert_eq!(relay.kills().len(), 1);
            assert_eq!(relay.kills()[0].role, KilledRole::Interactive);
        }
    }

    #[tokio::test]
    async fn delays_lose_no_data() {
        let stall = RelayFault::Stall(Duration::from_millis(20));
        let faults =
            vec![planned_fault(10, stall), planned_fault(100_000, RelayFault::Slow(200_000))];
        let (relay, mut client, mut server) = connect_through_relay(faults).await;
        let sent_bytes: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
        let mut received_bytes = Vec::new();
        let (write_result, read_result) = tokio::join!(
            async {
                client.write_all(&sent_bytes).await?;
                client.shutdown().await
            },
            server.read_to_end(&mut received_bytes)
        );
        write_result.unwrap();
        read_result.unwrap();
        assert!(received_bytes == sent_bytes);
        assert!(relay.kills().is_empty());
    }
}
