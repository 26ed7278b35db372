//! One host: a network namespace with a TUN device in it.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::error::{LabError, Missing, Step};
use super::netlink::{Route, set_queue_length};
use super::sys;

/// The device's name, the same in both hosts.
const DEVICE: &str = "link";
const MTU: i32 = 1500;
/// The device must never be the bottleneck: the model is.
const DEVICE_QUEUE: u32 = 10_000;
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

/// How a host's TCP is set up. The default is Linux's own, with what is left
/// over from earlier connections forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    congestion_control: Option<String>,
    initial_window: Option<u32>,
    sysctls: Vec<(String, String)>,
}

impl Default for HostSpec {
    fn default() -> Self {
        let host = Self { congestion_control: None, initial_window: None, sysctls: Vec::new() };
        host.sysctl("ipv4/tcp_no_metrics_save", "1")
            .send_buffer(4_096, 16_384, 4_194_304)
            .receive_buffer(4_096, 131_072, 6_291_456)
    }
}

impl HostSpec {
    /// The congestion control of every connection to the peer that does not
    /// choose its own: `cubic`, `bbr`, `reno`, as the kernel has them.
    #[must_use]
    pub fn congestion_control(mut self, name: &str) -> Self {
        self.congestion_control = Some(name.to_owned());
        self
    }

    /// The initial congestion window, in segments.
    #[must_use]
    pub const fn initial_window(mut self, segments: u32) -> Self {
        self.initial_window = Some(segments);
        self
    }

    /// Least, initial and largest send buffer (`tcp_wmem`), in bytes.
    #[must_use]
    pub fn send_buffer(self, least: u64, initial: u64, most: u64) -> Self {
        self.sysctl("ipv4/tcp_wmem", &format!("{least} {initial} {most}"))
    }

    /// Least, initial and largest receive buffer (`tcp_rmem`), in bytes.
    #[must_use]
    pub fn receive_buffer(self, least: u64, initial: u64, most: u64) -> Self {
        self.sysctl("ipv4/tcp_rmem", &format!("{least} {initial} {most}"))
    }

    /// Any file below `/proc/sys/net` that belongs to a namespace, for example
    /// `ipv4/tcp_sack`. A later value replaces an earlier one.
    #[must_use]
    pub fn sysctl(mut self, name: &str, value: &str) -> Self {
        self.sysctls.retain(|(earlier, _)| earlier != name);
        self.sysctls.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A host of the testbed. Clones are the same host.
#[derive(Debug, Clone)]
pub struct Host {
    name: &'static str,
    address: Ipv4Addr,
    namespace: Arc<OwnedFd>,
}

impl Host {
    /// Makes a namespace with a device that leads to `peer`. Runs on a thread
    /// of its own, which alone enters the namespace and then ends.
    pub(super) fn make(
        name: &'static str,
        address: Ipv4Addr,
        peer: Ipv4Addr,
        spec: HostSpec,
    ) -> Result<(Self, OwnedFd), LabError> {
        thread::Builder::new()
            .name(format!("make-{name}"))
            .spawn(move || {
                sys::unshare(UnshareFlags::NEWNET)
                    .map_err(|errno| LabError::missing(Missing::NetworkNamespace, errno))?;
                let namespace = rustix::fs::open(
                    "/proc/thread-self/ns/net",
                    OFlags::RDONLY | OFlags::CLOEXEC,
                    Mode::empty(),
                )
                .step(|| "cannot open /proc/thread-self/ns/net".into())?;
                let tun = set_up(address, peer, &spec)?;
                Ok((Self { name, address, namespace: Arc::new(namespace) }, tun))
            })
            .step(|| "cannot start a thread".into())?
            .join()
            .expect("setting up a host does not panic")
    }

    /// The host's address on the link.
    #[must_use]
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Runs `work` on a new thread inside the host. Sockets that it opens,
    /// threads that it starts and programs that it runs are inside as well; a
    /// runtime belongs inside the closure too.
    ///
    /// # Errors
    /// When the thread cannot be started or cannot enter the host.
    pub fn run<T, F>(&self, work: F) -> io::Result<Running<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let namespace = Arc::clone(&self.namespace);
        let (entered, wait) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(self.name.to_owned()).spawn(move || {
            let result =
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
            let inside = result.is_ok();
            // The receiver waits for exactly this.
            let _ = entered.send(result);
            inside.then(work)
        })?;
        wait.recv().map_err(|_| io::Error::other("the host's thread ended early"))??;
        Ok(Running(thread))
    }

    /// Whether a socket inside the host gets this congestion control; the
    /// kernel may load it for that.
    ///
    /// # Errors
    /// When the host cannot be entered.
    pub fn has_congestion_control(&self, name: &str) -> io::Result<bool> {
        let name = name.to_owned();
        Ok(self.run(move || loads(&name))?.join().expect("opening a socket does not panic"))
    }

    /// Packets that the host's own device dropped, in either direction. They
    /// never reached the link: a run with any is not a measurement of it.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read.
    pub fn device_drops(&self) -> io::Result<u64> {
        let read = || fs::read_to_string("/proc/thread-self/net/dev");
        let text = self.run(read)?.join().expect("reading a file does not panic")?;
        drops_of(&text).ok_or_else(|| io::Error::other("the host's device is gone"))
    }
}

/// Work that runs in a host.
#[derive(Debug)]
pub struct Running<T>(JoinHandle<Option<T>>);

impl<T> Running<T> {
    /// Waits for the end of the work.
    ///
    /// # Errors
    /// The work's panic, as from [`JoinHandle::join`].
    pub fn join(self) -> thread::Result<T> {
        self.0.join().map(|value| value.expect("run() has seen the thread enter the host"))
    }

    /// Whether the work has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// The sum of both drop counters of the device in the text of `net/dev`.
fn drops_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // Received: bytes packets errs drop ...; sent: the same from the ninth on.
    Some(fields.get(3)? + fields.get(11)?)
}

/// Sets up everything in the calling thread's namespace; gives the TUN device.
fn set_up(address: Ipv4Addr, peer: Ipv4Addr, spec: &HostSpec) -> Result<OwnedFd, LabError> {
    // Otherwise IPv6 would send router solicitations over the link.
    if Path::new("/proc/sys/net/ipv6").exists() {
        write_sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    }
    for (name, value) in &spec.sysctls {
        write_sysctl(name, value)?;
    }
    let tun = sys::open_tun(DEVICE).map_err(tun_error)?;
    let control = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .step(|| "cannot open a socket".into())?;
    sys::set_up(&control, "lo").step(|| "cannot bring up the loopback".into())?;
    sys::set_mtu(&control, DEVICE, MTU).step(|| format!("cannot set an MTU of {MTU}"))?;
    set_queue_length(DEVICE, DEVICE_QUEUE)
        .step(|| format!("cannot set a device queue of {DEVICE_QUEUE} packets"))?;
    sys::set_address(&control, DEVICE, address, NETMASK)
        .step(|| format!("cannot set the address {address}"))?;
    sys::set_up(&control, DEVICE).step(|| "cannot bring up the link device".into())?;
    add_route(peer, spec)?;
    Ok(tun)
}

fn add_route(peer: Ipv4Addr, spec: &HostSpec) -> Result<(), LabError> {
    let congestion_control = spec.congestion_control.as_deref();
    if let Some(name) = congestion_control {
        let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let available = fs::read_to_string(path).step(|| format!("cannot read {path}"))?;
        // The kernel may load one that is not in the list when a socket asks for it.
        if !available.split_whitespace().any(|known| known == name) && !loads(name) {
            return Err(LabError::CongestionControl {
                name: name.to_owned(),
                available: available.trim().to_owned(),
            });
        }
    }
    let initial_window = spec.initial_window;
    Route { to: peer, interface: DEVICE, congestion_control, initial_window }
        .add()
        .step(|| format!("cannot add a route to {peer}"))
}

/// Whether a socket gets this congestion control.
fn loads(name: &str) -> bool {
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
        _ => return LabError::Setup { step: "cannot make a TUN device".into(), cause },
    };
    LabError::missing(missing, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_kernels_table() {
        let text = "Inter-|   Receive                |  Transmit\n \
             face |bytes packets errs drop fifo frame compressed multicast|bytes ...\n    \
             lo:       0       0    0    7    0     0          0         0        0       0    0    1    0     0       0          0\n  \
             link:   100       2    0    3    0     0          0         0      200       4    0    5    0     0       0          0\n";
        assert_eq!(drops_of(text), Some(8));
        assert_eq!(drops_of("nothing"), None);
    }

    #[test]
    fn a_later_sysctl_replaces_an_earlier_one() {
        let spec = HostSpec::default().send_buffer(1, 2, 3).send_buffer(4, 5, 6);
        let wmem: Vec<_> =
            spec.sysctls.iter().filter(|(name, _)| name == "ipv4/tcp_wmem").collect();
        assert_eq!(wmem, [&("ipv4/tcp_wmem".to_owned(), "4 5 6".to_owned())]);
    }
}
