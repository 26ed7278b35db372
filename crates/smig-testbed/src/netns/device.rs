//! Devices, addresses and routes of a host, set up by a thread in its namespace.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

use super::error::{MissingRequirement, SetupContext, TestbedError};
use super::host_spec::{HostAddress, HostSpec};
use super::mptcp;
use super::netlink::{RT_TABLE_MAIN, Route, SourceRule, set_queue_length};
use super::sys;

/// Queue length in packets: the bottleneck must be the model, not the device.
const DEVICE_QUEUE_PACKETS: u32 = 10_000;
/// Linux's default. A new namespace inherits the machine's setting instead.
const DEFAULT_CONGESTION_CONTROL: &str = "cubic";
/// Maximum number of a host's further addresses: each may have a routing table, and a network of 254 has them.
pub const MAX_FURTHER_ADDRESSES: u8 = 240;
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

/// One end of a link, at its host.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkEndpoint {
    /// Number of the link, counted from 0.
    pub(super) link_index: usize,
    pub(super) address: Ipv4Addr,
    pub(super) peer: Ipv4Addr,
    /// The largest packet that the host sends, in bytes.
    pub(super) mtu: u32,
}

impl LinkEndpoint {
    /// Returns the device's name, the same at both ends.
    pub(super) fn device_name(self) -> String {
        format!("link{}", self.link_index)
    }
}

/// Sets up the devices in the calling thread's namespace; returns the TUN
/// descriptors in the order of the endpoints.
pub(super) fn set_up(
    endpoints: &[LinkEndpoint],
    spec: &HostSpec,
) -> Result<Vec<OwnedFd>, TestbedError> {
    // Otherwise the kernel would send IPv6 router solicitations over the link.
    if Path::new("/proc/sys/net/ipv6").exists() {
        write_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    }
    for (name, value) in &spec.sysctls {
        write_sysctl(name, value)?;
    }
    let ioctl_socket = ioctl_socket()?;
    sys::bring_up(&ioctl_socket, "lo").context(|| "cannot bring up the loopback".into())?;
    if let Some(address) = spec.shared_address {
        sys::set_address(&ioctl_socket, "lo:1", address, Ipv4Addr::BROADCAST)
            .context(|| format!("cannot set the address {address}"))?;
    }
    if spec.peer_shared_address.is_some() {
        // Loose: answers from it come by the link that was taken, which is not the one of the best route.
        write_sysctl("ipv4/conf/all/rp_filter", "2")?;
    }
    let of_addresses = spec.addresses.iter().map(|address| address.congestion_control.as_deref());
    for name in of_addresses.chain([spec.congestion_control.as_deref()]).flatten() {
        check_congestion_control(name)?;
    }
    let congestion_control = congestion_control(spec);
    let set_up_one = |endpoint: &LinkEndpoint| {
        set_up_endpoint(*endpoint, &ioctl_socket, spec, congestion_control)
    };
    let tuns = endpoints.iter().map(set_up_one).collect::<Result<_, _>>()?;
    if let Some(first) = endpoints.first() {
        add_addresses(*first, &ioctl_socket, spec, congestion_control)?;
    }
    if let Some(subflow_use) = spec.subflows {
        for endpoint in endpoints.iter().skip(1) {
            mptcp::add_endpoint(endpoint.address, &endpoint.device_name(), subflow_use)
                .context(|| format!("cannot add the MPTCP endpoint {}", endpoint.address))?;
        }
    }
    Ok(tuns)
}

/// The state of a host's device on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// It has neither carrier nor routes, and programs on the host are told.
    Down,
    /// It has both.
    Up,
}

/// Takes a device down in the calling thread's namespace, or brings it up again, with its routes to the peer.
pub(super) fn set_state(
    endpoint: LinkEndpoint,
    spec: &HostSpec,
    state: DeviceState,
) -> Result<(), TestbedError> {
    let (ioctl_socket, device) = (ioctl_socket()?, endpoint.device_name());
    if state == DeviceState::Down {
        return sys::take_down(&ioctl_socket, &device)
            .context(|| format!("cannot take down the device {device}"));
    }
    sys::bring_up(&ioctl_socket, &device)
        .context(|| format!("cannot bring up the device {device}"))?;
    add_routes(endpoint, spec, congestion_control(spec))
}

fn ioctl_socket() -> Result<OwnedFd, TestbedError> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .context(|| "cannot open a socket".into())
}

/// Returns the congestion control of connections that do not choose their own.
fn congestion_control(spec: &HostSpec) -> Option<&str> {
    let default_algorithm = || {
        can_use_congestion_control(DEFAULT_CONGESTION_CONTROL).then_some(DEFAULT_CONGESTION_CONTROL)
    };
    spec.congestion_control.as_deref().or_else(default_algorithm)
}

/// Adds the further addresses of the host, each with a routing table of its own if it has a congestion control of its own.
fn add_addresses(
    endpoint: LinkEndpoint,
    ioctl_socket: &OwnedFd,
    spec: &HostSpec,
    congestion_control: Option<&str>,
) -> Result<(), TestbedError> {
    let device = &endpoint.device_name();
    let route = main_route(endpoint.peer, device, spec, congestion_control);
    if spec.addresses.len() > usize::from(MAX_FURTHER_ADDRESSES) {
        let cause = io::Error::other(format!("{MAX_FURTHER_ADDRESSES} are the limit"));
        let context = format!("too many addresses: {}", spec.addresses.len());
        return Err(TestbedError::Setup { context, cause });
    }
    let numbers = 1..=MAX_FURTHER_ADDRESSES;
    for (number, HostAddress { address, congestion_control }) in numbers.zip(&spec.addresses) {
        let alias = format!("{device}:{number}");
        sys::set_address(ioctl_socket, &alias, *address, NETMASK)
            .context(|| format!("cannot set the address {address}"))?;
        if congestion_control.is_some() {
            let own =
                Route { congestion_control: congestion_control.as_deref(), table: number, ..route };
            own.replace().context(|| format!("cannot add a route from {address}"))?;
            SourceRule { source: *address, table: number }
                .add()
                .context(|| format!("cannot add a rule for {address}"))?;
        }
    }
    Ok(())
}

/// Adds the routes to the peer's addresses beyond a device.
fn add_routes(
    endpoint: LinkEndpoint,
    spec: &HostSpec,
    congestion_control: Option<&str>,
) -> Result<(), TestbedError> {
    let device = &endpoint.device_name();
    let route = main_route(endpoint.peer, device, spec, congestion_control);
    // The peer's further addresses are beyond the first link.
    let further = if endpoint.link_index == 0 { &spec.peer_addresses[..] } else { &[] };
    let of_link = [endpoint.peer].into_iter().chain(further.iter().copied());
    let routes = of_link.map(|destination| Route { destination, ..route });
    // Sockets that are bound to no device take the first link, as a machine takes its first default route.
    let priority = u32::try_from(endpoint.link_index + 1).ok();
    let shared = spec.peer_shared_address.map(|to| Route { destination: to, priority, ..route });
    for route in routes.chain(shared) {
        route.replace().context(|| format!("cannot add a route to {}", route.destination))?;
    }
    Ok(())
}

fn set_up_endpoint(
    endpoint: LinkEndpoint,
    ioctl_socket: &OwnedFd,
    spec: &HostSpec,
    congestion_control: Option<&str>,
) -> Result<OwnedFd, TestbedError> {
    let device = &endpoint.device_name();
    let tun = sys::open_tun(device).map_err(tun_error)?;
    sys::set_mtu(ioctl_socket, device, endpoint.mtu.cast_signed())
        .context(|| format!("cannot set an MTU of {}", endpoint.mtu))?;
    set_queue_length(device, DEVICE_QUEUE_PACKETS)
        .context(|| format!("cannot set a device queue of {DEVICE_QUEUE_PACKETS} packets"))?;
    sys::set_address(ioctl_socket, device, endpoint.address, NETMASK)
        .context(|| format!("cannot set the address {}", endpoint.address))?;
    sys::bring_up(ioctl_socket, device)
        .context(|| format!("cannot bring up the device {device}"))?;
    add_routes(endpoint, spec, congestion_control)?;
    Ok(tun)
}

/// Returns the route to an address beyond a device, as the host has it for all connections that need no other.
fn main_route<'a>(
    destination: Ipv4Addr,
    interface: &'a str,
    spec: &HostSpec,
    congestion_control: Option<&'a str>,
) -> Route<'a> {
    Route {
        destination,
        interface,
        congestion_control,
        initial_window: spec.initial_window,
        table: RT_TABLE_MAIN,
        priority: None,
    }
}

/// Checks whether this kernel has a congestion control with this name, which may load it.
///
/// # Errors
/// [`TestbedError::CongestionControl`] if it has not.
pub fn check_congestion_control(name: &str) -> Result<(), TestbedError> {
    let available = available_congestion_controls()
        .context(|| "cannot read the congestion controls of the kernel".to_owned())?;
    // The kernel may load one that is not in the list when a socket requests it.
    if available.split_whitespace().any(|known| known == name) || can_use_congestion_control(name) {
        return Ok(());
    }
    let available = available.trim().to_owned();
    Err(TestbedError::CongestionControl { name: name.to_owned(), available })
}

/// Returns the congestion controls that sockets can ask for without loading a module, separated by spaces.
pub(crate) fn available_congestion_controls() -> io::Result<String> {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
}

/// Returns whether a socket can use this congestion control.
pub(super) fn can_use_congestion_control(name: &str) -> bool {
    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .and_then(|socket| rustix::net::sockopt::set_tcp_congestion(&socket, name))
        .is_ok()
}

fn write_sysctl(name: &str, value: &str) -> Result<(), TestbedError> {
    let path = format!("/proc/sys/net/{name}");
    fs::write(&path, value).context(|| format!("cannot write {value:?} to {path}"))
}

fn tun_error(cause: io::Error) -> TestbedError {
    let missing = match cause.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => MissingRequirement::Tun,
        Some(Errno::ACCESS | Errno::PERM) => MissingRequirement::TunAccess,
        _ => return TestbedError::Setup { context: "cannot create a TUN device".into(), cause },
    };
    TestbedError::missing(missing, cause)
}
