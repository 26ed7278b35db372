//! What `smig demo` shows: a transfer beside small objects, and a page beside a download. Linux only.
//!
//! - [`demo`]: small objects beside one big file, three ways;
//! - [`browser`]: a browser through agent and gateway, beside a download.

#![cfg(target_os = "linux")]

pub mod browser;
pub mod demo;
