//! Real time, as the engine counts it: nanoseconds since this process first asked.
//!
//! The engine reads no clock; everything that it learns of time comes through here.

use std::sync::OnceLock;

use smig_proto::Instant;
use tokio::time::Instant as TokioInstant;

fn origin() -> TokioInstant {
    static ORIGIN: OnceLock<TokioInstant> = OnceLock::new();
    *ORIGIN.get_or_init(TokioInstant::now)
}

/// The present.
pub(crate) fn now() -> Instant {
    let since = TokioInstant::now().saturating_duration_since(origin());
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// When a point of the engine's time comes, for tokio's timers.
pub(crate) fn deadline(at: Instant) -> TokioInstant {
    origin() + at.saturating_duration_since(Instant::from_nanos(0))
}
