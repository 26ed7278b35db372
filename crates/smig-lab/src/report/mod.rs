//! Charts and pages, rendered by this crate, so that a report is one file that needs neither network
//! access nor scripts.
//!
//! - [`charts`]: chart types for measurements, from plain numbers;
//! - [`svg`]: time series and distributions as SVG;
//! - [`html`]: one self-contained page;
//! - [`table`]: tables as text, Markdown and CSV;
//! - [`timeline`]: the samples of a run on one time axis.

pub mod charts;
pub mod html;
pub mod svg;
pub mod table;
mod text;
pub mod timeline;

pub use text::{amount, bytes, ms, number};
