//! ConnNos of a session: allocated by the client, recorded by the server.
//!
//! They ascend (SMIG-4.13/rising-numbers), so a session stores the highest one and a window below
//! it, not a list.

/// Size of the window below the highest ConnNo in which another may still join. Connections that
/// are opened together may complete their handshakes in any order, and a session has at most 16.
const REORDER_WINDOW: u32 = 64;

/// The ConnNos of one session, at either side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnNumbers {
    /// The highest number that was allocated (client) or joined (server); 0: none.
    highest: u32,
    /// Bit n: the number `highest - n` has joined, for n below [`REORDER_WINDOW`].
    joined_bits: u64,
}

impl ConnNumbers {
    /// Client: allocates the number of the next connection. `None`: exhausted.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        self.highest = self.highest.checked_add(1)?;
        Some(self.highest)
    }

    /// Server: returns whether a connection with this number may join. Numbers below the window
    /// count as used.
    pub(super) fn may_join(&self, number: u32) -> bool {
        match self.highest.checked_sub(number) {
            None => true,
            Some(below) => {
                number > 0 && below < REORDER_WINDOW && self.joined_bits & (1 << below) == 0
            }
        }
    }

    /// Server: records that a connection with this number has joined.
    pub(super) fn record_joined(&mut self, number: u32) {
        match number.checked_sub(self.highest) {
            Some(above) => {
                self.joined_bits = self.joined_bits.checked_shl(above).unwrap_or(0) | 1;
                self.highest = number;
            }
            None => {
                let below = self.highest - number;
                self.joined_bits |= 1_u64.checked_shl(below).unwrap_or(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_join_once_in_any_order() {
        // SMIG-4.13/rising-numbers
        let mut numbers = ConnNumbers::default();
        for number in [1, 3, 2, 7, 5] {
            assert!(numbers.may_join(number), "{number}");
            numbers.record_joined(number);
            assert!(!numbers.may_join(number), "{number} twice");
        }
        assert!(numbers.may_join(4) && numbers.may_join(6) && numbers.may_join(8));
        assert!(!numbers.may_join(0));
    }

    #[test]
    fn numbers_below_the_window_count_as_used() {
        let mut numbers = ConnNumbers::default();
        for number in [1, 100] {
            numbers.record_joined(number);
        }
        assert!(numbers.may_join(99) && numbers.may_join(37));
        assert!(!numbers.may_join(36) && !numbers.may_join(1));
        numbers.record_joined(u32::MAX);
        assert!(!numbers.may_join(100) && numbers.may_join(u32::MAX - 1));
        numbers.record_joined(u32::MAX - 63);
        assert!(!numbers.may_join(u32::MAX - 63) && !numbers.may_join(u32::MAX));
    }

    #[test]
    fn a_client_allocates_ascending_numbers_until_exhausted() {
        let mut numbers = ConnNumbers::default();
        assert_eq!((numbers.allocate(), numbers.allocate()), (Some(1), Some(2)));
        numbers.highest = u32::MAX;
        assert_eq!(numbers.allocate(), None);
    }
}
