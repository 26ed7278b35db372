//! Bodies as they are transferred: of the recorded size if possible.
//!
//! Recordings have bodies after decoding. What was coded is coded by gzip again, whatever the coding was, since every browser knows it, and
//! made longer to the recorded size if it is shorter: by a comment in the header (RFC 1952 section 2.3.1), which decoders skip.

use std::io::{self, Write as _};

use flate2::{Compression, GzBuilder};

use crate::har::ContentKind;

/// Returns a body coded by gzip, of `size` bytes unless it needs more.
pub(super) fn gzip(body: &[u8], size: u64) -> io::Result<Vec<u8>> {
    let coded = with_comment(body, 0)?;
    let missing = size.saturating_sub(coded.len() as u64);
    // The comment ends with a zero byte.
    match usize::try_from(missing) {
        Ok(0) | Err(_) => Ok(coded),
        Ok(missing) => with_comment(body, missing),
    }
}

/// `length` is that of the comment with its end; without any there is no comment.
fn with_comment(body: &[u8], length: usize) -> io::Result<Vec<u8>> {
    let mut builder = GzBuilder::new();
    if length > 0 {
        builder = builder.comment(vec![b' '; length - 1]);
    }
    let mut encoder = builder.write(Vec::new(), Compression::best());
    encoder.write_all(body)?;
    encoder.finish()
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
