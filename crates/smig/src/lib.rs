//! HTTP/2 client and server whose running streams migrate between TCP connections.
//!
//! A large response on the connection of small ones makes these wait: in the send buffer, and in the queue of the slowest
//! link. With this crate at both ends, a session has several connections, and a large stream continues on another one,
//! while it runs; the application does not notice. Other peers get plain HTTP/2, or HTTP/1.1.
//!
//! tokio and rustls around the engine, which is the crate `smig-proto`: the [`Server`] takes a tower service, the
//! [`Client`] sends requests of the `http` crate; both stream bodies, in both directions.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::{BodyExt as _, Full};
//! use smig::{BoxError, Client, Incoming, Server, ServerTls, Trust};
//!
//! # async fn run() -> Result<(), BoxError> {
//! let server = Server::builder()
//!     .listen("127.0.0.1:8443".parse()?, ServerTls::from_files(Path::new("cert.pem"), Path::new("key.pem"))?)
//!     .start(tower::service_fn(async |_: Request<Incoming>| {
//!         Ok::<_, BoxError>(Response::new(Full::new(Bytes::from_static(b"hello"))))
//!     }))?;
//!
//! let client = Client::builder().trust(Trust::File("cert.pem".into())).build()?;
//! let request = Request::get("https://localhost:8443/").body(Full::<Bytes>::default())?;
//! let response = client.request(request).await?;
//! assert_eq!(response.into_body().collect().await?.to_bytes(), "hello");
//! server.shutdown(std::time::Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which server
//!
//! | you have | call | it runs |
//! |---|---|---|
//! | a program that should use all processors | [`ServerBuilder::start`] | on threads of its own, until [`Server::shutdown`] |
//! | a tokio runtime | [`ServerBuilder::serve`] | where the future is awaited; nothing need be `Send` |
//! | an accept loop | [`ServerBuilder::connection_server`] | where the future of each connection is awaited |
//!
//! The first two bind addresses ([`listen`](ServerBuilder::listen)), or take sockets that are bound already
//! ([`listen_on`](ServerBuilder::listen_on)).
//!
//! # When a stream migrates
//!
//! The sender decides, by [`MigrationPolicy`]: when enough is left to send, other streams share the connection, and they
//! would wait for it. Where bulk is paced ([`Pacing`]) they hardly do: there a stream moves only if packets are lost again and
//! again, or if the process runs late. [`MigrationConfig`] sets the rules of one end. A handler overrides them with a
//! [`MigrationHint`], an [`Observer`] receives each decision and migration, and
//! [`Incoming::stream_info`] says which bytes arrived on which connection:
//!
//! ```
//! # use std::sync::Arc;
//! # use bytes::Bytes;
//! # use http::{Request, Response};
//! # use http_body_util::{BodyExt as _, Full};
//! # use smig::{BoxError, Client, Incoming, MigrationHint, Observer, ObserverEvent, Server, ServerTls, Trust};
//! # use tokio::sync::mpsc;
//! struct Migrations(mpsc::UnboundedSender<String>);
//!
//! impl Observer for Migrations {
//!     fn on_event(&self, event: &ObserverEvent) {
//!         if let ObserverEvent::Migrated { from, to, why, .. } = event {
//!             let _ = self.0.send(format!("from connection {from} to {to}: {why}"));
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
//! # let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
//! # let tls = ServerTls::from_pem(certificate.as_bytes(), key.as_bytes())?;
//! # let trust = Trust::Pem(certificate.into_bytes());
//! let (sender, mut migrations) = mpsc::unbounded_channel();
//! let server = Server::builder()
//!     .listen("127.0.0.1:0".parse()?, tls)
//!     .observer(Arc::new(Migrations(sender)))
//!     .start(tower::service_fn(async |_: Request<Incoming>| {
//!         let mut response = Response::new(Full::new(Bytes::from(vec![0; 64 << 20])));
//!         response.extensions_mut().insert(MigrationHint::Migrate);
//!         Ok::<_, BoxError>(response)
//!     }))?;
//!
//! let client = Client::builder().trust(trust).build()?;
//! let url = format!("https://localhost:{}/", server.local_addrs()[0].port());
//! let response = client.request(Request::get(url).body(Full::<Bytes>::default())?).await?;
//! let stream = response.body().stream_info().ok_or("not over HTTP/2")?;
//!
//! // More than the client's window: the response waits for its reader, and migrates.
//! let migration = migrations.recv().await.ok_or("the server has ended")?;
//! assert!(migration.ends_with("as its hint requests"), "{migration}");
//!
//! let body = response.into_body().collect().await?.to_bytes();
//! let segments = stream.segments();
//! assert_eq!((body.len(), segments.len()), (64 << 20, 2), "{segments:?}");
//! assert_ne!(segments[0].connection, segments[1].connection);
//! # Ok(())
//! # }
//! ```
//!
//! # axum and tonic
//!
//! An axum router is a service of requests with axum's body: [`ServerBuilder::serve`] has an example. A tonic service is a
//! service as it is, and a [`Client`] takes the place of tonic's channel. Large messages migrate:
//!
//! ```no_run
//! # use smig::{BoxError, Client, Server, ServerTls, Trust};
//! use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
//!
//! # async fn run(tls: ServerTls, trust: Trust) -> Result<(), BoxError> {
//! // Any generated service; this one comes with tonic.
//! let (_, service) = tonic_health::server::health_reporter();
//! let server = Server::builder().listen("127.0.0.1:8443".parse()?, tls).start(service)?;
//!
//! let client = Client::builder().trust(trust).build()?;
//! let mut client = HealthClient::with_origin(client, "https://localhost:8443".parse()?);
//! let response = client.check(HealthCheckRequest::default()).await?;
//! # drop((server, response));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | requests | [`Client`], [`ClientBuilder`], [`Origin`], [`Trust`], [`ResponseFuture`], [`on_informational`], [`strong_validator`], [`ContentRange`] |
//! | limits of clients | [`QueueLimit`], [`ConnectionLimit`], [`Resolver`], [`RangeContinuation`] |
//! | serving | [`ServerBuilder`], [`Server`], [`Serve`], [`ConnectionServer`], [`ServerTls`], [`ClientCertificates`] |
//! | in a handler | [`Incoming`], [`ConnectionInfo`], [`InformationalSender`], [`UpgradedIo`], [`Reset`] |
//! | migration | [`MigrationConfig`], [`MigrationPolicy`], [`MigrationHint`], [`StreamInfo`], [`Segment`] |
//! | operating | [`Observer`], [`ObserverEvent`], [`Stats`], [`ServerView`], [`Snapshot`] |
//! | HTTP/2 and TCP | [`Config`], [`Priority`], [`SocketOptions`], [`Pacing`], [`BulkPolicy`] |
//! | failures | [`Error`], [`TlsError`], [`ErrorCode`], [`Processed`] |
//!
//! # Layers
//!
//! From the bottom, each using only what is below it:
//!
//! - errors, clock, random bytes, the mailbox of a session's task, sockets and their options;
//! - snapshots, events and counters, limits of connections;
//! - transports (TCP with TLS), streams (bodies between application and session), names and properties of connections;
//! - the driver: one task per session, which owns the engine and all connections;
//! - migration: what the sockets report, for the engine's policy;
//! - the server and the client, which do not depend on each other.

mod blocking;
mod client;
mod clock;
mod connection;
mod deadlines;
mod driver;
mod entropy;
mod error;
mod grpc;
mod limits;
mod mailbox;
mod migration;
mod observer;
mod resolve;
mod server;
mod snapshot;
mod socket;
mod stream;
#[doc(hidden)]
pub mod throttled;
mod transport;

pub use client::{
    Cleartext, Client, ClientBuilder, ContentRange, LoadedTrust, NegotiatedProtocol, Origin,
    RangeContinuation, ResponseFuture, Trust, connect_any, is_last_request, is_last_response,
    on_informational, strong_validator,
};
pub use clock::turn_time;
pub use connection::{CleartextTrust, ConnectionInfo, ListenerId, TlsInfo};
pub use driver::Pacing;
pub use error::{BoxError, Error, Reset, TimeoutPhase, TlsError};
pub use grpc::is_grpc;
pub use limits::{ConnectionLimit, ConnectionPermit, QueueLimit};
pub use migration::{Connections, MigrationConfig, MigrationMode, Offers};
pub use observer::{Observer, ObserverEvent, Stats};
pub use resolve::Resolver;
pub use server::{
    AuthorityCheck, Certificate, ClientCertificates, ConnectionServer, InformationalSender,
    ListenerInfo, RequestExtensions, Serve, Server, ServerBuilder, ServerTls, ServerView,
    UpgradedIo,
};
pub use snapshot::{
    ConnectionRole, ConnectionSnapshot, MAX_SNAPSHOT_SESSIONS, MAX_SNAPSHOT_STREAMS,
    MigrationCause, PolicyDecision, RequestLabel, SessionId, SessionSnapshot, Snapshot, StreamRef,
    StreamSnapshot,
};
pub use socket::{ConnectionAddrs, Dscp, SocketOptions};
pub use stream::{Incoming, Segment, StreamInfo};

/// The application's own decision on whether the body of a response is bulk, set as an extension of the response: bulk
/// is sent behind everything else, and no faster than the measured rate of the path ([`Pacing`]).
///
/// ```
/// use smig::BulkHint;
///
/// let mut response = http::Response::new(http_body_util::Full::new(bytes::Bytes::from_static(b"video")));
/// // A player waits for it: it competes with everything else.
/// response.extensions_mut().insert(BulkHint::Interactive);
/// ```
#[doc(inline)]
pub use smig_proto::BulkHint;
/// The application's own decision on whether a stream migrates. A server's handler sets it as an extension of its
/// response, a client as one of its request; it is not sent to the peer.
///
/// ```
/// use smig::MigrationHint;
///
/// let mut response = http::Response::new(http_body_util::Full::new(bytes::Bytes::from_static(b"live")));
/// // A response that people wait for stays with the others, however long it becomes.
/// response.extensions_mut().insert(MigrationHint::Stay);
/// ```
#[doc(inline)]
pub use smig_proto::policy::MigrationHint;
#[doc(inline)]
pub use smig_proto::policy::{MigrationPolicy, MigrationReason, PacedStreams, StayReason};
#[doc(inline)]
pub use smig_proto::{
    BulkPolicy, BulkReason, Config, ConnId, ErrorCode, Mover, Priority, Processed, Protocol,
    StreamKey, is_host_and_port,
};
