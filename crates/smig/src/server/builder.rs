//! How a server is described and started.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use smig_proto::{Config, Security};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tower_service::Service;

use super::Server;
use super::registry::Registry;
use super::tls::ServerTls;
use super::worker::{Listener, ListenerKind, ListenerSpec, Phase, Shared, run};
use crate::driver::LinkOptions;
use crate::entropy;
use crate::error::{BoxError, Error};
use crate::moves::MoveRules;
use crate::observe::{Counters, Observer};
use crate::socket::SocketOptions;
use crate::stream::Incoming;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// What cleartext connections are trusted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearTrust {
    /// HTTP/1.1 and HTTP/2 with prior knowledge, no migration.
    None,
    /// Migration as well. This protects against nobody on the path: for tests, a lab, a unix-like
    /// trust between the two ends.
    TrustedNetwork,
}

impl ClearTrust {
    pub(crate) const fn security(self) -> Security {
        match self {
            Self::None => Security::Plain,
            Self::TrustedNetwork => Security::TrustedCleartext,
        }
    }
}

/// Describes a server. Every setting has a default; at least one listener is needed.
#[derive(Debug)]
pub struct ServerBuilder {
    specs: Vec<(SocketAddr, Listens)>,
    workers: usize,
    engine: Config,
    rules: MoveRules,
    interactive: SocketOptions,
    bulk: SocketOptions,
    pace_bulk: bool,
    max_hold: Duration,
    max_connections: usize,
    handshake_timeout: Duration,
    idle_timeout: Duration,
    body_timeout: Duration,
    tenant: Vec<u8>,
    observer: Option<ObserverSlot>,
}

struct ObserverSlot(Arc<dyn Observer>);

impl std::fmt::Debug for ObserverSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

#[derive(Clone, Debug)]
enum Listens {
    Tls(ServerTls),
    Clear(ClearTrust),
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            specs: Vec::new(),
            workers: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            engine: Config::server(),
            rules: MoveRules::default(),
            interactive: SocketOptions::interactive(),
            bulk: SocketOptions::bulk(),
            pace_bulk: true,
            max_hold: Duration::from_millis(25),
            max_connections: 65_536,
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(300),
            body_timeout: Duration::from_secs(60),
            tenant: Vec::new(),
            observer: None,
        }
    }
}

impl ServerBuilder {
    /// Listens with TLS: HTTP/2 and HTTP/1.1 by ALPN.
    #[must_use]
    pub fn listen(mut self, addr: SocketAddr, tls: ServerTls) -> Self {
        self.specs.push((addr, Listens::Tls(tls)));
        self
    }

    /// Listens without TLS: HTTP/2 with prior knowledge and HTTP/1.1.
    #[must_use]
    pub fn listen_cleartext(mut self, addr: SocketAddr, trust: ClearTrust) -> Self {
        self.specs.push((addr, Listens::Clear(trust)));
        self
    }

    /// Threads; the number of processors unless set.
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.workers = workers.get();
        self
    }

    /// HTTP/2 settings and limits, for each session.
    #[must_use]
    pub fn engine(mut self, config: Config) -> Self {
        self.engine = config;
        self
    }

    /// When streams move.
    #[must_use]
    pub fn moves(mut self, rules: MoveRules) -> Self {
        self.rules = rules;
        self
    }

    /// Socket options of connections that carry small things.
    #[must_use]
    pub fn interactive_socket(mut self, options: SocketOptions) -> Self {
        self.interactive = options;
        self
    }

    /// Socket options of connections that carry moved streams.
    #[must_use]
    pub fn bulk_socket(mut self, options: SocketOptions) -> Self {
        self.bulk = options;
        self
    }

    /// Whether bulk connections are kept near the rate that the path is seen to carry, so that their
    /// octets do not queue before small responses (on); off: as fast as congestion control goes, and
    /// [`max_hold`](Self::max_hold) holds nothing back.
    #[must_use]
    pub fn pace_bulk(mut self, on: bool) -> Self {
        self.pace_bulk = on;
        self
    }

    /// How long one interactive response may hold bulk back; zero: never.
    #[must_use]
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = limit;
        self
    }

    /// Connections open at once; further ones are closed.
    #[must_use]
    pub fn max_connections(mut self, limit: usize) -> Self {
        self.max_connections = limit;
        self
    }

    /// Time for a TLS handshake, or for the first octets on cleartext.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.handshake_timeout = limit;
        self
    }

    /// How long a session without a stream stays open.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// How long a handler that has not answered yet may wait for 1 KB of its request's body; then the
    /// stream is reset.
    #[must_use]
    pub fn body_timeout(mut self, limit: Duration) -> Self {
        self.body_timeout = limit;
        self
    }

    /// A name that separates this server's sessions from those of others behind one address.
    #[must_use]
    pub fn tenant(mut self, name: impl Into<Vec<u8>>) -> Self {
        self.tenant = name.into();
        self
    }

    /// Who is told of everything worth counting.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(ObserverSlot(observer));
        self
    }

    /// Binds the addresses and starts the workers' threads.
    ///
    /// The service is cloned for each session. It is polled on one thread, so its futures and
    /// bodies need not be `Send`.
    ///
    /// # Errors
    /// No listener, an address that cannot be bound, a thread that cannot be started.
    pub fn start<S, B>(self, service: S) -> Result<Server, Error>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: 'static,
        B: Body + 'static,
        B::Error: Into<BoxError>,
    {
        if self.specs.is_empty() {
            return Err(Error::config("the server listens nowhere; add an address"));
        }
        entropy::check()?;
        let Bound { specs, workers: mut listeners } = self.bind()?;
        let counters = Arc::new(Counters::new(self.observer.map(|observer| observer.0)));
        let shared = Arc::new(Shared {
            registry: Registry::default(),
            engine: self.engine,
            rules: self.rules,
            links: Arc::new(LinkOptions {
                interactive: self.interactive,
                bulk: self.bulk,
                pace_bulk: self.pace_bulk,
                max_hold: self.max_hold,
            }),
            counters: Arc::clone(&counters),
            open: Arc::new(AtomicUsize::new(0)),
            max_connections: self.max_connections,
            handshake_timeout: self.handshake_timeout,
            idle_timeout: self.idle_timeout,
            body_timeout: self.body_timeout,
            tenant: self.tenant,
        });
        let (phase, watcher) = watch::channel(Phase::Running);
        let mut threads = Vec::new();
        for number in 0..self.workers {
            let sockets = listeners.pop().unwrap_or_default();
            let (service, shared, watcher) =
                (service.clone(), Arc::clone(&shared), watcher.clone());
            let thread = thread::Builder::new()
                .name(format!("smig-{number}"))
                .spawn(move || run(sockets, service, shared, watcher))
                .map_err(|error| Error::io("cannot start a worker thread", error))?;
            threads.push(thread);
        }
        let addrs = specs.iter().map(|spec| spec.addr).collect();
        Ok(Server { addrs, phase, threads, counters })
    }

    /// Binds every address once a worker.
    fn bind(&self) -> Result<Bound, Error> {
        let mut specs = Vec::new();
        let mut workers: Vec<Vec<Listener>> = Vec::new();
        workers.resize_with(self.workers, Vec::new);
        for (addr, listens) in &self.specs {
            let fail = |error| {
                Error::config(format!("cannot listen on {addr}: {error}; is it in use already?"))
            };
            let mut bound = *addr;
            let mut sockets = Vec::new();
            for _ in 0..self.workers {
                let socket = listen(bound).map_err(fail)?;
                // Port 0 is chosen once.
                bound = socket.local_addr().map_err(fail)?;
                sockets.push(socket);
            }
            let kind = match listens {
                Listens::Tls(tls) => ListenerKind::Tls(tls.config()),
                Listens::Clear(trust) => ListenerKind::Clear(trust.security()),
            };
            let names = match listens {
                Listens::Tls(tls) => tls.names(),
                Listens::Clear(_) => None,
            };
            let spec = Arc::new(ListenerSpec { addr: bound, kind, names });
            for (worker, socket) in workers.iter_mut().zip(sockets) {
                worker.push(Listener { socket, spec: Arc::clone(&spec) });
            }
            specs.push(spec);
        }
        Ok(Bound { specs, workers })
    }
}

/// What a server listens on.
struct Bound {
    specs: Vec<Arc<ListenerSpec>>,
    /// One socket for each address, by worker.
    workers: Vec<Vec<Listener>>,
}

/// A listening socket that shares its address with the other workers'.
fn listen(addr: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
