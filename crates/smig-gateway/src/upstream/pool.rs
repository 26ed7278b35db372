//! HTTP/1.1 connections of one worker to one server that wait for a request.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};

use super::http1::Http1;
use super::server::Server;
use crate::proxy::Failure;

/// Connections at rest, the one used last on top.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(clippy::vec_box, reason = "a connection goes to an exchange and back as a pointer")]
    idle: RefCell<Vec<Box<Http1>>>,
    /// Requests of this worker that wait.
    waiting: Cell<usize>,
    freed: Notify,
}

/// What a request that waited gets.
pub(super) enum Turn {
    /// A connection that came back.
    Idle(Box<Http1>),
    /// The right to make one.
    Place(OwnedSemaphorePermit),
}

impl Pool {
    /// A connection that still stands.
    pub(super) fn pick(&self) -> Option<Box<Http1>> {
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.stands() {
                return Some(connection);
            }
        }
    }

    /// Takes a connection back, unless somebody elsewhere waits for its place.
    fn put(&self, mut connection: Box<Http1>, server: &Server) {
        if !connection.rest() {
            return;
        }
        if self.waiting.get() == 0 && server.waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        connection.idle_since = Instant::now();
        self.idle.borrow_mut().push(connection);
    }

    /// Waits until a connection comes back or another may be made.
    pub(super) async fn wait(
        &self,
        server: &Server,
        max_waiting: usize,
        limit: Duration,
    ) -> Result<Turn, Failure> {
        if let Ok(place) = Arc::clone(&server.places).try_acquire_owned() {
            return Ok(Turn::Place(place));
        }
        let _waiting = Waiting::begin(self, server);
        if server.waiting.load(Ordering::Relaxed) > max_waiting {
            return Err(Failure::ConnectionLimit);
        }
        let turn = async {
            loop {
                tokio::select! {
                    place = Arc::clone(&server.places).acquire_owned() => {
                        return place.map(Turn::Place).map_err(|_| Failure::ConnectionLimit);
                    }
                    () = self.freed.notified() => {}
                }
                if let Some(connection) = self.pick() {
                    return Ok(Turn::Idle(connection));
                }
            }
        };
        timeout(limit, turn).await.map_err(|_| Failure::ConnectionLimit)?
    }

    pub(super) fn is_empty(&self) -> bool {
        self.idle.borrow().is_empty()
    }

    /// Lets connections go that were not used for long, that the server has closed, whose place
    /// somebody else waits for, or that lead elsewhere than to one of `homes`.
    pub(super) fn tidy(&self, server: &Server, idle: Duration, homes: Option<&[SocketAddr]>) {
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
                && connection.stands()
        });
    }
}

struct Waiting<'a>(&'a Pool, &'a Server);

impl<'a> Waiting<'a> {
    fn begin(pool: &'a Pool, server: &'a Server) -> Self {
        pool.waiting.set(pool.waiting.get() + 1);
        server.waiting.fetch_add(1, Ordering::Relaxed);
        Self(pool, server)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.1.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection in use. Dropped before its response has ended, it is closed.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Option<Box<Http1>>,
    pool: Rc<Pool>,
}

impl Lease {
    pub(super) fn new(connection: Box<Http1>, pool: &Rc<Pool>) -> Self {
        Self { connection: Some(connection), pool: Rc::clone(pool) }
    }

    /// Gives the connection back when its response has ended.
    pub(crate) fn release(mut self, server: &Server) {
        if let Some(connection) = self.connection.take() {
            self.pool.put(connection, server);
        }
    }

    /// Takes the connection out for good.
    pub(crate) fn into_inner(mut self) -> Option<Box<Http1>> {
        self.connection.take()
    }

    /// The connection; `None` never happens while the lease is held.
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
