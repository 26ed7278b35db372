//! Statistics as pure functions on slices: summaries, confidence intervals, tests and effect sizes.
//!
//! Owns every definition of a median, a percentile, an interval, a test and an effect size in the
//! lab's results of trials, so that all reports use the same definitions. The percentiles of links' lateness and of
//! checks of links are nearest-rank, and defined where those are measured. Randomness comes from a seed: the
//! same values give the same interval on every machine, in every version. This crate must never
//! read a clock or a file, or depend on the format of results.
//!
//! | question | answer |
//! |---|---|
//! | what is typical? | [`median`], [`mean`] |
//! | what are the tails? | [`quantile`] at 0.95 or 0.99: R's type 7, the spreadsheets' default |
//! | how certain is it? | [`Bootstrap`]: percentile intervals, resampled by run |
//! | is there a difference? | [`mann_whitney`]: exact for small samples, ties included |
//! | how large is it? | [`cliffs_delta`], with the usual magnitudes |
//! | do both have the same order? | [`rank_correlation`]: Spearman's, ties included |
//! | how often does it occur? | [`wilson`]: the confidence interval of a proportion |

mod bootstrap;
mod effect;
mod proportion;
mod quantile;
mod rank;
mod rank_correlation;
mod summary;

pub use bootstrap::{
    Bootstrap, Contrast, ContrastResult, Interval, MIN_RUNS, ResamplingScheme, Run, Statistic,
};
pub use effect::{Effect, Magnitude, cliffs_delta};
pub use proportion::wilson;
pub use quantile::quantile;
pub use rank::{PValueMethod, RankTest, mann_whitney};
pub use rank_correlation::rank_correlation;
pub use summary::{Summary, mean, median, sorted_finite};
