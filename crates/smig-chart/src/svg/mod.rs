//! Charts as SVG: stacked panels that share an x axis, and heat maps.
//!
//! Owns layout and drawing; independent of the data. Colours are CSS variables with a light and a
//! dark value each, so a chart follows the reader's colour scheme, both inside a page and as a
//! standalone file. The palette is distinguishable with any colour vision. Dots also differ in their
//! markers, and points have tooltips; lines and areas differ by colour, and have their names as tooltips.

mod axis;
mod draw;
mod figure;
mod heat_map;
mod picture_set;
mod shapes;
mod style;
#[cfg(test)]
mod tests;

pub use axis::Axis;
pub use draw::text_width;
pub use figure::{
    Bar, Block, Colour, EventLine, Figure, Label, Layer, Level, Marker, Panel, Picture, Point,
    Rule, Shape, Tint, VerticalRange,
};
pub use heat_map::{HeatColumn, HeatField, HeatMap, HeatRow};
pub use picture_set::{PictureSet, is_base64};
pub use style::{STYLE, with_colour_fallbacks};
