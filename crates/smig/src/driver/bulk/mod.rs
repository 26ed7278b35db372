//! All that bounds bulk.

mod deferral;
mod delivery_rate;
mod pacer;

pub(super) use deferral::BulkDeferral;
pub(super) use pacer::{LEAST_BASE, Pacer, RateSample};
