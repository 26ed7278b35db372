//! Table 1 of the SMig paper: how many sites hold large objects beside small ones, on one host.
//!
//! Owns the definitions (site, object, size), the readers of HAR files and of HTTP Archive exports,
//! a polite crawler, and the table. An object's content must never be fetched to determine a size
//! that a header field gives.
//!
//! - [`SurveyCounts`] counts; [`Table`] puts the counts beside the paper's;
//! - [`crawl`] requests the sites (Linux);
//! - [`read_har`] and [`read_export`] count from recordings of browsers and of the HTTP Archive.

mod counts;
#[cfg(target_os = "linux")]
pub mod crawl;
mod error;
mod export;
mod har;
#[cfg(target_os = "linux")]
mod html;
mod site;
mod sizes;
mod table;

pub use counts::{Exclusion, LargestObject, SurveyCounts};
pub use error::{DamagedInput, OnDamaged, SurveyError};
pub use export::read_export;
pub use har::{HarHeader, HarResponse, SizeRule, parse_har, read_har};
pub use site::{Site, canonicalize};
pub use table::{DataSource, Percentile, Table, ThresholdRow};
