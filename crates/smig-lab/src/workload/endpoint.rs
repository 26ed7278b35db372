//! A client of the scenario: its connections, and how requests are sent over them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use smig::{Client, Config, ConnId, Incoming, MigrationConfig, MigrationMode, Trust};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use super::body::Upload;
use super::connections::{Addresses, Connections, Key};
use super::http1::{Pool, Reply};
use super::material::{WARM_UP, path_of};
use super::result::ConnectionBytes;
use crate::scenario::{
    Assignment, ClientKind, ClientMigration, ClientSpec, Priorities, Size, SizeClass,
    TransferDirection,
};

/// Time limit for opening a session's spare connections before the run begins.
const SPARES_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of HTTP/1.1 connections in browsers.
const HTTP1_CONNECTIONS: u32 = 6;

/// A client that is ready to send requests.
#[derive(Debug)]
pub(super) struct WorkloadClient {
    server: SocketAddr,
    priorities: Priorities,
    way: ClientBackend,
}

#[derive(Debug)]
enum ClientBackend {
    Sessions { all: Vec<Session>, assignment: Assignment, turn: AtomicUsize, spares: u64 },
    Http1 { pool: Pool, connections: usize },
}

#[derive(Debug)]
struct Session {
    client: Client,
    number: u32,
    /// Connection on which requests are sent.
    home: OnceCell<ConnId>,
    addresses: Arc<Addresses>,
}

/// Parameters of a request.
#[derive(Debug, Clone)]
pub(super) struct RequestSpec<'a> {
    pub(super) size: u64,
    pub(super) direction: TransferDirection,
    pub(super) role: SizeClass,
    pub(super) priority: Option<&'a str>,
}

/// A response whose body is being read. Dropping it cancels the request.
#[derive(Debug)]
pub(super) enum Answer {
    Stream { body: Incoming, session: u32, home: Option<ConnId> },
    Http1(Reply),
}

impl WorkloadClient {
    /// Creates a client. `first_session` is the number of its first session in the run.
    pub(super) fn new(
        spec: &ClientSpec,
        server: SocketAddr,
        certificate: &str,
        first_session: u32,
    ) -> Result<Self, String> {
        let way = match spec.kind {
            ClientKind::Command => return Err("a command opens its own connections".into()),
            ClientKind::Http1 => {
                let connections = spec.connections.unwrap_or(HTTP1_CONNECTIONS) as usize;
                ClientBackend::Http1 {
                    pool: Pool::new(server, certificate, connections)?,
                    connections,
                }
            }
            ClientKind::Smig | ClientKind::H2 => {
                let session = |index| {
                    let addresses = Arc::new(Addresses::default());
                    let client = client(spec, certificate, Arc::clone(&addresses));
                    Ok::<_, String>(Session {
                        client: client.map_err(|error| error.to_string())?,
                        number: first_session + index,
                        home: OnceCell::new(),
                        addresses,
                    })
                };
                let spares =
                    if spec.kind == ClientKind::Smig { spec.spares.unwrap_or(1) } else { 0 };
                ClientBackend::Sessions {
                    all: (0..spec.connections.unwrap_or(1))
                        .map(session)
                        .collect::<Result<_, _>>()?,
                    assignment: spec.assignment.unwrap_or_default(),
                    turn: AtomicUsize::new(0),
                    spares: spares as u64,
                }
            }
        };
        Ok(Self { server, priorities: spec.priorities, way })
    }

    /// Returns its server's address.
    pub(super) const fn server(&self) -> SocketAddr {
        self.server
    }

    /// Returns the number of its sessions, which are numbered in the run.
    pub(super) fn sessions(&self) -> u32 {
        match &self.way {
            ClientBackend::Sessions { all, .. } => u32::try_from(all.len()).unwrap_or(u32::MAX),
            ClientBackend::Http1 { .. } => 0,
        }
    }

    /// Returns the local address of a connection if it belongs to this client.
    pub(super) fn address(&self, connection: Key) -> Option<SocketAddr> {
        match (&self.way, connection) {
            (ClientBackend::Sessions { all, .. }, Key::Session(number, id)) => {
                all.iter().find(|session| session.number == number)?.addresses.of(id)
            }
            (ClientBackend::Http1 { .. }, Key::Address(address)) => Some(address),
            _ => None,
        }
    }

    /// Opens its connections, so that handshakes are not part of the measurement.
    pub(super) async fn open(&self) -> Result<(), String> {
        let warm_up = RequestSpec {
            size: WARM_UP,
            direction: TransferDirection::Download,
            role: SizeClass::Small,
            priority: None,
        };
        match &self.way {
            ClientBackend::Sessions { all, spares, .. } => {
                for session in all {
                    let mut answer = self.by_session(session, &warm_up).await?;
                    if let Answer::Stream { body, .. } = &answer
                        && let Some(home) = body.stream_info().and_then(|info| info.connection())
                    {
                        // Cannot fail: set only here.
                        let _ = session.home.set(home);
                    }
                    read_all(&mut answer).await?;
                    wait_for_spares(&session.client, *spares).await;
                }
            }
            ClientBackend::Http1 { connections, .. } => {
                // Keep all responses open, so that each request opens a new connection.
                let mut answers = Vec::new();
                for _ in 0..*connections {
                    answers.push(self.request(&warm_up).await?);
                }
                for answer in &mut answers {
                    read_all(answer).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends a request and waits for the response's header section.
    pub(super) async fn request(&self, spec: &RequestSpec<'_>) -> Result<Answer, String> {
        match &self.way {
            ClientBackend::Sessions { all, assignment, turn, .. } => {
                let big_apart = *assignment == Assignment::BigApart && all.len() > 1;
                let index = match (big_apart, spec.role) {
                    (true, SizeClass::Small) => 0,
                    (true, SizeClass::Big) => {
                        1 + turn.fetch_add(1, Ordering::Relaxed) % (all.len() - 1)
                    }
                    (false, _) => turn.fetch_add(1, Ordering::Relaxed) % all.len().max(1),
                };
                let session = all.get(index).ok_or("a client without connections")?;
                self.by_session(session, spec).await
            }
            ClientBackend::Http1 { pool, .. } => {
                let target = path_of(spec.size);
                let request =
                    self.head(&target, spec).header(http::header::HOST, self.server.to_string());
                let request = request.body(body_of(spec)).map_err(shown)?;
                checked(pool.request(request).await?).map(Answer::Http1)
            }
        }
    }

    async fn by_session(
        &self,
        session: &Session,
        spec: &RequestSpec<'_>,
    ) -> Result<Answer, String> {
        let uri = format!("https://{}{}", self.server, path_of(spec.size));
        let request = self.head(&uri, spec).body(body_of(spec)).map_err(shown)?;
        let response = session.client.request(request).await.map_err(shown)?;
        let body = checked(response)?;
        Ok(Answer::Stream { body, session: session.number, home: session.home.get().copied() })
    }

    fn head(&self, uri: &str, spec: &RequestSpec<'_>) -> http::request::Builder {
        let request = match spec.direction {
            TransferDirection::Download => Request::get(uri),
            TransferDirection::Upload => Request::post(uri),
        };
        match (self.priorities, spec.priority, spec.role) {
            (Priorities::Silent, ..) => request,
            (Priorities::Sent, Some(value), _) => request.header("priority", value),
            (Priorities::Sent, None, SizeClass::Small) => request.header("priority", "u=1"),
            (Priorities::Sent, None, SizeClass::Big) => request.header("priority", "u=5, i"),
        }
    }
}

fn client(
    spec: &ClientSpec,
    certificate: &str,
    addresses: Arc<Addresses>,
) -> Result<Client, smig::Error> {
    let mut config = Config::client();
    let window = |window: Option<Size>, default: u32| {
        window.and_then(|size| u32::try_from(size.0).ok()).unwrap_or(default)
    };
    config.stream_window = window(spec.stream_window, config.stream_window);
    config.connection_window = window(spec.connection_window, config.connection_window);
    if spec.kind != ClientKind::Smig {
        config.smig = None;
    }
    let mut rules = MigrationConfig::default();
    rules.mode = match spec.migrate {
        Some(ClientMigration::At(size)) => MigrationMode::At(vec![size.0]),
        Some(ClientMigration::Never) | None => MigrationMode::Never,
    };
    Client::builder()
        .trust(Trust::Pem(certificate.as_bytes().to_vec()))
        .engine(config)
        .migration(rules)
        .spares(spec.spares.unwrap_or(1))
        .idle_timeout(Duration::from_secs(3600))
        .observer(addresses)
        .build()
}

/// Waits until a session has its spare connections, if the server supports the extension.
async fn wait_for_spares(client: &Client, spares: u64) {
    let until = Instant::now() + SPARES_TIMEOUT;
    loop {
        let stats = client.stats();
        let is_complete = stats.joined >= spares || stats.joins_refused > 0;
        // The SETTINGS frame of a server arrives before its response and shows whether it supports
        // the extension.
        let is_plain = stats.sessions_established == 0;
        if is_complete || is_plain || Instant::now() >= until {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn body_of(spec: &RequestSpec<'_>) -> Upload {
    match spec.direction {
        TransferDirection::Download => Upload::new(0),
        TransferDirection::Upload => Upload::new(spec.size),
    }
}

fn checked<B>(response: Response<B>) -> Result<B, String> {
    if response.status().is_success() {
        Ok(response.into_body())
    } else {
        Err(format!("status {}", response.status()))
    }
}

async fn read_all(answer: &mut Answer) -> Result<(), String> {
    while let Some(piece) = answer.next().await {
        piece?;
    }
    Ok(())
}

impl Answer {
    /// Returns the next bytes of the body.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match self {
            Self::Http1(reply) => reply.next().await,
            Self::Stream { body, .. } => loop {
                match body.frame().await? {
                    Ok(frame) => {
                        if let Ok(data) = frame.into_data() {
                            return Some(Ok(data));
                        }
                    }
                    Err(error) => return Some(Err(error.to_string())),
                }
            },
        }
    }

    /// Returns the connection on which its request was sent.
    pub(super) fn home(&self) -> Option<Key> {
        match self {
            Self::Stream { session, home, .. } => home.map(|id| Key::Session(*session, id)),
            Self::Http1(reply) => Some(Key::Address(reply.local())),
        }
    }

    /// Returns the connection that it is on now.
    pub(super) fn connection(&self) -> Option<Key> {
        match self {
            Self::Stream { body, session, .. } => {
                let id = body.stream_info()?.connection()?;
                Some(Key::Session(*session, id))
            }
            Self::Http1(reply) => Some(Key::Address(reply.local())),
        }
    }

    /// Returns the bytes by connection, of `bytes` in total.
    pub(super) fn totals(&self, connections: &Connections, bytes: u64) -> Vec<ConnectionBytes> {
        match self {
            Self::Stream { body, session, .. } => connections.totals(*session, &body.segments()),
            Self::Http1(reply) => {
                let connection = connections.number(Key::Address(reply.local()));
                vec![ConnectionBytes { connection, bytes }]
            }
        }
    }
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}
