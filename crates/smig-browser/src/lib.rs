//! Chromium on a host of an emulated network, controlled over its debugging pipe (the DevTools protocol), and what it reports of
//! the pages that it loads.
//!
//! [`BrowserLaunch`] starts a [`Browser`] in the calling thread's network namespace; a [`BrowserContext`] has a cache and connections
//! of its own, a [`Tab`] shows a page, a [`PageReport`] has the page's times, a [`PageRecording`] its requests, and a [`Screencast`] what it showed. All calls block, and fail soon after the launch's token is cancelled.
#![cfg(target_os = "linux")]

mod browser;
mod clock;
mod devtools;
mod error;
mod network_log;
mod page_report;
mod record;
mod screencast;
mod socket_log;
mod tab;
mod trust;

pub use browser::{Browser, BrowserLaunch, PROGRAM_NAMES, WindowSize};
pub use clock::ClockReading;
pub use devtools::{DevTools, DevToolsEvent};
pub use error::BrowserError;
pub use network_log::{NetworkLog, NetworkRequest, NetworkResponse, NetworkTiming, RequestEnd};
pub use page_report::{NavigationTiming, PageReport, ResourceTiming};
pub use record::{PageRecording, RecordOptions};
pub use screencast::{Screencast, ScreencastFrame, ScreencastFrames};
pub use socket_log::local_addresses;
pub use tab::{BrowserContext, Navigation, Observe, Tab};
pub use trust::{key_sha256, trusted_key_sha256};
