//! A worker's pool of idle HTTP/1.1 connections to one server.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smig_proxy::ProxyError;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};

use super::http1::Http1;
use super::server::UpstreamServer;

/// Idle connections, the most recently used last.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(clippy::vec_box, reason = "a connection goes to an exchange and back as a pointer")]
    idle: RefCell<Vec<Box<Http1>>>,
    /// Requests of this worker that wait for a connection.
    waiting: Cell<usize>,
    freed: Notify,
}

/// The result of waiting for a connection.
pub(super) enum Acquired {
    /// A connection that was checked in.
    Idle(Box<Http1>),
    /// A permit to open a new one.
    Place(OwnedSemaphorePermit),
}

impl Pool {
    /// Checks out the most recently used connection that is still open.
    pub(super) fn checkout(&self) -> Option<Box<Http1>> {
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_reusable() {
                return Some(connection);
            }
        }
    }

    /// Checks in a connection, or closes it if a request of another worker waits for its permit.
    fn checkin(&self, mut connection: Box<Http1>, server: &UpstreamServer) {
        if !connection.quiesce() {
            return;
        }
        if self.waiting.get() == 0 && server.waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        connection.idle_since = Instant::now();
        self.idle.borrow_mut().push(connection);
    }

    /// Waits until a connection is checked in, or another one may be opened.
    pub(super) async fn wait(
        &self,
        server: &UpstreamServer,
        max_waiting: usize,
        limit: Duration,
    ) -> Result<Acquired, ProxyError> {
        if let Ok(place) = Arc::clone(&server.connection_permits).try_acquire_owned() {
            return Ok(Acquired::Place(place));
        }
        let _waiting = QueueGuard::begin(self, server);
        if server.waiting.load(Ordering::Relaxed) > max_waiting {
            return Err(ProxyError::ConnectionLimit);
        }
        let turn = async {
            loop {
                tokio::select! {
                    place = Arc::clone(&server.connection_permits).acquire_owned() => {
                        return place.map(Acquired::Place).map_err(|_| ProxyError::ConnectionLimit);
                    }
                    () = self.freed.notified() => {}
                }
                if let Some(connection) = self.checkout() {
                    return Ok(Acquired::Idle(connection));
                }
            }
        };
        timeout(limit, turn).await.map_err(|_| ProxyError::ConnectionLimit)?
    }

    pub(super) fn is_empty(&self) -> bool {
        self.idle.borrow().is_empty()
    }

    /// Closes connections that were idle for longer than `idle`, that the server has closed, whose permits other
    /// workers' requests wait for, or that lead to an address that is not in `homes`.
    pub(super) fn evict_idle(
        &self,
        server: &UpstreamServer,
        idle: Duration,
        homes: Option<&[SocketAddr]>,
    ) {
        let is_home = |peer: Option<IpAddr>| match (homes, peer) {
            (Some(homes), Some(peer)) => homes.iter().any(|home| home.ip().to_canonical() == peer),
            (None, _) | (_, None) => true,
        };
        let now = Instant::now();
        let mut wanted = server.waiting.load(Ordering::Relaxed);
        self.idle.borrow_mut().retain_mut(|connection| {
            let give = wanted > 0;
            wanted -= usize::from(give);
            !give
                && is_home(connection.peer)
                && now.duration_since(connection.idle_since) < idle
                && connection.is_reusable()
        });
    }
}

struct QueueGuard<'a>(&'a Pool, &'a UpstreamServer);

impl<'a> QueueGuard<'a> {
    fn begin(pool: &'a Pool, server: &'a UpstreamServer) -> Self {
        pool.waiting.set(pool.waiting.get() + 1);
        server.waiting.fetch_add(1, Ordering::Relaxed);
        Self(pool, server)
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.1.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A checked-out connection. If it is dropped before its response has ended, it is closed.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Option<Box<Http1>>,
    pool: Rc<Pool>,
}

impl Lease {
    pub(super) fn new(connection: Box<Http1>, pool: &Rc<Pool>) -> Self {
        Self { connection: Some(connection), pool: Rc::clone(pool) }
    }

    /// Checks in the connection after its response has ended.
    pub(crate) fn release(mut self, server: &UpstreamServer) {
        if let Some(connection) = self.connection.take() {
            self.pool.checkin(connection, server);
        }
    }

    /// Removes the connection from the pool for good.
    pub(crate) fn into_inner(mut self) -> Option<Box<Http1>> {
        self.connection.take()
    }

    /// The connection; never `None` while the lease is held.
    pub(crate) fn get(&mut self) -> Option<&mut Http1> {
        self.connection.as_deref_mut()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.connection.take());
        if self.pool.waiting.get() > 0 {
            self.pool.freed.notify_one();
        }
    }
}
