//! Two hosts on one machine, joined by emulated links, with real TCP between them. Linux only.
//!
//! Owns everything that asks the kernel for a network: namespaces, devices, routes, and the one TCP
//! setting of the whole machine that measurements depend on. It must never know HTTP.
//!
//! - [`netns`]: the hosts and the links between them;
//! - [`check`]: accuracy of the emulated links against their configuration;
//! - [`hystart`]: HyStart, a TCP setting that applies to the whole machine.

#![cfg(target_os = "linux")]

pub mod check;
pub mod hystart;
pub mod netns;
