//! Line charts with bands of confidence intervals.

use super::{Outline, look};
use crate::number;
use crate::svg::{Axis, Figure, Layer, Panel, Point, Range, Shape, Tint};

/// One point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinePoint {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Confidence interval of `y`, if known.
    pub interval: Option<(f64, f64)>,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct LineSeries {
    /// Name for the legend.
    pub name: String,
    /// Points, sorted by `x`.
    pub points: Vec<LinePoint>,
}

impl LineSeries {
    fn finite(&self) -> Self {
        let points = self.points.iter().filter(|point| point.x.is_finite() && point.y.is_finite());
        Self { name: self.name.clone(), points: points.copied().collect() }
    }
}

/// Draws lines over a given x axis. A band is drawn where two neighbours have an interval; points
/// that are not finite are omitted.
#[must_use]
pub fn lines(outline: Outline, x: Axis, series: &[LineSeries]) -> Figure {
    let series: Vec<LineSeries> = series.iter().map(LineSeries::finite).collect();
    let all = series.iter().flat_map(|one| &one.points);
    let highs = all.flat_map(|point| {
        [Some(point.y), point.interval.map(|(_, high)| high)].into_iter().flatten()
    });
    let y = outline.axis(highs, "");
    let bands = series.iter().enumerate().flat_map(|(index, one)| {
        let groups = one.points.chunk_by(|a, b| a.interval.is_some() == b.interval.is_some());
        groups
            .map(band)
            .filter(|band| band.len() > 1)
            .map(move |band| layer(String::new(), index, Shape::Area(Tint::Faint, band)))
            .collect::<Vec<_>>()
    });
    let strokes = series.iter().enumerate().flat_map(|(index, one)| {
        let line = one.points.iter().map(|point| (point.x, point.y)).collect();
        let dots = one.points.iter().map(|point| Point {
            x: point.x,
            y: point.y,
            tooltip: format!("{}: {}", one.name, number(point.y)),
        });
        let dots = Shape::Dots(look(index).1, dots.collect());
        [layer(String::new(), index, Shape::Line(line)), layer(one.name.clone(), index, dots)]
    });
    let layers = bands.chain(strokes).collect();
    let panel = Panel {
        title: outline.title.clone(),
        y,
        height: outline.height,
        layers,
        rules: Vec::new(),
    };
    outline.figure(x, panel)
}

fn band(points: &[LinePoint]) -> Vec<Range> {
    let range =
        |point: &LinePoint| point.interval.map(|(low, high)| Range { x: point.x, low, high });
    points.iter().filter_map(range).collect()
}

fn layer(name: String, index: usize, shape: Shape) -> Layer {
    Layer { name, colour: look(index).0, shape }
}
