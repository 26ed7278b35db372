//! A client of the scenario: its connections, and how requests are sent over them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use smig::{
    Client, Config, ConnId, Incoming, MigrationConfig, MigrationMode, Origin, Pacing,
    SocketOptions, Trust,
};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use super::body::Upload;
use super::connections::{ConnectionKey, ConnectionNumbers, SessionAddrs};
use super::http1::{Http1Pool, Http1Response};
use super::http3::{Http3Client, Http3Response};
use super::result::ConnectionBytes;
use super::run::{monotonic_ns, now_ns};
use super::server_files::{WARM_UP_BYTES, object_path};
use crate::scenario::{
    Assignment, ClientKind, ClientMigration, ClientSpec, Priorities, Size, SizeClass,
    TransferDirection,
};

/// Time limit for opening a session's spare connections before the run begins.
const SPARES_TIMEOUT: Duration = Duration::from_secs(10);
/// Browsers open this many HTTP/1.1 connections per host.
const DEFAULT_HTTP1_CONNECTIONS: u32 = 6;

/// A client that is ready to send requests.
#[derive(Debug)]
pub(super) struct WorkloadClient {
    server: SocketAddr,
    priorities: Priorities,
    backend: ClientBackend,
}

#[derive(Debug)]
enum ClientBackend {
    Sessions {
        sessions: Vec<Session>,
        assignment: Assignment,
        next_session: AtomicUsize,
        spares: u64,
    },
    Http1 {
        pool: Http1Pool,
        connections: usize,
    },
    Http3(Http3Client),
}

#[derive(Debug)]
struct Session {
    client: Client,
    number: u32,
    /// Connection on which requests are sent.
    request_connection: OnceCell<ConnId>,
    addresses: Arc<SessionAddrs>,
}

/// Parameters of a request.
#[derive(Debug, Clone)]
pub(super) struct RequestSpec<'a> {
    pub(super) size: u64,
    pub(super) direction: TransferDirection,
    pub(super) size_class: SizeClass,
    pub(super) priority: Option<&'a str>,
}

/// When a request was sent, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SendTimes {
    /// A connection began to be opened for it.
    pub(super) connect_ns: Option<u64>,
    /// It had a connection, and a stream.
    pub(super) sent_ns: Option<u64>,
}

/// A response whose body is being read. Dropping it cancels the request.
#[derive(Debug)]
pub(super) enum OpenResponse {
    Stream { body: Incoming, session_number: u32, request_connection: Option<ConnId> },
    Http1(Http1Response),
    Http3(Http3Response),
}

impl WorkloadClient {
    /// Creates a client. `first_session` is the number of its first session, or of its pool, in the run.
    pub(super) fn new(
        spec: &ClientSpec,
        server: SocketAddr,
        certificate: &str,
        first_session: u32,
    ) -> Result<Self, String> {
        let backend = match spec.kind {
            ClientKind::Command | ClientKind::Http3 | ClientKind::Chromium => {
                return Err("it opens its own connections".into());
            }
            ClientKind::Http1 => {
                let connections = spec.connections.unwrap_or(DEFAULT_HTTP1_CONNECTIONS) as usize;
                ClientBackend::Http1 {
                    pool: Http1Pool::new(server, certificate, connections, first_session)?,
                    connections,
                }
            }
            ClientKind::Smig | ClientKind::H2 => {
                let session = |index| {
                    let addresses = Arc::new(SessionAddrs::default());
                    let client = build_client(spec, certificate, Arc::clone(&addresses));
                    Ok::<_, String>(Session {
                        client: client.map_err(|error| error.to_string())?,
                        number: first_session + index,
                        request_connection: OnceCell::new(),
                        addresses,
                    })
                };
                let spares =
                    if spec.kind == ClientKind::Smig { spec.spares.unwrap_or(1) } else { 0 };
                ClientBackend::Sessions {
                    sessions: (0..spec.connections.unwrap_or(1))
                        .map(session)
                        .collect::<Result<_, _>>()?,
                    assignment: spec.assignment.unwrap_or_default(),
                    next_session: AtomicUsize::new(0),
                    spares: spares as u64,
                }
            }
        };
        Ok(Self { server, priorities: spec.priorities, backend })
    }

    /// Creates a client whose connection is that of another program.
    pub(super) const fn http3(client: Http3Client, server: SocketAddr) -> Self {
        let backend = ClientBackend::Http3(client);
        Self { server, priorities: Priorities::Silent, backend }
    }

    /// Returns its server's address.
    pub(super) const fn server(&self) -> SocketAddr {
        self.server
    }

    /// Returns the local address of a connection, if it is this client's.
    pub(super) fn address(&self, connection: ConnectionKey) -> Option<SocketAddr> {
        match (&self.backend, connection) {
            (ClientBackend::Sessions { sessions, .. }, ConnectionKey::Session(number, id)) => {
                sessions.iter().find(|session| session.number == number)?.addresses.of(id)
            }
            (ClientBackend::Http1 { pool, .. }, ConnectionKey::Address(number, address)) => {
                (number == pool.number()).then_some(address)
            }
            _ => None,
        }
    }

    /// Waits until it can send requests: some are programs that have to start.
    pub(super) async fn ready(&self) -> Result<(), String> {
        match &self.backend {
            ClientBackend::Http3(client) => client.ready().await,
            ClientBackend::Sessions { .. } | ClientBackend::Http1 { .. } => Ok(()),
        }
    }

    /// Opens its connections, so that handshakes are not part of the measurement.
    pub(super) async fn open(&self) -> Result<(), String> {
        let warm_up = RequestSpec {
            size: WARM_UP_BYTES,
            direction: TransferDirection::Download,
            size_class: SizeClass::Small,
            priority: None,
        };
        match &self.backend {
            ClientBackend::Sessions { sessions, spares, .. } => {
                for session in sessions {
                    let (mut response, _) = self.request_on_session(session, &warm_up).await?;
                    if let OpenResponse::Stream { body, .. } = &response
                        && let Some(connection) =
                            body.stream_info().and_then(|info| info.connection())
                    {
                        // Cannot fail: set only here.
                        let _ = session.request_connection.set(connection);
                    }
                    read_all(&mut response).await?;
                    wait_for_spares(&session.client, *spares).await;
                }
            }
            ClientBackend::Http3(_) => read_all(&mut self.request(&warm_up).await?).await?,
            ClientBackend::Http1 { connections, .. } => {
                // Keep all responses open, so that each request opens a new connection.
                let mut responses = Vec::new();
                for _ in 0..*connections {
                    responses.push(self.request(&warm_up).await?);
                }
                for response in &mut responses {
                    read_all(response).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends a request and waits for the response's header section.
    pub(super) async fn request(&self, spec: &RequestSpec<'_>) -> Result<OpenResponse, String> {
        Ok(self.timed_request(spec).await?.0)
    }

    /// Like [`Self::request`]; also returns when it was sent.
    pub(super) async fn timed_request(
        &self,
        spec: &RequestSpec<'_>,
    ) -> Result<(OpenResponse, SendTimes), String> {
        match &self.backend {
            ClientBackend::Sessions { sessions, assignment, next_session, .. } => {
                let is_big_apart = *assignment == Assignment::BigApart && sessions.len() > 1;
                let index = match (is_big_apart, spec.size_class) {
                    (true, SizeClass::Small) => 0,
                    (true, SizeClass::Large) => {
                        1 + next_session.fetch_add(1, Ordering::Relaxed) % (sessions.len() - 1)
                    }
                    (false, _) => {
                        next_session.fetch_add(1, Ordering::Relaxed) % sessions.len().max(1)
                    }
                };
                let session = sessions.get(index).ok_or("a client without connections")?;
                self.request_on_session(session, spec).await
            }
            ClientBackend::Http3(client) => {
                let response = client.request(spec).await?;
                Ok((OpenResponse::Http3(response), SendTimes::default()))
            }
            ClientBackend::Http1 { pool, .. } => {
                let target = object_path(spec.size);
                let request = self
                    .request_head(&target, spec)
                    .header(http::header::HOST, self.server.to_string());
                let request = request.body(body_of(spec)).map_err(to_text)?;
                let (response, times) = pool.request(request).await?;
                Ok((OpenResponse::Http1(check_status(response)?), times))
            }
        }
    }

    async fn request_on_session(
        &self,
        session: &Session,
        spec: &RequestSpec<'_>,
    ) -> Result<(OpenResponse, SendTimes), String> {
        let uri = format!("https://{}{}", self.server, object_path(spec.size));
        let request = self.request_head(&uri, spec).body(body_of(spec)).map_err(to_text)?;
        let origin = Origin::from_uri(request.uri()).map_err(to_text)?;
        let connect_ns = (!session.client.has_session(&origin)).then(now_ns);
        let mut response = session.client.submit(&origin, request).map_err(to_text)?;
        let body = check_status((&mut response).await.map_err(to_text)?)?;
        let sent_ns = response.sent_at().map(monotonic_ns);
        let response = OpenResponse::Stream {
            body,
            session_number: session.number,
            request_connection: session.request_connection.get().copied(),
        };
        Ok((response, SendTimes { connect_ns, sent_ns }))
    }

    fn request_head(&self, uri: &str, spec: &RequestSpec<'_>) -> http::request::Builder {
        let request = match spec.direction {
            TransferDirection::Download => Request::get(uri),
            TransferDirection::Upload => Request::post(uri),
        };
        match (self.priorities, spec.priority, spec.size_class) {
            (Priorities::Silent, ..) => request,
            (Priorities::Sent, Some(value), _) => request.header("priority", value),
            (Priorities::Sent, None, SizeClass::Small) => request.header("priority", "u=1"),
            (Priorities::Sent, None, SizeClass::Large) => request.header("priority", "u=5, i"),
        }
    }
}

fn build_client(
    spec: &ClientSpec,
    certificate: &str,
    addresses: Arc<SessionAddrs>,
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
    if let (Some(smig), Some(spares)) = (&mut config.smig, spec.spares) {
        smig.max_connections = smig.max_connections.max(spares + 1);
    }
    let mut migration = MigrationConfig::default();
    migration.mode = match spec.migrate {
        Some(ClientMigration::At(size)) => MigrationMode::At(vec![size.0]),
        Some(ClientMigration::Never) | None => MigrationMode::Never,
    };
    let mut builder = Client::builder();
    if spec.plain_sending == Some(true) {
        let (mut interactive, mut bulk) = (SocketOptions::interactive(), SocketOptions::bulk());
        (interactive.notsent_lowat, bulk.notsent_lowat) = (None, None);
        builder = builder.pacing(Pacing::Off).interactive_socket(interactive).bulk_socket(bulk);
    }
    builder
        .trust(Trust::Pem(certificate.as_bytes().to_vec()))
        .engine(config)
        .migration(migration)
        .spares(spec.spares.unwrap_or(1))
        .plain_connections(spec.plain_connections.unwrap_or(1))
        .receive_pacing(spec.receive_pacing.unwrap_or(false))
        .idle_timeout(Duration::from_secs(3600))
        .observer(addresses)
        .build()
}

/// Waits until a session has its spare connections, if the server supports the extension.
async fn wait_for_spares(client: &Client, spares: u64) {
    let deadline = Instant::now() + SPARES_TIMEOUT;
    loop {
        let stats = client.stats();
        let has_spares = stats.connections_joined >= spares || stats.joins_refused > 0;
        // The SETTINGS frame of a server arrives before its response and shows whether it supports
        // the extension.
        let is_unsupported = stats.sessions_established == 0;
        if has_spares || is_unsupported || Instant::now() >= deadline {
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

fn check_status<B>(response: Response<B>) -> Result<B, String> {
    if response.status().is_success() {
        Ok(response.into_body())
    } else {
        Err(format!("status {}", response.status()))
    }
}

async fn read_all(response: &mut OpenResponse) -> Result<(), String> {
    while let Some(piece) = response.next().await {
        piece?;
    }
    Ok(())
}

impl OpenResponse {
    /// Returns the next bytes of the body.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match self {
            Self::Http1(response) => response.next().await,
            Self::Http3(response) => response.next().await,
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

    /// Returns whether the client's program has already compared the body with the content; its bytes are zeros here.
    pub(super) const fn is_already_verified(&self) -> bool {
        matches!(self, Self::Http3(_))
    }

    /// Returns the connection on which its request was sent; `None` if the lab does not see it.
    pub(super) fn request_connection(&self) -> Option<ConnectionKey> {
        match self {
            Self::Stream { session_number, request_connection: connection, .. } => {
                connection.map(|id| ConnectionKey::Session(*session_number, id))
            }
            Self::Http1(response) => {
                Some(ConnectionKey::Address(response.pool(), response.local_addr()))
            }
            Self::Http3(_) => None,
        }
    }

    /// Returns the connection that its stream is bound to now.
    pub(super) fn connection(&self) -> Option<ConnectionKey> {
        match self {
            Self::Stream { body, session_number, .. } => {
                let id = body.stream_info()?.connection()?;
                Some(ConnectionKey::Session(*session_number, id))
            }
            Self::Http1(response) => {
                Some(ConnectionKey::Address(response.pool(), response.local_addr()))
            }
            Self::Http3(_) => None,
        }
    }

    /// Returns the bytes by connection; `bytes` is their total.
    pub(super) fn bytes_by_connection(
        &self,
        connections: &ConnectionNumbers,
        bytes: u64,
    ) -> Vec<ConnectionBytes> {
        match self {
            Self::Stream { body, session_number, .. } => {
                connections.totals(*session_number, &body.segments())
            }
            Self::Http3(_) => Vec::new(),
            Self::Http1(response) => {
                let connection = connections
                    .get_or_assign(ConnectionKey::Address(response.pool(), response.local_addr()));
                vec![ConnectionBytes { connection, bytes }]
            }
        }
    }
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
