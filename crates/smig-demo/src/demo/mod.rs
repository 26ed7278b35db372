//! The demonstration: small objects beside one big file, in four variants.
//!
//! Owns its record ([`DemoResult`]), the conversion to numbers and sentences ([`summary`]), one web page
//! ([`render_html`]), one picture ([`render_svg`]), a JSON document ([`render_json`]) and a live view
//! ([`LiveView`]). [`drive`] makes the transfers and emits [`DemoEvent`]s; nothing else here opens a
//! socket or reads a clock.
//!
//! All times within a run count from its start.

mod data;
mod drive;
mod figures;
#[doc(hidden)]
pub mod fixtures;
mod live;
mod page;
mod picture;
mod recorder;
pub mod summary;
mod svg_file;

pub use data::{
    BackgroundLoad, BigFileSample, ConnectionBytes, ConnectionId, DemoResult, DemoRun, DemoSetup,
    Migration, SmallObject, Variant,
};
pub use drive::{DemoError, DemoOptions, check, drive};
pub(crate) use drive::{parse_scenario, start_testbed};
pub(crate) use figures::colour;
pub use live::LiveView;
pub(crate) use live::wrap;
pub use page::{render_html, render_json};
pub use recorder::{DemoEvent, DemoRecorder};
pub use svg_file::render_svg;
