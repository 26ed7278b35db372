//! From the kernel's bytes to numbers (linux/inet_diag.h, linux/tcp.h).
//!
//! A kernel that is older gives a shorter `tcp_info`: what it does not have is 0.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::fields::Fields;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
/// Of `inet_diag_msg`: family to inode.
const MESSAGE: usize = 72;
/// Where `tcp_info` ends that has the fields without which there is nothing to say: Linux 4.9.
const SHORTEST_INFO: usize = 168;

/// One TCP connection at one moment. Bytes, microseconds, bytes a second; 0 where the kernel does
/// not know, or has no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the column of its name, or tcp_info's field")]
pub struct TcpState {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The kernel's number of the socket, so that a port used again is another connection.
    pub cookie: u64,
    pub state: u8,
    pub congestion_control: String,
    pub mss: u32,
    pub cwnd_segments: u32,
    pub ssthresh_segments: u32,
    pub unacked_bytes: u64,
    pub unsent_bytes: u64,
    pub lost_segments: u32,
    pub srtt_us: u32,
    pub min_rtt_us: u32,
    pub pacing_bytes_per_s: u64,
    pub delivery_bytes_per_s: u64,
    pub acked_bytes: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub retransmitted_bytes: u64,
    pub send_window_bytes: u32,
    pub busy_us: u64,
    pub receiver_limited_us: u64,
    pub buffer_limited_us: u64,
}

/// Whether an answer goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    More,
    Done,
}

/// Reads the connections of one datagram of an answer; what is no connection is left out.
///
/// # Errors
/// When the datagram says that the kernel refused, or breaks off within a message.
pub fn decode_connections(datagram: &[u8]) -> io::Result<Vec<TcpState>> {
    let mut all = Vec::new();
    let sequence = Fields(datagram).u32(8).unwrap_or(0);
    decode_part(datagram, sequence, &mut all)?;
    Ok(all)
}

/// Appends what one datagram has; messages of an earlier answer are left out.
pub(super) fn decode_part(
    datagram: &[u8],
    sequence: u32,
    into: &mut Vec<TcpState>,
) -> io::Result<Part> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let (kind, number, body, after) = split_message(rest).ok_or_else(cut_off)?;
        rest = after;
        if number != sequence {
            continue;
        }
        match kind {
            NLMSG_DONE => return Ok(Part::Done),
            NLMSG_ERROR => return Err(refusal(body)),
            _ => into.extend(connection(body)),
        }
    }
    Ok(Part::More)
}

/// Kind, sequence number and body of the first message, and what follows.
fn split_message(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let fields = Fields(bytes);
    let (kind, number) = (fields.u16(4)?, fields.u32(8)?);
    let (message, rest) = fields.split_padded(fields.u32(0)? as usize)?;
    Some((kind, number, message.get(16..)?, rest))
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer breaks off within a message")
}

fn refusal(body: &[u8]) -> io::Error {
    match Fields(body).u32(0).map(u32::cast_signed) {
        Some(code) if code < 0 => io::Error::from_raw_os_error(code.saturating_neg()),
        _ => cut_off(),
    }
}

/// A connection; `None` for what has no `tcp_info`, such as one that waits for its end.
fn connection(body: &[u8]) -> Option<TcpState> {
    let message = Fields(body);
    let address: fn(Fields<'_>, usize) -> Option<IpAddr> = match message.u8(0)? {
        AF_INET => |fields, at| fields.ipv4(at).map(IpAddr::from),
        // A server that listens on both families has its IPv4 peers as mapped addresses.
        AF_INET6 => |fields, at| fields.ipv6(at).map(|address| address.to_canonical()),
        _ => return None,
    };
    let local = SocketAddr::new(address(message, 8)?, message.u16_be(4)?);
    let remote = SocketAddr::new(address(message, 24)?, message.u16_be(6)?);
    let cookie = message.u64(44)?;
    // Sent and not acknowledged, and what is not sent yet.
    let waiting = u64::from(message.u32(60)?);
    let (mut info, mut name) = (None, String::new());
    let mut rest = body.get(MESSAGE..)?;
    while let Some((kind, value, after)) = split_attribute(rest) {
        match kind {
            INET_DIAG_INFO => info = Some(Fields(value)),
            INET_DIAG_CONG => name = text(value),
            _ => {}
        }
        rest = after;
    }
    let mut state = tcp_info(info.filter(|info| info.0.len() >= SHORTEST_INFO)?)?;
    state.unacked_bytes = waiting.saturating_sub(state.unsent_bytes);
    Some(TcpState { local, remote, cookie, congestion_control: name, ..state })
}

/// Kind and value of the first attribute, and what follows.
fn split_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let fields = Fields(bytes);
    let kind = fields.u16(2)?;
    let (attribute, rest) = fields.split_padded(usize::from(fields.u16(0)?))?;
    Some((kind, attribute.get(4..)?, rest))
}

/// Up to the first zero byte.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// `struct tcp_info`; the addresses are not in it.
fn tcp_info(info: Fields<'_>) -> Option<TcpState> {
    // "No limit" and "not known" are all ones in the kernel.
    let known = |value: u32| if value == u32::MAX { 0 } else { value };
    let limit = |value: u64| if value == u64::MAX { 0 } else { value };
    let later = |at| info.u64(at).unwrap_or(0);
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    Some(TcpState {
        local: nowhere,
        remote: nowhere,
        cookie: 0,
        congestion_control: String::new(),
        unacked_bytes: 0,
        state: info.u8(0)?,
        mss: info.u32(16)?,
        lost_segments: info.u32(32)?,
        srtt_us: info.u32(68)?,
        // 0x7fffffff is "none yet".
        ssthresh_segments: info.u32(76).filter(|value| *value < 0x7fff_ffff).unwrap_or(0),
        cwnd_segments: info.u32(80)?,
        pacing_bytes_per_s: limit(info.u64(104)?),
        acked_bytes: info.u64(120)?,
        received_bytes: info.u64(128)?,
        unsent_bytes: info.u32(144)?.into(),
        min_rtt_us: known(info.u32(148)?),
        delivery_bytes_per_s: info.u64(160)?,
        busy_us: later(168),
        receiver_limited_us: later(176),
        buffer_limited_us: later(184),
        sent_bytes: later(200),
        retransmitted_bytes: later(208),
        send_window_bytes: info.u32(228).unwrap_or(0),
    })
}
