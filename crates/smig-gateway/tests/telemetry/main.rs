//! Export of spans to a collector, and trace fields sent to upstreams.

mod away;
mod collector;
mod gateway;
mod support;
