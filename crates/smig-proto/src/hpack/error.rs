//! Decoding errors of header blocks. Each is a COMPRESSION_ERROR (RFC 9113 section 4.3).

use std::fmt;

/// A header block violates RFC 7541, and the decoder's table is out of sync with the peer's.
///
/// The connection must be closed with COMPRESSION_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The block ends inside a representation.
    Truncated,
    /// An integer is larger than 2^32 - 1, or has more bytes than such an integer needs (RFC 7541
    /// section 5.1).
    IntegerOverflow,
    /// A Huffman string ends in more than 7 bits of padding, or in bits that are not a prefix of EOS
    /// (RFC 7541 section 5.2).
    HuffmanPadding,
    /// A Huffman string contains EOS (RFC 7541 section 5.2).
    HuffmanEos,
    /// An index is 0 or points beyond both tables (RFC 7541 section 2.3.3).
    InvalidIndex,
    /// A table size update follows a field (RFC 7541 section 4.2).
    LateSizeUpdate,
    /// A table size update is larger than our SETTINGS_HEADER_TABLE_SIZE (RFC 7541 section 6.3).
    SizeUpdateTooLarge,
    /// A block starts with more than two table size updates (RFC 7541 section 4.2).
    TooManySizeUpdates,
    /// We reduced SETTINGS_HEADER_TABLE_SIZE, and the next block does not start with a table size
    /// update to at most that size (RFC 9113 section 4.3.1).
    MissingSizeUpdate,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "header block ends inside a field",
            Self::IntegerOverflow => "header block has an integer over 2^32 - 1",
            Self::HuffmanPadding => "Huffman string has invalid padding",
            Self::HuffmanEos => "Huffman string contains EOS",
            Self::InvalidIndex => "header block refers to an index outside of the tables",
            Self::LateSizeUpdate => "table size update after a field",
            Self::SizeUpdateTooLarge => {
                "table size update is larger than SETTINGS_HEADER_TABLE_SIZE"
            }
            Self::TooManySizeUpdates => "header block starts with more than two table size updates",
            Self::MissingSizeUpdate => {
                "header block lacks the table size update that a smaller SETTINGS_HEADER_TABLE_SIZE asks for"
            }
        })
    }
}

impl std::error::Error for DecodeError {}
