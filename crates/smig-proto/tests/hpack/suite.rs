//! HPACK from outside: the public test vectors, and random blocks between our two ends.

mod properties;
mod vectors;
