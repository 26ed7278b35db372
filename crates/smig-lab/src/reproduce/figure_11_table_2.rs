//! Figure 11 and Table 2: data that arrives after a cancel.

use super::claim::Expected;
use super::data_table::{Cell, numbers, words};
use super::facts::{FactNames, Facts};
use super::finding::{Dot, Finding, Group, Spread};
use super::measure::{Sample, bytes_after_cancel, names_on, with};
use super::scheme;
use crate::campaign::TrialResult;
use smig_chart::bytes;

const BUFFERS: [&str; 2] = ["default", "large"];

struct Line {
    buffer: String,
    scheme: String,
    sample: Sample,
    unmoved: Sample,
}

fn lines(results: &[&TrialResult]) -> Vec<Line> {
    let mut lines = Vec::new();
    for buffer in names_on(results, "buffer", &BUFFERS) {
        let mine = with(results, &[("buffer", &buffer)]);
        let of = |scheme: &str| bytes_after_cancel(&with(&mine, &[("scheme", scheme)]), "big");
        for scheme in names_on(&mine, "scheme", &scheme::order()) {
            let (sample, unmoved) = (of(&scheme), of("NoMig"));
            lines.push(Line { buffer: buffer.clone(), scheme, sample, unmoved });
        }
    }
    lines
}

fn find<'a>(lines: &'a [Line], buffer: &str, scheme: &str) -> Option<&'a Line> {
    lines.iter().find(|line| line.buffer == buffer && line.scheme == scheme)
}

/// The values of [`after_cancel`].
pub(super) const AFTER_CANCEL: FactNames = &[
    ("", &["plain_default", "plain_large", "migrated", "serve", "failed"]),
    ("buffer", &["buffer", "amounts"]),
];

/// Figure 11 and Table 2.
pub(super) fn after_cancel(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let lines = lines(results);
    for buffer in BUFFERS {
        let known: Vec<_> = lines
            .iter()
            .filter(|line| line.buffer == buffer)
            .filter_map(|line| {
                let mean = line.sample.mean()?;
                Some(format!("{} {}", scheme::label(&line.scheme), bytes(mean as u64)))
            })
            .collect();
        let amounts = Some(known.join(", ")).filter(|amounts| !amounts.is_empty());
        facts.push("buffer", [("buffer", Some(buffer.to_owned())), ("amounts", amounts)]);
    }
    let of = |buffer, scheme| {
        let mean = find(&lines, buffer, scheme).and_then(|line| line.sample.mean());
        mean.map(|mean| bytes(mean as u64))
    };
    let or_none = |amount: Option<String>| amount.or_else(|| Some("no measurement".to_owned()));
    facts.set("plain_default", or_none(of("default", "NoMig")));
    facts.set("plain_large", or_none(of("large", "NoMig")));
    facts.set("migrated", of("default", "MigSW"));
    facts.set("serve", of("default", "SMig"));
    facts.set_failed(lines.iter().map(|line| line.sample.failed).sum());
    fill(&lines, finding);
}

/// Returns the bytes that the paper gives for a scheme.
fn stated(finding: &Finding, scheme: &str) -> Option<f64> {
    let key = match scheme {
        "Http1" => "http1",
        "NoMig" => "http2",
        "Closed" => "closed",
        _ => return None,
    };
    match finding.expected(key) {
        Some(Expected::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

fn fill(lines: &[Line], finding: &mut Finding) {
    finding.table.columns = vec![
        words("buffer", "send buffers"),
        words("scheme", "scheme"),
        numbers("mean_kb", "mean, kB", 0),
        numbers("low_kb", "95 % from", 0),
        numbers("high_kb", "to", 0),
        numbers("less_percent", "less than NoMig, %", 0),
        numbers("less_low_percent", "95 % from", 0),
        numbers("less_high_percent", "to", 0),
        numbers("paper_kb", "the paper, kB", 0),
        numbers("runs", "runs", 0),
    ];
    let mut groups: Vec<Group> = Vec::new();
    for line in lines {
        let kb = |bytes: f64| bytes / 1e3;
        let interval = line.sample.interval();
        let less = line.sample.less_than(&line.unmoved).filter(|_| line.scheme != "NoMig");
        let apart = less.and_then(|less| less.interval);
        let theirs = stated(finding, &line.scheme).map(kb);
        finding.table.rows.push(vec![
            Cell::text(&line.buffer),
            Cell::text(scheme::label(&line.scheme)),
            Cell::of(line.sample.mean().map(kb)),
            Cell::of(interval.map(|(low, _)| kb(low))),
            Cell::of(interval.map(|(_, high)| kb(high))),
            Cell::of(less.map(|less| less.value * 100.0)),
            Cell::of(apart.map(|(low, _)| low * 100.0)),
            Cell::of(apart.map(|(_, high)| high * 100.0)),
            Cell::of(theirs),
            Cell::Number(line.sample.count() as f64),
        ]);
        let title = format!("{} send buffers", line.buffer);
        if groups.last().is_none_or(|group| group.title != title) {
            groups.push(Group { title, dots: Vec::new() });
        }
        if let (Some(group), Some(mean)) = (groups.last_mut(), line.sample.mean()) {
            group.dots.push(Dot {
                label: scheme::label(&line.scheme),
                colour: scheme::colour(&line.scheme),
                value: kb(mean),
                interval: interval.map(|(low, high)| (kb(low), kb(high))),
                p95: None,
                paper: theirs,
            });
        }
    }
    finding.draw("kB", groups, None, Spread::Logarithmic);
}
