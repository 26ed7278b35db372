//! A connection of the pool, while a request uses it.

use std::rc::Rc;

use super::http1::Http1Conn;
use super::pool::Pool;

/// A checked-out connection. If it is dropped before its response has ended, it is closed.
#[derive(Debug)]
pub struct Lease {
    connection: Option<Box<Http1Conn>>,
    pool: Rc<Pool>,
}

impl Lease {
    pub(super) fn new(connection: Box<Http1Conn>, pool: &Rc<Pool>) -> Self {
        Self { connection: Some(connection), pool: Rc::clone(pool) }
    }

    /// Checks in the connection after its response has ended.
    pub fn release(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.checkin(connection);
        }
    }

    /// Removes the connection from the pool permanently.
    #[must_use]
    pub fn into_inner(mut self) -> Option<Box<Http1Conn>> {
        self.connection.take()
    }

    /// The connection; never `None` while the lease is held.
    pub fn get(&mut self) -> Option<&mut Http1Conn> {
        self.connection.as_deref_mut()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.connection.take());
        self.pool.notify_pending_request();
    }
}
