//! The Huffman code of string literals (RFC 7541 section 5.2 and Appendix B).
//!
//! The code is canonical: codes of one length are consecutive and ordered by symbol, so the lengths
//! alone give all of it. Every table here is computed from them at compile time.

use bytes::BytesMut;

use super::DecodeError;

const EOS: usize = 256;

/// Lengths in bits of the codes of the symbols 0 to 255 and EOS.
#[rustfmt::skip]
const LENGTHS: [u8; EOS + 1] = [
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

const MAX_LENGTH: usize = 30;

/// The canonical code, in the order of the codes.
struct Canonical {
    /// The symbols in the order of their codes.
    symbols: [u16; EOS + 1],
    /// By length: the first code beyond those of this length, aligned to the top of 32 bits.
    limits: [u64; MAX_LENGTH + 1],
    /// By length: what to add to a code of this length, modulo 2^32, for its place in `symbols`.
    offsets: [u32; MAX_LENGTH + 1],
}

static CANONICAL: Canonical = canonical();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, where a panic is an error")]
const fn canonical() -> Canonical {
    let mut tables = Canonical {
        symbols: [0; EOS + 1],
        limits: [0; MAX_LENGTH + 1],
        offsets: [0; MAX_LENGTH + 1],
    };
    let (mut code, mut place, mut length) = (0_u32, 0, 1);
    while length <= MAX_LENGTH {
        code <<= 1;
        tables.offsets[length] = (place as u32).wrapping_sub(code);
        let mut symbol = 0;
        while symbol <= EOS {
            if LENGTHS[symbol] as usize == length {
                tables.symbols[place] = symbol as u16;
                place += 1;
                code += 1;
            }
            symbol += 1;
        }
        tables.limits[length] = (code as u64) << (32 - length);
        length += 1;
    }
    tables
}

/// Code and length of each octet.
static CODES: [(u32, u8); EOS] = codes();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, where a panic is an error")]
const fn codes() -> [(u32, u8); EOS] {
    let canonical = canonical();
    let mut codes = [(0, 0); EOS];
    let mut place = 0;
    while place < EOS {
        let symbol = canonical.symbols[place] as usize;
        let length = LENGTHS[symbol];
        let code = (place as u32).wrapping_sub(canonical.offsets[length as usize]);
        codes[symbol] = (code, length);
        place += 1;
    }
    codes
}

/// The bits that one look-up of the decoder resolves: two of the most frequent symbols.
const FAST_BITS: usize = 12;

/// What the next [`FAST_BITS`] bits begin with: one or two whole symbols, or none if the first
/// symbol's code is longer.
#[derive(Clone, Copy)]
struct Step(u32);

impl Step {
    const LONG: Self = Self(0);

    const fn new(first: u8, first_length: u8) -> Self {
        Self(first as u32 | 1 << 16 | (first_length as u32) << 20 | (first_length as u32) << 24)
    }

    const fn and(self, second: u8, second_length: u8) -> Self {
        Self((self.0 | (second as u32) << 8) + (1 << 16) + ((second_length as u32) << 20))
    }

    /// The symbols, the first in the lowest octet.
    const fn symbols(self) -> u64 {
        (self.0 & 0xffff) as u64
    }

    const fn count(self) -> usize {
        (self.0 >> 16 & 0xf) as usize
    }

    /// The length of all symbols' codes.
    const fn length(self) -> usize {
        (self.0 >> 20 & 0xf) as usize
    }

    const fn first(self) -> u64 {
        (self.0 & 0xff) as u64
    }

    const fn first_length(self) -> usize {
        (self.0 >> 24) as usize
    }
}

static STEPS: [Step; 1 << FAST_BITS] = steps();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, where a panic is an error")]
const fn steps() -> [Step; 1 << FAST_BITS] {
    let codes = codes();
    let mut steps = [Step::LONG; 1 << FAST_BITS];
    let mut symbol = 0;
    while symbol < EOS {
        let (code, length) = codes[symbol];
        if length as usize <= FAST_BITS {
            let free = FAST_BITS - length as usize;
            let mut low = 0;
            while low < 1 << free {
                steps[(code as usize) << free | low] = Step::new(symbol as u8, length);
                low += 1;
            }
        }
        symbol += 1;
    }
    let singles = steps;
    let mut bits = 0;
    while bits < 1 << FAST_BITS {
        let first = singles[bits];
        let second = singles[bits << first.first_length() & ((1 << FAST_BITS) - 1)];
        if first.count() == 1
            && second.count() == 1
            && first.length() + second.length() <= FAST_BITS
        {
            steps[bits] = first.and(second.first() as u8, second.first_length() as u8);
        }
        bits += 1;
    }
    steps
}

#[inline]
fn step(window: u64) -> Step {
    STEPS.get((window >> (64 - FAST_BITS)) as usize).copied().unwrap_or(Step::LONG)
}

/// The symbol and length of a code longer than [`FAST_BITS`] at the top of `window`.
#[cold]
fn long_code(window: u64) -> Result<(u64, usize), DecodeError> {
    let top = window >> 32;
    let (length, offset) = CANONICAL
        .limits
        .iter()
        .zip(&CANONICAL.offsets)
        .enumerate()
        .skip(FAST_BITS + 1)
        .find_map(|(length, (limit, offset))| (top < *limit).then_some((length, *offset)))
        .ok_or(DecodeError::HuffmanEos)?;
    let code = (top >> (32 - length)) as u32;
    let symbol = CANONICAL.symbols.get(offset.wrapping_add(code) as usize);
    match symbol.map(|symbol| u8::try_from(*symbol)) {
        Some(Ok(symbol)) => Ok((u64::from(symbol), length)),
        _ => Err(DecodeError::HuffmanEos),
    }
}

/// Decodes into the front of `scratch`, which grows as needed, and returns what was decoded.
pub(super) fn decode<'a>(source: &[u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], DecodeError> {
    /// Look-ups between two refills of the window: they take at most 48 of its 56 bits or more, and
    /// give at most 8 octets.
    const STEPS_PER_FILL: usize = 4;

    // The source is read as if endless 1 bits followed it; `left` counts its own bits.
    let mut left = source.len() * 8;
    let mut rest = source;
    // The next bits, from the top; at least `filled` of them are there.
    let mut window = 0_u64;
    let mut filled = 0;
    let mut written = 0;
    loop {
        window |= next_eight(rest) >> filled;
        let taken = (63 - filled) >> 3;
        rest = rest.get(taken..).unwrap_or_default();
        filled += taken * 8;
        if left < STEPS_PER_FILL * FAST_BITS {
            break;
        }
        let (mut word, mut count, mut length) = (0, 0, 0);
        for _ in 0..STEPS_PER_FILL {
            let step = step(window << length);
            if step.count() == 0 {
                break;
            }
            word |= step.symbols() << (8 * count);
            count += step.count();
            length += step.length();
        }
        if count == 0 {
            (word, length) = long_code(window)?;
            count = 1;
        }
        window <<= length;
        filled -= length;
        left -= length;
        store(scratch, written, word);
        written += count;
    }
    // All that is left is in the window.
    while left > 0 {
        let step = step(window);
        let (symbols, count, length) = if step.count() == 0 {
            match long_code(window) {
                Ok((symbol, length)) if length <= left => (symbol, 1, length),
                Err(error) if left >= MAX_LENGTH => return Err(error),
                _ => break,
            }
        } else if step.length() <= left {
            (step.symbols(), step.count(), step.length())
        } else if step.first_length() <= left {
            (step.first(), 1, step.first_length())
        } else {
            break;
        };
        store(scratch, written, symbols);
        written += count;
        window <<= length;
        left -= length;
    }
    if left > 7 || window.leading_ones() < left as u32 {
        return Err(DecodeError::HuffmanPadding);
    }
    Ok(scratch.get(..written).unwrap_or_default())
}

/// The next eight octets, with 1 bits beyond the end.
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

/// Writes eight octets at once: those beyond the ones that count are overwritten by the next.
#[inline]
fn store(scratch: &mut Vec<u8>, at: usize, word: u64) {
    if scratch.len() < at + 8 {
        grow(scratch);
    }
    if let Some(room) = scratch.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *room = word.to_le_bytes();
    }
}

#[cold]
fn grow(scratch: &mut Vec<u8>) {
    scratch.resize((scratch.len() * 2).max(256), 0);
}

#[inline]
fn code(octet: u8) -> (u32, u8) {
    CODES.get(usize::from(octet)).copied().unwrap_or_default()
}

/// The octets that [`encode`] needs for `source`.
#[inline]
pub(super) fn encoded_len(source: &[u8]) -> usize {
    source.iter().map(|&octet| usize::from(code(octet).1)).sum::<usize>().div_ceil(8)
}

/// Appends the code of `source`, whose [`encoded_len`] is `len`.
pub(super) fn encode(source: &[u8], len: usize, out: &mut BytesMut) {
    let start = out.len();
    out.resize(start + len, 0);
    let Some(room) = out.get_mut(start..) else { return };
    let (words, tail) = room.as_chunks_mut::<4>();
    let mut words = words.iter_mut();
    // The lowest `pending` bits of `window`, never more than 31 between two octets, are not written.
    let (mut window, mut pending) = (0_u64, 0_u32);
    for &octet in source {
        let (code, length) = code(octet);
        window = window << length | u64::from(code);
        pending += u32::from(length);
        if pending >= 32 {
            pending -= 32;
            if let Some(word) = words.next() {
                *word = ((window >> pending) as u32).to_be_bytes();
            }
        }
    }
    let last =
        ((window << (32 - pending)) as u32 | (u64::from(u32::MAX) >> pending) as u32).to_be_bytes();
    match words.next() {
        Some(word) => *word = last,
        None => {
            for (to, from) in tail.iter_mut().zip(last) {
                *to = from;
            }
        }
    }
}
