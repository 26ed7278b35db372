//! The system calls that no safe crate wraps. The only unsafe code of this crate.
//!
//! Each function is safe to call with any descriptor: for a wrong one the kernel returns an error.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::TcpInfo;

/// Returns TCP_INFO of a socket; fields that the kernel's structure lacks are zero.
#[expect(unsafe_code, reason = "getsockopt into a plain structure of integers")]
pub(super) fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut info = TcpInfo::default();
    let mut len = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the buffer is `len` bytes long, lives across the call, and every bit pattern is a
    // valid TcpInfo. The kernel writes at most `len` bytes.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

/// Sets SO_MAX_PACING_RATE, bytes per second.
#[expect(unsafe_code, reason = "setsockopt with an integer")]
pub(super) fn set_max_pacing_rate(fd: BorrowedFd<'_>, rate: u64) -> io::Result<()> {
    // SAFETY: the value lives across the call and its size is given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets TCP_WINDOW_CLAMP, bytes.
#[expect(unsafe_code, reason = "setsockopt with an integer")]
pub(super) fn set_window_clamp(fd: BorrowedFd<'_>, bytes: libc::c_int) -> io::Result<()> {
    // SAFETY: the value lives across the call and its size is given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_WINDOW_CLAMP,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
