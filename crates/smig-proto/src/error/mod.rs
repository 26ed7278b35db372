//! Errors: the cause ([`Cause`]), its scope ([`InputError`]), and what is reported to the
//! application ([`ConnectionError`], [`StreamError`]).

mod cause;
mod code;

use core::fmt;

pub use cause::Cause;
pub use code::ErrorCode;

use crate::ids::{ConnId, StreamId};

/// The scope of an error in the peer's input: a connection error or a stream error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputError {
    Connection(Cause),
    Stream(StreamId, Cause),
}

impl InputError {
    /// Returns a stream error for `stream`, or a connection error if it is stream 0.
    pub(crate) const fn for_stream(stream: StreamId, cause: Cause) -> Self {
        if stream.is_connection() { Self::Connection(cause) } else { Self::Stream(stream, cause) }
    }
}

impl From<Cause> for InputError {
    fn from(cause: Cause) -> Self {
        Self::Connection(cause)
    }
}

/// The party that ended a stream or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// The application on this side.
    User,
    /// The engine on this side, because of the peer's behavior or a limit.
    Local,
    /// The peer.
    Peer,
    /// The transport: the connection was lost.
    Transport,
}

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code of the GOAWAY that this side sent; CANCEL if the connection was lost.
    pub code: ErrorCode,
    /// The party that ended it.
    pub initiator: Initiator,
    /// The cause, if this side detected it.
    pub cause: Option<Cause>,
    /// The transport's error message; empty if this side ended the connection.
    pub detail: String,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection ended by {} with {}", InitiatorText(self.initiator), self.code)?;
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
    /// It did not: a retry is safe.
    No,
    /// It may have.
    Maybe,
}

/// The reason why a stream ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The code of the RST_STREAM that was sent or received, or the code that corresponds to the
    /// loss of the connection.
    pub code: ErrorCode,
    /// The party that ended it.
    pub initiator: Initiator,
    /// The cause, if this side detected it.
    pub cause: Option<Cause>,
    /// The connection that carried the stream when it ended.
    pub connection: ConnId,
    /// Whether the peer may have acted on the request.
    pub processed: Processed,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (initiator, code, conn) = (InitiatorText(self.initiator), self.code, self.connection);
        write!(f, "stream ended by {initiator} with {code} on connection {conn}")?;
        if let Some(cause) = self.cause {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StreamError {}

struct InitiatorText(Initiator);

impl fmt::Display for InitiatorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Initiator::User => "the application",
            Initiator::Local => "this side",
            Initiator::Peer => "the peer",
            Initiator::Transport => "the transport",
        })
    }
}
