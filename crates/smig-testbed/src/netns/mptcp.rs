//! Endpoints of Multipath TCP (RFC 8684): the addresses from which the kernel opens further subflows of a host's MPTCP connections.
//!
//! Plain TCP connections do not get any. Endpoints are set by the generic netlink family `mptcp_pm` (linux/mptcp_pm.h).

use std::io;
use std::net::Ipv4Addr;

use rustix::net::netlink;
use serde::{Deserialize, Serialize};

use super::netlink::{NLM_F_ACK, attribute, exchange, interface_index, parse_ack};

/// When the kernel sends over a subflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubflowUse {
    /// Whenever its scheduler likes to.
    Always,
    /// Only while no other subflow works.
    Backup,
}

// linux/genetlink.h
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// linux/mptcp_pm.h
const FAMILY: &[u8] = b"mptcp_pm\0";
const FAMILY_VERSION: u8 = 1;
const ADD_ADDR: u8 = 1;
const ATTR_ADDR: u16 = 1;
const NLA_F_NESTED: u16 = 0x8000;
const ADDR_ATTR_FAMILY: u16 = 1;
const ADDR_ATTR_ADDR4: u16 = 3;
const ADDR_ATTR_FLAGS: u16 = 6;
const ADDR_ATTR_IF_IDX: u16 = 7;
const FLAG_SUBFLOW: u32 = 2;
const FLAG_BACKUP: u32 = 4;
const AF_INET: u16 = 2;
/// Bytes of the netlink and the generic netlink header.
const HEADERS_BYTES: usize = 20;

/// Adds an endpoint in the calling thread's namespace.
pub(super) fn add_endpoint(
    address: Ipv4Addr,
    interface: &str,
    subflow_use: SubflowUse,
) -> io::Result<()> {
    let flags = match subflow_use {
        SubflowUse::Always => FLAG_SUBFLOW,
        SubflowUse::Backup => FLAG_SUBFLOW | FLAG_BACKUP,
    };
    let mut endpoint = Vec::new();
    attribute(&mut endpoint, ADDR_ATTR_FAMILY, &AF_INET.to_ne_bytes());
    attribute(&mut endpoint, ADDR_ATTR_ADDR4, &address.octets());
    attribute(&mut endpoint, ADDR_ATTR_FLAGS, &flags.to_ne_bytes());
    attribute(&mut endpoint, ADDR_ATTR_IF_IDX, &interface_index(interface)?.to_ne_bytes());
    let mut body = generic_header(ADD_ADDR, FAMILY_VERSION);
    attribute(&mut body, ATTR_ADDR | NLA_F_NESTED, &endpoint);
    parse_ack(&exchange(Some(netlink::GENERIC), family_id()?, NLM_F_ACK, &body)?)
}

fn generic_header(command: u8, version: u8) -> Vec<u8> {
    vec![command, version, 0, 0]
}

/// Returns the number of the kernel's family `mptcp_pm`.
fn family_id() -> io::Result<u16> {
    let mut body = generic_header(CTRL_CMD_GETFAMILY, 1);
    attribute(&mut body, CTRL_ATTR_FAMILY_NAME, FAMILY);
    let answer = exchange(Some(netlink::GENERIC), GENL_ID_CTRL, 0, &body)?;
    // A kernel without it answers with an error.
    find_family_id(&answer).map_or_else(
        || {
            parse_ack(&answer)?;
            Err(io::Error::other("netlink's answer names no family"))
        },
        Ok,
    )
}

fn find_family_id(answer: &[u8]) -> Option<u16> {
    let mut rest = answer.get(HEADERS_BYTES..)?;
    let field = |bytes: &[u8], at: usize| {
        let field = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_ne_bytes(field))
    };
    while let (Some(length), Some(kind)) = (field(rest, 0), field(rest, 2)) {
        if kind == CTRL_ATTR_FAMILY_ID {
            return field(rest, 4);
        }
        rest = rest.get(usize::from(length).max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_familys_number_is_found_among_other_attributes() {
        let mut answer = vec![0; HEADERS_BYTES];
        attribute(&mut answer, CTRL_ATTR_FAMILY_NAME, FAMILY);
        attribute(&mut answer, CTRL_ATTR_FAMILY_ID, &31_u16.to_ne_bytes());
        assert_eq!(find_family_id(&answer), Some(31));
        assert_eq!(find_family_id(&answer[..answer.len() - 4]), None);
        assert_eq!(find_family_id(&[0; HEADERS_BYTES + 4]), None);
        assert_eq!(find_family_id(&[]), None);
    }
}
