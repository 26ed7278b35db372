//! Export of spans to a collector, and trace fields sent to upstreams.

mod collector;
mod failing_collector;
mod gateway;
mod support;
