//! Charts as SVG: panels one above the other that share an x axis.
//!
//! Owns layout and drawing; knows nothing of what is drawn. Colours are CSS
//! variables with a light and a dark value each, so a chart follows its reader's
//! choice inside a page and alone. The palette can be told apart with any
//! colour vision, and no meaning hangs on colour alone: layers have markers of
//! different form, or labels.

mod axis;
mod draw;
mod figure;
mod shapes;
mod style;
#[cfg(test)]
mod tests;

pub use axis::{Axis, Scale};
pub use figure::{
    Bar, Block, Colour, Figure, Layer, Level, Mark, Marker, Panel, Point, Range, Rule, Shape, Tint,
    Word,
};
pub use style::{STYLE, with_plain_colours};

#[cfg(test)]
pub(crate) use tests::assert_balanced;
