//! Exchanges through a gateway's proxy, over real sockets: scripted origins on one side, raw HTTP/1.1 and our own
//! HTTP/2 client on the other.

mod bodies;
mod cancels;
mod early_responses;
mod framing;
mod grpc;
mod heads;
mod http2;
mod informational;
mod limits;
mod name_resolution;
mod raw_http2;
mod recorder;
mod server_failures;
mod servers;
mod support;
mod switching;
mod without_extended_connect;
