//! The operator's view of a running server, gateway or agent.
//!
//! - [`start`]: the admin interface, on a loopback port: a live page, its event stream, sessions as JSON, metrics
//!   (`metrics`), health checks;
//! - [`access_log`]: one line per request, for `smig serve` as well;
//! - [`spans`]: one span per request, for subscribers in this process and, by [`telemetry`], for a collector.
//!
//! The admin interface is read-only. Snapshots of the sessions are taken only while a client reads them, a few times a
//! second at most; all else is counters, the latest events and, if spans are enabled, those of open requests. Start it after its target, with the [`AdminObserver`] that
//! observes the target:
//!
//! ```no_run
//! # use smig_admin::{AdminSpec, AdminTarget, AdminObserver};
//! # fn run(builder: smig::ServerBuilder) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let observer = AdminObserver::new();
//! let server = builder
//!     .observer(observer.clone())
//!     .request_label_limit(smig_admin::MAX_LABEL_BYTES)
//!     .start(tower::service_fn(async |_| {
//!         Ok::<_, std::convert::Infallible>(http::Response::new(String::from("hello")))
//!     }))?;
//! let target = AdminTarget::new("smig gateway", server.view(), observer);
//! let spec = AdminSpec { listen: "127.0.0.1:9901".parse()? };
//! let admin = smig_admin::start(&spec, target)?;
//! println!("http://{}/", admin.local_addr());
//! # Ok(())
//! # }
//! ```

pub mod access_log;
mod event_log;
mod event_stream;
mod json;
mod metrics;
mod observer;
mod page;
mod reports;
mod request_metrics;
mod server;
mod service;
mod snapshot_cache;
pub mod spans;
mod target;
pub mod telemetry;

pub use observer::AdminObserver;
pub use reports::{
    ReportedStats, StatsSource, TelemetryReport, TunnelReport, UpstreamServerReport,
};
pub use server::{Admin, AdminError, AdminSpec, start};
pub use target::{AdminTarget, SessionSource};

/// Maximum length in bytes of a stream's method, authority and path on the page, each: the argument
/// for the target's `request_label_limit`.
pub const MAX_LABEL_BYTES: usize = 120;
