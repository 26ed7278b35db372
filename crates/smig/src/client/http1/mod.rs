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
use tokio::time::{sleep, timeout};

use super::body::RequestBody;
use super::pool::{self, OriginContext};
use super::request::{QueuedRequest, Unsent};
use super::session::{Command, NegotiatedProtocol};
use crate::clock;
use crate::driver::Mailbox;
use crate::error::{Error, ErrorKind, TimeoutPhase};
use crate::observer::ObserverEvent;
use crate::stream::{Head, Shared};
use crate::transport::Transport;

pub use reuse::{is_last_request, is_last_response};

/// Maximum number of connections to one server, as in browsers.
const CONNECTIONS: usize = 6;

/// One connection.
#[derive(Debug)]
struct Sender {
    hyper: SendRequest<RequestBody>,
    /// The connection is not persistent: its last request or response said so.
    last: bool,
    peer: IpAddr,
    /// Value of [`Idle::moves`] when the connection was dialed.
    moves: u64,
}

/// Connections of one session.
#[derive(Debug)]
struct Pool {
    host: Arc<OriginContext>,
    idle: Mutex<Idle>,
    places: Semaphore,
}

/// Idle connections.
#[derive(Debug, Default)]
struct Idle {
    senders: Vec<Sender>,
    /// The server's addresses from the last `move_to`, and the number of such calls.
    homes: Vec<IpAddr>,
    moves: u64,
}

/// Requests in progress.
#[derive(Debug, Default)]
struct Running {
    tasks: JoinSet<()>,
    asked: Vec<(Arc<Shared>, AbortHandle)>,
}

/// Whether the session accepts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// No new requests; the session closes after the last one.
    Closing,
}

/// An HTTP/1.1 session.
#[derive(Debug)]
struct Http1Session {
    host: Arc<OriginContext>,
    mailbox: Arc<Mailbox<Command>>,
    pool: Arc<Pool>,
    running: Running,
    stage: Stage,
}

/// Serves the session's requests until it is closed or its idle timeout expires.
pub(super) async fn run(
    host: Arc<OriginContext>,
    mailbox: Arc<Mailbox<Command>>,
    first: Transport,
) {
    let idle_timeout = host.idle_timeout;
    let pool = Arc::new(Pool {
        host: Arc::clone(&host),
        idle: Mutex::default(),
        places: Semaphore::new(CONNECTIONS),
    });
    match pool.shake(first, 0).await {
        Ok(sender) => pool.put(sender),
        Err(error) => tracing::debug!(%error, "HTTP/1.1 connection failed at once"),
    }
    let (running, stage) = (Running::default(), Stage::Open);
    let mut session = Http1Session { host, mailbox, pool, running, stage };
    while session.stage == Stage::Open || !session.running.is_empty() {
        let is_idle = session.running.is_empty();
        let commands = tokio::select! {
            commands = session.mailbox.receive() => commands,
            _ = session.running.tasks.join_next(), if !is_idle => Vec::new(),
            () = sleep(idle_timeout), if is_idle => {
                if session.mailbox.close_if_empty() {
                    break;
                }
                continue;
            }
        };
        session.running.look();
        for command in commands {
            session.on_command(command);
        }
    }
    session.host.forget(&session.mailbox);
}

impl Http1Session {
    fn on_command(&mut self, command: Command) {
        match command {
            Command::Request(outgoing) => match self.stage {
                Stage::Open => self.begin(*outgoing),
                Stage::Closing => outgoing.give_back(Error::new(ErrorKind::Retired)),
            },
            Command::Dialed(_) | Command::Describe(_) => {}
            Command::MoveTo(addresses) => self.pool.move_to(addresses),
            // The caller may have dropped the receiver.
            Command::AwaitProtocol(sender) => drop(sender.send(Ok(NegotiatedProtocol::Http1))),
            Command::Finish => self.stop_accepting(),
            Command::FinishIfIdle => {
                if self.running.is_empty() {
                    self.stop_accepting();
                }
            }
        }
    }

    fn begin(&mut self, outgoing: QueuedRequest) {
        self.host.counters.on_event(&ObserverEvent::StreamOpened { stream: None });
        let (shared, pool) = (Arc::clone(&outgoing.shared), Arc::clone(&self.pool));
        self.running.begin(shared, async move { pool.send(outgoing).await });
    }

    /// Accepts no more requests. Those still in the mailbox go to the next session.
    fn stop_accepting(&mut self) {
        if self.stage == Stage::Closing {
            return;
        }
        self.stage = Stage::Closing;
        self.host.forget(&self.mailbox);
        for command in self.mailbox.close() {
            self.on_command(command);
        }
    }
}

impl Idle {
    fn leads_home(&self, sender: &Sender) -> bool {
        sender.moves == self.moves || self.homes.contains(&sender.peer)
    }
}

impl Running {
    fn begin(&mut self, shared: Arc<Shared>, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(task);
        self.asked.push((shared, task));
    }

    fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Aborts requests that the application has dropped.
    fn look(&mut self) {
        // The result of the task was already reported to the application.
        while self.tasks.try_join_next().is_some() {}
        self.asked.retain(|(shared, task)| {
            if shared.is_abandoned() {
                task.abort();
            }
            !task.is_finished()
        });
    }
}

impl Sender {
    /// Sends a request and waits for the response's head.
    async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        self.last |= is_last_request(request.headers());
        let response = self.hyper.try_send_request(request).await?;
        self.last |= is_last_response(&response);
        Ok(response)
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a connection to the pool, unless it is not persistent or the server has moved to other
    /// addresses.
    fn put(&self, sender: Sender) {
        let mut idle = self.lock();
        if !sender.last && idle.leads_home(&sender) {
            idle.senders.push(sender);
        }
    }

    fn pick(&self) -> Option<Sender> {
        let mut idle = self.lock();
        let senders = &mut idle.senders;
        senders.retain(|sender| !sender.hyper.is_closed());
        let ready = senders.iter().rposition(|sender| sender.hyper.is_ready())?;
        Some(senders.swap_remove(ready))
    }

    /// Closes idle connections to other addresses; busy ones are closed when they become idle.
    fn move_to(&self, homes: Vec<IpAddr>) {
        let mut idle = self.lock();
        idle.senders.retain(|sender| homes.contains(&sender.peer));
        idle.homes = homes;
        idle.moves += 1;
    }

    async fn shake(&self, transport: Transport, moves: u64) -> hyper::Result<Sender> {
        let peer = transport.peer().ip().to_canonical();
        let (mut hyper, connection) = handshake(transport).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "HTTP/1.1 connection ended");
            }
        });
        // Before that `pick` skips the connection, and the first request would open a second one.
        hyper.ready().await?;
        Ok(Sender { hyper, last: false, peer, moves })
    }

    async fn connect(&self) -> Result<Sender, Error> {
        let (host, moves) = (&self.host, self.lock().moves);
        self.shake(pool::connect(host).await?, moves)
            .await
            .map_err(|source| Error::new(ErrorKind::Http1 { source, processed: Processed::No }))
    }

    /// Waits for a connection slot, at most for the queue timeout.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Error> {
        let turn = async {
            // The semaphore is never closed.
            self.places.acquire().await.map_err(|_| Error::new(ErrorKind::Closed))
        };
        let Some(after) = self.host.queue_timeout else { return turn.await };
        let late = |_| Err(Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Queue, after }));
        timeout(after, turn).await.unwrap_or_else(late)
    }

    async fn send(&self, outgoing: QueuedRequest) {
        let QueuedRequest { head, body, shared, place, .. } = outgoing;
        if let Err(why) = check(&head, &body) {
            return shared.fail(Error::new(ErrorKind::Request(why.to_owned())));
        }
        let turn = self.turn().await;
        drop(place);
        let _turn = match turn {
            Ok(turn) => turn,
            Err(error) => return shared.give_back(Unsent { body, place: None }, error),
        };
        let mut sender = match self.pick() {
            Some(sender) => sender,
            None => match self.connect().await {
                Ok(sender) => sender,
                Err(error) => return shared.fail(error),
            },
        };
        shared.on_sent(clock::now());
        match sender.send(request(head, body)).await {
            Ok(response) => {
                // From here on hyper owns the response's body. Set the head first: an end without a head is a
                // cancelled stream.
                shared.put_head(Head::Http1(response), None);
                shared.put_end();
                // The connection stays busy until the body is read.
                if sender.hyper.ready().await.is_ok() {
                    self.put(sender);
                }
            }
            Err(mut failed) => {
                let unsent = failed.take_message();
                let processed = if unsent.is_some() { Processed::No } else { Processed::Maybe };
                let source = failed.into_error();
                let error = Error::new(ErrorKind::Http1 { source, processed });
                match unsent {
                    Some(request) => {
                        let body = request.into_body();
                        shared.give_back(Unsent { body, place: None }, error);
                    }
                    None => shared.fail(error),
                }
            }
        }
    }
}

/// Checks that the body matches the head. The engine is not involved here, and hyper does not check it: a
/// server that waits for more content would take it from the next request.
fn check(head: &RequestHead, body: &RequestBody) -> Result<(), &'static str> {
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
fn request(head: RequestHead, body: RequestBody) -> Request<RequestBody> {
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
