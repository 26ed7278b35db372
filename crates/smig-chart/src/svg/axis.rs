//! Axes: map values to positions, and place the ticks.

use crate::number;

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences have equal lengths.
    Linear,
    /// Equal ratios have equal lengths.
    Log,
    /// A sequence of named slots; the first from 0 to 1.
    Names,
}

/// The range of one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    unit: &'static str,
    names: Vec<String>,
}

impl Axis {
    /// Creates an axis from 0 to a round number at or above `most`.
    #[must_use]
    pub fn linear(most: f64, unit: &'static str) -> Self {
        let most = positive(most);
        let step = step(most, 5.0);
        let to = (most / step - 1e-9).ceil().max(1.0) * step;
        Self { scale: Scale::Linear, from: 0.0, to, unit, names: Vec::new() }
    }

    /// Creates an axis from 0 to exactly `most`.
    #[must_use]
    pub fn linear_exact(most: f64, unit: &'static str) -> Self {
        Self::between(0.0, positive(most), unit)
    }

    /// Creates an axis from exactly `from` to exactly `to`; an empty range is widened.
    #[must_use]
    pub fn between(from: f64, to: f64, unit: &'static str) -> Self {
        let from = if from.is_finite() { from } else { 0.0 };
        let to = if to.is_finite() && to - from > 1e-9 { to } else { from + 1.0 };
        Self { scale: Scale::Linear, from, to, unit, names: Vec::new() }
    }

    /// Creates an axis with a slot for each name. Slot i extends from i to i + 1, with its middle
    /// at i + 0.5.
    #[must_use]
    pub fn names(names: Vec<String>) -> Self {
        let to = names.len().max(1) as f64;
        Self { scale: Scale::Names, from: 0.0, to, unit: "", names }
    }

    /// Creates an axis between round numbers (1, 2, 5 times a power of ten) around the values.
    #[must_use]
    pub fn log(least: f64, most: f64, unit: &'static str) -> Self {
        let (least, most) = (positive(least), positive(most));
        let mut from = round_numbers(least / 10.0, least).last().copied().unwrap_or(least);
        let to = round_numbers(most * 0.999, most * 10.0).first().copied().unwrap_or(most);
        if to / from < 3.0 {
            from = to / 10.0;
        }
        Self { scale: Scale::Log, from, to, unit, names: Vec::new() }
    }

    /// Returns the value at the start of the axis.
    #[must_use]
    pub const fn from(&self) -> f64 {
        self.from
    }

    /// Returns the value at the end of the axis.
    #[must_use]
    pub const fn to(&self) -> f64 {
        self.to
    }

    /// Returns whether its ticks are named slots.
    #[must_use]
    pub const fn has_names(&self) -> bool {
        matches!(self.scale, Scale::Names)
    }

    /// Returns the text after the last tick's number.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        self.unit
    }

    /// Returns the position of a value, 0 at the start of the axis and 1 at its end; values outside
    /// are clamped.
    #[must_use]
    pub fn position(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear | Scale::Names => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Returns about `wanted` values for ticks, with their text.
    #[must_use]
    pub fn ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let values: Vec<f64> = match self.scale {
            Scale::Linear => {
                let step = step(self.to - self.from, wanted.max(1) as f64);
                let first = (self.from / step - 1e-9).ceil();
                let last = (self.to / step + 1e-9).floor();
                let count = (last - first).max(0.0) as usize;
                // Adding 0 converts -0 to 0.
                (0..=count).map(|index| (first + index as f64) * step + 0.0).collect()
            }
            Scale::Names => {
                let middles = self.names.iter().enumerate();
                return middles.map(|(at, name)| (at as f64 + 0.5, name.clone())).collect();
            }
            Scale::Log => {
                let all = round_numbers(self.from * 0.999, self.to * 1.001);
                if all.len() > wanted + 2 {
                    all.into_iter().filter(|value| is_power_of_ten(*value)).collect()
                } else {
                    all
                }
            }
        };
        values.into_iter().map(|value| (value, tick_text(value))).collect()
    }
}

/// Replaces a value that is invalid for a logarithm or a division by 1.
fn positive(value: f64) -> f64 {
    if value.is_finite() && value > 1e-6 { value } else { 1.0 }
}

fn tick_text(value: f64) -> String {
    if value >= 1_000.0 && value % 1_000.0 == 0.0 {
        format!("{},000", number(value / 1_000.0))
    } else {
        number(value)
    }
}

fn is_power_of_ten(value: f64) -> bool {
    let exponent = value.log10();
    (exponent - exponent.round()).abs() < 1e-6
}

/// Returns 1, 2 or 5 times a power of ten, such that `range` has at most `wanted` steps.
fn step(range: f64, wanted: f64) -> f64 {
    let rough = positive(range) / wanted;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= rough * 0.999)
        .unwrap_or(rough)
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

    fn texts(axis: &Axis, wanted: usize) -> Vec<String> {
        axis.ticks(wanted).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_axes_end_on_round_numbers() {
        assert_eq!(texts(&Axis::linear(9.6, "s"), 5), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(texts(&Axis::linear(10.0, "s"), 2), ["0", "5", "10"]);
        assert_eq!(texts(&Axis::linear(0.0, "s"), 2), ["0", "0.5", "1"]);
    }

    #[test]
    fn log_axes_hold_their_values() {
        let axis = Axis::log(59.0, 2_400.0, "ms");
        assert_eq!(texts(&axis, 7), ["50", "100", "200", "500", "1,000", "2,000", "5,000"]);
        assert_eq!(axis.position(50.0), 0.0);
        assert_eq!(axis.position(5_000.0), 1.0);
        assert!((axis.position(500.0) - 0.5).abs() < 1e-9);
        assert_eq!(texts(&Axis::log(1.0, 100_000.0, "ms"), 6).len(), 6);
    }

    #[test]
    fn an_axis_may_begin_anywhere() {
        let axis = Axis::between(1.35, 1.82, "s");
        assert_eq!(texts(&axis, 5), ["1.4", "1.5", "1.6", "1.7", "1.8"]);
        assert!((axis.position(1.585) - 0.5).abs() < 1e-9);
        assert_eq!(Axis::between(2.0, 1.0, "").position(2.5), 0.5);
    }

    #[test]
    fn names_stand_in_the_middle_of_their_places() {
        let axis = Axis::names(vec!["a".into(), "b".into()]);
        assert_eq!(axis.ticks(1), [(0.5, "a".into()), (1.5, "b".into())]);
        assert_eq!(axis.position(1.5), 0.75);
    }

    #[test]
    fn odd_values_do_not_break_an_axis() {
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
