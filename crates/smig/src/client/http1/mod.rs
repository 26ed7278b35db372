//! Sessions with servers that speak only HTTP/1.1: hyper's client, one request at a time per connection.

mod reuse;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderValue, Method, Request, Response, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{SendRequest, handshake};
use smig_proto::{Processed, RequestHead};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::pool::{self, OriginContext};
use super::request::QueuedRequest;
use super::session::{Command, NegotiatedProtocol, RetireIf};
use crate::clock;
use crate::error::{Error, ErrorKind, TimeoutPhase};
use crate::mailbox::Mailbox;
use crate::observer::ObserverEvent;
use crate::stream::{Head, RequestBody, SharedStream, UnsentRequest};
use crate::transport::Transport;

pub use reuse::{is_last_request, is_last_response};

/// Maximum number of connections to one server, as in browsers.
const MAX_CONNECTIONS: usize = 6;

/// One connection.
#[derive(Debug)]
struct Http1Conn {
    hyper: SendRequest<RequestBody>,
    /// No further request may be sent on it: see [`is_last_request`] and [`is_last_response`].
    must_close: bool,
    peer: IpAddr,
    /// Value of [`IdleConns::generation`] when the connection was dialed.
    generation: u64,
}

/// Connections of one session.
#[derive(Debug)]
struct Http1Pool {
    context: Arc<OriginContext>,
    idle_conns: Mutex<IdleConns>,
    permits: Semaphore,
}

/// Idle connections.
#[derive(Debug, Default)]
struct IdleConns {
    conns: Vec<Http1Conn>,
    /// The server's addresses from the last `set_addresses`.
    addresses: Vec<IpAddr>,
    /// Number of calls of `set_addresses`.
    generation: u64,
}

/// Requests in progress.
#[derive(Debug, Default)]
struct OpenRequests {
    tasks: JoinSet<()>,
    requests: Vec<(Arc<SharedStream>, AbortHandle)>,
}

/// Whether the session accepts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Open,
    /// No new requests; the session closes after the last one.
    Closing,
}

/// An HTTP/1.1 session.
#[derive(Debug)]
struct Http1Session {
    context: Arc<OriginContext>,
    mailbox: Arc<Mailbox<Command>>,
    pool: Arc<Http1Pool>,
    open_requests: OpenRequests,
    state: SessionState,
}

/// Serves the session's requests until it is closed or its idle timeout expires.
pub(super) async fn run(
    context: Arc<OriginContext>,
    mailbox: Arc<Mailbox<Command>>,
    first: Transport,
) {
    let idle_timeout = context.idle_timeout;
    let pool = Arc::new(Http1Pool {
        context: Arc::clone(&context),
        idle_conns: Mutex::default(),
        permits: Semaphore::new(MAX_CONNECTIONS),
    });
    match pool.handshake(first, 0).await {
        Ok(conn) => pool.checkin(conn),
        Err(error) => tracing::debug!(%error, "HTTP/1.1 connection failed at once"),
    }
    let (open_requests, state) = (OpenRequests::default(), SessionState::Open);
    let mut session = Http1Session { context, mailbox, pool, open_requests, state };
    let mut idle_since = Instant::now();
    while session.state == SessionState::Open || !session.open_requests.is_empty() {
        let is_idle = session.open_requests.is_empty();
        let idle_time = idle_since.elapsed();
        if is_idle && idle_time >= idle_timeout && session.mailbox.close_if_empty() {
            break;
        }
        let commands = tokio::select! {
            commands = session.mailbox.receive() => commands,
            _ = session.open_requests.tasks.join_next(), if !is_idle => Vec::new(),
            () = sleep(idle_timeout.saturating_sub(idle_time)), if is_idle => Vec::new(),
        };
        if !is_idle {
            // Commands that bring no request do not prolong the time without one.
            idle_since = Instant::now();
        }
        session.open_requests.abort_abandoned();
        for command in commands {
            session.on_command(command);
        }
    }
}

impl Http1Session {
    fn on_command(&mut self, command: Command) {
        match command {
            Command::Request(queued_request) => match self.state {
                SessionState::Open => self.begin(*queued_request),
                SessionState::Closing => {
                    queued_request.return_unsent(Error::new(ErrorKind::Retired))
                }
            },
            Command::Dialed(_) | Command::RangeAnswer(_) | Command::Snapshot(_) => {}
            Command::SetAddresses(addresses) => self.pool.set_addresses(addresses),
            // The caller may have dropped the receiver.
            Command::AwaitProtocol(sender) => drop(sender.send(Ok(NegotiatedProtocol::Http1))),
            Command::Retire(condition) => {
                if self.open_requests.is_empty() || condition == RetireIf::Always {
                    self.stop_accepting();
                }
            }
        }
    }

    fn begin(&mut self, queued_request: QueuedRequest) {
        self.context.events.on_event(&ObserverEvent::StreamOpened { stream: None });
        let (shared, pool) = (Arc::clone(&queued_request.shared), Arc::clone(&self.pool));
        self.open_requests.begin(shared, async move { pool.send(queued_request).await });
    }

    /// Accepts no more requests. Those still in the mailbox go to the next session.
    fn stop_accepting(&mut self) {
        if self.state == SessionState::Closing {
            return;
        }
        self.state = SessionState::Closing;
        self.context.remove_session(&self.mailbox);
        for command in self.mailbox.close() {
            self.on_command(command);
        }
    }
}

impl IdleConns {
    fn is_current(&self, conn: &Http1Conn) -> bool {
        conn.generation == self.generation || self.addresses.contains(&conn.peer)
    }
}

impl OpenRequests {
    fn begin(
        &mut self,
        shared: Arc<SharedStream>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.spawn(task);
        self.requests.push((shared, task));
    }

    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Aborts requests that the application has dropped.
    fn abort_abandoned(&mut self) {
        // The result of the task was already reported to the application.
        while self.tasks.try_join_next().is_some() {}
        self.requests.retain(|(shared, task)| {
            if shared.is_abandoned() {
                task.abort();
            }
            !task.is_finished()
        });
    }
}

// A session's task that is dropped aborts those of its requests.
impl Drop for OpenRequests {
    fn drop(&mut self) {
        for (shared, _) in self.requests.drain(..) {
            // Has no effect on a request that has completed.
            shared.fail(Error::new(ErrorKind::Connection(None)));
        }
    }
}

impl Http1Conn {
    /// Sends a request and waits for the response's head.
    async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        self.must_close |= is_last_request(request.headers());
        let response = self.hyper.try_send_request(request).await?;
        self.must_close |= is_last_response(&response);
        Ok(response)
    }
}

impl Http1Pool {
    fn lock(&self) -> MutexGuard<'_, IdleConns> {
        self.idle_conns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a connection to the pool, unless it must be closed or the server's addresses have
    /// changed.
    fn checkin(&self, conn: Http1Conn) {
        let mut idle = self.lock();
        if !conn.must_close && idle.is_current(&conn) {
            idle.conns.push(conn);
        }
    }

    fn checkout(&self) -> Option<Http1Conn> {
        let mut idle = self.lock();
        let conns = &mut idle.conns;
        conns.retain(|conn| !conn.hyper.is_closed());
        let ready = conns.iter().rposition(|conn| conn.hyper.is_ready())?;
        Some(conns.swap_remove(ready))
    }

    /// Closes idle connections to other addresses; busy ones are closed when they become idle.
    fn set_addresses(&self, addresses: Vec<IpAddr>) {
        let mut idle = self.lock();
        idle.conns.retain(|conn| addresses.contains(&conn.peer));
        idle.addresses = addresses;
        idle.generation += 1;
    }

    async fn handshake(&self, transport: Transport, generation: u64) -> hyper::Result<Http1Conn> {
        let peer = transport.peer().ip().to_canonical();
        let (mut hyper, connection) = handshake(transport).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "HTTP/1.1 connection ended");
            }
        });
        // Before that `checkout` skips it, and the first request would open a second connection.
        hyper.ready().await?;
        Ok(Http1Conn { hyper, must_close: false, peer, generation })
    }

    async fn connect(&self) -> Result<Http1Conn, Error> {
        let (context, generation) = (&self.context, self.lock().generation);
        self.handshake(pool::connect(context).await?, generation)
            .await
            .map_err(|source| Error::new(ErrorKind::Http1 { source, processed: Processed::No }))
    }

    /// Waits for a connection's permit, at most for the queue timeout.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, Error> {
        let permit = async {
            // The semaphore is never closed.
            self.permits.acquire().await.map_err(|_| Error::new(ErrorKind::Closed))
        };
        let Some(after) = self.context.queue_timeout else { return permit.await };
        let timeout_error =
            |_| Err(Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Queue, after }));
        timeout(after, permit).await.unwrap_or_else(timeout_error)
    }

    async fn send(&self, queued_request: QueuedRequest) {
        let QueuedRequest { head, body, shared, queue_permit, .. } = queued_request;
        if let Err(why) = check_framing(&head, &body) {
            return shared.fail(Error::new(ErrorKind::Request(why.to_owned())));
        }
        let permit = self.acquire_permit().await;
        drop(queue_permit);
        let _permit = match permit {
            Ok(permit) => permit,
            Err(error) => return shared.return_unsent(UnsentRequest { body, permit: None }, error),
        };
        let mut conn = match self.checkout() {
            Some(conn) => conn,
            None => match self.connect().await {
                Ok(conn) => conn,
                Err(error) => return shared.fail(error),
            },
        };
        shared.on_sent(clock::now());
        match conn.send(to_http1_request(head, body)).await {
            Ok(response) => {
                // From here on hyper owns the response's body. Set the head first: an end without a head is a
                // cancelled stream.
                shared.put_head(Head::Http1(response), None);
                shared.put_end();
                // The connection stays busy until the body is read.
                if conn.hyper.ready().await.is_ok() {
                    self.checkin(conn);
                }
            }
            Err(mut send_error) => {
                let unsent_request = send_error.take_message();
                let processed =
                    if unsent_request.is_some() { Processed::No } else { Processed::Maybe };
                let source = send_error.into_error();
                let error = Error::new(ErrorKind::Http1 { source, processed });
                match unsent_request {
                    Some(request) => {
                        let body = request.into_body();
                        shared.return_unsent(UnsentRequest { body, permit: None }, error);
                    }
                    None => shared.fail(error),
                }
            }
        }
    }
}

/// Checks that the body matches the head. The engine is not involved here, and hyper does not check it: a
/// server that waits for more content would take it from the next request.
fn check_framing(head: &RequestHead, body: &RequestBody) -> Result<(), &'static str> {
    if head.protocol.is_some() {
        return Err("the server supports only HTTP/1.1, which has no extended CONNECT");
    }
    let has_content = !body.is_end_stream() && head.method != Method::CONNECT;
    let mut lengths = head.headers.get_all(header::CONTENT_LENGTH).iter();
    match (lengths.next(), lengths.next()) {
        (Some(length), None) if length != "0" && !has_content => {
            Err("content-length without content")
        }
        (_, Some(_)) => Err("more than one content-length"),
        (_, None) => Ok(()),
    }
}

/// Converts the request to HTTP/1.1: path as target, authority as Host.
fn to_http1_request(head: RequestHead, body: RequestBody) -> Request<RequestBody> {
    let is_sized = head.headers.contains_key(header::CONTENT_LENGTH);
    let is_chunked = !is_sized && !body.is_end_stream() && head.method != Method::CONNECT;
    let mut request = Request::new(body);
    *request.headers_mut() = head.headers;
    if is_chunked {
        // With GET and HEAD, hyper sends no body whose length is not known.
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(header::TRANSFER_ENCODING, chunked);
    }
    if let Some(authority) = head.uri.authority()
        && !request.headers().contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    *request.uri_mut() = match (head.method == Method::CONNECT, head.uri.path_and_query()) {
        (false, Some(path)) => http::Uri::from(path.clone()),
        _ => head.uri,
    };
    *request.method_mut() = head.method;
    request
}
