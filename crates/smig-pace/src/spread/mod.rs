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
//! | `trial` | what is spread, until it ends |
//! | `control` | [`SpreadControl`]: from evidence to a trial, and when the next one may begin |

mod control;
mod evidence;
mod round;
#[cfg(test)]
mod tests;
mod trial;

pub use control::{SpreadControl, SpreadDecision};
pub use evidence::{WindowEvidence, WindowLimit};
pub use round::{Backlog, WindowRound};
pub use trial::{EndReason, SpreadSample};
