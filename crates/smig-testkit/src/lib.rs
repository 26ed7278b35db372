//! Test support for the engine: a scripted peer at the level of frames, and a mesh of two engines
//! and several connections in virtual time. Also reserves ports for tests. Not published.

pub mod hostile;
pub mod mesh;
pub mod port;
pub mod script;
