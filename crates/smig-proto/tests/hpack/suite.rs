//! Tests of HPACK's public interface: published test vectors, and random blocks.

mod properties;
mod vectors;
