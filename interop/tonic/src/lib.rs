//! A gRPC service for `interop/gateway`, and its client, on whatever tonic runs on.
//!
//! The messages are protobuf's well-known wrappers (UInt64Value, BytesValue, Empty), which prost has for
//! `u64`, `Bytes` and `()`: nothing is generated. `interop/go/grpcpeer` is the same in Go.

pub mod client;
pub mod service;

use bytes::{BufMut as _, Bytes, BytesMut};

/// Octets of one message of a big response.
pub const CHUNK: usize = 64 << 10;

/// Message `number` of a big response: its number, then octets that follow from their place.
#[must_use]
pub fn chunk(number: u64, len: usize) -> Bytes {
    let mut octets = BytesMut::with_capacity(len.max(8));
    octets.put_u64(number);
    octets.extend((8..len).map(|at| (at * 7 + (at >> 8)) as u8));
    octets.freeze()
}
