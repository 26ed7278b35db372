//! Drawing in a terminal: a grid of characters, small charts on it, and a
//! screen that redraws it in place.
//!
//! Owns escape sequences. The cursor is never hidden, and no mode except
//! synchronized update during a drawing is enabled, so that a crash leaves the
//! terminal as it was.
//!
//! Written here, on crossterm: ratatui's inline viewport asks the terminal for the cursor's position,
//! which fails where the answer does not come, and has no stacked bars.

mod chart;
mod grid;
mod screen;

pub use chart::{Bars, Dots};
pub use grid::{Grid, Paint};
pub use screen::{Output, Screen};
