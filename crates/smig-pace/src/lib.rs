//! How much bulk a session may send, so that its interactive responses find a short queue on the path that both share.
//!
//! *Bulk* is what streams with many bytes send; *interactive* is everything else. Four parts, without I/O and
//! without a clock; `smig`'s driver measures the sockets for them. It applies the result by SO_MAX_PACING_RATE where a
//! connection carries only bulk, and by [`BulkBucket`] where it carries both:
//!
//! | file | owns |
//! |---|---|
//! | `delivery_rate` | the rate and the round-trip time of a path, from counts of bytes sent and acknowledged |
//! | `pacer` | [`Pacer`]: a limit for all bulk together, near the delivery rate while round trips show a queue, slightly above it while they show none. This bounds the queue in the long run |
//! | `deferral` | [`BulkDeferral`]: for how long the bytes that interactive connections have just sent occupy the path. For that time bulk gets only the path's rate divided by [`DEFERRED_RATE_DIVISOR`], so that the queue does not grow at the moment when a response needs it short |
//! | `bucket` | [`BulkBucket`]: when the next few packets of bulk may be written, if the limit must not hold back interactive data of the same connection |

mod bucket;
mod deferral;
mod delivery_rate;
mod pacer;

pub use bucket::BulkBucket;
pub use deferral::{BulkDeferral, DEFERRED_RATE_DIVISOR};
pub use pacer::{MIN_PACED_RTT, Pacer, RateSample};
