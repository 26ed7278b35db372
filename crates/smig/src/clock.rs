//! Real time in the engine's unit: nanoseconds since the first call in this process.
//!
//! The engine reads no clock: all times that are passed to it are from this module.

use std::sync::OnceLock;

use smig_proto::Instant;
use tokio::time::Instant as TokioInstant;

fn origin() -> TokioInstant {
    static ORIGIN: OnceLock<TokioInstant> = OnceLock::new();
    *ORIGIN.get_or_init(TokioInstant::now)
}

/// Returns the current time.
pub(crate) fn now() -> Instant {
    let since = TokioInstant::now().saturating_duration_since(origin());
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Converts a point in the engine's time to tokio's, for timers.
pub(crate) fn to_tokio(at: Instant) -> TokioInstant {
    origin() + at.saturating_duration_since(Instant::from_nanos(0))
}
