//! HTTP/2 (RFC 9113) with stream migration (spec/smig.md), without I/O.
//!
//! [`Session`] is the engine: all connections between one client and one server. Bytes, time and
//! keying material enter through `handle_*`; bytes, deadlines and [`Event`]s leave through
//! `poll_*`. It contains no socket, clock, randomness, lock, thread or waker.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::wildcard_enum_match_arm
    )
)]

mod body;
mod bulk;
mod config;
mod conn;
mod error;
mod flow;
mod head;
pub mod hpack;
mod ids;
mod invariant;
mod message;
mod migrate;
mod priority;
mod role;
mod session;
mod stream;
mod time;
mod token_bucket;
mod wire;

pub use bulk::{BulkHint, BulkInput, BulkPolicy, BulkReason};
pub use config::{
    Config, ConnectProtocol, DEFAULT_MIGRATIONS_PER_SECOND, Limits, MAX_CONNECTIONS,
    MIGRATION_BURST_SECONDS, Push, ResumptionConfig, SmigConfig,
};
pub use conn::{ConnectionSpec, Identity, OutputBuffer, Security};
pub use error::{Cause, ConnectionError, ErrorCode, Initiator, Processed, StreamError};
pub use head::{Protocol, RequestHead, ResponseHead, SharedHead};
pub use ids::{AppId, Cid, ConnId, Side, StreamId};
pub use message::is_host_and_port;
pub use migrate::{MigrateError, MigrationTarget, Mover, policy};
pub use priority::Priority;
pub use role::ConnectionRole;
pub use session::{
    ConnectionView, DetachedConnection, Event, JoinProof, KeyingRequest, LostReason, OfferState,
    OpenError, PushError, ReadResult, SendError, Session, StreamView, TransmitDemand,
    TransmitLimits, Transmitted,
};
pub use stream::{StallClock, StreamKey};
pub use time::Instant;
pub use token_bucket::TokenBucket;
pub use wire::{CodePoints, EndStream, JoinRefusal};
