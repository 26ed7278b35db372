//! A worker's pool of idle connections to one server.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};

use super::http1::Http1;
use super::lease::Lease;
use super::limits::ConnLimits;
use crate::ProxyError;

/// Idle connections, the most recently used last.
#[derive(Debug)]
pub struct Pool {
    limits: Arc<ConnLimits>,
    #[expect(clippy::vec_box, reason = "a connection goes to an exchange and back as a pointer")]
    idle: RefCell<Vec<Box<Http1>>>,
    /// Requests of this worker that wait for a connection.
    waiting: Cell<usize>,
    freed: Notify,
}

/// The result of waiting for a connection.
#[derive(Debug)]
pub enum Acquired {
    /// A connection that was checked in.
    Idle(Lease),
    /// A permit to open a new one.
    Permit(OwnedSemaphorePermit),
}

impl Pool {
    /// Creates an empty pool; `limits` are those of the server, which the pools of all workers share.
    #[must_use]
    pub fn new(limits: &Arc<ConnLimits>) -> Rc<Self> {
        Rc::new(Self {
            limits: Arc::clone(limits),
            idle: RefCell::default(),
            waiting: Cell::default(),
            freed: Notify::new(),
        })
    }

    /// Checks out the most recently used connection that is still open.
    #[must_use]
    pub fn checkout(self: &Rc<Self>) -> Option<Lease> {
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_reusable() {
                return Some(Lease::new(connection, self));
            }
        }
    }

    /// Adds a new connection, which is checked out.
    #[must_use]
    pub fn add(self: &Rc<Self>, connection: Http1) -> Lease {
        Lease::new(Box::new(connection), self)
    }

    /// Checks in a connection, or closes it if a request of another worker waits for its permit.
    pub(super) fn checkin(&self, mut connection: Box<Http1>) {
        if !connection.quiesce() {
            return;
        }
        if self.waiting.get() == 0 && self.limits.waiting() > 0 {
            return;
        }
        connection.idle_since = Instant::now();
        self.idle.borrow_mut().push(connection);
    }

    /// Waits until a connection is checked in, or another one may be opened: for `limit` at most.
    ///
    /// # Errors
    /// [`ProxyError::ConnectionLimit`]: too many requests wait, or none of both happened in time.
    pub async fn wait(self: &Rc<Self>, limit: Duration) -> Result<Acquired, ProxyError> {
        if let Some(permit) = self.limits.try_acquire() {
            return Ok(Acquired::Permit(permit));
        }
        let _waiting = QueueGuard::begin(self);
        if self.limits.is_queue_full() {
            return Err(ProxyError::ConnectionLimit);
        }
        let turn = async {
            // One future for all turns: a new one would wait behind those that came later.
            let mut permit = pin!(self.limits.acquire());
            loop {
                tokio::select! {
                    // Both are ready when a connection closes.
                    biased;
                    permit = &mut permit => {
                        let permit = permit.ok_or(ProxyError::ConnectionLimit)?;
                        return Ok(Acquired::Permit(permit));
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

    /// Returns whether no connection is idle.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.idle.borrow().is_empty()
    }

    /// Closes connections that were idle for longer than `idle`, that the server has closed, whose permits other
    /// workers' requests wait for, or that lead to an address that is not in `homes`.
    pub fn evict_idle(&self, idle: Duration, homes: Option<&[SocketAddr]>) {
        let is_home = |peer: Option<IpAddr>| match (homes, peer) {
            (Some(homes), Some(peer)) => homes.iter().any(|home| home.ip().to_canonical() == peer),
            (None, _) | (_, None) => true,
        };
        let now = Instant::now();
        let mut wanted = self.limits.waiting();
        self.idle.borrow_mut().retain_mut(|connection| {
            let give = wanted > 0;
            wanted -= usize::from(give);
            !give
                && is_home(connection.peer)
                && now.duration_since(connection.idle_since) < idle
                && connection.is_reusable()
        });
    }

    /// Notifies a waiting request that a connection was closed or checked in.
    pub(super) fn notify_waiting(&self) {
        if self.waiting.get() > 0 {
            self.freed.notify_one();
        }
    }
}

/// Counts a waiting request until it is dropped.
struct QueueGuard<'a>(&'a Pool);

impl<'a> QueueGuard<'a> {
    fn begin(pool: &'a Pool) -> Self {
        pool.waiting.set(pool.waiting.get() + 1);
        pool.limits.add_waiting();
        Self(pool)
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.0.limits.remove_waiting();
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::dial::Io;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A pool for one connection, which is checked out, and the server's end of it.
    async fn pool() -> (Rc<Pool>, Lease, TcpStream) {
        pool_with_queue(1).await
    }

    async fn pool_with_queue(max_waiting: usize) -> (Rc<Pool>, Lease, TcpStream) {
        let pool = Pool::new(&ConnLimits::new(1, max_waiting));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let Acquired::Permit(permit) = pool.wait(LIMIT).await.unwrap() else { panic!("idle") };
        let connection = Http1::handshake(Io::Tcp(tcp), permit).await.unwrap();
        (Rc::clone(&pool), pool.add(connection), server)
    }

    #[tokio::test]
    async fn a_connection_that_its_server_has_closed_is_not_checked_out_again() {
        let (pool, lease, server) = pool().await;
        lease.release();
        let lease = pool.checkout().expect("it is open");
        lease.release();
        drop(server);
        let closed = async {
            while let Some(lease) = pool.checkout() {
                lease.release();
                tokio::task::yield_now().await;
            }
        };
        timeout(LIMIT, closed).await.expect("the close is seen");
        assert_eq!(pool.limits.open(), 0);
    }

    #[tokio::test]
    async fn idle_connections_that_their_server_has_closed_are_evicted() {
        let (pool, lease, server) = pool().await;
        lease.release();
        pool.evict_idle(LIMIT, None);
        assert!(!pool.is_empty());
        drop(server);
        let evicted = async {
            while !pool.is_empty() {
                pool.evict_idle(LIMIT, None);
                tokio::task::yield_now().await;
            }
        };
        timeout(LIMIT, evicted).await.expect("the close is seen");
    }

    #[tokio::test]
    async fn what_waits_gets_the_connection_that_is_checked_in() {
        let (pool, lease, _server) = pool().await;
        let (waited, ()) = tokio::join!(pool.wait(LIMIT), async {
            assert_eq!(pool.limits.waiting(), 1);
            assert!(matches!(pool.wait(LIMIT).await, Err(ProxyError::ConnectionLimit)));
            lease.release();
        });
        assert!(matches!(waited, Ok(Acquired::Idle(_))));
        assert_eq!((pool.limits.waiting(), pool.limits.open()), (0, 1));
        drop(waited);
        assert_eq!(pool.limits.open(), 0);
    }

    #[tokio::test]
    async fn a_connection_that_closes_makes_room_for_the_first_in_line() {
        for round in 0..32 {
            let (pool, lease, _server) = pool_with_queue(2).await;
            let order = RefCell::new(Vec::new());
            let wait = async |name| {
                let waited = pool.wait(LIMIT).await;
                assert!(matches!(waited, Ok(Acquired::Permit(_))), "round {round}: {waited:?}");
                order.borrow_mut().push(name);
            };
            tokio::join!(biased; wait("first"), wait("second"), async {
                assert_eq!(pool.limits.waiting(), 2);
                drop(lease);
            });
            assert_eq!(*order.borrow(), ["first", "second"], "round {round}");
        }
    }
}
