//! Figure 11 and Table 2: data that arrives after a cancel.

use smig_chart::bytes;

use super::finding::{Cell, Chart, Dot, Finding, Group, Spread, numbers, words};
use super::measure::{Sample, names_on, tail_bytes, with};
use super::scheme;
use crate::campaign::TrialResult;

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
        let of = |scheme: &str| tail_bytes(&with(&mine, &[("scheme", scheme)]));
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

/// Figure 11.
pub(super) fn figure_11(results: &[&TrialResult], finding: &mut Finding) {
    let lines = lines(results);
    for key in ["large", "default"] {
        let less = |scheme| {
            let line = find(&lines, key, scheme)?;
            line.sample.less_than(&line.unmoved)
        };
        let ours = less("SMig").map_or_else(String::new, |less| {
            format!("; `smig serve`: {:.0} % less", less.value * 100.0)
        });
        finding.hold(key, less("MigSW"), &format!("MigSW{ours}"));
    }
    every_buffer(&lines, finding);
    why(&lines, finding);
    fill(&lines, &[], finding);
}

/// Table 2. It does not name its send buffers; the larger of our values is compared with it.
pub(super) fn table_2(results: &[&TrialResult], finding: &mut Finding) {
    let lines = lines(results);
    for (key, scheme) in [("http1", "Http1"), ("http2", "NoMig"), ("closed", "Closed")] {
        let most = BUFFERS
            .iter()
            .filter_map(|buffer| Some((find(&lines, buffer, scheme)?.sample.ours()?, *buffer)))
            .max_by(|(a, _), (b, _)| a.value.total_cmp(&b.value));
        let named = most.map(|(_, buffer)| format!("{buffer} send buffers"));
        finding.hold(key, most.map(|(ours, _)| ours), &named.unwrap_or_default());
    }
    every_buffer(&lines, finding);
    if finding.falls_short("http2") {
        let of = |buffer| {
            let mean = find(&lines, buffer, "NoMig").and_then(|line| line.sample.mean());
            mean.map_or_else(|| "no measurement".to_owned(), |mean| bytes(mean as u64))
        };
        finding.say(format!(
            "The paper does not give the send buffers of this table. To its 2.5 MB correspond {} \
             here with default send buffers and {} with large ones.",
            of("default"),
            of("large")
        ));
    }
    why(&lines, finding);
    fill(&lines, &[("Http1", 150e3), ("NoMig", 2.5e6), ("Closed", 150e3)], finding);
}

fn every_buffer(lines: &[Line], finding: &mut Finding) {
    for buffer in BUFFERS {
        let known: Vec<_> = lines
            .iter()
            .filter(|line| line.buffer == buffer)
            .filter_map(|line| {
                let mean = line.sample.mean()?;
                Some(format!("{} {}", scheme::label(&line.scheme), bytes(mean as u64)))
            })
            .collect();
        if !known.is_empty() {
            finding.say(format!("With {buffer} send buffers: {}.", known.join(", ")));
        }
    }
    let failed: usize = lines.iter().map(|line| line.sample.failed).sum();
    if failed > 0 {
        finding
            .warnings
            .push(format!("{failed} downloads were not cancelled and are not counted."));
    }
}

/// Reports what arrives after a migrated stream is cancelled, and the presumed cause.
fn why(lines: &[Line], finding: &mut Finding) {
    let unmet = ["large", "default", "http2"].iter().any(|key| finding.falls_short(key));
    let moved = find(lines, "default", "MigSW").and_then(|line| line.sample.mean());
    let (Some(moved), true) = (moved, unmet) else { return };
    let ours = find(lines, "default", "SMig").and_then(|line| line.sample.mean());
    let ours =
        ours.map_or_else(String::new, |ours| format!(" With `smig serve` {}.", bytes(ours as u64)));
    finding.say(format!(
        "With MigSW and default send buffers {} still arrive.{ours}",
        bytes(moved as u64)
    ));
    finding.read(
        "a cancel stops only what has not left the server: what is in flight and in the link's \
         queue, which congestion control fills, still arrives. The share that a migration saves \
         then depends on the queue, and on how much plain HTTP/2 puts into the send buffer, more \
         than on the scheme.",
    );
}

fn fill(lines: &[Line], paper: &[(&str, f64)], finding: &mut Finding) {
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
        let theirs = paper.iter().find(|(key, _)| *key == line.scheme).map(|(_, bytes)| kb(*bytes));
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
    finding.charts.push(Chart {
        name: finding.name.to_owned(),
        title: "Bytes received after the cancel: kB".into(),
        caption: "Means with 95 % intervals, headers included. Diamond: the paper's. The scale is \
            logarithmic."
            .into(),
        unit: "kB",
        groups,
        reference: None,
        spread: Spread::Logarithmic,
    });
}
