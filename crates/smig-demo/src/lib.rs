//! What `smig demo` shows: small objects beside a big file, and a page beside a download.
//! Linux only.
//!
//! - [`demo`]: small objects beside one big file, in four variants;
//! - [`browser`]: page loads of a browser beside a download, over its own connection or through an agent.

#![cfg(target_os = "linux")]

pub mod browser;
pub mod demo;
