//! The `date` field, formatted once per second.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use smig_proto::Instant;

#[derive(Debug, Default)]
pub(super) struct DateCache(RefCell<Option<(Instant, HeaderValue)>>);

impl DateCache {
    /// Returns the value for the current second.
    pub(super) fn value(&self, now: Instant) -> Option<HeaderValue> {
        let mut cached = self.0.borrow_mut();
        if cached.as_ref().is_none_or(|(until, _)| now >= *until) {
            let wall = SystemTime::now();
            let subsec_nanos =
                wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
            let until_next_second =
                Duration::from_nanos(1_000_000_000_u64.saturating_sub(subsec_nanos.into()));
            let value = HeaderValue::try_from(httpdate::fmt_http_date(wall)).ok()?;
            *cached = Some((now + until_next_second, value));
        }
        cached.as_ref().map(|(_, value)| value.clone())
    }
}
