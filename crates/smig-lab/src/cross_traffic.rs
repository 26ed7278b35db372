//! Cross traffic: what other users send over the same link, without HTTP, TLS, or anything of ours.
//!
//! Owns a server that sends what its clients ask for, with a congestion control of its own, and the clients: one
//! download, short flows, a constant bit rate over UDP. Blocking sockets and a thread for each connection: there
//! are few.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_congestion;
use serde::Serialize;
use smig_link::Rate;

/// Bytes of a write, and of a read.
const CHUNK_BYTES: usize = 64 << 10;
/// Payload of a datagram: with its headers a full packet.
const DATAGRAM_BYTES: usize = 1_472;
/// Maximum length of a request.
const MAX_REQUEST_BYTES: u64 = 64;
/// Limits of what one request for datagrams causes, because requests are not authenticated. Downloads have no limit.
const MAX_DATAGRAMS_TIME: Duration = Duration::from_secs(3600);
const MIN_DATAGRAM_INTERVAL: Duration = Duration::from_micros(1);
/// Timeout of a client's connect, and of its wait for the next datagram.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossTraffic {
    /// One download until the end.
    Bulk,
    /// A connection for each of these downloads, at fixed intervals, whether or not the previous one has ended.
    Flows {
        /// Number of new flows a second.
        per_second: u32,
        /// Bytes of each.
        size: u64,
    },
    /// Datagrams at a constant rate, of whole IP packets.
    Constant {
        /// The rate.
        rate: Rate,
    },
}

/// Time that one line of a long transfer covers, so that its rate at a time can be read from them.
const LINE_INTERVAL: Duration = Duration::from_millis(500);

/// One transfer, or a part of a long one, as a line of a client with `result = "json-lines"`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct TransferLine {
    start_ms: f64,
    end_ms: f64,
    bytes: u64,
    size: u64,
}

/// The parts of a long transfer.
#[derive(Debug)]
struct TransferParts {
    origin: Instant,
    length: Duration,
    part_start: Duration,
    part_bytes: u64,
    lines: Vec<TransferLine>,
}

impl TransferParts {
    fn start(origin: Instant, length: Duration) -> Self {
        let part_start = origin.elapsed();
        Self { origin, length, part_start, part_bytes: 0, lines: Vec::new() }
    }

    /// Returns how long to wait for more; `None` at the end.
    fn time_left(&self) -> Option<Duration> {
        let left = self.length.saturating_sub(self.origin.elapsed());
        (!left.is_zero()).then_some(left)
    }

    fn add(&mut self, bytes: usize) {
        self.part_bytes += bytes as u64;
        if self.origin.elapsed() - self.part_start >= LINE_INTERVAL {
            self.end_part(0);
        }
    }

    /// Ends a part of which `missing_bytes` have not arrived.
    fn end_part(&mut self, missing_bytes: u64) {
        let (start, end) = (self.part_start, self.origin.elapsed());
        let (bytes, size) = (self.part_bytes, (self.part_bytes + missing_bytes).max(1));
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        self.lines.push(TransferLine { start_ms: millis(start), end_ms: millis(end), bytes, size });
        (self.part_start, self.part_bytes) = (end, 0);
    }

    /// Returns the parts; the last one lacks `missing_bytes`. A part of nothing would be a failed transfer in the results,
    /// which is true only if bytes are missing, or nothing has arrived at all.
    fn finish(mut self, missing_bytes: u64) -> Vec<TransferLine> {
        if self.part_bytes > 0 || missing_bytes > 0 || self.lines.is_empty() {
            self.end_part(missing_bytes);
        }
        self.lines
    }
}

/// Serves until the process is killed.
///
/// # Errors
/// The address is in use, or the kernel does not have the congestion control.
pub fn serve(address: SocketAddr, congestion_control: Option<&str>) -> io::Result<()> {
    let (listener, datagrams) = bind(address, congestion_control)?;
    accept(&listener, datagrams, congestion_control.map(str::to_owned));
    Ok(())
}

/// Binds the sockets for streams and for datagrams, to the same port.
fn bind(
    address: SocketAddr,
    congestion_control: Option<&str>,
) -> io::Result<(TcpListener, UdpSocket)> {
    let listener = TcpListener::bind(address)?;
    if let Some(name) = congestion_control {
        // Whether the kernel has it. An accepted connection has that of its route instead, if there is one.
        set_tcp_congestion(&listener, name)?;
    }
    let datagrams = UdpSocket::bind(listener.local_addr()?)?;
    Ok((listener, datagrams))
}

fn accept(listener: &TcpListener, datagrams: UdpSocket, congestion_control: Option<String>) {
    thread::spawn(move || serve_datagrams(&datagrams));
    for stream in listener.incoming().flatten() {
        if let Some(name) = &congestion_control
            && set_tcp_congestion(&stream, name).is_err()
        {
            // The client has left.
            continue;
        }
        // A client that has left ends its thread with an error.
        thread::spawn(move || serve_stream(&stream));
    }
}

/// Sends as many bytes as the request line says, or until the client closes.
fn serve_stream(stream: &TcpStream) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST_BYTES)).read_line(&mut line)?;
    let mut remaining = line.trim().parse::<u64>().unwrap_or(0);
    let chunk = vec![0; CHUNK_BYTES];
    let mut writer = stream;
    while remaining > 0 {
        let length = remaining.min(CHUNK_BYTES as u64);
        writer.write_all(&chunk[..length as usize])?;
        remaining -= length;
    }
    Ok(())
}

/// Answers requests of "BITS_PER_SECOND MILLISECONDS" with datagrams.
fn serve_datagrams(socket: &UdpSocket) {
    let mut request = [0; MAX_REQUEST_BYTES as usize];
    while let Ok((length, peer)) = socket.recv_from(&mut request) {
        let text = String::from_utf8_lossy(&request[..length]);
        let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [bits_per_second, millis] = numbers[..] else { continue };
        let interval = Duration::from_nanos(
            (DATAGRAM_BYTES as u64 + 28) * 8_000_000_000 / bits_per_second.max(1),
        );
        let interval = interval.max(MIN_DATAGRAM_INTERVAL);
        let duration = Duration::from_millis(millis).min(MAX_DATAGRAMS_TIME);
        let Ok(socket) = socket.try_clone() else { continue };
        thread::spawn(move || {
            let (mut next, end) = (Instant::now(), Instant::now() + duration);
            while next < end {
                thread::sleep(next.saturating_duration_since(Instant::now()));
                // A datagram that cannot be sent is lost; the next ones follow.
                let _ = socket.send_to(&[0; DATAGRAM_BYTES], peer);
                next += interval;
            }
        });
    }
}

/// Runs a client for `length`, and writes a line of JSON for each transfer, or for each part of a long one.
///
/// # Errors
/// The server of a download or of datagrams cannot be reached, or the output is closed. Flows that fail are no error.
pub fn run_client(
    traffic: CrossTraffic,
    server: SocketAddr,
    length: Duration,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let started_at = Instant::now();
    let lines = match traffic {
        CrossTraffic::Bulk => download(server, None, started_at, length)?,
        CrossTraffic::Flows { per_second, size } => {
            run_flows(server, per_second, size, started_at, length)
        }
        CrossTraffic::Constant { rate } => receive(server, rate, started_at, length)?,
    };
    for line in lines {
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    }
    out.flush()
}

/// Downloads `size` bytes, or what arrives until the end.
fn download(
    server: SocketAddr,
    size: Option<u64>,
    origin: Instant,
    length: Duration,
) -> io::Result<Vec<TransferLine>> {
    let mut parts = TransferParts::start(origin, length);
    let mut stream = TcpStream::connect_timeout(&server, SILENCE_TIMEOUT)?;
    let (mut remaining, mut chunk) = (size.unwrap_or(u64::MAX), vec![0; CHUNK_BYTES]);
    writeln!(stream, "{remaining}")?;
    while remaining > 0
        && let Some(left) = parts.time_left()
    {
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                remaining -= read as u64;
                parts.add(read);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(parts.finish(size.map_or(0, |_| remaining)))
}

/// Runs all flows; those that fail have no line.
fn run_flows(
    server: SocketAddr,
    per_second: u32,
    size: u64,
    origin: Instant,
    length: Duration,
) -> Vec<TransferLine> {
    let interval = Duration::from_secs(1) / per_second.max(1);
    let mut flows = Vec::new();
    for number in 0_u32.. {
        let at = interval * number;
        if at >= length {
            break;
        }
        thread::sleep(at.saturating_sub(origin.elapsed()));
        flows.push(thread::spawn(move || download(server, Some(size), origin, length)));
    }
    flows.into_iter().filter_map(|flow| flow.join().ok()?.ok()).flatten().collect()
}

/// Receives datagrams until the end.
fn receive(
    server: SocketAddr,
    rate: Rate,
    origin: Instant,
    length: Duration,
) -> io::Result<Vec<TransferLine>> {
    let unspecified = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(unspecified)?;
    socket.connect(server)?;
    socket.send(format!("{} {}", rate.as_bits_per_second(), length.as_millis()).as_bytes())?;
    let mut parts = TransferParts::start(origin, length);
    let mut datagram = [0; DATAGRAM_BYTES];
    while let Some(left) = parts.time_left() {
        socket.set_read_timeout(Some(left.min(SILENCE_TIMEOUT)))?;
        match socket.recv(&mut datagram) {
            Ok(read) => parts.add(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(parts.finish(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server on a free port.
    fn start_server(congestion_control: Option<&'static str>) -> SocketAddr {
        let (listener, datagrams) =
            bind("127.0.0.1:0".parse().unwrap(), congestion_control).unwrap();
        let address = listener.local_addr().unwrap();
        let congestion_control = congestion_control.map(str::to_owned);
        thread::spawn(move || accept(&listener, datagrams, congestion_control));
        address
    }

    fn run(traffic: CrossTraffic, server: SocketAddr) -> Vec<serde_json::Value> {
        let mut out = Vec::new();
        run_client(traffic, server, Duration::from_millis(500), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_part_of_nothing_is_reported_only_if_nothing_arrived_or_bytes_are_missing() {
        let length = Duration::from_secs(5);
        let parts = || TransferParts {
            part_start: Duration::ZERO,
            ..TransferParts::start(Instant::now() - 2 * LINE_INTERVAL, length)
        };
        let bytes_and_sizes = |lines: Vec<TransferLine>| -> Vec<_> {
            lines.iter().map(|line| (line.bytes, line.size)).collect()
        };
        let mut complete = parts();
        complete.add(7); // ends the part
        assert_eq!(bytes_and_sizes(complete.finish(0)), [(7, 7)]);
        assert_eq!(bytes_and_sizes(parts().finish(0)), [(0, 1)]);
        let mut cut_off = parts();
        cut_off.add(7);
        assert_eq!(bytes_and_sizes(cut_off.finish(3)), [(7, 7), (0, 3)]);
    }

    #[test]
    fn a_download_lasts_until_its_end() {
        let lines = run(CrossTraffic::Bulk, start_server(Some("reno")));
        let bytes: u64 = lines.iter().filter_map(|line| line["bytes"].as_u64()).sum();
        assert!(bytes > 100_000, "{lines:?}");
        assert!(lines.last().unwrap()["end_ms"].as_f64() >= Some(500.0), "{lines:?}");
        let ends = |line: &serde_json::Value| line["end_ms"].clone();
        assert!(lines.windows(2).all(|pair| ends(&pair[0]) == pair[1]["start_ms"]), "{lines:?}");
    }

    #[test]
    fn flows_have_their_size_and_rate() {
        let lines = run(CrossTraffic::Flows { per_second: 20, size: 12_000 }, start_server(None));
        assert!(lines.len() >= 9, "the last may be cut off: {lines:?}");
        assert!(lines[..9].iter().all(|line| line["bytes"] == 12_000), "{lines:?}");
    }

    #[test]
    fn datagrams_do_not_exceed_their_rate() {
        let traffic = CrossTraffic::Constant { rate: Rate::mbit(3) };
        let lines = run(traffic, start_server(None));
        // 125 packets of 1500 bytes; a busy machine sends them late, but never more.
        let bytes: u64 = lines.iter().filter_map(|line| line["bytes"].as_u64()).sum();
        let datagrams = bytes / DATAGRAM_BYTES as u64;
        assert!((1..=126).contains(&datagrams), "{datagrams}");
    }

    #[test]
    fn an_unknown_congestion_control_is_an_error() {
        assert!(serve("127.0.0.1:0".parse().unwrap(), Some("unknown")).is_err());
    }
}
