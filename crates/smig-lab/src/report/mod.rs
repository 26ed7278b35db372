//! Charts and pages, made here so that a report is one file that needs no
//! network and no script.
//!
//! - [`svg`]: time series and distributions as SVG;
//! - [`html`]: one self-contained page;
//! - [`quantile`]: the one definition of median and percentile in use.

pub mod html;
mod quantile;
pub mod svg;
mod text;

pub use quantile::{quantile, sorted_millis};
pub use text::{amount, bytes, ms, number};
