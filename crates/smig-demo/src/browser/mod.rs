//! A real browser through `smig agent` and `smig gateway`, over an emulated link, beside a download.
//!
//! Owns the mosaic (a page of many small images), the browser and its control over the DevTools
//! protocol, the order of events ([`drive`]), and the output: [`render_html`], [`render_svg`],
//! [`render_json`], [`render_text`]. The gateway and the agent are processes of the `smig` program.
//!
//! Unlike [`demo`](crate::demo), it does not run as a [`trial`](smig_lab::trial): a scenario has no
//! words for a gateway, an agent and a browser, and its result none for pages. What it shares with
//! trials is the testbed and the start of programs ([`smig_lab::servers`]).
//!
//! All times of a page load count from the beginning of its navigation.

mod chromium;
mod data;
mod devtools;
mod download;
mod drive;
mod error;
mod files;
#[doc(hidden)]
pub mod fixtures;
mod mosaic;
mod page;
mod programs;
mod strip;
mod summary;
mod svg_file;
mod visit;

pub use chromium::find as find_browser;
pub use data::{
    BrowserEvent, BrowserResult, BrowserSetup, NavigationTiming, PageLoad, ScreencastFrame,
    TileTiming, VariantRun,
};
pub use drive::{BrowserOptions, check, drive};
pub use error::BrowserError;
pub use mosaic::{Mosaic, Tile};
pub use page::{render_html, render_json};
pub use summary::{VariantSummary, describe_setup, findings, render_text, summaries};
pub use svg_file::render_svg;
