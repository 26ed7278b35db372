//! What `smig demo` shows: small objects beside a big file, and a page beside a download.
//! Linux only.
//!
//! - [`demo`]: small objects beside one big file, in three variants;
//! - [`browser`]: page loads of a browser through agent and gateway, beside a download.

#![cfg(target_os = "linux")]

pub mod browser;
pub mod demo;
