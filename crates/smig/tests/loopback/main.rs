//! Both sides of this crate over real loopback sockets.

mod awaiting_settings;
mod callers_runtime;
mod certificates;
mod chaos;
mod deadlines;
mod exporters;
mod http1_pool;
mod http2;
mod joins;
mod limits;
mod migration;
mod other_protocols;
mod range_continuation;
mod retries;
mod second_connection;
mod shared_headers;
mod shutdown;
mod snapshot;
mod support;
mod truncation;
mod unfinished_uploads;
