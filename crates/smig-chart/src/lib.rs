//! Charts, tables and pages of results, in files and in a terminal. A page is one file that needs
//! neither network access nor scripts.
//!
//! Owns presentation and the notation of numbers; independent of measurements.
//!
//! - [`svg`]: time series, distributions and heat maps as SVG;
//! - [`html`]: one self-contained page;
//! - [`table`]: tables as text, Markdown and CSV;
//! - [`terminal`]: charts in a terminal, redrawn in place.

pub mod html;
mod markup;
pub mod svg;
pub mod table;
pub mod terminal;
mod text;

pub use text::{format_bytes, format_count, format_ms, format_number, group_thousands};
