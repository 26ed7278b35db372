//! The client: one session per origin, spare connections, requests and streaming responses.
//!
//! In the order of a request:
//!
//! - [`builder`]: settings. [`service`]: the client as a tower service.
//! - [`request`], [`response_future`], [`informational`]: a request before and while it is sent.
//! - [`origin`], [`pool`]: the session that takes it, by its [`session_load`]. [`dial`], [`tls`]: the session's connections.
//! - [`session`]: its task over HTTP/2, with [`spares`], [`bulk`], [`range_continuation`] by [`validator`], [`reset_rate`] and [`unfinished_uploads`]; [`http1`]: over
//!   HTTP/1.1.

mod builder;
mod bulk;
mod dial;
mod http1;
mod informational;
mod origin;
mod pool;
mod range_continuation;
mod request;
mod reset_rate;
mod response_future;
mod service;
mod session;
mod session_load;
mod spares;
mod tls;
mod unfinished_uploads;
mod validator;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Response};
use http_body::Body;
use smig_proto::policy::MigrationHint;
use smig_proto::{Config, Protocol, RequestHead};
use tokio::sync::oneshot;

pub use builder::{Cleartext, ClientBuilder};
pub use dial::connect_any;
pub use http1::{is_last_request, is_last_response};
pub use informational::on_informational;
pub use origin::Origin;
pub use range_continuation::RangeContinuation;
pub use response_future::ResponseFuture;
pub use session::NegotiatedProtocol;
pub use tls::{LoadedTrust, Trust};
pub use validator::{ContentRange, strong_validator};

pub(crate) use informational::OnInformational;

use crate::driver::ConnOptions;
use crate::error::{BoxError, Error, ErrorKind};
use crate::limits::{ConnectionLimit, QueueLimit, QueuePermit, QueueReservation};
use crate::mailbox::Mailbox;
use crate::migration::MigrationConfig;
use crate::observer::{EventSink, Stats};
use crate::resolve::Resolver;
use crate::snapshot::{self, Snapshot};
use crate::stream::{BodyLength, Incoming, RequestBody, SharedStream, content_length};
use dial::DialTimeouts;
use pool::{OriginContext, SessionOrder, SessionPool};
use request::{QueuedRequest, RequestDraft, RequestOptions};
use response_future::RequestParts;
use session::{Command, RetireIf};

/// An HTTP client, and a tower service of requests. Cheap to clone; clones share sessions. Must be used inside a
/// tokio runtime, on which its sessions run. When the last clone is dropped, each session closes after its last
/// stream.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
    /// The queue permit that this handle reserved in `poll_ready`.
    queue_reservation: QueueReservation,
}

#[derive(Debug)]
struct Inner {
    trust: LoadedTrust,
    resolver: Resolver,
    pool: Arc<SessionPool>,
    engine_config: Arc<Config>,
    migration: MigrationConfig,
    conn_options: Arc<ConnOptions>,
    cleartext: Cleartext,
    target_spares: usize,
    max_session_connections: usize,
    max_plain_connections: usize,
    range_continuation: RangeContinuation,
    queue_limit: QueueLimit,
    queue_timeout: Option<Duration>,
    connection_limit: Option<ConnectionLimit>,
    dial_timeouts: DialTimeouts,
    response_timeout: Option<Duration>,
    idle_timeout: Duration,
    request_label_limit: usize,
    events: Arc<EventSink>,
    open_connections: Arc<AtomicUsize>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pool.retire_all();
    }
}

impl Client {
    /// Returns a builder.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Returns the counters since the client was built.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.events.stats()
    }

    /// Returns a snapshot of the sessions over HTTP/2 that accept requests. Each session's task is polled for it;
    /// there is no cost between calls.
    pub async fn sessions(&self) -> Snapshot {
        snapshot::collect(self.inner.pool.mailboxes(), Command::Snapshot).await
    }

    /// Sends a request to the origin of its URI and waits for the response's head.
    ///
    /// A request that the server certainly did not process (it refused the stream, or closed the connection before)
    /// is sent again, if its body was not polled. Dropping the future, or the response's body before its end, cancels
    /// the stream.
    ///
    /// The request waits for a connection and for a stream that the server allows. When the
    /// [queue](ClientBuilder::queue) is full, it fails at once. As a tower service, the client is ready when the
    /// queue has an available permit.
    ///
    /// # Errors
    /// See the accessors of [`Error`].
    pub async fn request<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let origin = Origin::from_uri(request.uri())?;
        self.request_to(&origin, request).await
    }

    /// Opens a session with the origin unless there is one, and returns the protocol that the server speaks. An
    /// existing session is not probed.
    ///
    /// # Errors
    /// No connection, or one that closed at once; see the accessors of [`Error`].
    pub async fn connect(&self, origin: &Origin) -> Result<NegotiatedProtocol, Error> {
        let (sender, receiver) = oneshot::channel();
        let mut command = Command::AwaitProtocol(sender);
        // The session may have closed in between; the next one is new.
        while let Err(unsent) = self.session_mailbox(origin).send(command) {
            command = unsent;
        }
        receiver.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Connection(None))))
    }

    /// Sets the current addresses of the origin. A session that is connected to another address accepts no further
    /// request and closes after its last one; the next request opens a new session. Over HTTP/1.1 this applies to
    /// each connection.
    pub fn set_addresses(&self, origin: &Origin, addresses: &[SocketAddr]) {
        for mailbox in self.inner.pool.get(origin) {
            let addresses = addresses.iter().map(|addr| addr.ip().to_canonical()).collect();
            // If the send fails, the session is closing already.
            drop(mailbox.send(Command::SetAddresses(addresses)));
        }
    }

    /// Stops the sessions with the origin, if there are any, from accepting requests. Each closes after its last one.
    pub fn retire(&self, origin: &Origin) {
        self.retire_session(origin, RetireIf::Always);
    }

    /// Like [`Self::retire`], but leaves a session that has requests as it is.
    pub fn retire_if_idle(&self, origin: &Origin) {
        self.retire_session(origin, RetireIf::Idle);
    }

    fn retire_session(&self, origin: &Origin, condition: RetireIf) {
        for mailbox in self.inner.pool.get(origin) {
            // If the send fails, the session is closing already.
            drop(mailbox.send(Command::Retire(condition)));
        }
    }

    /// Returns whether a session with the origin accepts requests or is being established.
    #[must_use]
    pub fn has_session(&self, origin: &Origin) -> bool {
        self.inner.pool.get(origin).iter().any(|mailbox| !mailbox.is_closed())
    }

    /// Like [`Self::request`], but to an origin that differs from the URI's: for CONNECT, or through a proxy.
    ///
    /// # Errors
    /// See the accessors of [`Error`].
    pub async fn request_to<B>(
        &self,
        origin: &Origin,
        request: Request<B>,
    ) -> Result<Response<Incoming>, Error>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        self.submit(origin, request)?.await
    }

    /// Like [`Self::request_to`], but submits the request at once. The future that it returns also reports whether the
    /// request still waits for a stream: a timeout for the server should begin only when it has one.
    ///
    /// # Errors
    /// The request is invalid, or the [queue](ClientBuilder::queue) is full; other errors are the future's.
    pub fn submit<'a, B>(
        &'a self,
        origin: &'a Origin,
        request: Request<B>,
    ) -> Result<ResponseFuture<'a>, Error>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        self.submit_with_permit(origin, request, None)
    }

    /// Like [`Self::submit`], with the queue permit `queue_permit` or a new one.
    fn submit_with_permit<'a, B>(
        &'a self,
        origin: &'a Origin,
        request: Request<B>,
        queue_permit: Option<QueuePermit>,
    ) -> Result<ResponseFuture<'a>, Error>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let (head, options, body) = split_request(request)?;
        let body = RequestBody::new(body);
        let (head, length) = with_content_length(head, &body);
        ResponseFuture::submit(
            self,
            origin,
            RequestParts { head, length, options },
            body,
            queue_permit,
        )
    }

    /// Sends a request to the task of the origin's session.
    fn send_to_session(
        &self,
        origin: &Origin,
        mut draft: RequestDraft,
        mut body: RequestBody,
    ) -> Result<Arc<SharedStream>, Error> {
        loop {
            let mailbox = self.session_mailbox(origin);
            let shared = SharedStream::without_slot(Arc::clone(mailbox.notifier()));
            let RequestDraft { head, length, options, queue_permit } = draft;
            let shared_clone = Arc::clone(&shared);
            let queued_request =
                QueuedRequest { head, body, length, options, queue_permit, shared: shared_clone };
            match mailbox.send(Command::Request(Box::new(queued_request))) {
                Ok(()) => return Ok(shared),
                // The session closed in between; the next one is new.
                Err(Command::Request(queued_request)) => {
                    let QueuedRequest { head, length, options, queue_permit, .. } = *queued_request;
                    draft = RequestDraft { head, length, options, queue_permit };
                    body = queued_request.body;
                }
                Err(_) => return Err(Error::new(ErrorKind::Closed)),
            }
        }
    }

    fn session_mailbox(&self, origin: &Origin) -> Arc<Mailbox<Command>> {
        let inner = &self.inner;
        inner.pool.get_or_spawn(origin, |mailbox, load, number| {
            let context = Arc::new(OriginContext {
                origin: origin.clone(),
                trust: inner.trust.clone(),
                resolver: inner.resolver.clone(),
                dial_timeouts: inner.dial_timeouts,
                engine_config: Arc::clone(&inner.engine_config),
                conn_options: Arc::clone(&inner.conn_options),
                migration: inner.migration.clone(),
                cleartext: inner.cleartext,
                target_spares: inner.target_spares,
                max_session_connections: inner.max_session_connections,
                max_plain_connections: inner.max_plain_connections,
                range_continuation: inner.range_continuation,
                number,
                order: SessionOrder::First,
                load: Arc::clone(load),
                connection_limit: inner.connection_limit.clone(),
                queue_limit: inner.queue_limit.clone(),
                queue_timeout: inner.queue_timeout,
                idle_timeout: inner.idle_timeout,
                request_label_limit: inner.request_label_limit,
                events: Arc::clone(&inner.events),
                open_connections: Arc::clone(&inner.open_connections),
                pool: Arc::downgrade(&inner.pool),
            });
            tokio::spawn(pool::run(context, Arc::clone(mailbox)));
        })
    }
}

/// Converts a request to the engine's form. Applies the extensions [`Protocol`], [`MigrationHint`] and that of [`on_informational`].
fn split_request<B>(request: Request<B>) -> Result<(RequestHead, RequestOptions, B), Error> {
    let (mut parts, body) = request.into_parts();
    let protocol = parts.extensions.remove::<Protocol>();
    let options = RequestOptions {
        hint: parts.extensions.remove::<MigrationHint>().unwrap_or_default(),
        on_informational: parts.extensions.remove::<OnInformational>(),
    };
    strip_connection_fields(&mut parts.headers);
    if parts.uri.authority().is_none() {
        let why = format!("{}: no authority", parts.uri);
        return Err(Error::new(ErrorKind::Request(why)));
    }
    let head =
        RequestHead { method: parts.method, uri: parts.uri, protocol, headers: parts.headers };
    Ok((head, options, body))
}

/// Adds a content-length if the body's length is known.
fn with_content_length(mut head: RequestHead, body: &RequestBody) -> (RequestHead, BodyLength) {
    if head.method == Method::CONNECT {
        return (head, BodyLength::Unknown);
    }
    let announced_length = content_length(&head.headers);
    let exact_length = if body.is_empty() { None } else { body.size_hint().exact() };
    let Some(length) = announced_length.or(exact_length) else {
        return (head, BodyLength::Unknown);
    };
    if announced_length.is_none() {
        head.headers.insert(CONTENT_LENGTH, length.into());
    }
    (head, BodyLength::Remaining(length))
}

/// Removes the fields that HTTP/2 forbids or expresses otherwise.
fn strip_connection_fields(headers: &mut HeaderMap) {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
    for name in [CONNECTION, HOST, KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        if headers.contains_key(&name) {
            headers.remove(name);
        }
    }
}
