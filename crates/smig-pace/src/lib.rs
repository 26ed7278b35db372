//! How much bulk a session may send, so that its interactive responses find a short queue on the path that both share.
//!
//! *Bulk* is what streams with many bytes send; *interactive* is everything else. Without I/O and without a clock;
//! `smig`'s driver runs a [`SessionPacer`] over its sockets, and `smig-tcp-sim` over simulated ones. An HTTP/1.1
//! connection, which carries one response at a time, keeps a [`Pacer`]'s rate alone, by SO_MAX_PACING_RATE.
//!
//! | file | owns |
//! |---|---|
//! | `rate` | bytes, time, and bytes per second |
//! | `sample` | [`ConnSample`], [`RateSample`]: what the owner measures, of a connection and of a session |
//! | `conn` | [`PacedConns`]: the connections as their owner writes to them; [`PacedConn`]: what pacing remembers of each |
//! | `delivery_rate` | the rate and the round-trip time of a path, from counts of bytes sent and acknowledged |
//! | `base_rtt` | the round-trip time without a queue: a minimum that ages |
//! | `path_noise` | how much a path varies by itself, its losses, acknowledgements that come in bursts |
//! | `round_history` | whether something happened, in each of the last round trips |
//! | `recurring_loss` | whether packets are lost again and again, so that bulk delays the other streams of its connection |
//! | `sharing` | whose queue it is, and the fair part of the path beside others; `alone_probe`: whether there are any |
//! | `bounds` | [`Bounds`]: of all bulk together, a rate and bytes in flight |
//! | `pacer` | [`Pacer`]: measures the path and sets the bounds, which keep the queue short in the long run |
//! | `spread` | [`SpreadControl`]: whether a single window is the limit, so that a session's streams are spread over several connections |
//! | `unsent` | [`UnsentLimit`]: how much unsent data a connection's socket may hold |
//! | `bucket` | [`BulkBucket`]: when the next few packets of bulk may be written within the bounds; it yields to interactive data for as long as that occupies the path |
//! | `session` | [`SessionPacer`]: measures when that is due, and writes the pieces that are allowed, the connections in turns |

mod base_rtt;
mod bounds;
mod bucket;
mod conn;
mod delivery_rate;
mod pacer;
mod path_noise;
mod rate;
mod recurring_loss;
mod round_history;
mod sample;
mod session;
mod sharing;
mod spread;
mod unsent;

pub use bounds::Bounds;
pub use bucket::BulkBucket;
pub use conn::{PacedConn, PacedConns};
pub use pacer::{MIN_PACED_RTT, Pacer};
pub use sample::{ConnSample, RateSample};
pub use session::SessionPacer;
pub use spread::{
    Backlog, EndReason, SpreadControl, SpreadDecision, SpreadSample, WindowEvidence, WindowLimit,
    WindowRound,
};
pub use unsent::UnsentLimit;
