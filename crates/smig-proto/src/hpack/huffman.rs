//! The Huffman code of string literals (RFC 7541 section 5.2 and Appendix B).
//!
//! The code is canonical: codes of one length are consecutive and ordered by symbol, so the lengths
//! define it completely. All tables are computed from the lengths at compile time.

use bytes::BytesMut;

use super::DecodeError;

const EOS: usize = 256;

/// Code lengths in bits of the symbols 0 to 255 and EOS.
#[rustfmt::skip]
const CODE_LENGTHS: [u8; EOS + 1] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const MAX_CODE_LENGTH: usize = 30;

/// The canonical code.
struct CanonicalCode {
    /// The symbols in ascending order of their codes.
    symbols: [u16; EOS + 1],
    /// By length: the first code after those of this length, aligned to the top of 32 bits.
    limits: [u64; MAX_CODE_LENGTH + 1],
    /// By length: the number to add to a code of this length, modulo 2^32, to get its index in
    /// `symbols`.
    offsets: [u32; MAX_CODE_LENGTH + 1],
}

static CANONICAL_CODE: CanonicalCode = canonical_code();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, where a panic is an error")]
const fn canonical_code() -> CanonicalCode {
    let mut tables = CanonicalCode {
        symbols: [0; EOS + 1],
        limits: [0; MAX_CODE_LENGTH + 1],
        offsets: [0; MAX_CODE_LENGTH + 1],
    };
    let (mut code, mut index, mut length) = (0_u32, 0, 1);
    while length <= MAX_CODE_LENGTH {
        code <<= 1;
        tables.offsets[length] = (index as u32).wrapping_sub(code);
        let mut symbol = 0;
        while symbol <= EOS {
            if CODE_LENGTHS[symbol] as usize == length {
                tables.symbols[index] = symbol as u16;
                index += 1;
                code += 1;
            }
            symbol += 1;
        }
        tables.limits[length] = (code as u64) << (32 - length);
        length += 1;
    }
    tables
}

/// The code of each byte, shifted left by eight, with its length in the lowest eight bits.
static CODES: [u64; EOS] = codes();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, where a panic is an error")]
const fn codes() -> [u64; EOS] {
    let canonical = canonical_code();
    let mut codes = [0; EOS];
    let mut index = 0;
    while index < EOS {
        let symbol = canonical.symbols[index] as usize;
        let length = CODE_LENGTHS[symbol];
        let code = (index as u32).wrapping_sub(canonical.offsets[length as usize]);
        codes[symbol] = (code as u64) << 8 | length as u64;
        index += 1;
    }
    codes
}

/// Number of bits that one table lookup of the decoder resolves: up to two frequent symbols.
const FAST_BITS: usize = 12;

/// The symbols at the start of the next [`FAST_BITS`] bits: one or two complete ones, or none if
/// the first code is longer.
///
/// From the lowest bits: eight for the length of the codes and eight for the length of the symbols,
/// both in bits; then the symbols, the first one lowest. The lower half of a sum of steps therefore
/// contains the total lengths of their codes and of their symbols.
#[derive(Clone, Copy)]
struct Step(u32);

impl Step {
    /// A code longer than [`FAST_BITS`]. It adds nothing to a sum of steps.
    const LONG: Self = Self(0);

    const fn new(symbol: u8, length: u8) -> Self {
        Self((symbol as u32) << 16 | 8 << 8 | length as u32)
    }

    const fn followed_by(self, second: Self) -> Self {
        Self(self.0 + (second.0 & 0xffff) + (second.symbols() << 24))
    }

    const fn symbols(self) -> u32 {
        self.0 >> 16
    }
}

/// Returns the total length of the codes in a step, or in a sum of steps, in bits.
const fn code_bits(steps: u32) -> usize {
    (steps & 0xff) as usize
}

/// Returns the total length of the symbols in a step, or in a sum of steps, in bits.
const fn symbol_bits(steps: u32) -> usize {
    (steps >> 8 & 0xff) as usize
}

static STEPS: [Step; 1 << FAST_BITS] = steps();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, where a panic is an error")]
const fn steps() -> [Step; 1 << FAST_BITS] {
    let codes = codes();
    let mut steps = [Step::LONG; 1 << FAST_BITS];
    let mut symbol = 0;
    while symbol < EOS {
        let (code, length) = (codes[symbol] >> 8, CODE_LENGTHS[symbol]);
        if length as usize <= FAST_BITS {
            let free_bits = FAST_BITS - length as usize;
            let mut low_bits = 0;
            while low_bits < 1 << free_bits {
                steps[(code as usize) << free_bits | low_bits] = Step::new(symbol as u8, length);
                low_bits += 1;
            }
        }
        symbol += 1;
    }
    let single_symbol_steps = steps;
    let mut bits = 0;
    while bits < 1 << FAST_BITS {
        let first = single_symbol_steps[bits];
        let second = single_symbol_steps[bits << code_bits(first.0) & ((1 << FAST_BITS) - 1)];
        if symbol_bits(second.0) > 0 && code_bits(first.0) + code_bits(second.0) <= FAST_BITS {
            steps[bits] = first.followed_by(second);
        }
        bits += 1;
    }
    steps
}

#[inline]
fn lookup_step(window: u64) -> Step {
    STEPS.get((window >> (64 - FAST_BITS)) as usize).copied().unwrap_or(Step::LONG)
}

/// Returns the symbol and the length of a code longer than [`FAST_BITS`] at the top of `window`.
#[cold]
fn long_code(window: u64) -> Option<(u16, usize)> {
    let top = window >> 32;
    let (length, (_, offset)) = CANONICAL_CODE
        .limits
        .iter()
        .zip(&CANONICAL_CODE.offsets)
        .enumerate()
        .skip(FAST_BITS + 1)
        .find(|(_, (limit, _))| top < **limit)?;
    let code = (top >> (32 - length)) as u32;
    Some((*CANONICAL_CODE.symbols.get(offset.wrapping_add(code) as usize)?, length))
}

/// Decodes into the front of `scratch`, which grows as needed, and returns the decoded bytes.
///
/// The source is read as if it were followed by infinitely many 1 bits. They are never decoded as a
/// symbol: in valid padding they are a prefix of EOS, and a symbol that starts within the source
/// and ends after it means that the padding is invalid.
pub(super) fn decode<'a>(source: &[u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
    // Number of bits of the source that have not been decoded.
    let mut remaining_bits = source.len() * 8;
    let mut rest = source;
    // The next bits, from the top; at least `valid_bits` of them are valid.
    let mut window = 0_u64;
    let mut valid_bits = 0;
    let mut written_len = 0;
    loop {
        window |= next_eight(rest) >> valid_bits;
        let refill_bytes = (63 - valid_bits) >> 3;
        rest = rest.get(refill_bytes..).unwrap_or_default();
        valid_bits += refill_bytes * 8;
        if remaining_bits <= 7 && window.leading_ones() as usize >= remaining_bits {
            return Ok(scratch.get(..written_len).unwrap_or_default());
        }

        // Four steps consume at most 48 bits, of at least 56, and produce at most 8 bytes. After a
        // step that finds a long code, the remaining steps find the same one.
        let (mut word, mut step_sum, mut next_window) = (0, 0_u32, window);
        for _ in 0..4 {
            let step = lookup_step(next_window);
            next_window <<= step.0 & 0x3f;
            word |= u64::from(step.symbols()) << symbol_bits(step_sum);
            step_sum = step_sum.wrapping_add(step.0 & 0xffff);
        }
        let (mut length, mut count) = (code_bits(step_sum), symbol_bits(step_sum) / 8);
        if count == 0 {
            let (symbol, code_length) = long_code(window).ok_or(DecodeError::HuffmanPadding)?;
            if code_length <= remaining_bits {
                word = u64::from(u8::try_from(symbol).map_err(|_| DecodeError::HuffmanEos)?);
            }
            (length, count, next_window) = (code_length, 1, window << code_length);
        }
        remaining_bits = remaining_bits.checked_sub(length).ok_or(DecodeError::HuffmanPadding)?;
        window = next_window;
        valid_bits -= length;
        store(scratch, written_len, word);
        written_len += count;
    }
}

/// Returns the next eight bytes, padded with 1 bits after the end.
#[inline]
fn next_eight(source: &[u8]) -> u64 {
    if let Some(chunk) = source.first_chunk() {
        return u64::from_be_bytes(*chunk);
    }
    let mut chunk = [0xff; 8];
    for (to, from) in chunk.iter_mut().zip(source) {
        *to = *from;
    }
    u64::from_be_bytes(chunk)
}

/// Writes eight bytes at once; the next call overwrites those that are not valid.
#[inline]
fn store(scratch: &mut Vec<u8>, at: usize, word: u64) {
    if scratch.len() < at + 8 {
        grow(scratch);
    }
    if let Some(target) = scratch.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *target = word.to_le_bytes();
    }
}

#[cold]
fn grow(scratch: &mut Vec<u8>) {
    scratch.resize((scratch.len() * 2).max(256), 0);
}

#[inline]
fn code(byte: u8) -> (u64, u32) {
    let code = CODES.get(usize::from(byte)).copied().unwrap_or_default();
    (code >> 8, (code & 0xff) as u32)
}

/// Returns the number of bytes that [`encode`] needs for `source`.
#[inline]
pub(super) fn encoded_len(source: &[u8]) -> usize {
    let length = |byte: u8| CODE_LENGTHS.get(usize::from(byte)).copied().map_or(0, usize::from);
    source.iter().map(|&byte| length(byte)).sum::<usize>().div_ceil(8)
}

/// Appends the code of `source`, whose [`encoded_len`] is `len`.
pub(super) fn encode(source: &[u8], len: usize, out: &mut BytesMut) {
    let start = out.len();
    // Each write stores eight bytes, even at the end.
    out.reserve(len + 8);
    let mut bits = BitWriter { position: start, out, window: 0, pending_bits: 0 };
    let (fours, tail) = source.as_chunks::<4>();
    for four in fours {
        let [(a, a_len), (b, b_len), (c, c_len), (d, d_len)] = four.map(code);
        let (ab_len, cd_len) = (a_len + b_len, c_len + d_len);
        if ab_len + cd_len <= BitWriter::MAX_APPEND_BITS {
            let (ab, cd) = (a << b_len | b, c << d_len | d);
            bits.append(ab << cd_len | cd, ab_len + cd_len);
        } else {
            for &byte in four {
                bits.append_byte(byte);
            }
        }
    }
    for &byte in tail {
        bits.append_byte(byte);
    }
    bits.pad();
    out.truncate(start + len);
}

/// Writes bits, from the highest of each byte down.
struct BitWriter<'a> {
    out: &'a mut BytesMut,
    /// Position of the next byte; later bytes are not valid.
    position: usize,
    /// The bits of that byte so far, at the top.
    window: u64,
    /// Number of those bits, 0 to 7.
    pending_bits: u32,
}

impl BitWriter<'_> {
    /// Maximum number of bits that can be appended at once.
    const MAX_APPEND_BITS: u32 = 56;

    #[inline]
    fn append(&mut self, bits: u64, length: u32) {
        let total = self.pending_bits + length;
        self.window |= bits << (64 - total);
        self.store(self.window);
        self.position += (total / 8) as usize;
        self.window <<= total / 8 * 8;
        self.pending_bits = total % 8;
    }

    #[inline]
    fn append_byte(&mut self, byte: u8) {
        let (code, length) = code(byte);
        self.append(code, length);
    }

    /// Fills the last byte with the start of EOS.
    fn pad(&mut self) {
        self.store(self.window | u64::MAX >> self.pending_bits);
    }

    #[inline]
    fn store(&mut self, word: u64) {
        self.out.truncate(self.position);
        self.out.extend_from_slice(&word.to_be_bytes());
    }
}
