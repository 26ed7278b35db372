//! HTTP/2 client and server whose running streams migrate between TCP connections.
//!
//! tokio and rustls around the engine of [`smig_proto`]: the [`Server`] takes a tower service, the
//! [`Client`] sends [`http::Request`]s; both stream bodies. Peers without the extension get plain
//! HTTP/2, or HTTP/1.1.
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
//! Layers, from the bottom: sockets and their options, transports (TCP with TLS), the driver (one
//! task per session), and on top of it the server's and the client's halves.

mod blocking;
mod client;
mod clock;
mod connection;
mod deadlines;
mod driver;
mod entropy;
mod error;
mod grpc;
mod migration;
mod observer;
mod resolve;
#[doc(hidden)]
pub mod seldom;
mod server;
mod snapshot;
mod socket;
mod stream;
mod transport;

pub use client::{
    Cleartext, Client, ClientBuilder, ConnectionLimit, ConnectionPlace, Loaded, NegotiatedProtocol,
    Origin, QueueLimit, Sending, TlsFault, Trust, connect_any, is_last_request, is_last_response,
    on_informational,
};
pub use connection::{ConnectionInfo, TlsInfo};
pub use driver::Pacing;
pub use error::{BoxError, Error, Reset, TimeoutPhase};
pub use grpc::is_grpc;
pub use migration::{MigrationConfig, MigrationMode, Offers};
pub use observer::{ConnectionAddrs, Observer, ObserverEvent, Stats};
pub use resolve::Resolver;
pub use server::{
    AuthorityCheck, Certificate, CleartextTrust, ClientCertificates, ConnectionServer,
    InformationalSender, ListenerId, Listening, Serve, Server, ServerBuilder, ServerTls,
    ServerView, UpgradedIo,
};
pub use snapshot::{
    ConnectionRole, ConnectionSnapshot, MigrationCause, PolicyOutcome, RequestLabel,
    SESSIONS_SHOWN, STREAMS_SHOWN, SessionId, SessionSnapshot, Snapshot, StreamRef, StreamSnapshot,
};
pub use socket::{Dscp, SocketOptions};
pub use stream::{Incoming, Segment, StreamInfo};

pub use smig_proto::policy::{MigrationHint, MigrationPolicy, MoveReason, StayReason};
pub use smig_proto::{
    Config, ConnId, ErrorCode, Mover, Priority, Processed, Protocol, StreamKey, is_host_and_port,
};
