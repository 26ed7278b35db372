//! Closes all connections to a server at once, below the libraries that own them, as the kernel
//! does when a browser is closed.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{Shutdown, getpeername, shutdown};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Shuts down this process's connections to `server` in both directions. Their owners read EOF and
/// close them; the kernel answers later segments with resets.
pub(super) fn close_connections_to(server: SocketAddr) {
    for socket in sockets() {
        let peer = getpeername(&socket).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer == Some(server) {
            // An error is ignored: the connection may have just ended.
            let _ = shutdown(&socket, Shutdown::Both);
        }
    }
}

/// Returns duplicates of all socket descriptors of this process.
fn sockets() -> Vec<OwnedFd> {
    let Ok(own_pidfd) = pidfd_open(getpid(), PidfdFlags::empty()) else { return Vec::new() };
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let is_socket = target.to_string_lossy().starts_with("socket:");
        is_socket.then(|| entry.file_name().to_string_lossy().parse::<i32>().ok())?
    });
    numbers
        .filter_map(|number| pidfd_getfd(&own_pidfd, number, PidfdGetfdFlags::empty()).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_connections_to_the_server_end() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (server, other_server) = (listen(), listen());
        let connect = |to: &TcpListener| TcpStream::connect(to.local_addr().unwrap()).unwrap();
        let (closed_client, open_client) = (connect(&server), connect(&other_server));
        close_connections_to(server.local_addr().unwrap());
        let mut accepted = server.accept().unwrap().0;
        assert_eq!(accepted.read(&mut [0; 1]).unwrap(), 0, "the server sees the end");
        drop(closed_client);
        let accepted = other_server.accept().unwrap().0;
        accepted.set_nonblocking(true).unwrap();
        let error = (&accepted).read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        drop(open_client);
    }
}
