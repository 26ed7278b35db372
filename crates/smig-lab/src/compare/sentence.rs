//! States a comparison in a sentence that claims no more than the numbers support.

use smig_chart::{format_count, format_ms, format_number};
use smig_stats::{MIN_RUNS, Magnitude};

use super::difference::{BetterDirection, Comparison};

/// A ratio closer to 1 than this is irrelevant in practice, however certain it is.
const MIN_RELEVANT_CHANGE: f64 = 0.01;

pub(super) fn sentence(comparison: &Comparison) -> String {
    let c = comparison;
    let (a, b) = (&c.a, &c.b);
    let subject = format!("{}: {}", c.metric, format_medians(c));
    let conclusion = match significance(c) {
        Significance::TooFew => "too few runs to compare".to_owned(),
        Significance::Unclear => format!("no difference shown{}", p_value_text(c, " (", ")")),
        Significance::Different
            if c.ratio.is_some_and(|ratio| (ratio - 1.0).abs() < MIN_RELEVANT_CHANGE) =>
        {
            let ratio = c.ratio.unwrap_or(1.0);
            format!(
                "practically the same ({}{})",
                format_relative_change(ratio),
                p_value_text(c, ", ", "")
            )
        }
        Significance::Different => {
            let change = c
                .ratio
                .map_or_else(String::new, |ratio| format!(", {}", format_relative_change(ratio)));
            let direction = if is_improvement(c) { "better" } else { "worse" };
            let effect = match c.effect.magnitude {
                Magnitude::Negligible => "though a negligible effect".to_owned(),
                magnitude => format!("a {magnitude} effect"),
            };
            format!("{} is {direction}{change}; {effect}{}", b.label, p_value_text(c, " (", ")"))
        }
    };
    let mut text = format!("{subject}; {conclusion}");
    let min_run_count = a.runs.min(b.runs);
    if min_run_count < MIN_RUNS {
        text += &format!(
            ". With {} on a side there is no interval; {MIN_RUNS} are needed",
            format_count(min_run_count, "run")
        );
    }
    text + "."
}

/// Formats the p value between `before` and `after`; empty if there is no test.
fn p_value_text(c: &Comparison, before: &str, after: &str) -> String {
    c.test.map_or_else(String::new, |test| format!("{before}p {}{after}", format_p(test.p)))
}

enum Significance {
    Different,
    Unclear,
    TooFew,
}

/// Decides by the interval alone: it resamples pairs of runs if possible, which the test does not.
fn significance(c: &Comparison) -> Significance {
    match c.difference_interval {
        None => Significance::TooFew,
        Some(interval) if interval.contains(0.0) => Significance::Unclear,
        Some(_) => Significance::Different,
    }
}

/// Compares the medians, as the interval and the ratio of the sentence do: Cliff's delta may have another sign.
fn is_improvement(c: &Comparison) -> bool {
    let increases = c.b.summary.median > c.a.summary.median;
    increases == (c.better == BetterDirection::Higher)
}

/// `110 ms for B, 441 ms for A`
fn format_medians(c: &Comparison) -> String {
    let value = |value: f64| {
        let text = if c.unit == "ms" { format_ms(value) } else { format_number(value) };
        if c.unit.is_empty() { text } else { format!("{text} {}", c.unit) }
    };
    let (a, b) = (&c.a, &c.b);
    format!(
        "{} for {}, {} for {} at the median",
        value(b.summary.median),
        b.label,
        value(a.summary.median),
        a.label
    )
}

/// Formats a ratio in words.
fn format_relative_change(ratio: f64) -> String {
    let percent = (ratio - 1.0).abs() * 100.0;
    let digits = usize::from(percent < 9.95);
    match ratio {
        ratio if ratio >= 2.0 => format!("{} times as much", format_number(ratio)),
        ratio if ratio >= 1.0 => format!("{percent:.digits$} % more"),
        _ => format!("{percent:.digits$} % less"),
    }
}

/// Formats p with two significant digits, never as 0: `= 0.013`.
pub(super) fn format_p(p: f64) -> String {
    match p {
        p if p < 0.001 => "< 0.001".into(),
        p if p < 0.01 => format!("= {p:.4}"),
        p if p < 0.1 => format!("= {p:.3}"),
        p => format!("= {p:.2}"),
    }
}
