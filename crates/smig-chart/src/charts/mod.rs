//! Chart types for measurements, from plain numbers.
//!
//! Each function returns a [`Figure`] with one panel; to combine several, move their panels into
//! one figure. Series keep their order, colour and marker across charts, so the third scheme looks
//! the same in all of them. Values are in the axis' unit; the caller writes the unit into the
//! title.

mod bars;
mod boxes;
mod cdf;
mod lines;
#[cfg(test)]
mod tests;

use crate::svg::{Axis, Colour, Figure, Marker, Panel, Scale};

pub use bars::{BarSeries, BarValue, grouped_bars};
pub use boxes::{Form, boxes};
pub use cdf::cdf;
pub use lines::{LinePoint, LineSeries, lines};

/// Properties that all charts have.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// Accessible name of the chart.
    pub name: String,
    /// Accessible description: what the chart shows, in a sentence.
    pub description: String,
    /// Title above the plot: quantity and unit.
    pub title: String,
    /// Width of the chart in pixels.
    pub width: f64,
    /// Height of the plot in pixels.
    pub height: f64,
    /// Scale of the values' axis.
    pub scale: Scale,
}

impl Outline {
    /// Returns the values' axis for these values; a linear one starts at 0.
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

/// Returns the look of the series with this index: neighbours differ in hue, lightness and form.
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
