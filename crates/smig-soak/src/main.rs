//! Transfers over real sockets under forced moves and killed connections.
fn main() {}
