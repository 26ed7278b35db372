//! Whether a single congestion window is the limit of a path, so that several connections of a session carry more.
//!
//! A connection alone recovers from a random loss with half of its window, where several share the losses; and control that
//! goes by delays takes a path that grows for a queue. The owner samples its connections, and moves streams as
//! [`SpreadControl`] decides.
//!
//! | file | owns |
//! |---|---|
//! | `round` | [`WindowRound`]: what a round trip showed |
//! | `evidence` | [`WindowEvidence`]: two rounds that show that a window is the limit |
//! | `control` | [`SpreadControl`]: from evidence to a trial, and back when it does not help |

mod control;
mod evidence;
mod round;

pub use control::{EndReason, SpreadControl, SpreadDecision, SpreadSample};
pub use evidence::{WindowEvidence, WindowLimit};
pub use round::{Backlog, WindowRound};
