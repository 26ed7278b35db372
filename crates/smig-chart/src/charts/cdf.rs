//! Empirical cumulative distribution functions.

use smig_stats::{quantile, sorted};

use super::{Outline, look};
use crate::number;
use crate::svg::{Axis, Figure, Layer, Panel, Point, Shape};

/// Draws the distribution of each series; the values may be in any order. The outline's scale
/// applies to the values, on the x axis; `unit` is written at the axis' end. Each line has its
/// marker at the quartiles.
#[must_use]
pub fn cdf(outline: Outline, unit: &'static str, series: &[(String, Vec<f64>)]) -> Figure {
    let all: Vec<Vec<f64>> = series.iter().map(|(_, values)| sorted(values)).collect();
    let x = outline.axis(all.iter().flatten().copied(), unit);
    let layers = series
        .iter()
        .zip(&all)
        .enumerate()
        .filter(|(_, (_, values))| !values.is_empty())
        .flat_map(|(index, ((name, _), values))| {
            let (colour, marker) = look(index);
            let line = Layer { name: String::new(), colour, shape: Shape::Steps(steps(values)) };
            let shape = Shape::Dots(marker, quartiles(name, values));
            [line, Layer { name: format!("{name} (n = {})", values.len()), colour, shape }]
        })
        .collect();
    let y = Axis::linear_exact(100.0, "%");
    let panel = Panel {
        title: outline.title.clone(),
        y,
        height: outline.height,
        layers,
        rules: Vec::new(),
    };
    outline.figure(x, panel)
}

/// Computes the steps from 0 % at the smallest value to 100 % at the largest.
fn steps(sorted: &[f64]) -> Vec<(f64, f64)> {
    let share = |index: usize| (index + 1) as f64 / sorted.len() as f64 * 100.0;
    let start = sorted.first().map(|first| (*first, 0.0));
    start
        .into_iter()
        .chain(sorted.iter().enumerate().map(|(at, value)| (*value, share(at))))
        .collect()
}

fn quartiles(name: &str, sorted: &[f64]) -> Vec<Point> {
    [25.0, 50.0, 75.0]
        .into_iter()
        .filter_map(|percent| {
            let x = quantile(sorted, percent / 100.0)?;
            let tooltip = format!("{name}: {percent} % up to {}", number(x));
            Some(Point { x, y: percent, tooltip })
        })
        .collect()
}
