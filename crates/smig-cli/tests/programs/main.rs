//! The program as people run it: real processes over loopback.

mod config;
mod drain;
mod fetch;
mod flaky;
mod probe;
mod refusals;
mod resume;
mod support;
