//! Numbered UDP packets from one host to another, with send and receive times.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use smig_link::{LatenessHistogram, Time};

use crate::netns::{Host, HostThread, now, set_realtime_scheduling};

/// Bytes of the IPv4 and UDP headers.
pub(super) const HEADER_BYTES: usize = 28;
/// Smallest packet: headers and the packet's number.
pub(super) const MIN_PACKET_BYTES: usize = HEADER_BYTES + 4;
const PORT: u16 = 9;
/// Interval at which a receiver checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Requested size of the receive buffer, so that a late receiver loses no packets.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Packets to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowSpec {
    /// Size of the IP packet.
    pub(super) bytes: usize,
    /// Time between packets.
    pub(super) gap: Duration,
    pub(super) duration: Duration,
}

/// A received packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceivedPacket {
    pub(super) number: u32,
    pub(super) bytes: usize,
    pub(super) received_at: Time,
}

/// Send times of a flow.
#[derive(Debug)]
pub(super) struct SenderLog {
    /// When each packet was sent.
    pub(super) sent_at: Vec<Time>,
    /// Lateness of the packets, relative to the schedule.
    pub(super) lateness: LatenessHistogram,
}

/// A running flow.
#[derive(Debug)]
pub(super) struct Flow {
    sender: HostThread<io::Result<SenderLog>>,
    receiver: HostThread<io::Result<Vec<ReceivedPacket>>>,
    stop: Arc<AtomicBool>,
}

impl Flow {
    /// Starts the receiver, then the sender to `address`, the receiver's address.
    pub(super) fn start(
        from_host: &Host,
        to_host: &Host,
        address: Ipv4Addr,
        spec: FlowSpec,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_requested = Arc::clone(&stop);
        let (bound_tx, bound_rx) = mpsc::sync_channel(1);
        let receiver = to_host.run(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
            socket.set_read_timeout(Some(POLL_INTERVAL))?;
            // Above the machine's limit, which requires root; otherwise the buffer stays smaller.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(
                &socket,
                RECEIVE_BUFFER_BYTES,
            );
            let _ = set_realtime_scheduling();
            let _ = bound_tx.send(());
            receive(&socket, &stop_requested)
        })?;
        // On an error the receiver has already ended; `Receiver::stop` returns its error.
        let _ = bound_rx.recv();
        let sender = from_host.run(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect((address, PORT))?;
            let _ = set_realtime_scheduling();
            send(&socket, spec)
        })?;
        Ok(Self { sender, receiver, stop })
    }

    /// Waits until all packets are sent.
    pub(super) fn wait_until_sent(self) -> io::Result<(SenderLog, Receiver)> {
        let log = self.sender.join().expect("sending does not panic")?;
        Ok((log, Receiver { receiver: self.receiver, stop: self.stop }))
    }
}

/// The receiver of a flow whose sender has finished.
#[derive(Debug)]
pub(super) struct Receiver {
    receiver: HostThread<io::Result<Vec<ReceivedPacket>>>,
    stop: Arc<AtomicBool>,
}

impl Receiver {
    /// Stops the receiver and returns the packets that have arrived.
    pub(super) fn stop(self) -> io::Result<Vec<ReceivedPacket>> {
        self.stop.store(true, Ordering::Relaxed);
        self.receiver.join().expect("receiving does not panic")
    }
}

fn send(socket: &UdpSocket, spec: FlowSpec) -> io::Result<SenderLog> {
    let mut payload = vec![0; spec.bytes.max(MIN_PACKET_BYTES) - HEADER_BYTES];
    let mut log = SenderLog { sent_at: Vec::new(), lateness: LatenessHistogram::default() };
    let begin = now();
    for number in 0_u32.. {
        let due = begin + spec.gap * number;
        if due.since(begin) >= spec.duration {
            break;
        }
        let wait_time = due.since(now());
        if !wait_time.is_zero() {
            std::thread::sleep(wait_time);
        }
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let at = now();
        log.lateness.record(at.since(due));
        match socket.send(&payload) {
            // The device queue was full: the packet counts as sent, and thus as lost.
            Ok(_) => {}
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        log.sent_at.push(at);
    }
    Ok(log)
}

fn receive(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<Vec<ReceivedPacket>> {
    let mut buffer = vec![0; 65_536];
    let mut packets = Vec::new();
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let at = now();
                let Some(number) = buffer[..length].first_chunk() else { continue };
                let number = u32::from_be_bytes(*number);
                packets.push(ReceivedPacket {
                    number,
                    bytes: length + HEADER_BYTES,
                    received_at: at,
                });
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                if stop.load(Ordering::Relaxed) {
                    return Ok(packets);
                }
            }
            Err(error) => return Err(error),
        }
    }
}
