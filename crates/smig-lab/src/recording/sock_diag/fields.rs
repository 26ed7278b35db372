//! Bounds-checked access to fields at fixed offsets in messages of unverified length.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A slice with reads at offsets, which return `None` past its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    pub(super) fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    pub(super) fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }

    pub(super) fn u16_be(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    pub(super) fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    pub(super) fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_ne_bytes)
    }

    pub(super) fn ipv4(self, at: usize) -> Option<Ipv4Addr> {
        self.array::<4>(at).map(Ipv4Addr::from)
    }

    pub(super) fn ipv6(self, at: usize) -> Option<Ipv6Addr> {
        self.array::<16>(at).map(Ipv6Addr::from)
    }

    /// Splits off the first `length` bytes, if available, and skips the padding to a multiple of
    /// four.
    pub(super) fn split_padded(self, length: usize) -> Option<(&'a [u8], &'a [u8])> {
        let first = self.0.get(..length)?;
        let rest = self.0.get(length.checked_next_multiple_of(4)?..).unwrap_or_default();
        Some((first, rest))
    }
}
