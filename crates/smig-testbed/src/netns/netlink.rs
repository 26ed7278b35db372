//! Settings that need netlink: the queue length of a device (the `ioctl` requires
//! capabilities outside the user namespace), the TCP parameters of a route,
//! congestion control and initial window, and rules for the choice of a route.
//!
//! Congestion control is set on the route and not with `tcp_congestion_control`: outside
//! the initial network namespace, that sysctl rejects every algorithm that is not in
//! `tcp_allowed_congestion_control`, and that list is global.
//!
//! No crate is used: these requests need less code than a crate for all of netlink.

use std::io;
use std::net::Ipv4Addr;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// A host route.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route<'a> {
    pub(super) destination: Ipv4Addr,
    pub(super) interface: &'a str,
    pub(super) congestion_control: Option<&'a str>,
    /// In segments.
    pub(super) initial_window: Option<u32>,
    pub(super) table: u8,
    /// Of several routes to a destination the one with the least is taken; 0 if absent.
    pub(super) priority: Option<u32>,
}

/// A rule: packets from an address are routed by a table of their own.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceRule {
    pub(super) source: Ipv4Addr,
    pub(super) table: u8,
}

// linux/netlink.h, linux/rtnetlink.h and linux/if_link.h
const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWRULE: u16 = 32;
const NLM_F_REQUEST: u16 = 0x1;
pub(super) const NLM_F_ACK: u16 = 0x4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const IFLA_TXQLEN: u16 = 13;
pub(super) const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTAX_INITCWND: u16 = 11;
const RTAX_CC_ALGO: u16 = 16;
const AF_INET: u8 = 2;
// linux/fib_rules.h
const FRA_SRC: u16 = 2;
const FR_ACT_TO_TBL: u8 = 1;

impl Route<'_> {
    /// Adds the route in the calling thread's namespace, or replaces the one to the same destination with the same priority.
    pub(super) fn replace(&self) -> io::Result<()> {
        let body = self.body(interface_index(self.interface)?);
        request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body)
    }

    fn body(&self, interface: u32) -> Vec<u8> {
        let mut body = vec![AF_INET, 32, 0, 0];
        body.extend([self.table, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST]);
        body.extend(0_u32.to_ne_bytes()); // flags
        attribute(&mut body, RTA_DST, &self.destination.octets());
        attribute(&mut body, RTA_OIF, &interface.to_ne_bytes());
        if let Some(priority) = self.priority {
            attribute(&mut body, RTA_PRIORITY, &priority.to_ne_bytes());
        }
        let mut metrics = Vec::new();
        if let Some(name) = self.congestion_control {
            let mut text = name.as_bytes().to_vec();
            text.push(0);
            attribute(&mut metrics, RTAX_CC_ALGO, &text);
        }
        if let Some(segments) = self.initial_window {
            attribute(&mut metrics, RTAX_INITCWND, &segments.to_ne_bytes());
        }
        if !metrics.is_empty() {
            attribute(&mut body, RTA_METRICS, &metrics);
        }
        body
    }
}

impl SourceRule {
    /// Adds the rule in the calling thread's namespace.
    pub(super) fn add(self) -> io::Result<()> {
        request(RTM_NEWRULE, NLM_F_CREATE, &self.body())
    }

    fn body(self) -> Vec<u8> {
        // Family, length of the destination's prefix (any), of the source's, type of service (any).
        let mut body = vec![AF_INET, 0, 32, 0, self.table, 0, 0, FR_ACT_TO_TBL];
        body.extend(0_u32.to_ne_bytes()); // flags
        attribute(&mut body, FRA_SRC, &self.source.octets());
        body
    }
}

/// Sets the queue length of a device, in packets, in the calling thread's namespace.
pub(super) fn set_queue_length(interface: &str, packets: u32) -> io::Result<()> {
    let mut body = vec![0; 4]; // family, padding, device type: any
    body.extend(interface_index(interface)?.to_ne_bytes());
    body.extend([0; 8]); // flags and change mask: none
    attribute(&mut body, IFLA_TXQLEN, &packets.to_ne_bytes());
    request(RTM_NEWLINK, 0, &body)
}

/// Sends a request to the routing family and waits for the kernel's acknowledgement.
fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    parse_ack(&exchange(None, kind, flags | NLM_F_ACK, body)?)
}

/// Sends one request to a netlink family, the routing one if `None`; returns the kernel's first answer.
pub(super) fn exchange(
    protocol: Option<Protocol>,
    kind: u16,
    flags: u16,
    body: &[u8],
) -> io::Result<Vec<u8>> {
    let length = u32::try_from(body.len() + 16).expect("a message of some hundred bytes");
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((flags | NLM_F_REQUEST).to_ne_bytes());
    message.extend(1_u32.to_ne_bytes()); // sequence number
    message.extend(0_u32.to_ne_bytes()); // port ID: filled in by the kernel
    message.extend(body);

    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    send(&socket, &message, SendFlags::empty())?;
    let mut response = vec![0_u8; 4096];
    let (length, _) = recv(&socket, &mut response, RecvFlags::empty())?;
    response.truncate(length);
    Ok(response)
}

/// Appends a netlink attribute, padded to four bytes.
pub(super) fn attribute(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(value.len() + 4).expect("attributes of some dozen bytes");
    buffer.extend(length.to_ne_bytes());
    buffer.extend(kind.to_ne_bytes());
    buffer.extend(value);
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

/// Parses the kernel's response: an error message whose code is 0 on success.
pub(super) fn parse_ack(response: &[u8]) -> io::Result<()> {
    let unexpected = || io::Error::other("netlink's response is not an acknowledgement");
    let kind = response.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = response.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, code) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(unexpected()),
    }
}

pub(super) fn interface_index(name: &str) -> io::Result<u32> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_their_length_is_not() {
        let mut bytes = Vec::new();
        attribute(&mut bytes, 16, b"cubic\0");
        assert_eq!(bytes.len(), 12);
        assert_eq!(u16::from_ne_bytes([bytes[0], bytes[1]]), 10);
        assert_eq!(&bytes[4..], b"cubic\0\0\0");
    }

    #[test]
    fn the_kernels_refusal_becomes_an_error() {
        let mut response = vec![0_u8; 36];
        response[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert!(parse_ack(&response).is_ok());
        response[16..20].copy_from_slice(&(-libc::ENETUNREACH).to_ne_bytes());
        let error = parse_ack(&response).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH));
        assert!(parse_ack(&response[..10]).is_err());
    }
}
