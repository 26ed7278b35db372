//! Resolves a destination and connects to it.

use std::fmt;
use std::io;
use std::time::Duration;

use smig::Resolver;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::failure::ForwardError;

/// Idle time after which the kernel sends TCP keep-alive probes.
const KEEPALIVE_IDLE_TIME: Duration = Duration::from_secs(60);

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostPort {
    /// In lower case, without brackets and without a trailing dot.
    pub(super) host: String,
    pub(super) port: u16,
}

/// Maximum length of a host name in its text form.
const MAX_HOST_NAME_BYTES: usize = 253;

impl HostPort {
    /// Normalizes a URI's host; `None` if it is too long for a name, or has an empty label (RFC 1035 section 2.3.4).
    pub(super) fn new(host: &str, port: u16) -> Option<Self> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let bare = bare.strip_suffix('.').unwrap_or(bare);
        let is_valid = bare.len() <= MAX_HOST_NAME_BYTES && !bare.split('.').any(str::is_empty);
        is_valid.then(|| Self { host: bare.to_ascii_lowercase(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Connects to one of the target's addresses that the resolver permits.
///
/// # Errors
/// The rules forbid the target, the name cannot be resolved, too many lookups are waiting, a
/// resource needed to check the address is exhausted, or no connection is established within
/// `timeout`.
pub(super) async fn dial(
    target: &HostPort,
    resolver: &Resolver,
    timeout: Duration,
) -> Result<TcpStream, ForwardError> {
    let deadline = Instant::now() + timeout;
    let addrs = timeout_at(deadline, resolver.resolve(&target.host, target.port))
        .await
        .map_err(|_| ForwardError::dns_timeout(&target.host))?
        .map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                ForwardError::destination_ip_prohibited(format!("{target} is not allowed: {error}"))
            }
            io::ErrorKind::ResourceBusy => ForwardError::resolver_busy(&target.host, &error),
            _ => ForwardError::dns_error(&target.host, &error),
        })?;
    let tcp = timeout_at(deadline, smig::connect_any(addrs))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|error| ForwardError::connect_failed(&target.to_string(), &error))?;
    // Best effort: the connection works without these options.
    let _ = tcp.set_nodelay(true);
    let _ =
        SockRef::from(&tcp).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_IDLE_TIME));
    Ok(tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_host_names_are_rejected() {
        let host = |len| "a".repeat(len);
        assert!(
            HostPort::new(&host(253), 80).is_some()
                && HostPort::new(&(host(253) + "."), 80).is_some()
        );
        for host in
            ["", ".", "..", "a..", "a..b", ".a"].map(str::to_owned).into_iter().chain([host(254)])
        {
            assert!(HostPort::new(&host, 80).is_none(), "{} {host}", host.len());
        }
        for host in ["::1", "[::ffff:1.2.3.4]", "1.2.3.4", "a.b."] {
            assert!(HostPort::new(host, 80).is_some(), "{host}");
        }
    }
}
