//! Two hosts on one machine, joined by emulated links, with real TCP between them. Linux only.
//!
//! Owns all requests to the kernel for a network: namespaces, devices, routes, and what is the whole machine's: a TCP
//! setting that measurements depend on, and congestion controls. Independent of HTTP.
//!
//! - [`netns`]: the hosts and the links between them;
//! - [`check`]: accuracy of the emulated links against their configuration;
//! - [`hystart`]: HyStart, a TCP setting that applies to the whole machine;
//! - [`bpf`]: congestion controls that the kernel lacks, as BPF programs.

#![cfg(target_os = "linux")]

pub mod bpf;
pub mod check;
pub mod hystart;
mod keeper;
pub mod netns;
