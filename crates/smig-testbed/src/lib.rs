//! Two hosts on one machine, joined by emulated links, with real TCP between them. Linux only.
//!
//! Owns all requests to the kernel for a network: namespaces, devices, routes, and the one
//! machine-wide TCP setting that measurements depend on. Independent of HTTP.
//!
//! - [`netns`]: the hosts and the links between them;
//! - [`check`]: accuracy of the emulated links against their configuration;
//! - [`hystart`]: HyStart, a TCP setting that applies to the whole machine.

#![cfg(target_os = "linux")]

pub mod check;
pub mod hystart;
pub mod netns;
