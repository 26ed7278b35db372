//! Tests of the program as users run it: real processes over loopback.

mod agent;
mod config;
mod drain;
mod exhausted;
mod fetch;
mod flaky;
mod gateway;
mod probe;
mod refusals;
mod resume;
mod support;
mod telemetry;
