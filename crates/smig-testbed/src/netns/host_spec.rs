//! TCP configuration of a host.

use std::net::Ipv4Addr;

use super::mptcp::SubflowUse;

/// TCP configuration of a host. The default is Linux's, without metrics cached
/// from earlier connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    pub(super) congestion_control: Option<String>,
    pub(super) initial_window: Option<u32>,
    pub(super) sysctls: Vec<(String, String)>,
    /// Further addresses on the first link.
    pub(super) addresses: Vec<HostAddress>,
    /// Those of the peer.
    pub(super) peer_addresses: Vec<Ipv4Addr>,
    /// An address of its own that all links lead to.
    pub(super) shared_address: Option<Ipv4Addr>,
    /// That of the peer.
    pub(super) peer_shared_address: Option<Ipv4Addr>,
    /// Of MPTCP connections, over the links but the first.
    pub(super) subflows: Option<SubflowUse>,
}

/// A further address of a host, on its first link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostAddress {
    pub(super) address: Ipv4Addr,
    /// That of connections from this address; the host's if absent.
    pub(super) congestion_control: Option<String>,
}

impl Default for HostSpec {
    fn default() -> Self {
        let host = Self {
            congestion_control: None,
            initial_window: None,
            sysctls: Vec::new(),
            addresses: Vec::new(),
            peer_addresses: Vec::new(),
            shared_address: None,
            peer_shared_address: None,
            subflows: None,
        };
        host.sysctl("ipv4/tcp_no_metrics_save", "1")
            .send_buffer(4_096, 16_384, 4_194_304)
            .receive_buffer(4_096, 131_072, 6_291_456)
    }
}

impl HostSpec {
    /// Sets the congestion control of connections to the peer that do not choose
    /// their own: `cubic`, `bbr`, `reno`, as available in the kernel. The default
    /// is `cubic` if the kernel has it, whatever the machine's setting is.
    #[must_use]
    pub fn congestion_control(mut self, name: &str) -> Self {
        self.congestion_control = Some(name.to_owned());
        self
    }

    /// Sets the initial congestion window, in segments.
    #[must_use]
    pub const fn initial_window(mut self, segments: u32) -> Self {
        self.initial_window = Some(segments);
        self
    }

    /// Sets the minimum, initial and maximum send buffer (`tcp_wmem`), in bytes.
    #[must_use]
    pub fn send_buffer(self, min: u64, initial: u64, max: u64) -> Self {
        self.sysctl("ipv4/tcp_wmem", &format!("{min} {initial} {max}"))
    }

    /// Sets the minimum, initial and maximum receive buffer (`tcp_rmem`), in bytes.
    #[must_use]
    pub fn receive_buffer(self, min: u64, initial: u64, max: u64) -> Self {
        self.sysctl("ipv4/tcp_rmem", &format!("{min} {initial} {max}"))
    }

    /// Adds an address on the first link, of the link's network (10.99.0.0/24), from 10.99.0.3 on. Connections from it have this congestion
    /// control, or the host's.
    #[must_use]
    pub fn address(mut self, address: Ipv4Addr, congestion_control: Option<&str>) -> Self {
        let congestion_control = congestion_control.map(str::to_owned);
        self.addresses.push(HostAddress { address, congestion_control });
        self
    }

    /// MPTCP connections of this host that began on the first link get a subflow over each of the others (RFC 8684).
    #[must_use]
    pub const fn subflows(mut self, subflow_use: SubflowUse) -> Self {
        self.subflows = Some(subflow_use);
        self
    }

    /// Returns the further addresses.
    pub(super) fn own_addresses(&self) -> Vec<Ipv4Addr> {
        self.addresses.iter().map(|address| address.address).collect()
    }

    /// Sets any per-namespace sysctl below `/proc/sys/net`, for example
    /// `ipv4/tcp_sack`. A later value replaces an earlier one.
    #[must_use]
    pub fn sysctl(mut self, name: &str, value: &str) -> Self {
        self.sysctls.retain(|(earlier, _)| earlier != name);
        self.sysctls.push((name.to_owned(), value.to_owned()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_sysctl_replaces_an_earlier_one() {
        let spec = HostSpec::default().send_buffer(1, 2, 3).send_buffer(4, 5, 6);
        let wmem: Vec<_> =
            spec.sysctls.iter().filter(|(name, _)| name == "ipv4/tcp_wmem").collect();
        assert_eq!(wmem, [&("ipv4/tcp_wmem".to_owned(), "4 5 6".to_owned())]);
    }
}
