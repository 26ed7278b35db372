//! System calls without a safe wrapper: `unshare`, `pre_exec`, interface
//! `ioctl`s, the scheduler. All unsafe code of the crate is here, and no other code.

#![expect(unsafe_code, reason = "system calls without a safe wrapper in rustix")]

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

/// Creates new namespaces for the calling thread; a new PID namespace is for its children.
pub(super) fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: unsafe only for a new descriptor table, which no caller requests.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Makes the kernel kill the program when the thread that starts it ends.
pub(super) fn die_with_parent(command: &mut Command) {
    let set_death_signal = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: between fork and exec the closure makes one system call and
    // neither allocates nor takes a lock.
    unsafe { command.pre_exec(set_death_signal) };
}

/// Opens a TUN device called `name` in the calling thread's namespace. Each read
/// and write is one IP packet, without the driver's packet information in front, and
/// does not block.
pub(super) fn open_tun(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = to_c_short(libc::IFF_TUN | libc::IFF_NO_PI);
    ioctl(&tun, libc::TUNSETIFF, &mut request)?;
    Ok(tun)
}

/// Sets an interface's address and netmask.
pub(super) fn set_address(
    socket: &OwnedFd,
    name: &str,
    address: Ipv4Addr,
    netmask: Ipv4Addr,
) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_addr = sockaddr(address);
    ioctl(socket, libc::SIOCSIFADDR, &mut request)?;
    request.ifr_ifru.ifru_netmask = sockaddr(netmask);
    ioctl(socket, libc::SIOCSIFNETMASK, &mut request)
}

/// Sets an interface's MTU, in bytes.
pub(super) fn set_mtu(socket: &OwnedFd, name: &str, mtu: i32) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = mtu;
    ioctl(socket, libc::SIOCSIFMTU, &mut request)
}

/// Brings an interface up.
pub(super) fn bring_up(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = to_c_short(libc::IFF_UP | libc::IFF_RUNNING);
    ioctl(socket, libc::SIOCSIFFLAGS, &mut request)
}

/// Takes an interface down; its routes go with it.
pub(super) fn take_down(socket: &OwnedFd, name: &str) -> io::Result<()> {
    ioctl(socket, libc::SIOCSIFFLAGS, &mut request(name))
}

/// Switches the calling thread to real-time scheduling (`SCHED_FIFO`).
pub(crate) fn set_realtime_scheduling() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: 0 names the calling thread, and the kernel only reads `priority`.
    // The raw system call, because not every C library implements the wrapper.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn ioctl(fd: impl AsFd, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every code used above takes a pointer to one `ifreq`, which outlives
    // the call, and `request()` has initialised all its bytes.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), code, &raw mut *request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns an empty request for the interface `name`.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is a C struct of integers and pointers; zero is valid for all.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let max_name_bytes = libc::IFNAMSIZ - 1;
    for (to, from) in request.ifr_name.iter_mut().take(max_name_bytes).zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request
}

fn to_c_short(flags: libc::c_int) -> libc::c_short {
    libc::c_short::try_from(flags).expect("interface flags fit in 15 bits")
}

fn sockaddr(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: as in `request`; zero is valid for all fields.
    let mut storage: libc::sockaddr = unsafe { std::mem::zeroed() };
    storage.sa_family = libc::AF_INET as libc::sa_family_t;
    // `sockaddr_in` is the family, two bytes of port, then the address.
    for (to, from) in storage.sa_data[2..6].iter_mut().zip(address.octets()) {
        *to = from.cast_signed();
    }
    storage
}
