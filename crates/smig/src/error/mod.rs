//! The crate's public error type: opaque, with accessors that classify it.

mod tls_error;

use std::fmt;
use std::io;
use std::time::Duration;

pub(crate) use tls_error::IssuerError;
pub use tls_error::TlsError;

use smig_proto::{ConnId, ConnectionError, ErrorCode, Initiator, Processed, StreamError};

/// Any error as a trait object.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a request, a body, a connection or a configuration.
#[derive(Debug)]
pub struct Error(Box<ErrorKind>);

/// Error with which a body sets the code of its stream's RST_STREAM. Without it the code is INTERNAL_ERROR at a
/// server and CANCEL at a client. It is not logged as an application error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset(pub ErrorCode);

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reset with {}", self.0)
    }
}

impl std::error::Error for Reset {}

/// The operation that a timeout interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutPhase {
    /// Name resolution and the TCP connection.
    Connect,
    /// The TLS handshake.
    Handshake,
    /// Waiting for a stream or a connection, while all that are permitted are in use.
    Queue,
    /// The response's head.
    Response,
}

#[derive(Debug)]
pub(crate) enum ErrorKind {
    Config(String),
    Request(String),
    Resolve {
        host: String,
        source: io::Error,
    },
    Connect {
        target: String,
        source: io::Error,
    },
    Tls {
        target: String,
        fault: TlsError,
        source: io::Error,
    },
    Timeout {
        phase: TimeoutPhase,
        after: Duration,
    },
    Stream(StreamError),
    Connection(Option<ConnectionError>),
    Body(BoxError),
    Refused(&'static str),
    /// The session accepts no more requests; the request goes to another session.
    Retired,
    QueueFull,
    /// A limit of a server on connections; its name in the builder.
    Limit(&'static str),
    Closed,
    Canceled,
    Http1 {
        source: hyper::Error,
        processed: Processed,
    },
    Io {
        context: &'static str,
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config(message.into()))
    }

    pub(crate) fn io(context: &'static str, source: io::Error) -> Self {
        Self::new(ErrorKind::Io { context, source })
    }

    /// Returns a second error with the same meaning, for another request that failed for the same reason.
    pub(crate) fn duplicate(&self) -> Self {
        let io = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        Self::new(match &*self.0 {
            ErrorKind::Stream(error) => ErrorKind::Stream(error.clone()),
            ErrorKind::Connection(error) => ErrorKind::Connection(error.clone()),
            ErrorKind::Timeout { phase, after } => {
                ErrorKind::Timeout { phase: *phase, after: *after }
            }
            ErrorKind::Refused(why) => ErrorKind::Refused(why),
            ErrorKind::Retired => ErrorKind::Retired,
            ErrorKind::QueueFull => ErrorKind::QueueFull,
            ErrorKind::Limit(limit) => ErrorKind::Limit(limit),
            ErrorKind::Closed => ErrorKind::Closed,
            ErrorKind::Canceled => ErrorKind::Canceled,
            ErrorKind::Config(message) => ErrorKind::Config(message.clone()),
            ErrorKind::Request(message) => ErrorKind::Request(message.clone()),
            ErrorKind::Resolve { host, source } => {
                ErrorKind::Resolve { host: host.clone(), source: io(source) }
            }
            ErrorKind::Connect { target, source } => {
                ErrorKind::Connect { target: target.clone(), source: io(source) }
            }
            ErrorKind::Tls { target, fault, source } => {
                ErrorKind::Tls { target: target.clone(), fault: fault.clone(), source: io(source) }
            }
            ErrorKind::Io { context: doing, source } => {
                ErrorKind::Io { context: doing, source: io(source) }
            }
            ErrorKind::Body(error) => ErrorKind::Body(error.to_string().into()),
            ErrorKind::Http1 { source, .. } => {
                ErrorKind::Io { context: "HTTP/1.1", source: io::Error::other(source.to_string()) }
            }
        })
    }

    /// Returns whether a time limit of this side expired.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(*self.0, ErrorKind::Timeout { .. })
    }

    /// Returns whether no connection to the server could be established: name resolution, TCP or TLS.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        match &*self.0 {
            ErrorKind::Resolve { .. } | ErrorKind::Connect { .. } | ErrorKind::Tls { .. } => true,
            ErrorKind::Timeout { phase, .. } => {
                matches!(phase, TimeoutPhase::Connect | TimeoutPhase::Handshake)
            }
            _ => false,
        }
    }

    /// Returns whether a limit of this side was reached: the request queue or the queue of name lookups is full,
    /// or the request was queued for too long. Nothing was sent. The request may be repeated when the load is
    /// lower. At a server: a limit of connections.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match &*self.0 {
            ErrorKind::QueueFull
            | ErrorKind::Limit(_)
            | ErrorKind::Timeout { phase: TimeoutPhase::Queue, .. } => true,
            ErrorKind::Resolve { source, .. } => source.kind() == io::ErrorKind::ResourceBusy,
            _ => false,
        }
    }

    /// Returns whether the server's name could not be resolved.
    #[must_use]
    pub fn is_resolve(&self) -> bool {
        matches!(*self.0, ErrorKind::Resolve { .. })
    }

    /// Returns whether TLS failed, for example because of an untrusted certificate or no common version.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(*self.0, ErrorKind::Tls { .. })
    }

    /// Returns the TLS failure, if it is one.
    #[must_use]
    pub fn tls_error(&self) -> Option<&TlsError> {
        match &*self.0 {
            ErrorKind::Tls { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// Returns whether the application is the cause: its request or configuration is invalid, its body failed, or it cancelled the
    /// stream.
    #[must_use]
    pub fn is_user(&self) -> bool {
        match &*self.0 {
            ErrorKind::Config(_)
            | ErrorKind::Request(_)
            | ErrorKind::Body(_)
            | ErrorKind::Canceled => true,
            ErrorKind::Stream(error) => error.initiator == Initiator::User,
            _ => false,
        }
    }

    /// Returns whether the peer reset the stream or closed the connection.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        match &*self.0 {
            ErrorKind::Stream(error) => error.initiator == Initiator::Peer,
            ErrorKind::Connection(Some(error)) => error.initiator == Initiator::Peer,
            _ => false,
        }
    }

    /// Returns whether the connection failed while the stream was open, or other I/O failed, such as reading the
    /// system's certificates.
    #[must_use]
    pub fn is_transport(&self) -> bool {
        match &*self.0 {
            ErrorKind::Stream(error) => error.initiator == Initiator::Transport,
            ErrorKind::Connection(Some(error)) => error.initiator == Initiator::Transport,
            ErrorKind::Connection(None) | ErrorKind::Io { .. } | ErrorKind::Http1 { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the request can be repeated safely whatever its method: the server did not process it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.was_processed() == Processed::No && !self.is_user()
    }

    /// Returns whether the request was returned unsent because its session takes no more requests.
    pub(crate) fn is_retired(&self) -> bool {
        matches!(&*self.0, ErrorKind::Retired)
    }

    /// Returns whether the server may have processed the request.
    #[must_use]
    pub fn was_processed(&self) -> Processed {
        match &*self.0 {
            ErrorKind::Stream(error) => error.processed,
            ErrorKind::Http1 { processed, .. } => *processed,
            ErrorKind::Connection(_)
            | ErrorKind::Body(_)
            | ErrorKind::Canceled
            | ErrorKind::Io { .. } => Processed::Maybe,
            ErrorKind::Timeout { phase: TimeoutPhase::Response, .. } => Processed::Maybe,
            _ => Processed::No,
        }
    }

    /// Returns the HTTP/2 error code of the stream or connection error, if there is one.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match &*self.0 {
            ErrorKind::Stream(error) => Some(error.code),
            ErrorKind::Connection(error) => error.as_ref().map(|error| error.code),
            _ => None,
        }
    }

    /// Returns the connection on which the stream ended.
    #[must_use]
    pub fn connection(&self) -> Option<ConnId> {
        match &*self.0 {
            ErrorKind::Stream(error) => Some(error.connection),
            _ => None,
        }
    }
}

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Self {
        Self::new(ErrorKind::Stream(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(message) => write!(f, "configuration: {message}"),
            Self::Request(message) => write!(f, "request: {message}"),
            Self::Resolve { host, source } => {
                write!(f, "cannot resolve {host}: {source}; check the name and the resolver")
            }
            Self::Connect { target, source } => {
                write!(
                    f,
                    "cannot connect to {target}: {source}; check that the server listens there"
                )
            }
            Self::Tls { target, fault, .. } => write!(f, "TLS with {target} failed: {fault}"),
            Self::Timeout { phase, after } => write!(
                f,
                "no {} within {:.1} s; raise the timeout if the server is slow",
                match phase {
                    TimeoutPhase::Connect => "connection",
                    TimeoutPhase::Handshake => "TLS handshake",
                    TimeoutPhase::Queue => "free connection or stream",
                    TimeoutPhase::Response => "response",
                },
                after.as_secs_f64()
            ),
            Self::Stream(error) => error.fmt(f),
            Self::Connection(Some(error)) => error.fmt(f),
            Self::Connection(None) => f.write_str("the session has ended"),
            Self::Body(error) => write!(f, "the body failed while it was sent: {error}"),
            Self::Refused(why) => {
                write!(f, "the session accepts no requests now: {why}; retry the request")
            }
            Self::Retired => f.write_str(
                "the session accepts no more requests; retry the request on another one",
            ),
            Self::QueueFull => {
                f.write_str("the queue of requests is full; retry later, or raise its limit")
            }
            Self::Limit(limit) => {
                write!(f, "the server's limit {limit} is reached; raise it, or accept later")
            }
            Self::Closed => f.write_str("the client or server was shut down"),
            Self::Canceled => f.write_str("the stream was cancelled by this side"),
            Self::Http1 { source, .. } => write!(f, "HTTP/1.1: {source}"),
            Self::Io { context: doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            ErrorKind::Resolve { source, .. }
            | ErrorKind::Connect { source, .. }
            | ErrorKind::Tls { source, .. }
            | ErrorKind::Io { source, .. } => Some(source),
            ErrorKind::Http1 { source, .. } => Some(source),
            ErrorKind::Stream(error) => Some(error),
            ErrorKind::Connection(Some(error)) => Some(error),
            ErrorKind::Body(error) => Some(&**error),
            _ => None,
        }
    }
}
