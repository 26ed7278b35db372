//! Configures and starts a server.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use http_body::Body;
use smig_proto::Config;
use tokio::sync::{mpsc, watch};
use tower_service::Service;

use super::bind::{self, ListenSecurity, ListenTarget, Listener, ListenerConfig};
use super::connection_server::ConnectionServer;
use super::listeners::{ListenerIds, OpenListeners};
use super::serve::Serve;
use super::session_list::SessionList;
use super::session_registry::Registry;
use super::shared::{AnySharedHeadersOf, ServerShared, ServerState, check_shared_headers};
use super::tls::ServerTls;
use super::worker::{WorkerListeners, run};
use super::{Server, ServerView};
use crate::connection::{CleartextTrust, ListenerId};
use crate::deadlines::TimeLimits;
use crate::driver::{ConnOptions, Pacing};
use crate::entropy;
use crate::error::{BoxError, Error};
use crate::limits::ClientQuota;
use crate::migration::MigrationConfig;
use crate::observer::{EventSink, Observer};
use crate::socket::SocketOptions;
use crate::stream::Incoming;

/// Which component refuses (421) requests for names that neither SNI nor the certificate covers. A connection without SNI covers
/// any name, and so does one whose certificate this crate does not know: cleartext, or [`ServerTls::from_rustls`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorityCheck {
    /// The server, on HTTP/2 and except for CONNECT, before the service is called.
    #[default]
    Server,
    /// The service, with [`ConnectionInfo::serves`](crate::ConnectionInfo::serves): it also gets requests
    /// for other hosts, as a forward proxy does. Needs [`RequestExtensions::All`].
    Service,
}

/// What the extensions of a request over HTTP/2 contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestExtensions {
    /// All that the server knows: also [`ConnectionInfo`](crate::ConnectionInfo),
    /// [`InformationalSender`](crate::InformationalSender), and with an observer [`StreamRef`](crate::StreamRef).
    #[default]
    All,
    /// Only what belongs to the request itself, the `:protocol` of an extended CONNECT: saves four
    /// allocations a request for a service that reads nothing else. Not for a service that checks authorities
    /// ([`AuthorityCheck::Service`]), which needs the connection's information. Requests over HTTP/1.1 have
    /// [`ConnectionInfo`](crate::ConnectionInfo) and [`InformationalSender`](crate::InformationalSender) all the same.
    Protocol,
}

/// Configuration of a server. Every setting has a default; [`start`](Self::start) and [`serve`](Self::serve) need a listener.
#[derive(Debug)]
pub struct ServerBuilder {
    listeners: Vec<ListenerConfig>,
    ids: ListenerIds,
    workers: usize,
    engine_config: Config,
    migration: MigrationConfig,
    interactive_options: SocketOptions,
    bulk_options: SocketOptions,
    pacing: Pacing,
    upload_pacing: Pacing,
    max_bulk_deferral: Duration,
    max_connections: usize,
    max_connections_per_client: usize,
    handshake_timeout: Duration,
    idle_timeout: Duration,
    body_timeout: Duration,
    tenant: Vec<u8>,
    authority_check: AuthorityCheck,
    request_extensions: RequestExtensions,
    request_label_limit: usize,
    shared_headers: Option<AnySharedHeadersOf>,
    observer: Option<DebugObserver>,
}

struct DebugObserver(Arc<dyn Observer>);

impl std::fmt::Debug for DebugObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            ids: ListenerIds::default(),
            workers: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            engine_config: Config::server(),
            migration: MigrationConfig::default(),
            interactive_options: SocketOptions::interactive(),
            bulk_options: SocketOptions::bulk(),
            pacing: Pacing::default(),
            upload_pacing: Pacing::Off,
            max_bulk_deferral: Duration::from_millis(25),
            max_connections: 65_536,
            max_connections_per_client: 32_768,
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(300),
            body_timeout: Duration::from_secs(60),
            tenant: Vec::new(),
            authority_check: AuthorityCheck::Server,
            request_extensions: RequestExtensions::All,
            request_label_limit: 0,
            shared_headers: None,
            observer: None,
        }
    }
}

impl ServerBuilder {
    /// Listens with TLS: HTTP/2 and HTTP/1.1 by ALPN.
    #[must_use]
    pub fn listen(self, addr: SocketAddr, tls: ServerTls) -> Self {
        self.add_listener(ListenTarget::Bind(addr), ListenSecurity::Tls(tls))
    }

    /// Listens without TLS: HTTP/2 with prior knowledge and HTTP/1.1.
    #[must_use]
    pub fn listen_cleartext(self, addr: SocketAddr, trust: CleartextTrust) -> Self {
        self.add_listener(ListenTarget::Bind(addr), ListenSecurity::Cleartext(trust))
    }

    /// Like [`listen`](Self::listen), with a socket that is bound already: by the application, by a service manager, or
    /// by tokio (`listener.into_std()?`). All workers accept from its one queue; with [`listen`](Self::listen) each has
    /// its own. The socket is set to non-blocking.
    ///
    /// At a graceful shutdown, and when the listener is [closed](Server::close), each worker still accepts up to 1024
    /// connections that wait in the socket's backlog; this takes them from another process that has the socket too.
    #[must_use]
    pub fn listen_on(self, listener: TcpListener, tls: ServerTls) -> Self {
        self.add_listener(ListenTarget::Bound(listener), ListenSecurity::Tls(tls))
    }

    /// Like [`listen_cleartext`](Self::listen_cleartext), with a socket that is bound already, as for
    /// [`listen_on`](Self::listen_on).
    #[must_use]
    pub fn listen_cleartext_on(self, listener: TcpListener, trust: CleartextTrust) -> Self {
        self.add_listener(ListenTarget::Bound(listener), ListenSecurity::Cleartext(trust))
    }

    fn add_listener(mut self, target: ListenTarget, security: ListenSecurity) -> Self {
        self.listeners.push(ListenerConfig { id: self.ids.next(), target, security });
        self
    }

    /// Returns the ids of the listeners so far, in the order of the calls. The running server uses the same ids.
    pub fn listener_ids(&self) -> impl Iterator<Item = ListenerId> {
        self.listeners.iter().map(|listener| listener.id)
    }

    /// Sets the number of worker threads (default: the number of CPUs).
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.workers = workers.get();
        self
    }

    /// Sets the HTTP/2 settings of each session, and limits that also apply to HTTP/1.1: size and time of heads, stalled output,
    /// and what is bulk.
    #[must_use]
    pub fn engine(mut self, config: Config) -> Self {
        self.engine_config = config;
        self
    }

    /// Sets the rules for migrations.
    #[must_use]
    pub fn migration(mut self, config: MigrationConfig) -> Self {
        self.migration = config;
        self
    }

    /// Sets the socket options of interactive connections, which carry small responses.
    #[must_use]
    pub fn interactive_socket(mut self, options: SocketOptions) -> Self {
        self.interactive_options = options;
        self
    }

    /// Sets the socket options of bulk connections, which carry migrated streams.
    #[must_use]
    pub fn bulk_socket(mut self, options: SocketOptions) -> Self {
        self.bulk_options = options;
        self
    }

    /// Sets whether bulk is limited to the measured rate of its path (default), so that its bytes do not queue before
    /// small responses. [`Config::bulk`] says what bulk is. Without pacing,
    /// [`max_bulk_deferral`](Self::max_bulk_deferral) has no effect.
    #[must_use]
    pub fn pacing(mut self, pacing: Pacing) -> Self {
        self.pacing = pacing;
        self
    }

    /// Sets whether the bulk uploads of clients over HTTP/2 without SMig are paced by the credit of their streams while other
    /// streams are active: off by default. A connection with several bulk uploads, or with a proxy behind which the client is
    /// farther away than the kernel can see, may get much less than the path has:
    /// [ADR 9](https://docs.rs/crate/smig/latest/source/docs/adr/0009-uploads-by-credit.md).
    #[must_use]
    pub fn upload_pacing(mut self, pacing: Pacing) -> Self {
        self.upload_pacing = pacing;
        self
    }

    /// Sets how long interactive output may defer bulk (default 25 ms); zero disables the deferral.
    #[must_use]
    pub fn max_bulk_deferral(mut self, limit: Duration) -> Self {
        self.max_bulk_deferral = limit;
        self
    }

    /// Limits the number of open connections; further ones are closed.
    #[must_use]
    pub fn max_connections(mut self, limit: usize) -> Self {
        self.max_connections = limit;
        self
    }

    /// Limits the number of open connections from one address (IPv6: from one /64 network); further ones are
    /// closed. All clients behind a balancer or proxy count as one address.
    #[must_use]
    pub fn max_connections_per_client(mut self, limit: usize) -> Self {
        self.max_connections_per_client = limit;
        self
    }

    /// Sets the time limit for a TLS handshake, or for the first bytes on cleartext.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.handshake_timeout = limit;
        self
    }

    /// Sets how long a client without a request stays connected.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Sets how long a handler that has not responded yet may wait for 1 KiB of the request body; then the
    /// stream is reset, or the connection closed (HTTP/1.1). Does not apply to CONNECT and gRPC, whose
    /// requests may idle.
    #[must_use]
    pub fn body_timeout(mut self, limit: Duration) -> Self {
        self.body_timeout = limit;
        self
    }

    /// Sets a name that separates this server's sessions from those of others behind one address.
    #[must_use]
    pub fn tenant(mut self, name: impl Into<Vec<u8>>) -> Self {
        self.tenant = name.into();
        self
    }

    /// Sets which component refuses requests for names that the connection does not cover.
    #[must_use]
    pub fn authority(mut self, check: AuthorityCheck) -> Self {
        self.authority_check = check;
        self
    }

    /// Sets what the extensions of requests over HTTP/2 contain.
    #[must_use]
    pub fn request_extensions(mut self, extensions: RequestExtensions) -> Self {
        self.request_extensions = extensions;
        self
    }

    /// Sets how many bytes of a request's method, authority and path, each, are recorded for
    /// [`Server::sessions`]; 0, the default, records nothing.
    #[must_use]
    pub fn request_label_limit(mut self, limit: usize) -> Self {
        self.request_label_limit = limit;
        self
    }

    /// Sets a function that finds header fields of a response in its body, of the type `B`: fields that many responses
    /// have, which HTTP/2 then sends without a copy of them. A field in the response's head replaces those of its name, but for
    /// Vary, which is added. Fields with a date, or without the body's exact length, are copied.
    ///
    /// [`start`](Self::start), [`serve`](Self::serve) and [`ConnectionServer::serve_connection`] fail if the service's
    /// bodies are of another type.
    #[must_use]
    pub fn shared_headers<B: 'static>(mut self, of: fn(&B) -> Option<&Arc<HeaderMap>>) -> Self {
        self.shared_headers = Some(AnySharedHeadersOf::new(of));
        self
    }

    /// Sets the observer, which receives all events.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(DebugObserver(observer));
        self
    }

    /// Opens the listeners and starts the workers' threads.
    ///
    /// The service is cloned for each session. It is polled on one thread, so its futures and
    /// bodies need not be `Send`.
    ///
    /// # Errors
    /// No listener, an address that cannot be bound, a thread that cannot be started.
    pub fn start<S, B>(mut self, service: S) -> Result<Server, Error>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: 'static,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        check_shared_headers::<B>(self.shared_headers.as_ref())?;
        let workers = self.workers;
        let (open_listeners, worker_listeners) = self.bind(workers)?;
        let listener_ids = std::mem::take(&mut self.ids);
        let shared = self.into_shared()?;
        let (state, state_receiver) = watch::channel(ServerState::Running);
        let (mut threads, mut listener_changes, mut session_lists) =
            (Vec::new(), Vec::new(), Vec::new());
        let next_session_number = Arc::default();
        for (number, listeners) in worker_listeners.into_iter().enumerate() {
            let (service, state_receiver) = (service.clone(), state_receiver.clone());
            let (change_sender, receiver) = mpsc::unbounded_channel();
            let listeners = WorkerListeners { listeners, changes: receiver };
            let sessions = Arc::new(SessionList::numbered_by(&next_session_number));
            let worker_state = (Arc::clone(&shared), Arc::clone(&sessions));
            listener_changes.push(change_sender);
            session_lists.push(sessions);
            let thread = thread::Builder::new()
                .name(format!("smig-{number}"))
                .spawn(move || run(listeners, service, worker_state, state_receiver))
                .map_err(|error| Error::io("cannot start a worker thread", error))?;
            threads.push(thread);
        }
        let events = Arc::clone(&shared.events);
        let view = ServerView { events, session_lists: session_lists.into() };
        Ok(Server { open_listeners, listener_ids, state, threads, listener_changes, view })
    }

    /// Opens the listeners and returns the server as a future, for a runtime that exists. [`workers`](Self::workers)
    /// has no effect: all sessions are on the task that polls the future.
    ///
    /// The service is cloned for each session. Neither it nor its futures and bodies need be `Send`, and neither is the
    /// future: see [`Serve`].
    ///
    /// ```no_run
    /// use axum::{Router, body::Body, routing::get};
    /// use smig::{Incoming, Server, ServerTls};
    /// use tower::ServiceExt as _;
    ///
    /// # async fn run(tls: ServerTls) -> Result<(), smig::BoxError> {
    /// let app = Router::new()
    ///     .route("/", get(|| async { "hello" }))
    ///     .map_request(|request: http::Request<Incoming>| request.map(Body::new));
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:8443").await?;
    /// Server::builder()
    ///     .listen_on(listener.into_std()?, tls)
    ///     .serve(app)?
    ///     .with_graceful_shutdown(
    ///         async { drop(tokio::signal::ctrl_c().await) },
    ///         std::time::Duration::from_secs(10),
    ///     )
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No listener, or an address that cannot be bound.
    pub fn serve<S, B>(mut self, service: S) -> Result<Serve, Error>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + 'static,
        S::Error: Into<BoxError>,
        S::Future: 'static,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        check_shared_headers::<B>(self.shared_headers.as_ref())?;
        let (open_listeners, mut worker_listeners) = self.bind(1)?;
        let listeners = worker_listeners.pop().unwrap_or_default();
        Ok(Serve::new(open_listeners, listeners, service, self.into_shared()?))
    }

    /// Returns the server of connections that the application accepts. [`workers`](Self::workers) has no effect.
    ///
    /// The service is cloned for each connection and for each session.
    ///
    /// # Errors
    /// The builder has listeners, whose connections the application would not accept.
    pub fn connection_server<S>(mut self, service: S) -> Result<ConnectionServer<S>, Error> {
        if !self.listeners.is_empty() {
            return Err(Error::config(
                "a server of accepted connections has no listeners; remove them, or call serve",
            ));
        }
        let id = self.ids.next();
        Ok(ConnectionServer::new(id, service, self.into_shared()?))
    }

    fn bind(&mut self, workers: usize) -> Result<(OpenListeners, Vec<Vec<Listener>>), Error> {
        if self.listeners.is_empty() {
            return Err(Error::config("the server has no addresses; add one"));
        }
        bind::bind_all(std::mem::take(&mut self.listeners), workers)
    }

    /// Returns the state that workers share.
    fn into_shared(self) -> Result<Arc<ServerShared>, Error> {
        entropy::check()?;
        let events = Arc::new(EventSink::new(self.observer.map(|observer| observer.0)));
        let time_limits =
            TimeLimits::new(&self.engine_config.limits, self.body_timeout, self.idle_timeout);
        let engine_config = self.pacing.apply_to(self.engine_config);
        Ok(Arc::new(ServerShared {
            registry: Registry::default(),
            engine_config: Arc::new(engine_config),
            migration: self.migration,
            conn_options: Arc::new(ConnOptions {
                interactive_options: self.interactive_options,
                bulk_options: self.bulk_options,
                pacing: self.pacing,
                receive_pacing: self.upload_pacing,
                max_bulk_deferral: self.max_bulk_deferral,
            }),
            events,
            open_connections: Arc::new(AtomicUsize::new(0)),
            max_connections: self.max_connections,
            client_quota: ClientQuota::new(self.max_connections_per_client),
            handshake_timeout: self.handshake_timeout,
            time_limits,
            tenant: self.tenant,
            authority_check: self.authority_check,
            request_extensions: self.request_extensions,
            request_label_limit: self.request_label_limit,
            shared_headers: self.shared_headers,
        }))
    }
}
