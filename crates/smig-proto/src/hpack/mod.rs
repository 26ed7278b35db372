//! Header compression (RFC 7541).
//!
//! Owns the two contexts of a connection: the [`Decoder`]'s and the [`Encoder`]'s dynamic table.
//! It turns one whole header block into [`Field`]s and back, and knows nothing of frames, streams or
//! the order in which fields must come. It never limits the decoded size: its caller counts
//! [`Field::size`] as the fields arrive. It never reads a clock, takes a lock or panics.
//!
//! Fields that RFC 9113 section 8.2.1 forbids are no compression errors: they come out as
//! [`Field::Malformed`], so that the caller can refuse one stream and keep the connection.

mod decoder;
mod encoder;
mod error;
mod field;
mod huffman;
mod integer;
mod static_table;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::DecodeError;
pub use field::{Field, Pseudo};

/// What an entry costs beyond its name and value, in octets (RFC 7541 section 4.1).
const ENTRY_OVERHEAD: usize = 32;

/// The table size both sides start with, in octets (RFC 9113 section 6.5.2).
const DEFAULT_TABLE_SIZE: usize = 4096;

#[cfg(test)]
mod tests;
