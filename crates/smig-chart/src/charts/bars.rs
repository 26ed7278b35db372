//! Grouped bars with confidence intervals and reference values.

use super::{Outline, look};
use crate::svg::{Axis, Bar, Block, Colour, Figure, Layer, Level, Panel, Range, Shape, Tint, Word};
use crate::{ms, number};

/// Gap between groups, as a share of a group's width.
const GAP: f64 = 0.2;
/// Minimum width of a bar, in pixels, for a number above it.
const NUMBERED: f64 = 26.0;

/// One bar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BarValue {
    /// Height of the bar.
    pub value: f64,
    /// Confidence interval, if known.
    pub interval: Option<(f64, f64)>,
    /// Reference value, for example the paper's.
    pub reference: Option<f64>,
}

/// The bars of one series, one in each group; a group may lack it.
#[derive(Debug, Clone, PartialEq)]
pub struct BarSeries {
    /// Name for the legend.
    pub name: String,
    /// Values in the order of the groups.
    pub values: Vec<Option<BarValue>>,
}

/// Draws bars in groups, with numbers above them if there is room and no reference. `reference` is
/// the name of the references in the legend.
#[must_use]
pub fn grouped_bars(
    outline: Outline,
    groups: &[String],
    series: &[BarSeries],
    reference: &str,
) -> Figure {
    let all = || series.iter().flat_map(|one| one.values.iter().flatten());
    let heights = all().flat_map(|value| {
        let high = value.interval.map(|(_, high)| high);
        // Leaves room for the number above.
        [Some(value.value * 1.08), high, value.reference].into_iter().flatten()
    });
    let y = outline.axis(heights.chain(all().map(|value| value.value)), "");
    let step = (1.0 - GAP) / series.len().max(1) as f64;
    let pixels = outline.width / groups.len().max(1) as f64 * step;
    let place = |group: usize, index: usize| {
        let left = group as f64 + GAP / 2.0 + step * index as f64;
        (left, left + step)
    };
    let mut layers = Vec::new();
    let (mut whiskers, mut words, mut references) = (Vec::new(), Vec::new(), Vec::new());
    for (index, one) in series.iter().enumerate() {
        let mut bars = Vec::new();
        for (group, value) in one.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let x = place(group, index);
            let middle = f64::midpoint(x.0, x.1);
            let block = Block { x, y: (y.from(), value.value) };
            bars.push(Bar {
                block,
                tint: Tint::Full,
                tooltip: tooltip(one, groups, group, value, reference),
            });
            if let Some((low, high)) = value.interval {
                whiskers.push(Range { x: middle, low, high });
            }
            let top = value.interval.map_or(value.value, |(_, high)| high.max(value.value));
            words.push(Word { x: middle, y: top, text: grouped(value.value) });
            if let Some(other) = value.reference {
                references.push(Level { x, y: other });
            }
        }
        let (colour, shape) = (look(index).0, Shape::Bars(bars));
        layers.push(Layer { name: one.name.clone(), colour, shape });
    }
    layers.push(unnamed(Colour::Ink, Shape::Whiskers(whiskers)));
    // Numbers would overlap the references' strokes.
    let numbered = references.is_empty() && pixels >= NUMBERED;
    if !references.is_empty() {
        let shape = Shape::Levels(references);
        layers.push(Layer { name: reference.to_owned(), colour: Colour::Ink, shape });
    }
    if numbered {
        layers.push(unnamed(Colour::Ink, Shape::Words(words)));
    }
    let panel = Panel {
        title: outline.title.clone(),
        y,
        height: outline.height,
        layers,
        rules: Vec::new(),
    };
    outline.figure(Axis::names(groups.to_vec()), panel)
}

/// Formats a value with a comma as the thousands separator.
fn grouped(value: f64) -> String {
    if value >= 1_000.0 { ms(value) } else { number(value) }
}

fn unnamed(colour: Colour, shape: Shape) -> Layer {
    Layer { name: String::new(), colour, shape }
}

fn tooltip(
    series: &BarSeries,
    groups: &[String],
    group: usize,
    value: &BarValue,
    reference: &str,
) -> String {
    let group = groups.get(group).map_or("", String::as_str);
    let mut text = format!("{}, {group}: {}", series.name, number(value.value));
    if let Some((low, high)) = value.interval {
        text.push_str(&format!(" ({} to {})", number(low), number(high)));
    }
    if let Some(other) = value.reference {
        text.push_str(&format!("; {reference}: {}", number(other)));
    }
    text
}
