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

use super::{Kill, KilledRole, Planned, RelayDirection, RelayFault, RelayState};

/// Maximum number of bytes per read.
const CHUNK: usize = 64 << 10;
/// Maximum number of bytes per read while it is slow, and the pause per read.
const SLOW_CHUNK: usize = 16 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(1);
/// In the summary, a connection that carried fewer bytes counts as a spare.
const BULK: u64 = 256 << 10;
/// How long both ends may take to close after a connection was closed with FIN.
const PARTING: Duration = Duration::from_secs(2);

/// One connection: its planned faults and its state.
#[derive(Debug)]
pub(crate) struct RelayedConn {
    number: usize,
    first: bool,
    up: Half,
    down: Half,
    ended: AtomicBool,
    cut: Notify,
}

#[derive(Debug)]
struct Half {
    troubles: Vec<(u64, RelayFault)>,
    passed: AtomicU64,
    stalled: AtomicBool,
}

/// How the relay ended a connection before its ends closed it.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Reset,
    Fin,
}

impl Half {
    fn new(number: usize, way: RelayDirection, troubles: &[Planned]) -> Self {
        let mine = troubles.iter().filter(|trouble| (trouble.line, trouble.way) == (number, way));
        let mut troubles: Vec<_> = mine.map(|trouble| (trouble.at, trouble.trouble)).collect();
        troubles.sort_by_key(|&(at, _)| at);
        Self { troubles, passed: AtomicU64::new(0), stalled: AtomicBool::new(false) }
    }
}

impl RelayedConn {
    pub(super) fn new(number: usize, others: &[Arc<Self>], troubles: &[Planned]) -> Self {
        Self {
            number,
            first: others.iter().all(|line| line.ended.load(Ordering::Relaxed)),
            up: Half::new(number, RelayDirection::Up, troubles),
            down: Half::new(number, RelayDirection::Down, troubles),
            ended: AtomicBool::new(false),
            cut: Notify::new(),
        }
    }

    pub(super) fn cut(&self) {
        self.cut.notify_one();
    }

    fn victim(&self) -> KilledRole {
        let passed = |half: &Half| half.passed.load(Ordering::Relaxed);
        if self.first {
            KilledRole::Interactive
        } else if passed(&self.up) + passed(&self.down) >= BULK {
            KilledRole::Bulk
        } else {
            KilledRole::Spare
        }
    }
}

impl fmt::Display for RelayedConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = |half: &Half| {
            let passed = half.passed.load(Ordering::Relaxed);
            let stalled = if half.stalled.load(Ordering::Relaxed) { " (stalled)" } else { "" };
            format!("{passed}{stalled}")
        };
        let state = if self.ended.load(Ordering::Relaxed) { "ended" } else { "open" };
        let (up, down) = (half(&self.up), half(&self.down));
        write!(f, "connection {} {state}, up {up}, down {down}", self.number)
    }
}

/// Marks a connection as ended on drop, however its task ends.
struct Ended(Arc<RelayedConn>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

/// Relays a connection from its first byte to its end.
pub(super) async fn carry(mut client: TcpStream, line: Arc<RelayedConn>, board: Arc<RelayState>) {
    let _ended = Ended(Arc::clone(&line));
    let Ok(mut server) = TcpStream::connect(board.server).await else {
        board.refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    for tcp in [&client, &server] {
        // If this fails, the relay only adds delay.
        let _ = tcp.set_nodelay(true);
    }
    let outcome = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let up = pump(client_read, server_write, &line.up, &board);
        let down = pump(server_read, client_write, &line.down, &board);
        tokio::select! {
            outcome = async { tokio::try_join!(up, down) } => outcome.map(|_| ()),
            () = line.cut.notified() => Err(Ending::Broken),
        }
    };
    match outcome {
        Ok(()) => {}
        Err(Ending::Broken) => reset(&client, &server),
        Err(Ending::Cut(cut)) => {
            board.record(Kill { victim: line.victim() });
            match cut {
                Cut::Reset => reset(&client, &server),
                Cut::Fin => part(client, server).await,
            }
        }
    }
}

/// Why both directions end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// One end reset the connection, or the run cut it: both ends must see a reset.
    Broken,
    /// The plan ends it.
    Cut(Cut),
}

impl From<io::Error> for Ending {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Relays one direction until its sender closes it.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    half: &Half,
    board: &RelayState,
) -> Result<(), Ending> {
    let mut buffer = vec![0; CHUNK];
    let mut troubles: VecDeque<_> = half.troubles.iter().copied().collect();
    let (mut passed, mut slow_until) = (0, 0);
    loop {
        while let Some(&(at, trouble)) = troubles.front()
            && at <= passed
        {
            troubles.pop_front();
            match trouble {
                RelayFault::Reset => return Err(Ending::Cut(Cut::Reset)),
                RelayFault::Fin => return Err(Ending::Cut(Cut::Fin)),
                RelayFault::Slow(bytes) => slow_until = passed + bytes,
                RelayFault::Stall(time) if !board.draining.load(Ordering::Relaxed) => {
                    half.stalled.store(true, Ordering::Relaxed);
                    tokio::time::sleep(time).await;
                    half.stalled.store(false, Ordering::Relaxed);
                }
                RelayFault::Stall(_) => {}
            }
        }
        let slow = passed < slow_until && !board.draining.load(Ordering::Relaxed);
        if slow {
            tokio::time::sleep(SLOW_PAUSE).await;
        }
        let most = if slow { SLOW_CHUNK } else { CHUNK };
        let until = troubles.front().map_or(u64::MAX, |&(at, _)| at - passed);
        let room = most.min(usize::try_from(until).unwrap_or(usize::MAX));
        let read = from.read(buffer.get_mut(..room).unwrap_or_default()).await?;
        if read == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        to.write_all(buffer.get(..read).unwrap_or_default()).await?;
        passed += read as u64;
        half.passed.store(passed, Ordering::Relaxed);
    }
}

/// Makes both ends receive a TCP reset when the sockets are dropped.
fn reset(client: &TcpStream, server: &TcpStream) {
    for tcp in [client, server] {
        // A closed socket needs none.
        let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
    }
}

/// Closes both with FIN and discards what they still send, since closing a socket with unread bytes
/// sends a reset.
async fn part(client: TcpStream, server: TcpStream) {
    let empty = async |mut tcp: TcpStream| {
        if tcp.shutdown().await.is_err() {
            return;
        }
        let mut buffer = vec![0; CHUNK];
        while matches!(tcp.read(&mut buffer).await, Ok(1..)) {}
    };
    let both = async { tokio::join!(empty(client), empty(server)) };
    // An end that has not closed by then receives the reset.
    let _ = timeout(PARTING, both).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::net::TcpListener;

    async fn through(troubles: Vec<Planned>) -> (super::super::Relay, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let relay = super::super::Relay::start(server, troubles).await.unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], relay.port()));
        let client = TcpStream::connect(addr).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (relay, client, server)
    }

    fn planned(at: u64, trouble: RelayFault) -> Planned {
        Planned { line: 0, way: RelayDirection::Up, at, trouble }
    }

    #[tokio::test]
    async fn a_kill_comes_behind_its_byte() {
        for (trouble, kind) in
            [(RelayFault::Fin, None), (RelayFault::Reset, Some(io::ErrorKind::ConnectionReset))]
        {
            let (relay, mut client, mut server) = through(vec![planned(1000, trouble)]).await;
            client.write_all(&[7; 5000]).await.unwrap();
            let mut got = Vec::new();
            let end = server.read_to_end(&mut got).await;
            assert_eq!(end.err().map(|error| error.kind()), kind);
            if kind.is_none() {
                assert_eq!(got.len(), 1000);
            }
            assert_eq!(relay.kills().len(), 1);
            assert_eq!(relay.kills()[0].victim, KilledRole::Interactive);
        }
    }

    #[tokio::test]
    async fn delays_lose_nothing() {
        let stall = RelayFault::Stall(Duration::from_millis(20));
        let troubles = vec![planned(10, stall), planned(100_000, RelayFault::Slow(200_000))];
        let (relay, mut client, mut server) = through(troubles).await;
        let sent: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
        let mut got = Vec::new();
        let (written, read) = tokio::join!(
            async {
                client.write_all(&sent).await?;
                client.shutdown().await
            },
            server.read_to_end(&mut got)
        );
        written.unwrap();
        read.unwrap();
        assert!(got == sent);
        assert!(relay.kills().is_empty());
    }
}
