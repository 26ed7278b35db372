//! Listen addresses, and the check that they are free.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use crate::exit::{CliError, Exit};
use crate::settings::{DEFAULT_PORT, ListenAddresses};

/// Returns the listen addresses, each checked to be free.
///
/// The server's workers share their addresses (SO_REUSEPORT), so a second server would silently
/// take half of the first one's clients. Therefore each address is first bound without
/// SO_REUSEPORT.
pub(super) fn resolve_free_addresses(
    listen: &ListenAddresses,
) -> Result<Vec<SocketAddr>, CliError> {
    match listen {
        ListenAddresses::At(addrs) => {
            for &addr in addrs {
                try_bind(addr).map_err(|error| bind_error(addr, &error))?;
            }
            Ok(addrs.clone())
        }
        ListenAddresses::Default => {
            let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT));
            let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, DEFAULT_PORT));
            try_bind(v4).map_err(|error| bind_error(v4, &error))?;
            match try_bind(v6) {
                Ok(()) => Ok(vec![v4, v6]),
                Err(error) if error.kind() == ErrorKind::AddrInUse => Err(bind_error(v6, &error)),
                // No IPv6 on this machine.
                Err(_) => Ok(vec![v4]),
            }
        }
    }
}

fn try_bind(addr: SocketAddr) -> std::io::Result<()> {
    TcpListener::bind(addr).map(drop)
}

fn bind_error(addr: SocketAddr, error: &std::io::Error) -> CliError {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another program is listening there (ss -ltnp 'sport = :{port}' shows it); stop it, or \
             choose another port with --listen {ip}:PORT (0 takes any free port)",
            port = addr.port(),
            ip = if addr.is_ipv6() { format!("[{}]", addr.ip()) } else { addr.ip().to_string() },
        ),
        ErrorKind::AddrNotAvailable => {
            "this machine has no such address; `ip addr` lists its addresses".to_owned()
        }
        ErrorKind::PermissionDenied => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose a higher port".to_owned()
        }
        _ => "choose another address with --listen".to_owned(),
    };
    CliError::new(Exit::Usage, format!("cannot listen on {addr}: {error}: {hint}"))
}
