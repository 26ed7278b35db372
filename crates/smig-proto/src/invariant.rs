//! Reports states that an invariant of the engine excludes.

/// An `Option` that an invariant of the engine makes `Some`.
pub(crate) trait DebugExpect {
    /// Panics if there is no value, in builds with debug assertions: tests, random operations and
    /// fuzzing. In a release build it has no effect, and the caller returns without an effect:
    /// a peer must not be able to stop a server by an unforeseen state.
    ///
    /// `invariant` is a sentence. An absence that the peer, the application or an earlier step can
    /// cause is not an invariant, and must not use this.
    #[must_use]
    fn debug_expect(self, invariant: &str) -> Self;
}

impl<T> DebugExpect for Option<T> {
    #[inline]
    #[track_caller]
    fn debug_expect(self, invariant: &str) -> Self {
        debug_assert!(self.is_some(), "broken invariant: {invariant}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "broken invariant: it is there")]
    fn a_missing_value_panics_in_tests() {
        let _absent = None::<u8>.debug_expect("it is there");
    }
}
