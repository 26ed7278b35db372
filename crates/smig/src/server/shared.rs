//! What all workers of a server share: its settings, its limits, its counters and its registry of sessions.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::HeaderMap;
use smig_proto::Config;

use super::builder::{AuthorityCheck, RequestExtensions};
use super::session_registry::Registry;
use crate::deadlines::TimeLimits;
use crate::driver::ConnOptions;
use crate::error::Error;
use crate::limits::ClientQuota;
use crate::migration::MigrationConfig;
use crate::observer::{EventSink, ObserverEvent};
use crate::throttled;

/// State that all workers of a server share.
#[derive(Debug)]
pub(super) struct ServerShared {
    pub(super) registry: Registry,
    pub(super) engine_config: Arc<Config>,
    pub(super) migration: MigrationConfig,
    pub(super) conn_options: Arc<ConnOptions>,
    pub(super) events: Arc<EventSink>,
    pub(super) open_connections: Arc<AtomicUsize>,
    pub(super) max_connections: usize,
    pub(super) client_quota: Arc<ClientQuota>,
    pub(super) handshake_timeout: Duration,
    pub(super) time_limits: TimeLimits,
    pub(super) tenant: Vec<u8>,
    pub(super) authority_check: AuthorityCheck,
    pub(super) request_extensions: RequestExtensions,
    pub(super) request_label_limit: usize,
    pub(super) shared_headers: Option<AnySharedHeadersOf>,
}

/// Finds the header fields of a response in its body.
pub(super) type SharedHeadersOf<B> = fn(&B) -> Option<&Arc<HeaderMap>>;

/// A [`SharedHeadersOf`], without the type of the bodies.
#[derive(Debug)]
pub(super) struct AnySharedHeadersOf(Box<dyn Any + Send + Sync>);

impl AnySharedHeadersOf {
    pub(super) fn new<B: 'static>(of: SharedHeadersOf<B>) -> Self {
        Self(Box::new(of))
    }

    /// Returns the function; `None` if it is for bodies of another type.
    pub(super) fn of<B: 'static>(&self) -> Option<SharedHeadersOf<B>> {
        self.0.downcast_ref().copied()
    }
}

/// Fails if the function is for bodies of another type than `B`.
pub(super) fn check_shared_headers<B: 'static>(
    of: Option<&AnySharedHeadersOf>,
) -> Result<(), Error> {
    match of {
        Some(of) if of.of::<B>().is_none() => Err(Error::config(
            "shared_headers is set for bodies of another type than the service's",
        )),
        _ => Ok(()),
    }
}

impl ServerShared {
    /// Reports that a client has hit a limit.
    pub(super) fn on_limit_hit(&self, limit: &'static str, peer: Option<SocketAddr>) {
        self.events.on_event(&ObserverEvent::LimitHit(limit));
        throttled!(warn, limit, limit, ?peer, "limit reached");
    }

    /// Reports that this machine or process has run out of a resource, which is not caused by one client or server.
    pub(super) fn on_exhausted(&self, resource: &'static str, error: &std::io::Error) {
        self.events.on_event(&ObserverEvent::LimitHit(resource));
        throttled!(error, resource, %error, "cannot accept connections: {resource}");
    }

    /// Returns the header fields that are in a response's body.
    pub(super) fn shared_headers<'a, B: 'static>(&self, body: &'a B) -> Option<&'a Arc<HeaderMap>> {
        self.shared_headers.as_ref()?.of::<B>()?(body)
    }

    /// Returns whether streams must be tracked to their end, for snapshots or an observer.
    pub(super) fn tracks_stream_end(&self) -> bool {
        self.request_label_limit > 0 || self.events.is_observed()
    }
}

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    Running,
    /// No new connections; running streams may finish.
    Draining,
    Stopped,
}
