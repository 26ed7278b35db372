//! Decodes the kernel's structures (linux/inet_diag.h, linux/tcp.h).
//!
//! Older kernels return a shorter `tcp_info`: missing fields are 0.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::fields::Fields;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
/// Length of `inet_diag_msg`, from family to inode.
const INET_DIAG_MSG_BYTES: usize = 72;
/// Minimum length of `tcp_info`, with the fields that a sample requires: Linux 4.9.
const MIN_TCP_INFO_BYTES: usize = 168;

/// State of a TCP connection at one point in time. Bytes, microseconds, bytes per second; 0 if
/// unknown to the kernel or unlimited.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after tcp_info's fields and the timeline's columns")]
pub struct TcpState {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The kernel's identifier of the socket, which distinguishes connections that reuse a port.
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

/// Whether more datagrams of a response follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DumpStatus {
    More,
    Done,
}

/// Decodes the connections of one datagram of a response; skips other messages.
///
/// # Errors
/// If the datagram reports an error of the kernel, or ends within a message.
pub fn decode_connections(datagram: &[u8]) -> io::Result<Vec<TcpState>> {
    let mut states = Vec::new();
    let sequence = Fields(datagram).u32(8).unwrap_or(0);
    decode_datagram(datagram, sequence, &mut states)?;
    Ok(states)
}

/// Appends the connections of one datagram; skips messages of an earlier response.
pub(super) fn decode_datagram(
    datagram: &[u8],
    sequence: u32,
    states: &mut Vec<TcpState>,
) -> io::Result<DumpStatus> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let (kind, message_sequence, body, after) =
            split_message(rest).ok_or_else(truncated_error)?;
        rest = after;
        if message_sequence != sequence {
            continue;
        }
        match kind {
            NLMSG_DONE => return Ok(DumpStatus::Done),
            NLMSG_ERROR => return Err(kernel_error(body)),
            _ => states.extend(decode_connection(body)),
        }
    }
    Ok(DumpStatus::More)
}

/// Returns kind, sequence number and body of the first message, and the remaining bytes.
fn split_message(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let fields = Fields(bytes);
    let (kind, sequence) = (fields.u16(4)?, fields.u32(8)?);
    let (message, rest) = fields.split_padded(fields.u32(0)? as usize)?;
    Some((kind, sequence, message.get(16..)?, rest))
}

fn truncated_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's response ends within a message")
}

fn kernel_error(body: &[u8]) -> io::Error {
    match Fields(body).u32(0).map(u32::cast_signed) {
        Some(code) if code < 0 => io::Error::from_raw_os_error(code.saturating_neg()),
        _ => truncated_error(),
    }
}

/// Decodes a connection; `None` without a long enough `tcp_info`. Sockets in TIME_WAIT have none.
fn decode_connection(body: &[u8]) -> Option<TcpState> {
    let message = Fields(body);
    let address: fn(Fields<'_>, usize) -> Option<IpAddr> = match message.u8(0)? {
        AF_INET => |fields, at| fields.ipv4(at).map(IpAddr::from),
        // A listener for both families has its IPv4 peers as mapped addresses.
        AF_INET6 => |fields, at| fields.ipv6(at).map(|address| address.to_canonical()),
        _ => return None,
    };
    let local = SocketAddr::new(address(message, 8)?, message.u16_be(4)?);
    let remote = SocketAddr::new(address(message, 24)?, message.u16_be(6)?);
    let cookie = message.u64(44)?;
    // Bytes that are unacknowledged or not sent yet.
    let outstanding = u64::from(message.u32(60)?);
    let (mut info, mut name) = (None, String::new());
    let mut rest = body.get(INET_DIAG_MSG_BYTES..)?;
    while let Some((kind, value, after)) = split_attribute(rest) {
        match kind {
            INET_DIAG_INFO => info = Some(Fields(value)),
            INET_DIAG_CONG => name = text(value),
            _ => {}
        }
        rest = after;
    }
    let mut state = decode_tcp_info(info.filter(|info| info.0.len() >= MIN_TCP_INFO_BYTES)?)?;
    state.unacked_bytes = outstanding.saturating_sub(state.unsent_bytes);
    Some(TcpState { local, remote, cookie, congestion_control: name, ..state })
}

/// Returns kind and value of the first attribute, and the remaining bytes.
fn split_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let fields = Fields(bytes);
    let kind = fields.u16(2)?;
    let (attribute, rest) = fields.split_padded(usize::from(fields.u16(0)?))?;
    Some((kind, attribute.get(4..)?, rest))
}

/// Returns the text before the first NUL byte.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Decodes `struct tcp_info`, which does not contain the addresses.
fn decode_tcp_info(info: Fields<'_>) -> Option<TcpState> {
    // The kernel represents "unlimited" and "unknown" as all ones.
    let known_or_zero = |value: u32| if value == u32::MAX { 0 } else { value };
    let limited_or_zero = |value: u64| if value == u64::MAX { 0 } else { value };
    let optional_u64 = |at| info.u64(at).unwrap_or(0);
    let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
    Some(TcpState {
        local: unspecified,
        remote: unspecified,
        cookie: 0,
        congestion_control: String::new(),
        unacked_bytes: 0,
        state: info.u8(0)?,
        mss: info.u32(16)?,
        lost_segments: info.u32(32)?,
        srtt_us: info.u32(68)?,
        // 0x7fffffff means that there is no threshold yet.
        ssthresh_segments: info.u32(76).filter(|value| *value < 0x7fff_ffff).unwrap_or(0),
        cwnd_segments: info.u32(80)?,
        pacing_bytes_per_s: limited_or_zero(info.u64(104)?),
        acked_bytes: info.u64(120)?,
        received_bytes: info.u64(128)?,
        unsent_bytes: info.u32(144)?.into(),
        min_rtt_us: known_or_zero(info.u32(148)?),
        delivery_bytes_per_s: info.u64(160)?,
        busy_us: optional_u64(168),
        receiver_limited_us: optional_u64(176),
        buffer_limited_us: optional_u64(184),
        sent_bytes: optional_u64(200),
        retransmitted_bytes: optional_u64(208),
        send_window_bytes: info.u32(228).unwrap_or(0),
    })
}
