//! The state of a stream between the application and the session's task: bodies in both directions.

mod body_rest;
mod http1_recv;
mod incoming;
mod info;
mod length;
mod recv;
mod request_body;
mod send;
mod shared;

pub use incoming::Incoming;
pub use info::{Segment, StreamInfo};

pub(crate) use body_rest::BodyRest;
pub(crate) use http1_recv::Http1RecvProgress;
pub(crate) use length::{BodyLength, content_length};
pub(crate) use recv::{BodyRecvState, deliver};
pub(crate) use request_body::{RequestBody, UnsentRequest};
pub(crate) use send::{SendProgress, send_body};
pub(crate) use shared::{Head, SharedStream, UploadExtent};
