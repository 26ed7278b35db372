//! A page in a real browser, over an emulated link, beside a download: both on the browser's own connection
//! to a server, or through `smig agent` and `smig gateway`.
//!
//! Owns the mosaic (a page of many small images), what is done with the browser, the order of events ([`drive`]), and the output: [`render_html`], [`render_svg`],
//! [`render_json`], [`render_text`].
//!
//! Each run is a [`trial`](smig_lab::trial): web server, gateway and agent are servers of its scenario,
//! browser and download its clients.
//!
//! All times of a page load count from the beginning of its navigation.

mod access_log;
mod clients;
mod data;
mod direct;
mod download;
mod drive;
mod error;
#[doc(hidden)]
pub mod fixtures;
mod mosaic;
mod page;
mod scenario;
mod strip;
mod summary;
mod svg_file;
mod through_agent;
mod variant;
mod visit;

pub use data::{
    BrowserEvent, BrowserResult, BrowserSetup, ConnectionRequests, DownloadShare, PageLoad,
    ScreencastFrame, TileTiming, VariantRun,
};
pub use drive::{BrowserOptions, check, drive};
pub use error::BrowserError;
pub use mosaic::{Mosaic, Tile};
pub use page::{render_html, render_json};
pub use summary::{VariantSummary, describe_setup, findings, render_text, summaries};
pub use svg_file::render_svg;
pub use variant::{BrowserVariant, Route};
