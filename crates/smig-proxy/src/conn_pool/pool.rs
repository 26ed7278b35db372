//! A worker's pool of idle connections to one server.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, timeout};

use super::http1::Http1Conn;
use super::lease::Lease;
use super::limits::ConnLimits;
use crate::ProxyError;

/// Idle connections, the most recently used last.
#[derive(Debug)]
pub struct Pool {
    limits: Arc<ConnLimits>,
    #[expect(clippy::vec_box, reason = "a connection is moved to an exchange and back")]
    idle_connections: RefCell<Vec<Box<Http1Conn>>>,
    /// Requests of this worker that wait for a connection.
    pending_requests: Cell<usize>,
    connection_available: Notify,
}

/// The result of waiting for a connection.
#[derive(Debug)]
pub enum ConnOrPermit {
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
            idle_connections: RefCell::default(),
            pending_requests: Cell::default(),
            connection_available: Notify::new(),
        })
    }

    /// Checks out the most recently used connection that is still open.
    #[must_use]
    pub fn checkout(self: &Rc<Self>) -> Option<Lease> {
        loop {
            let mut connection = self.idle_connections.borrow_mut().pop()?;
            if connection.is_reusable() {
                return Some(Lease::new(connection, self));
            }
        }
    }

    /// Checks out a new connection, which returns to this pool when it is released.
    #[must_use]
    pub fn lease_new(self: &Rc<Self>, connection: Http1Conn) -> Lease {
        Lease::new(Box::new(connection), self)
    }

    /// Checks in a connection, or closes it if it cannot be reused, or if a request of another worker waits for its
    /// permit.
    pub(super) fn checkin(&self, mut connection: Box<Http1Conn>) {
        if !connection.quiesce() {
            return;
        }
        if self.pending_requests.get() == 0 && self.limits.pending_requests() > 0 {
            return;
        }
        connection.idle_since = Instant::now();
        self.idle_connections.borrow_mut().push(connection);
    }

    /// Waits until a connection is checked in, or another one may be opened, for at most
    /// `wait_timeout`.
    ///
    /// # Errors
    /// [`ProxyError::ConnectionLimit`]: too many requests wait, or neither happened in time.
    pub async fn acquire(
        self: &Rc<Self>,
        wait_timeout: Duration,
    ) -> Result<ConnOrPermit, ProxyError> {
        if let Some(permit) = self.limits.try_acquire() {
            return Ok(ConnOrPermit::Permit(permit));
        }
        let _waiting = QueueGuard::begin(self);
        if self.limits.exceeds_queue_limit() {
            return Err(ProxyError::ConnectionLimit);
        }
        let acquisition = async {
            // One future for all rounds: a new one would lose this request's position in the queue.
            let mut permit = pin!(self.limits.acquire());
            loop {
                tokio::select! {
                    // Both are ready when a connection closes.
                    biased;
                    permit = &mut permit => {
                        let permit = permit.ok_or(ProxyError::ConnectionLimit)?;
                        return Ok(ConnOrPermit::Permit(permit));
                    }
                    () = self.connection_available.notified() => {}
                }
                if let Some(connection) = self.checkout() {
                    return Ok(ConnOrPermit::Idle(connection));
                }
            }
        };
        timeout(wait_timeout, acquisition).await.map_err(|_| ProxyError::ConnectionLimit)?
    }

    /// Returns whether no connection is idle.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.idle_connections.borrow().is_empty()
    }

    /// Closes connections that were idle for longer than `idle_timeout`, that the server has
    /// closed, whose permits other workers' requests wait for, or whose peer is not in `addresses`.
    pub fn evict_idle(&self, idle_timeout: Duration, addresses: Option<&[SocketAddr]>) {
        let is_current = |peer: Option<IpAddr>| match (addresses, peer) {
            (Some(current), Some(peer)) => {
                current.iter().any(|address| address.ip().to_canonical() == peer)
            }
            (None, _) | (_, None) => true,
        };
        let now = Instant::now();
        let mut wanted_permits = self.limits.pending_requests();
        self.idle_connections.borrow_mut().retain_mut(|connection| {
            let yields_permit = wanted_permits > 0;
            wanted_permits -= usize::from(yields_permit);
            !yields_permit
                && is_current(connection.peer_ip)
                && now.duration_since(connection.idle_since) < idle_timeout
                && connection.is_reusable()
        });
    }

    /// Notifies a pending request that a connection was closed or checked in.
    pub(super) fn notify_pending_request(&self) {
        if self.pending_requests.get() > 0 {
            self.connection_available.notify_one();
        }
    }
}

/// Counts a waiting request until it is dropped.
struct QueueGuard<'a>(&'a Pool);

impl<'a> QueueGuard<'a> {
    fn begin(pool: &'a Pool) -> Self {
        pool.pending_requests.set(pool.pending_requests.get() + 1);
        pool.limits.add_pending_request();
        Self(pool)
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.pending_requests.set(self.0.pending_requests.get() - 1);
        self.0.limits.remove_pending_request();
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::dial::Io;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// A pool for one connection, which is checked out, and the server's end of it.
    async fn pool() -> (Rc<Pool>, Lease, TcpStream) {
        pool_with_queue(1).await
    }

    async fn pool_with_queue(max_waiting: usize) -> (Rc<Pool>, Lease, TcpStream) {
        let pool = Pool::new(&ConnLimits::new(1, max_waiting));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let ConnOrPermit::Permit(permit) = pool.acquire(TIMEOUT).await.unwrap() else {
            panic!("idle")
        };
        let connection = Http1Conn::handshake(Io::Tcp(tcp), permit).await.unwrap();
        (Rc::clone(&pool), pool.lease_new(connection), server)
    }

    #[tokio::test]
    async fn a_closed_connection_is_not_checked_out() {
        let (pool, lease, server) = pool().await;
        lease.release();
        let lease = pool.checkout().expect("it is open");
        lease.release();
        drop(server);
        let until_closed = async {
            while let Some(lease) = pool.checkout() {
                lease.release();
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, until_closed).await.expect("the close is seen");
        assert_eq!(pool.limits.open_connections(), 0);
    }

    #[tokio::test]
    async fn closed_idle_connections_are_evicted() {
        let (pool, lease, server) = pool().await;
        lease.release();
        pool.evict_idle(TIMEOUT, None);
        assert!(!pool.is_empty());
        drop(server);
        let until_evicted = async {
            while !pool.is_empty() {
                pool.evict_idle(TIMEOUT, None);
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, until_evicted).await.expect("the close is seen");
    }

    #[tokio::test]
    async fn a_pending_request_gets_the_connection_that_is_checked_in() {
        let (pool, lease, _server) = pool().await;
        let (acquire_result, ()) = tokio::join!(pool.acquire(TIMEOUT), async {
            assert_eq!(pool.limits.pending_requests(), 1);
            assert!(matches!(pool.acquire(TIMEOUT).await, Err(ProxyError::ConnectionLimit)));
            lease.release();
        });
        assert!(matches!(acquire_result, Ok(ConnOrPermit::Idle(_))));
        assert_eq!((pool.limits.pending_requests(), pool.limits.open_connections()), (0, 1));
        drop(acquire_result);
        assert_eq!(pool.limits.open_connections(), 0);
    }

    #[tokio::test]
    async fn a_closed_connection_gives_its_permit_to_the_first_waiter() {
        for round in 0..32 {
            let (pool, lease, _server) = pool_with_queue(2).await;
            let order = RefCell::new(Vec::new());
            let acquire = async |name| {
                let acquired = pool.acquire(TIMEOUT).await;
                assert!(
                    matches!(acquired, Ok(ConnOrPermit::Permit(_))),
                    "round {round}: {acquired:?}"
                );
                order.borrow_mut().push(name);
            };
            tokio::join!(biased; acquire("first"), acquire("second"), async {
                assert_eq!(pool.limits.pending_requests(), 2);
                drop(lease);
            });
            assert_eq!(*order.borrow(), ["first", "second"], "round {round}");
        }
    }
}
