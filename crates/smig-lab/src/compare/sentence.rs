//! States a comparison in a sentence that claims no more than the numbers support.

use smig_chart::{amount, ms, number};
use smig_stats::{LEAST_RUNS, Magnitude};

use super::difference::{Better, Comparison};

/// A ratio closer to 1 than this is irrelevant in practice, however certain it is.
const MIN_RELEVANT_CHANGE: f64 = 0.01;

pub(super) fn sentence(comparison: &Comparison) -> String {
    let c = comparison;
    let (a, b) = (&c.a, &c.b);
    let what = format!("{}: {}", c.metric, values(c));
    let verdict = match verdict(c) {
        Significance::TooFew => "too few runs to compare".to_owned(),
        Significance::Unclear => format!("no difference shown{}", sure(c, " (", ")")),
        Significance::Different
            if c.ratio.is_some_and(|ratio| (ratio - 1.0).abs() < MIN_RELEVANT_CHANGE) =>
        {
            let ratio = c.ratio.unwrap_or(1.0);
            format!("practically the same ({}{})", share(ratio), sure(c, ", ", ""))
        }
        Significance::Different => {
            let size = c.ratio.map_or_else(String::new, |ratio| format!(", {}", share(ratio)));
            let good = if improves(c) { "better" } else { "worse" };
            let effect = match c.effect.magnitude {
                Magnitude::Negligible => "though a negligible effect".to_owned(),
                size => format!("a {size} effect"),
            };
            format!("{} is {good}{size}; {effect}{}", b.label, sure(c, " (", ")"))
        }
    };
    let mut text = format!("{what}; {verdict}");
    let few = a.runs.min(b.runs);
    if few < LEAST_RUNS {
        text += &format!(
            ". With {} per side there is no interval; {LEAST_RUNS} are needed",
            amount(few, "run")
        );
    }
    text + "."
}

/// Formats the p value between `before` and `after`; empty if there is no test.
fn sure(c: &Comparison, before: &str, after: &str) -> String {
    c.test.map_or_else(String::new, |test| format!("{before}p {}{after}", probability(test.p)))
}

enum Significance {
    Different,
    Unclear,
    TooFew,
}

/// Decides by the interval alone: it resamples pairs of runs if possible, which the test does not.
fn verdict(c: &Comparison) -> Significance {
    match c.difference_interval {
        None => Significance::TooFew,
        Some(interval) if interval.holds(0.0) => Significance::Unclear,
        Some(_) => Significance::Different,
    }
}

fn improves(c: &Comparison) -> bool {
    let grows = c.effect.delta > 0.0;
    grows == (c.better == Better::Higher)
}

/// `110 ms for B, 441 ms for A`
fn values(c: &Comparison) -> String {
    let value = |value: f64| {
        let text = if c.unit == "ms" { ms(value) } else { number(value) };
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
fn share(ratio: f64) -> String {
    let percent = (ratio - 1.0).abs() * 100.0;
    let digits = usize::from(percent < 9.95);
    match ratio {
        ratio if ratio >= 2.0 => format!("{} times as much", number(ratio)),
        ratio if ratio >= 1.0 => format!("{percent:.digits$} % more"),
        _ => format!("{percent:.digits$} % less"),
    }
}

/// Formats p with two significant digits, never as 0: `= 0.013`.
pub(super) fn probability(p: f64) -> String {
    match p {
        p if p < 0.001 => "< 0.001".into(),
        p if p < 0.01 => format!("= {p:.4}"),
        p if p < 0.1 => format!("= {p:.3}"),
        p => format!("= {p:.2}"),
    }
}
