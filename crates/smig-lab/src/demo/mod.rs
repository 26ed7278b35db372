//! The demonstration: small objects beside one big file, three ways.
//!
//! Owns what is recorded of it ([`DemoResult`]), how it becomes numbers and
//! sentences ([`summary`]), one web page ([`render_html`]), a JSON document
//! ([`render_json`]) and a live view ([`LiveView`]). It opens no socket and
//! reads no clock: whoever drives the transfers sends [`DemoEvent`]s.
//!
//! All times within a run count from its start.

mod data;
mod figures;
mod live;
mod page;
mod picture;
mod recorder;
#[doc(hidden)]
pub mod sample;
pub mod summary;

pub use data::{
    BulkSample, ConnectionBytes, ConnectionId, DemoResult, DemoRun, DemoSetup, Load, Move,
    SmallObject, Variant,
};
pub use live::LiveView;
pub use page::{render_html, render_json};
pub use recorder::{DemoEvent, DemoRecorder};
