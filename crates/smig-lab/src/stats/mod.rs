//! Statistics as pure functions on slices: what a result's numbers say, and how sure that is.
//!
//! Owns every definition of a median, a percentile, an interval, a test and an effect that the lab
//! reports, so that two reports never mean different things by one word. Randomness comes from a
//! seed: the same values give the same interval on every machine, in every version. It must never
//! read a clock, a file or a result's format.
//!
//! | question | answer |
//! |---|---|
//! | what is typical? | [`median`], [`mean`] |
//! | what must one expect? | [`quantile`] at 0.95 or 0.99: R's type 7, the spreadsheet's |
//! | how sure? | [`Bootstrap`]: percentile intervals, resampled by whole runs |
//! | is there a difference? | [`mann_whitney`]: exact while that is feasible, ties included |
//! | does it matter? | [`cliffs_delta`], with the usual words |
//! | how often? | [`wilson`]: the interval of a share |

mod bootstrap;
mod effect;
mod proportion;
mod quantile;
mod rank;
mod summary;

pub use bootstrap::{Bootstrap, Contrast, Contrasted, Drawn, Interval, LEAST_RUNS, Run, Statistic};
pub use effect::{Effect, Magnitude, cliffs_delta};
pub use proportion::wilson;
pub use quantile::{quantile, sorted_millis};
pub use rank::{Method, RankTest, mann_whitney};
pub use summary::{Summary, mean, median, sorted};
