//! Distributions side by side, as box plots or violin plots.

use smig_stats::{Summary, quantile, sorted};

use super::{Outline, look};
use crate::number;
use crate::svg::{
    Axis, Bar, Block, Colour, Figure, Layer, Level, Marker, Panel, Point, Range, Scale, Shape, Tint,
};

/// Form of a distribution plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A box from the 25th to the 75th percentile with the median, whiskers from the 5th to the
    /// 95th, and a dot for each value outside.
    Box,
    /// A kernel density estimate (Gaussian kernel, Silverman's bandwidth; of the logarithms if the
    /// axis is logarithmic), with the median and the same whiskers.
    Violin,
}

/// Half the width of a box, as a share of its slot.
const HALF: f64 = 0.28;
/// Half the maximum width of a violin, as a share of its slot.
const BELLY: f64 = 0.42;
/// Number of steps of a violin's outline.
const STEPS: usize = 64;

/// Draws the distributions of several series side by side; the values may be in any order.
#[must_use]
pub fn boxes(outline: Outline, form: Form, series: &[(String, Vec<f64>)]) -> Figure {
    let all: Vec<Vec<f64>> = series.iter().map(|(_, values)| sorted(values)).collect();
    let y = outline.axis(all.iter().flatten().copied(), "");
    let mut layers = Vec::new();
    let (mut whiskers, mut medians) = (Vec::new(), Vec::new());
    for (index, (values, (name, _))) in all.iter().zip(series).enumerate() {
        let Some(summary) = Summary::of(values) else { continue };
        let (middle, colour) = (index as f64 + 0.5, look(index).0);
        let low = quantile(values, 0.05).unwrap_or(summary.min);
        whiskers.push(Range { x: middle, low, high: summary.p95 });
        medians.push(Level { x: (middle - HALF, middle + HALF), y: summary.median });
        match form {
            Form::Box => {
                layers
                    .push(unnamed(colour, Shape::Bars(vec![quartile_box(name, middle, &summary)])));
                layers.push(unnamed(colour, outliers(values, middle, low, summary.p95)));
            }
            Form::Violin => {
                let corners = violin(values, middle, outline.scale);
                layers.push(unnamed(colour, Shape::Outline(Tint::Half, corners)));
            }
        }
    }
    layers.push(unnamed(Colour::Ink, Shape::Whiskers(whiskers)));
    layers.push(unnamed(Colour::Ink, Shape::Levels(medians)));
    let names = series.iter().map(|(name, _)| name.clone()).collect();
    let panel = Panel {
        title: outline.title.clone(),
        y,
        height: outline.height,
        layers,
        rules: Vec::new(),
    };
    outline.figure(Axis::names(names), panel)
}

fn unnamed(colour: Colour, shape: Shape) -> Layer {
    Layer { name: String::new(), colour, shape }
}

fn quartile_box(name: &str, middle: f64, summary: &Summary) -> Bar {
    let tooltip = format!(
        "{name}: median {}, n = {}, quartiles {} and {}, p95 {}",
        number(summary.median),
        summary.n,
        number(summary.p25),
        number(summary.p75),
        number(summary.p95)
    );
    let block = Block { x: (middle - HALF, middle + HALF), y: (summary.p25, summary.p75) };
    Bar { block, tint: Tint::Half, tooltip }
}

fn outliers(values: &[f64], middle: f64, low: f64, high: f64) -> Shape {
    let outside = values.iter().filter(|value| **value < low || **value > high);
    let point = |value: &f64| Point { x: middle, y: *value, tooltip: number(*value) };
    Shape::Dots(Marker::Ring, outside.map(point).collect())
}

type Map = fn(f64) -> f64;

/// Computes a violin's outline: up on the right, down on the left.
fn violin(sorted: &[f64], middle: f64, scale: Scale) -> Vec<(f64, f64)> {
    let (to, from): (Map, Map) = match scale {
        Scale::Log => (f64::ln, f64::exp),
        Scale::Linear | Scale::Names => (|value| value, |value| value),
    };
    let values: Vec<f64> =
        sorted.iter().copied().map(to).filter(|value| value.is_finite()).collect();
    let (Some(summary), Some(first), Some(last)) =
        (Summary::of(&values), values.first(), values.last())
    else {
        return Vec::new();
    };
    let spread = summary.standard_deviation.min((summary.p75 - summary.p25) / 1.34);
    let spread = if spread > 0.0 { spread } else { summary.standard_deviation };
    let width = 0.9 * spread * (values.len() as f64).powf(-0.2);
    if width <= 0.0 {
        // All values are equal: draw a stroke.
        let y = from(*first);
        return vec![(middle - BELLY, y), (middle + BELLY, y)];
    }
    let density = |at: f64| -> f64 {
        values.iter().map(|value| (-0.5 * ((at - value) / width).powi(2)).exp()).sum()
    };
    // Do not extrapolate beyond the values.
    let at = |step: usize| first + (last - first) * step as f64 / STEPS as f64;
    let curve: Vec<(f64, f64)> =
        (0..=STEPS).map(|step| (density(at(step)), from(at(step)))).collect();
    let widest = curve.iter().map(|(dense, _)| *dense).fold(f64::MIN_POSITIVE, f64::max);
    let right = curve.iter().map(|(dense, y)| (middle + BELLY * dense / widest, *y));
    let left = curve.iter().rev().map(|(dense, y)| (middle - BELLY * dense / widest, *y));
    right.chain(left).collect()
}
