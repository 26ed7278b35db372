//! Errors: what was wrong ([`Cause`]), whom it hits ([`Fault`]), and what the application is told
//! ([`ConnectionError`], [`StreamError`]).

mod cause;
mod code;

use core::fmt;

pub use cause::Cause;
pub use code::ErrorCode;

use crate::conn::ConnId;
use crate::wire::StreamId;

/// What an error in peer input ends: one stream or the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Connection(Cause),
    Stream(StreamId, Cause),
}

impl Fault {
    /// A fault of `stream`, or of the connection if it is stream 0.
    pub(crate) const fn on(stream: StreamId, cause: Cause) -> Self {
        if stream.is_connection() { Self::Connection(cause) } else { Self::Stream(stream, cause) }
    }
}

impl From<Cause> for Fault {
    fn from(cause: Cause) -> Self {
        Self::Connection(cause)
    }
}

/// Who ended a stream or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// The application on this side.
    User,
    /// The engine on this side, because of what the peer did or a limit.
    Local,
    /// The peer said so.
    Peer,
    /// The transport failed.
    Transport,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code of the GOAWAY that was sent or received.
    pub code: ErrorCode,
    /// Who ended it.
    pub initiator: Initiator,
    /// What was wrong, if this side found it.
    pub cause: Option<Cause>,
    /// The peer's words, or the transport's.
    pub detail: String,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection ended by {} with {}", Who(self.initiator), self.code)?;
        if let Some(cause) = self.cause {
            write!(f, ": {cause}")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectionError {}

/// Whether the peer may have acted on a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processed {
    /// It certainly did not: sending it again is safe.
    No,
    /// It may have.
    Maybe,
}

/// Why a stream ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The code of the RST_STREAM that was sent or received, or that its loss amounts to.
    pub code: ErrorCode,
    /// Who ended it.
    pub initiator: Initiator,
    /// What was wrong, if this side found it.
    pub cause: Option<Cause>,
    /// The connection on which it ended.
    pub connection: ConnId,
    /// Whether the peer may have acted on it.
    pub processed: Processed,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, code, conn) = (Who(self.initiator), self.code, self.connection);
        write!(f, "stream ended by {who} with {code} on connection {conn}")?;
        if let Some(cause) = self.cause {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StreamError {}

struct Who(Initiator);

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Initiator::User => "the application",
            Initiator::Local => "this side",
            Initiator::Peer => "the peer",
            Initiator::Transport => "the transport",
        })
    }
}
