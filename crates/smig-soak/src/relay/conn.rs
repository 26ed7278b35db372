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
    up: Half,
    down: Half,
    ended: AtomicBool,
    reset_requested: Notify,
}

/// One direction: its planned faults and its state.
#[derive(Debug)]
struct Half {
    faults: Vec<(u64, RelayFault)>,
    relayed_bytes: AtomicU64,
    stalled: AtomicBool,
}

/// How the relay ended a connection before its ends closed it.
#[derive(Clone, Copy, Debug)]
enum KillMethod {
    Reset,
    Fin,
}

impl Half {
    fn new(number: usize, direction: RelayDirection, planned: &[PlannedFault]) -> Self {
        let own =
            planned.iter().filter(|fault| (fault.conn, fault.direction) == (number, direction));
        let mut faults: Vec<_> = own.map(|fault| (fault.at, fault.fault)).collect();
        faults.sort_by_key(|&(at, _)| at);
        Self { faults, relayed_bytes: AtomicU64::new(0), stalled: AtomicBool::new(false) }
    }
}

impl RelayedConn {
    pub(super) fn new(number: usize, others: &[Arc<Self>], planned: &[PlannedFault]) -> Self {
        Self {
            number,
            starts_session: others.iter().all(|conn| conn.ended.load(Ordering::Relaxed)),
            up: Half::new(number, RelayDirection::Up, planned),
            down: Half::new(number, RelayDirection::Down, planned),
            ended: AtomicBool::new(false),
            reset_requested: Notify::new(),
        }
    }

    pub(super) fn request_reset(&self) {
        self.reset_requested.notify_one();
    }

    fn role(&self) -> KilledRole {
        let passed = |half: &Half| half.relayed_bytes.load(Ordering::Relaxed);
        if self.starts_session {
            KilledRole::Interactive
        } else if passed(&self.up) + passed(&self.down) >= MIN_BULK_BYTES {
            KilledRole::Bulk
        } else {
            KilledRole::Other
        }
    }
}

impl fmt::Display for RelayedConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = |half: &Half| {
            let passed = half.relayed_bytes.load(Ordering::Relaxed);
            let stalled = if half.stalled.load(Ordering::Relaxed) { " (stalled)" } else { "" };
            format!("{passed}{stalled}")
        };
        let state = if self.ended.load(Ordering::Relaxed) { "ended" } else { "open" };
        let (up, down) = (half(&self.up), half(&self.down));
        write!(f, "connection {} {state}, up {up}, down {down}", self.number)
    }
}

/// Marks a connection as ended on drop, however its task ends.
struct EndedGuard(Arc<RelayedConn>);

impl Drop for EndedGuard {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

/// Relays a connection from its first byte to its end.
pub(super) async fn relay(mut client: TcpStream, conn: Arc<RelayedConn>, state: Arc<RelayState>) {
    let _ended = EndedGuard(Arc::clone(&conn));
    let Ok(mut server) = TcpStream::connect(state.server).await else {
        state.refused.fetch_add(1, Ordering::Relaxed);
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
        Err(EndReason::Aborted) => reset(&client, &server),
        Err(EndReason::Killed(method)) => {
            state.record(Kill { role: conn.role() });
            match method {
                KillMethod::Reset => reset(&client, &server),
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
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    half: &Half,
    state: &RelayState,
) -> Result<(), EndReason> {
    let mut buffer = vec![0; MAX_READ_BYTES];
    let mut faults: VecDeque<_> = half.faults.iter().copied().collect();
    let (mut passed, mut slow_until) = (0, 0);
    loop {
        while let Some(&(at, fault)) = faults.front()
            && at <= passed
        {
            faults.pop_front();
            match fault {
                RelayFault::Reset => return Err(EndReason::Killed(KillMethod::Reset)),
                RelayFault::Fin => return Err(EndReason::Killed(KillMethod::Fin)),
                RelayFault::Slow(bytes) => slow_until = passed + bytes,
                RelayFault::Stall(time) if !state.draining.load(Ordering::Relaxed) => {
                    half.stalled.store(true, Ordering::Relaxed);
                    tokio::time::sleep(time).await;
                    half.stalled.store(false, Ordering::Relaxed);
                }
                RelayFault::Stall(_) => {}
            }
        }
        let slow = passed < slow_until && !state.draining.load(Ordering::Relaxed);
        if slow {
            tokio::time::sleep(SLOW_READ_DELAY).await;
        }
        let max_read = if slow { MAX_SLOW_READ_BYTES } else { MAX_READ_BYTES };
        let to_next_fault = faults.front().map_or(u64::MAX, |&(at, _)| at - passed);
        let limit = max_read.min(usize::try_from(to_next_fault).unwrap_or(usize::MAX));
        let read = from.read(buffer.get_mut(..limit).unwrap_or_default()).await?;
        if read == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        to.write_all(buffer.get(..read).unwrap_or_default()).await?;
        passed += read as u64;
        half.relayed_bytes.store(passed, Ordering::Relaxed);
    }
}

/// Makes both ends receive a TCP reset when the sockets are dropped.
fn reset(client: &TcpStream, server: &TcpStream) {
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
        let server = listener.local_addr().unwrap();
        let relay = super::super::Relay::start(server, faults).await.unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], relay.port()));
        let client = TcpStream::connect(addr).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (relay, client, server)
    }

    fn planned(at: u64, fault: RelayFault) -> PlannedFault {
        PlannedFault { conn: 0, direction: RelayDirection::Up, at, fault }
    }

    #[tokio::test]
    async fn a_connection_is_killed_after_the_planned_byte() {
        for (fault, kind) in
            [(RelayFault::Fin, None), (RelayFault::Reset, Some(io::ErrorKind::ConnectionReset))]
        {
            let (relay, mut client, mut server) =
                connect_through_relay(vec![planned(1000, fault)]).await;
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
        let faults = vec![planned(10, stall), planned(100_000, RelayFault::Slow(200_000))];
        let (relay, mut client, mut server) = connect_through_relay(faults).await;
        let sent: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
        let mut received = Vec::new();
        let (written, read) = tokio::join!(
            async {
                client.write_all(&sent).await?;
                client.shutdown().await
            },
            server.read_to_end(&mut received)
        );
        written.unwrap();
        read.unwrap();
        assert!(received == sent);
        assert!(relay.kills().is_empty());
    }
}
