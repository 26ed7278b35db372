//! Drawing in a terminal: a grid of characters, small charts on it, and a
//! screen that redraws it in place.
//!
//! Owns escape sequences. The cursor is never hidden, and the only mode that is
//! enabled is synchronized update during a drawing, so that the terminal is
//! usable after a crash.
//!
//! Built on crossterm and not on ratatui, which has no stacked bars, and whose inline viewport
//! queries the terminal for the cursor's position: that fails if the terminal does not respond.

mod chart;
mod grid;
mod screen;

pub use chart::{Bars, Dots};
pub use grid::{Grid, Paint};
pub use screen::{OutputMode, Screen};
