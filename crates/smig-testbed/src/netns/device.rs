//! Devices, addresses and routes of a host: the setup inside its namespace, by
//! a thread in that namespace.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::error::{LabError, Missing, Step};
use super::host_spec::HostSpec;
use super::netlink::{Route, set_queue_length};
use super::sys;

/// Queue length in packets: the bottleneck must be the model, not the device.
const DEVICE_QUEUE: u32 = 10_000;
/// Linux's default. A new namespace inherits the machine's setting instead.
const USUAL_CONGESTION_CONTROL: &str = "cubic";
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

/// One end of a link, at its host.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkEndpoint {
    /// Number of the link, counted from 0.
    pub(super) link: usize,
    pub(super) address: Ipv4Addr,
    pub(super) peer: Ipv4Addr,
    /// The largest packet that the host sends, in bytes.
    pub(super) mtu: u32,
}

impl LinkEndpoint {
    /// Returns the device's name, the same at both ends.
    pub(super) fn device(self) -> String {
        format!("link{}", self.link)
    }
}

/// Sets up the devices in the calling thread's namespace; returns the TUN
/// descriptors in the order of the ends.
pub(super) fn set_up(ends: &[LinkEndpoint], spec: &HostSpec) -> Result<Vec<OwnedFd>, LabError> {
    // Otherwise the kernel would send IPv6 router solicitations over the link.
    if Path::new("/proc/sys/net/ipv6").exists() {
        write_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    }
    for (name, value) in &spec.sysctls {
        write_sysctl(name, value)?;
    }
    let control = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .step(|| "cannot open a socket".into())?;
    sys::set_up(&control, "lo").step(|| "cannot bring up the loopback".into())?;
    check_congestion_control(spec)?;
    let usual = || loads(USUAL_CONGESTION_CONTROL).then_some(USUAL_CONGESTION_CONTROL);
    let congestion_control = spec.congestion_control.as_deref().or_else(usual);
    let set_up = |end: &LinkEndpoint| set_up_end(*end, &control, spec, congestion_control);
    ends.iter().map(set_up).collect()
}

fn set_up_end(
    end: LinkEndpoint,
    control: &OwnedFd,
    spec: &HostSpec,
    congestion_control: Option<&str>,
) -> Result<OwnedFd, LabError> {
    let device = &end.device();
    let tun = sys::open_tun(device).map_err(tun_error)?;
    sys::set_mtu(control, device, end.mtu.cast_signed())
        .step(|| format!("cannot set an MTU of {}", end.mtu))?;
    set_queue_length(device, DEVICE_QUEUE)
        .step(|| format!("cannot set a device queue of {DEVICE_QUEUE} packets"))?;
    sys::set_address(control, device, end.address, NETMASK)
        .step(|| format!("cannot set the address {}", end.address))?;
    sys::set_up(control, device).step(|| format!("cannot bring up the device {device}"))?;
    let route = Route {
        to: end.peer,
        interface: device,
        congestion_control,
        initial_window: spec.initial_window,
    };
    route.add().step(|| format!("cannot add a route to {}", end.peer))?;
    Ok(tun)
}

fn check_congestion_control(spec: &HostSpec) -> Result<(), LabError> {
    let Some(name) = spec.congestion_control.as_deref() else { return Ok(()) };
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = fs::read_to_string(path).step(|| format!("cannot read {path}"))?;
    // The kernel may load one that is not in the list when a socket requests it.
    if available.split_whitespace().any(|known| known == name) || loads(name) {
        return Ok(());
    }
    let available = available.trim().to_owned();
    Err(LabError::CongestionControl { name: name.to_owned(), available })
}

/// Returns whether a socket can use this congestion control.
pub(super) fn loads(name: &str) -> bool {
    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .and_then(|socket| rustix::net::sockopt::set_tcp_congestion(&socket, name))
        .is_ok()
}

fn write_sysctl(name: &str, value: &str) -> Result<(), LabError> {
    let path = format!("/proc/sys/net/{name}");
    fs::write(&path, value).step(|| format!("cannot write {value:?} to {path}"))
}

fn tun_error(cause: io::Error) -> LabError {
    let missing = match cause.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Missing::Tun,
        Some(Errno::ACCESS | Errno::PERM) => Missing::TunAccess,
        _ => return LabError::Setup { step: "cannot create a TUN device".into(), cause },
    };
    LabError::missing(missing, cause)
}
