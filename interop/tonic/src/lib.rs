//! A gRPC service for `interop/gateway`, and its client, over any transport that tonic supports.
//!
//! The messages are protobuf's well-known wrappers (UInt64Value, BytesValue, Empty), which prost
//! implements for `u64`, `Bytes` and `()`: no code is generated. `interop/go/grpcpeer` is the
//! equivalent in Go.

pub mod client;
pub mod service;

use bytes::{BufMut as _, Bytes, BytesMut};

/// Size of one message of a large response, in bytes.
pub const CHUNK: usize = 64 << 10;

/// Returns message `number` of a large response: its number, then bytes that depend on their
/// position.
#[must_use]
pub fn chunk(number: u64, len: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(len.max(8));
    bytes.put_u64(number);
    bytes.extend((8..len).map(|at| (at * 7 + (at >> 8)) as u8));
    bytes.freeze()
}
