//! What the engine is tested with: a frame-level peer that follows a script, and a mesh of two
//! engines and several connections in virtual time; and ports for tests that need one of their own.
//! Not published.

pub mod hostile;
pub mod mesh;
pub mod port;
pub mod script;
