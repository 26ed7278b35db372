//! The server of the admin interface, on a loopback port.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use serde::Deserialize;
use smig::{CleartextTrust, Server};

use super::service::AdminService;
use super::snapshot_cache::SnapshotCache;
use super::target::AdminTarget;

/// Maximum number of concurrent connections to the admin port.
const MAX_CONNECTIONS: usize = 64;

/// Configuration of the admin interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSpec {
    /// A loopback address and a port: everyone who can log in to this machine may see the page. Remote access
    /// needs a reverse proxy that authenticates its users.
    pub listen: SocketAddr,
}

/// The running admin interface; dropping it closes its port at once.
#[derive(Debug)]
pub struct Admin {
    addr: SocketAddr,
    _server: Server,
}

impl Admin {
    /// The listening address, with the actual port.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Why the admin interface did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is reachable from other machines.
    #[error(
        "admin.listen: {0} is not a loopback address; use 127.0.0.1 or [::1], and a reverse proxy \
         with authentication for remote access"
    )]
    NotLocal(SocketAddr),
    /// The address cannot be bound.
    #[error("admin.listen: {0}")]
    Listen(#[source] smig::Error),
}

/// Starts the admin interface.
///
/// # Errors
/// The address is not a loopback address, or cannot be bound.
pub fn start(spec: &AdminSpec, target: AdminTarget) -> Result<Admin, AdminError> {
    if !spec.listen.ip().to_canonical().is_loopback() {
        return Err(AdminError::NotLocal(spec.listen));
    }
    let service = AdminService::new(SnapshotCache::new(target));
    let server = Server::builder()
        .listen_cleartext(spec.listen, CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .max_connections(MAX_CONNECTIONS)
        .start(service)
        .map_err(AdminError::Listen)?;
    let addr = server.local_addrs().first().copied().unwrap_or(spec.listen);
    Ok(Admin { addr, _server: server })
}
