//! The kinds of charts that measurements need, made of plain numbers.
//!
//! Each gives a [`Figure`] of one panel; several become one by moving their panels together. Series
//! keep their order, colour and marker across charts: the third scheme looks the same everywhere.
//! Whoever calls gives values in the axis' unit and writes the unit into the title.

mod bars;
mod boxes;
mod cdf;
mod lines;
#[cfg(test)]
mod tests;

use crate::report::svg::{Axis, Colour, Figure, Marker, Panel, Scale};

pub use bars::{BarSeries, BarValue, grouped_bars};
pub use boxes::{Form, boxes};
pub use cdf::cdf;
pub use lines::{LinePoint, LineSeries, lines};

/// What all charts have.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// For those who do not see it: what it is.
    pub name: String,
    /// For the same: what it shows, in a sentence.
    pub description: String,
    /// Above the plot: what is counted, in which unit.
    pub title: String,
    /// Of the whole chart, in pixels.
    pub width: f64,
    /// Of the plot, in pixels.
    pub height: f64,
    /// Of the values' axis.
    pub scale: Scale,
}

impl Outline {
    /// The values' axis for values between these; a linear one begins at 0.
    fn axis(&self, values: impl Iterator<Item = f64>, unit: &'static str) -> Axis {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite()) {
            if value > 0.0 {
                least = least.min(value);
            }
            most = most.max(value);
        }
        match self.scale {
            Scale::Log => Axis::log(least.min(most), most, unit),
            Scale::Linear | Scale::Names => Axis::linear(most, unit),
        }
    }

    fn figure(self, x: Axis, panel: Panel) -> Figure {
        Figure {
            title: self.name,
            description: self.description,
            width: self.width,
            x,
            panels: vec![panel],
            marks: Vec::new(),
        }
    }
}

/// The look of the series with an index: neighbours differ in hue, lightness and form.
#[must_use]
pub const fn look(index: usize) -> (Colour, Marker) {
    match index % 6 {
        0 => (Colour::Vermilion, Marker::Triangle),
        1 => (Colour::Blue, Marker::Circle),
        2 => (Colour::Amber, Marker::Square),
        3 => (Colour::Teal, Marker::Ring),
        4 => (Colour::Purple, Marker::Triangle),
        _ => (Colour::Slate, Marker::Square),
    }
}
