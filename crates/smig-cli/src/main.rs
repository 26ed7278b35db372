//! The `smig` program.
fn main() {}
