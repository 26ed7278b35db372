//! Axes: map values to positions, and place the ticks.

use crate::group_thousands;
use crate::text::format_decimals;

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Equal differences have equal lengths.
    Linear,
    /// Equal ratios have equal lengths.
    Log,
    /// A sequence of named slots; the first extends from 0 to 1.
    Categorical,
}

/// The range of one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    scale: Scale,
    start: f64,
    end: f64,
    unit: &'static str,
    categories: Vec<String>,
}

impl Axis {
    /// Creates an axis from 0 to a round number at or above `max`.
    #[must_use]
    pub fn linear(max: f64, unit: &'static str) -> Self {
        let max = positive_or_one(max);
        let step = step(max, 5.0);
        let end = (max / step - 1e-9).ceil().max(1.0) * step;
        Self { scale: Scale::Linear, start: 0.0, end, unit, categories: Vec::new() }
    }

    /// Creates an axis from 0 to exactly `max`.
    #[must_use]
    pub fn linear_exact(max: f64, unit: &'static str) -> Self {
        Self::between(0.0, positive_or_one(max), unit)
    }

    /// Creates an axis from exactly `start` to exactly `end`; an empty range is widened.
    #[must_use]
    pub fn between(start: f64, end: f64, unit: &'static str) -> Self {
        let start = if start.is_finite() { start } else { 0.0 };
        let end = if end.is_finite() && end - start > 1e-9 { end } else { start + 1.0 };
        Self { scale: Scale::Linear, start, end, unit, categories: Vec::new() }
    }

    /// Creates an axis with a slot for each category. Slot i extends from i to i + 1, with its
    /// middle at i + 0.5.
    #[must_use]
    pub fn categorical(names: Vec<String>) -> Self {
        let end = names.len().max(1) as f64;
        Self { scale: Scale::Categorical, start: 0.0, end, unit: "", categories: names }
    }

    /// Creates a logarithmic axis that contains both values and ends at round numbers (1, 2 or 5
    /// times a power of ten).
    #[must_use]
    pub fn log(min: f64, max: f64, unit: &'static str) -> Self {
        let (min, max) = (positive_or_one(min), positive_or_one(max));
        let mut start = round_numbers(min / 10.0, min).last().copied().unwrap_or(min);
        let end = round_numbers(max * 0.999, max * 10.0).first().copied().unwrap_or(max);
        if end / start < 3.0 {
            start = end / 10.0;
        }
        Self { scale: Scale::Log, start, end, unit, categories: Vec::new() }
    }

    /// Returns the value at the start of the axis.
    #[must_use]
    pub const fn start(&self) -> f64 {
        self.start
    }

    /// Returns the value at the end of the axis.
    #[must_use]
    pub const fn end(&self) -> f64 {
        self.end
    }

    /// Returns whether the axis has named slots instead of numbers.
    #[must_use]
    pub const fn is_categorical(&self) -> bool {
        matches!(self.scale, Scale::Categorical)
    }

    /// Returns the unit. A figure writes it after the last number of its x axis; a panel's title names the unit of its y
    /// axis.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        self.unit
    }

    /// Returns the position of a value, 0 at the start of the axis and 1 at its end; values outside
    /// are clamped, and NaN is at the start.
    #[must_use]
    pub fn position(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear | Scale::Categorical => (value - self.start) / (self.end - self.start),
            Scale::Log => (value.max(self.start) / self.start).ln() / (self.end / self.start).ln(),
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }

    /// Returns about `target_count` values for ticks, with their text.
    #[must_use]
    pub fn ticks(&self, target_count: usize) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let step = step(self.end - self.start, target_count.max(1) as f64);
                let first = (self.start / step - 1e-9).ceil();
                let last = (self.end / step + 1e-9).floor();
                let count = (last - first).max(0.0) as usize;
                // Adding 0 converts -0 to 0.
                let values = (0..=count).map(|index| (first + index as f64) * step + 0.0);
                values.map(|value| (value, tick_text(value, step))).collect()
            }
            Scale::Categorical => {
                let middles = self.categories.iter().enumerate();
                middles.map(|(at, name)| (at as f64 + 0.5, name.clone())).collect()
            }
            Scale::Log => {
                let mut values = round_numbers(self.start * 0.999, self.end * 1.001);
                if values.len() > target_count + 2 {
                    values.retain(|value| is_power_of_ten(*value));
                }
                values.into_iter().map(|value| (value, tick_text(value, value))).collect()
            }
        }
    }
}

/// Replaces a value that is invalid for a logarithm or a division by 1.
fn positive_or_one(value: f64) -> f64 {
    if value.is_finite() && value > 1e-6 { value } else { 1.0 }
}

/// Formats a multiple of `step`, with the decimals that tell it from the next one.
fn tick_text(value: f64, step: f64) -> String {
    group_thousands(&format_decimals(value, (-step.log10().floor()).max(0.0) as usize))
}

fn is_power_of_ten(value: f64) -> bool {
    let exponent = value.log10();
    (exponent - exponent.round()).abs() < 1e-6
}

/// Returns 1, 2 or 5 times a power of ten, such that `range` has at most `max_steps` steps.
fn step(range: f64, max_steps: f64) -> f64 {
    let min_step = positive_or_one(range) / max_steps;
    let power = 10_f64.powf(min_step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= min_step * 0.999)
        .unwrap_or(min_step)
}

/// Returns all 1, 2 and 5 times a power of ten in the range, both ends inclusive.
fn round_numbers(from: f64, to: f64) -> Vec<f64> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    (first..=last)
        .flat_map(|exponent| [1.0, 2.0, 5.0].map(|m| m * 10_f64.powi(exponent)))
        .filter(|value| (from..=to).contains(value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, target_count: usize) -> Vec<String> {
        axis.ticks(target_count).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_axes_end_on_round_numbers() {
        assert_eq!(texts(&Axis::linear(9.6, "s"), 5), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(texts(&Axis::linear(10.0, "s"), 2), ["0", "5", "10"]);
        assert_eq!(texts(&Axis::linear(0.0, "s"), 2), ["0", "0.5", "1"]);
        assert_eq!(texts(&Axis::linear(0.001, "s"), 2), ["0", "0.0005", "0.001"]);
    }

    #[test]
    fn log_axes_hold_their_values() {
        let axis = Axis::log(59.0, 2_400.0, "ms");
        assert_eq!(texts(&axis, 7), ["50", "100", "200", "500", "1,000", "2,000", "5,000"]);
        assert_eq!(axis.position(50.0), 0.0);
        assert_eq!(axis.position(5_000.0), 1.0);
        assert!((axis.position(500.0) - 0.5).abs() < 1e-9);
        assert_eq!(texts(&Axis::log(1.0, 100_000.0, "ms"), 6).len(), 6);
        assert_eq!(texts(&Axis::log(0.0001, 0.0005, "s"), 7), ["0.0001", "0.0002", "0.0005"]);
    }

    #[test]
    fn an_axis_may_begin_anywhere() {
        let axis = Axis::between(1.35, 1.82, "s");
        assert_eq!(texts(&axis, 5), ["1.4", "1.5", "1.6", "1.7", "1.8"]);
        assert_eq!(texts(&Axis::between(100.0, 101.0, "s"), 2), ["100", "100.5", "101"]);
        assert!((axis.position(1.585) - 0.5).abs() < 1e-9);
        assert_eq!(Axis::between(2.0, 1.0, "").position(2.5), 0.5);
    }

    #[test]
    fn categories_are_centred_in_their_slots() {
        let axis = Axis::categorical(vec!["a".into(), "b".into()]);
        assert_eq!(axis.ticks(1), [(0.5, "a".into()), (1.5, "b".into())]);
        assert_eq!(axis.position(1.5), 0.75);
    }

    #[test]
    fn values_outside_are_clamped() {
        for axis in [Axis::linear(10.0, ""), Axis::log(1.0, 10.0, "")] {
            for (value, position) in
                [(11.0, 1.0), (f64::INFINITY, 1.0), (-1.0, 0.0), (f64::NEG_INFINITY, 0.0)]
            {
                assert_eq!(axis.position(value), position, "{axis:?} {value}");
            }
        }
    }

    #[test]
    fn non_finite_values_give_a_valid_axis() {
        for axis in
            [Axis::log(0.0, 0.0, ""), Axis::log(f64::NAN, -3.0, ""), Axis::linear(f64::NAN, "")]
        {
            assert!(!axis.ticks(5).is_empty(), "{axis:?}");
            for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
                assert!((0.0..=1.0).contains(&axis.position(value)), "{axis:?} {value}");
            }
        }
    }
}
