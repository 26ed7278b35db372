//! A server of connections that the application accepts itself.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::{Request, Response};
use http_body::Body;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tower_service::Service;

use super::bind::{ListenSecurity, ListenerSpec};
use super::session_list::SessionList;
use super::shared::{ServerShared, ServerState, check_shared_headers};
use super::tls::ServerTls;
use super::worker::Worker;
use super::{ServerView, accept};
use crate::connection::{CleartextTrust, ListenerId};
use crate::error::{BoxError, Error};
use crate::stream::Incoming;

/// A server for an accept loop of the application's own, from
/// [`ServerBuilder::connection_server`](super::ServerBuilder::connection_server). Cheap to clone; clones share the
/// limits, the statistics and the sessions.
///
/// A client opens several connections for one session. Serve all of them with one `ConnectionServer` or its clones, in
/// any tasks and threads: a connection that joins a session is handed over to the task that serves the session's
/// first connection, with its socket, and its own future then completes. One that may not join stays with its own
/// future. A limit of your own that counts the futures thus misses the connections that have joined;
/// [`max_connections`](super::ServerBuilder::max_connections) counts all.
///
/// Connections to different ports do not join one session; the local address makes no difference. If you accept at
/// several addresses of one port whose clients must be kept apart, use a `ConnectionServer` for each.
///
/// ```no_run
/// use smig::{ConnectionServer, Incoming, Server, ServerTls};
/// # use bytes::Bytes;
/// # use http_body_util::Full;
///
/// # async fn run(tls: ServerTls) -> Result<(), smig::BoxError> {
/// let server = Server::builder().connection_server(tower::service_fn(
///     async |_: http::Request<Incoming>| {
///         Ok::<_, smig::BoxError>(http::Response::new(Full::new(Bytes::from_static(b"hello"))))
///     },
/// ))?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8443").await?;
/// tokio::task::LocalSet::new()
///     .run_until(async {
///         loop {
///             let (tcp, peer) = listener.accept().await?;
///             let (server, tls) = (server.clone(), tls.clone());
///             tokio::task::spawn_local(async move {
///                 if let Err(error) = server.serve_connection(tcp, &tls).await {
///                     eprintln!("{peer}: {error}");
///                 }
///             });
///         }
///     })
///     .await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConnectionServer<S> {
    /// Stands for a listener, in [`ConnectionInfo::listener`](crate::ConnectionInfo::listener).
    listener_id: ListenerId,
    service: S,
    shared: Arc<ServerShared>,
    sessions: Arc<SessionList>,
    state: Arc<watch::Sender<ServerState>>,
}

impl<S> ConnectionServer<S> {
    pub(super) fn new(listener_id: ListenerId, service: S, shared: Arc<ServerShared>) -> Self {
        let state = Arc::new(watch::Sender::new(ServerState::Running));
        Self { listener_id, service, shared, sessions: Arc::default(), state }
    }

    /// Starts a graceful shutdown: GOAWAY is sent to the clients, running streams may finish, and the future of each
    /// connection completes after its last stream. A connection that is served from now on is shut down in the same way.
    /// To abort what remains, drop the futures.
    pub fn graceful_shutdown(&self) {
        self.state.send_replace(ServerState::Draining);
        self.sessions.drain();
    }

    /// Returns a handle for the server's statistics and snapshots.
    #[must_use]
    pub fn view(&self) -> ServerView {
        let session_lists = Arc::from([Arc::clone(&self.sessions)]);
        ServerView { events: Arc::clone(&self.shared.events), session_lists }
    }
}

impl<S, B> ConnectionServer<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Serves a connection that was accepted: TLS handshake, then HTTP/2 or HTTP/1.1 by ALPN. The future completes when
    /// the connection, and each connection that joined its session, has ended; also those that a handler has taken over
    /// ([`UpgradedIo`](crate::UpgradedIo)). If this connection joins the session of another one, the
    /// future completes then.
    ///
    /// The future is not `Send`: see [`Serve`](super::Serve). Nothing of the connection runs while it is not polled.
    ///
    /// # Errors
    /// The handshake failed or took too long, or a limit of connections is reached
    /// ([`is_busy`](Error::is_busy)), or [`shared_headers`](super::ServerBuilder::shared_headers) is set for bodies of
    /// another type. The connection is closed. What happens later is no error.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection and drops its handlers, and those of its session.
    ///
    /// A task that a handler has started by [`tokio::task::spawn_local`] ends with the future, also when that completes:
    /// it runs in a [`LocalSet`] of the connection's own. A task of [`tokio::spawn`] goes on, with a connection that it
    /// has taken over.
    pub async fn serve_connection(&self, tcp: TcpStream, tls: &ServerTls) -> Result<(), Error> {
        self.run(tcp, ListenSecurity::Tls(tls.clone())).await
    }

    /// Like [`serve_connection`](Self::serve_connection), without TLS: HTTP/2 with prior knowledge or HTTP/1.1, by the
    /// first bytes.
    ///
    /// # Errors
    /// Those of [`serve_connection`](Self::serve_connection); also first bytes of another protocol.
    pub async fn serve_cleartext_connection(
        &self,
        tcp: TcpStream,
        trust: CleartextTrust,
    ) -> Result<(), Error> {
        self.run(tcp, ListenSecurity::Cleartext(trust)).await
    }

    async fn run(&self, tcp: TcpStream, security: ListenSecurity) -> Result<(), Error> {
        check_shared_headers::<B>(self.shared.shared_headers.as_ref())?;
        let local = tcp.local_addr().map_err(|error| Error::io("the connection is lost", error))?;
        // As for a socket bound to the wildcard address: the application's listener is unknown, and
        // a client may connect to several of its addresses.
        let addr = SocketAddr::from((Ipv6Addr::UNSPECIFIED, local.port()));
        let spec = ListenerSpec { id: self.listener_id, addr, kind: security.into() };
        let (shared, sessions) = (Arc::clone(&self.shared), Arc::clone(&self.sessions));
        let worker = Worker::new(self.service.clone(), shared, sessions, self.state.subscribe());
        LocalSet::new().run_until(accept::serve_accepted(tcp, &spec, worker)).await
    }
}
