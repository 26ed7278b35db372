//! Header compression (RFC 7541).
//!
//! Owns the two contexts of a connection: the dynamic tables of the [`Decoder`] and the
//! [`Encoder`]. Converts one complete field block to [`Field`]s and back, without regard to
//! frames, streams or the required order of fields. Does not limit the decoded size: the caller
//! adds up [`Field::size`] as the fields arrive. Never reads a clock, takes a lock or panics.
//!
//! Fields that RFC 9113 section 8.2.1 forbids are not compression errors: they are emitted as
//! [`Field::Malformed`], so that the caller can reset one stream and keep the connection.

mod decoder;
mod encoder;
mod error;
mod field;
mod huffman;
mod integer;
mod static_table;

pub use decoder::Decoder;
pub(crate) use decoder::TableVersion;
pub use encoder::Encoder;
pub(crate) use encoder::{Headers, OutgoingSection};
pub use error::DecodeError;
pub use field::{Field, Pseudo};

/// Overhead of a table entry beyond its name and value, in bytes (RFC 7541 section 4.1).
const ENTRY_OVERHEAD_BYTES: usize = 32;

/// The initial table size of both sides, in bytes (RFC 9113 section 6.5.2).
const DEFAULT_TABLE_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
