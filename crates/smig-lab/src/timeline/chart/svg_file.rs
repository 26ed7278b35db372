//! Renders the chart as a self-explanatory file.

use std::fmt::Write;

use smig_chart::format_number;
use smig_chart::html::escape;
use smig_chart::svg::{STYLE, with_colour_fallbacks};

use super::connections::Connections;
use super::{View, figure};
use crate::timeline::{SpanOutcome, Timeline};

const MARGIN: f64 = 14.0;
/// Space above the panels for the title; lines of facts add to it.
const HEAD_HEIGHT: f64 = 36.0;
/// Height of one line of facts.
pub(super) const LINE_HEIGHT: f64 = 16.0;

/// Renders the chart as a standalone SVG file, light or dark by the reader's colour scheme.
#[must_use]
pub fn render_svg(timeline: &Timeline, view: &View) -> String {
    let inner_view = View { width: view.width - 2.0 * MARGIN, ..*view };
    let figure = figure(timeline, &inner_view);
    let lines = wrap_facts(all_facts(timeline), inner_view.width);
    let head_height = HEAD_HEIGHT + LINE_HEIGHT * lines.len() as f64;
    let (width, height) = (view.width, head_height + figure.height() + MARGIN);
    let (title, summary_text) = (escape(&timeline.head.title), escape(&summary(timeline)));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\
         <title>{title}</title><desc>{summary_text} {}</desc><style>{STYLE}{HEAD_STYLE}</style>\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>",
        escape(&figure.description)
    );
    let _ = write!(out, "<text class=\"run\" x=\"{MARGIN}\" y=\"28\">{title}</text>");
    for (line, text) in lines.iter().enumerate() {
        let (y, text) = (48.0 + LINE_HEIGHT * line as f64, escape(text));
        let _ = write!(out, "<text class=\"found\" x=\"{MARGIN}\" y=\"{y}\">{text}</text>");
    }
    let element = figure.to_element();
    let _ = writeln!(out, "<g transform=\"translate({MARGIN} {head_height})\">{element}</g></svg>");
    with_colour_fallbacks(&out)
}

/// Style rules of a standalone file, in addition to the chart's.
pub(super) const HEAD_STYLE: &str = "\
.fig .paper{fill:var(--paper)}\
.fig .run{fill:var(--ink);font-size:17px;font-weight:600}\
.fig .found{fill:var(--ink);font-size:13px}\
";

/// Returns the parameters of the link, and the durations of the requests of each group.
pub(super) fn facts(timeline: &Timeline) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(link) = timeline.head.link {
        facts.push(format!(
            "{} Mbit/s, {} ms round trip, queue of {} packets",
            format_number(link.bits_per_s as f64 / 1e6),
            format_number(link.round_trip_ms),
            link.queue_packets
        ));
    }
    let mut groups: Vec<&str> = Vec::new();
    for span in &timeline.spans {
        if !groups.contains(&span.group.as_str()) {
            groups.push(&span.group);
        }
    }
    for group in groups {
        let durations_ms: Vec<f64> = timeline
            .spans
            .iter()
            .filter(|span| span.group == group && span.outcome == SpanOutcome::Complete)
            .map(|span| span.to_us.saturating_sub(span.from_us) as f64 / 1e3)
            .collect();
        if let Some(summary) = smig_stats::Summary::of(&durations_ms) {
            facts.push(if summary.n == 1 {
                format!("{group}: {}", format_millis(summary.median))
            } else {
                format!(
                    "{group}: median {}, p95 {}",
                    format_millis(summary.median),
                    format_millis(summary.p95)
                )
            });
        }
    }
    facts
}

/// Returns all facts in one line, with the number of connections that the chart omits.
pub(super) fn summary(timeline: &Timeline) -> String {
    all_facts(timeline).join(" · ")
}

/// Joins facts into lines that fit approximately.
pub(super) fn wrap_facts(facts: Vec<String>, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for fact in facts {
        match lines.last_mut() {
            Some(line) if (line.len() + fact.len() + 3) as f64 * 7.0 < width => {
                line.push_str(" · ");
                line.push_str(&fact);
            }
            _ => lines.push(fact),
        }
    }
    lines
}

fn all_facts(timeline: &Timeline) -> Vec<String> {
    let mut facts = facts(timeline);
    let unused = Connections::of(timeline).unused_count;
    if unused > 0 {
        facts.push(format!("{} not shown: unused", smig_chart::format_count(unused, "connection")));
    }
    facts
}

/// Formats milliseconds, or seconds from ten seconds on.
fn format_millis(millis: f64) -> String {
    if millis >= 10_000.0 {
        format!("{:.1} s", millis / 1e3)
    } else {
        format!("{} ms", smig_chart::format_ms(millis))
    }
}
