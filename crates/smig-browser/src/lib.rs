//! Chromium on a host of an emulated network, controlled over its debugging pipe (the DevTools protocol), and what it reports of
//! the pages that it loads.
//!
//! [`BrowserLaunch`] starts a [`Browser`] in the calling thread's network namespace; a [`BrowserContext`] has a cache and connections
//! of its own, a [`Tab`] shows a page, and a [`PageReport`] has the page's times. All calls block, and fail soon after the launch's token is cancelled.
#![cfg(target_os = "linux")]

mod browser;
mod connection_use;
mod devtools;
mod error;
mod page_report;
mod tab;
mod trust;

pub use browser::{Browser, BrowserLaunch, PROGRAM_NAMES, WindowSize};
pub use connection_use::ConnectionUse;
pub use devtools::{DevTools, DevToolsEvent};
pub use error::BrowserError;
pub use page_report::{NavigationTiming, PageReport, ResourceTiming};
pub use tab::{BrowserContext, Navigation, Tab};
pub use trust::trusted_key_sha256;
