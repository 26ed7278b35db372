//! Bodies as they are transferred: of the recorded size if possible.
//!
//! Recordings have bodies after decoding. What was coded is coded by gzip again, whatever the coding was, since every browser knows it. If it
//! is shorter then than recorded, it is made longer by empty blocks (RFC 1951 section 3.2.4) between pieces of the content, so that as much of
//! the content as before is in each part of the body.

use std::io::{self, Write as _};

use flate2::write::GzEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress};

use crate::har::ContentKind;

/// A gzip header without name, time and comment (RFC 1952 section 2.3).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// A stored block without content, that is not the last one, from a byte's boundary on.
const EMPTY_BLOCK: [u8; 5] = [0, 0, 0, 0xff, 0xff];
/// The empty block that ends the content: fixed codes, and nothing but the end.
const LAST_BLOCK: [u8; 2] = [3, 0];
/// Number of pieces between which empty blocks are.
const MAX_PIECES: usize = 64;

/// Returns a body coded by gzip, of `size` bytes or some fewer unless it needs more.
pub(super) fn gzip(body: &[u8], size: u64) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body)?;
    let plain = encoder.finish()?;
    let size = usize::try_from(size).map_err(io::Error::other)?;
    if plain.len() >= size || body.is_empty() {
        return Ok(plain);
    }
    let padded = padded_gzip(body, size)?;
    // The boundaries between pieces take some bytes.
    Ok(if padded.len() <= size { padded } else { plain })
}

fn padded_gzip(body: &[u8], size: usize) -> io::Result<Vec<u8>> {
    let mut compress = Compress::new(Compression::best(), false);
    let piece_bytes = body.len().div_ceil(MAX_PIECES).max(1);
    let mut pieces = Vec::new();
    for piece in body.chunks(piece_bytes) {
        let (mut out, before) = (Vec::with_capacity(piece.len() + 1_024), compress.total_in());
        loop {
            let done = usize::try_from(compress.total_in() - before).map_err(io::Error::other)?;
            let (length, capacity) = (out.len(), out.capacity());
            compress
                .compress_vec(&piece[done..], &mut out, FlushCompress::Sync)
                .map_err(io::Error::other)?;
            // Room that is left means that all has been flushed to a byte's boundary.
            if out.len() < capacity {
                break;
            }
            out.reserve(out.len() - length + 1_024);
        }
        pieces.push(out);
    }
    let trailer_bytes = LAST_BLOCK.len() + 8;
    let content: usize = pieces.iter().map(Vec::len).sum();
    let blocks = size.saturating_sub(HEADER.len() + content + trailer_bytes) / EMPTY_BLOCK.len();
    let mut gzip = HEADER.to_vec();
    let (count, mut added) = (pieces.len(), 0);
    for (number, piece) in (1..).zip(pieces) {
        gzip.extend_from_slice(&piece);
        let until_here = blocks * number / count;
        for _ in added..until_here {
            gzip.extend_from_slice(&EMPTY_BLOCK);
        }
        added = until_here;
    }
    let mut crc = Crc::new();
    crc.update(body);
    gzip.extend_from_slice(&LAST_BLOCK);
    gzip.extend_from_slice(&crc.sum().to_le_bytes());
    gzip.extend_from_slice(&crc.amount().to_le_bytes());
    Ok(gzip)
}

/// Returns a body of `size` bytes without meaning, which harms nothing where this kind of content is expected.
pub(super) fn filler(kind: ContentKind, size: u64) -> io::Result<Vec<u8>> {
    let size = usize::try_from(size).map_err(io::Error::other)?;
    let mut body = vec![b' '; size];
    if matches!(kind, ContentKind::Style | ContentKind::Script) && size >= 4 {
        body[..2].copy_from_slice(b"/*");
        body[size - 2..].copy_from_slice(b"*/");
    }
    Ok(body)
}
