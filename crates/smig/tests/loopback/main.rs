//! Both sides of this crate over real loopback sockets.

mod awaiting_settings;
mod callers_runtime;
mod certificates;
mod chaos;
mod cut;
mod deadlines;
mod ending;
mod exporters;
mod http1_pool;
mod http2;
mod limits;
mod migration;
mod other_protocols;
mod retries;
mod snapshot;
mod support;
mod unfinished_uploads;
