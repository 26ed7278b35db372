//! How much bulk a session may send, so that its interactive responses find a short queue on the path that both share.
//!
//! *Bulk* is what streams with many bytes send; *interactive* is everything else. Without I/O and without a clock;
//! `smig`'s driver measures the sockets, and keeps the rate: by SO_MAX_PACING_RATE where a connection carries only bulk,
//! and by [`BulkBucket`] where it carries both. The bound in flight is kept in simulations only, so far.
//!
//! | file | owns |
//! |---|---|
//! | `sample` | [`RateSample`]: what the driver measures |
//! | `delivery_rate` | the rate and the round-trip time of a path, from counts of bytes sent and acknowledged |
//! | `base_rtt` | the round-trip time without a queue: a minimum that ages |
//! | `path_noise` | how much a path varies by itself, its losses, acknowledgements that come in bursts |
//! | `sharing` | whose queue it is, and the fair part of the path beside others |
//! | `pacer` | [`Pacer`]: bounds for all bulk together: bytes in flight, and a rate. This bounds the queue in the long run |
//! | `deferral` | [`BulkDeferral`]: for how long the bytes that interactive connections have just sent occupy the path. For that time bulk gets only the path's rate divided by [`DEFERRED_RATE_DIVISOR`], so that the queue does not grow at the moment when a response needs it short |
//! | `bucket` | [`BulkBucket`]: when the next few packets of bulk may be written, if the limit must not hold back interactive data of the same connection |

mod base_rtt;
mod bucket;
mod deferral;
mod delivery_rate;
mod pacer;
mod path_noise;
mod sample;
mod sharing;

pub use bucket::BulkBucket;
pub use deferral::{BulkDeferral, DEFERRED_RATE_DIVISOR};
pub use pacer::{MIN_PACED_RTT, Pacer};
pub use sample::RateSample;
