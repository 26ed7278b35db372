//! Spans on their way to a collector, and what upstreams are told of them.

mod agent;
mod away;
mod collector;
mod gateway;
mod support;
