//! Figure 10: the download time of the big file.

use super::claim::Expected;
use super::data_table::{Cell, numbers, words};
use super::facts::{FactNames, Facts};
use super::finding::{Dot, Finding, Group, Spread};
use super::measure::{Sample, names_on, seconds, spaced, with};
use super::scheme;
use crate::campaign::TrialResult;

const FILES: [&str; 2] = ["10MB", "50MB"];
const BUFFERS: [&str; 2] = ["default", "large"];

struct Line {
    buffer: String,
    file: String,
    scheme: String,
    sample: Sample,
    unmoved: Sample,
}

fn lines(results: &[&TrialResult]) -> Vec<Line> {
    let mut lines = Vec::new();
    for buffer in names_on(results, "buffer", &BUFFERS) {
        for file in names_on(results, "big", &FILES) {
            let mine = with(results, &[("buffer", &buffer), ("big", &file)]);
            let of = |scheme: &str| seconds(&with(&mine, &[("scheme", scheme)]), "big");
            for scheme in names_on(&mine, "scheme", &scheme::order()) {
                lines.push(Line {
                    buffer: buffer.clone(),
                    file: file.clone(),
                    sample: of(&scheme),
                    unmoved: of("NoMig"),
                    scheme,
                });
            }
        }
    }
    lines
}

/// The values of [`big_file`].
pub(super) const BIG_FILE: FactNames = &[("", &["failed"]), ("file", &["file", "times"])];

/// Figure 10.
pub(super) fn big_file(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let lines = lines(results);
    for file in names_on(results, "big", &FILES) {
        let known: Vec<_> = lines
            .iter()
            .filter(|line| line.file == file && line.buffer == "default")
            .filter_map(|line| {
                let mean = line.sample.mean()?;
                Some(format!("{} {mean:.2} s", scheme::label(&line.scheme)))
            })
            .collect();
        let times = Some(known.join(", ")).filter(|times| !times.is_empty());
        facts.push("file", [("file", Some(spaced(&file))), ("times", times)]);
    }
    facts.set_failed(lines.iter().map(|line| line.sample.failed).sum());
    fill(&lines, finding);
}

fn fill(lines: &[Line], finding: &mut Finding) {
    finding.table.columns = vec![
        words("buffer", "send buffers"),
        words("file", "file"),
        words("scheme", "scheme"),
        numbers("mean_s", "mean, s", 2),
        numbers("low_s", "95 % from", 2),
        numbers("high_s", "to", 2),
        numbers("more_percent", "longer, %", 1),
        numbers("more_low_percent", "95 % from", 1),
        numbers("more_high_percent", "to", 1),
        numbers("runs", "runs", 0),
    ];
    let mut groups: Vec<Group> = Vec::new();
    for line in lines {
        let interval = line.sample.interval();
        let more = line.sample.more_than(&line.unmoved);
        let more = more.filter(|_| line.scheme != "NoMig");
        let apart = more.and_then(|more| more.interval);
        finding.table.rows.push(vec![
            Cell::text(&line.buffer),
            Cell::text(spaced(&line.file)),
            Cell::text(scheme::label(&line.scheme)),
            Cell::of(line.sample.mean()),
            Cell::of(interval.map(|(low, _)| low)),
            Cell::of(interval.map(|(_, high)| high)),
            Cell::of(more.map(|more| more.value * 100.0)),
            Cell::of(apart.map(|(low, _)| low * 100.0)),
            Cell::of(apart.map(|(_, high)| high * 100.0)),
            Cell::Number(line.sample.count() as f64),
        ]);
        let title = format!("{}, {} send buffers", spaced(&line.file), line.buffer);
        if groups.last().is_none_or(|group| group.title != title) {
            groups.push(Group { title, dots: Vec::new() });
        }
        if let (Some(group), Some(mean), Some(unmoved)) =
            (groups.last_mut(), line.sample.mean(), line.unmoved.mean())
        {
            let share = |seconds: f64| seconds / unmoved * 100.0;
            group.dots.push(Dot {
                label: scheme::label(&line.scheme),
                colour: scheme::colour(&line.scheme),
                value: share(mean),
                interval: interval.map(|(low, high)| (share(low), share(high))),
                p95: None,
                paper: None,
            });
        }
    }
    let bound = match finding.expected("existing") {
        Some(Expected::MoreByLessThan(share)) => Some(100.0 + share * 100.0),
        _ => None,
    };
    finding.draw("%", groups, bound, Spread::Even);
}
