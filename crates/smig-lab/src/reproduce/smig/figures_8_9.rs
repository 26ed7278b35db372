//! Figures 8 and 9: the effects of the small object's size and of the big file's size.

use super::super::claim::{Expected, format_seconds};
use super::super::data_table::{DataCell, number_column, text_column};
use super::super::facts::{FactNames, Facts};
use super::super::finding::{AxisScale, Dot, DotGroup, Finding};
use super::super::measure::{Sample, filter_runs, levels_of, spaced_size, transfer_times};
use super::scheme;
use crate::campaign::TrialResult;

const LINKS: [&str; 2] = ["wired", "lte"];
const SMALL_SIZES: [&str; 7] = ["1kB", "2kB", "5kB", "10kB", "20kB", "50kB", "100kB"];
const BIG_SIZES: [&str; 5] = ["1MB", "5MB", "10MB", "25MB", "50MB"];

/// Plain HTTP/2 (NoMig) and MigSW on one link at one size.
struct SchemePair {
    link: String,
    size: String,
    nomig: Sample,
    migsw: Sample,
}

fn pairs(results: &[&TrialResult], axis: &str, order: &[&str]) -> Vec<SchemePair> {
    let mut pairs = Vec::new();
    for link in levels_of(results, "link", &LINKS) {
        let link_runs = filter_runs(results, &[("link", &link)]);
        for size in levels_of(&link_runs, axis, order) {
            let times_of = |scheme| {
                transfer_times(
                    &filter_runs(&link_runs, &[(axis, &size), ("scheme", scheme)]),
                    "small",
                )
            };
            let (nomig, migsw) = (times_of("NoMig"), times_of("MigSW"));
            pairs.push(SchemePair { link: link.clone(), size, nomig, migsw });
        }
    }
    pairs
}

fn link_text(link: &str) -> &'static str {
    if link == "wired" { "wired, 10 Mbit/s" } else { "like LTE" }
}

/// The values of [`fill_by_small_size`].
pub(super) const BY_SMALL_SIZE_FACTS: FactNames =
    &[("", &["plain", "migrated"]), ("failed", &["failed", "link", "size"])];

/// The values of [`fill_by_big_size`].
pub(super) const BY_BIG_SIZE_FACTS: FactNames =
    &[("", &["plain", "migrated", "longest", "whole"]), ("failed", &["failed", "link", "size"])];

/// Fills in finding and facts of Figure 8.
pub(super) fn fill_by_small_size(
    results: &[&TrialResult],
    finding: &mut Finding,
    facts: &mut Facts,
) {
    let pairs = pairs(results, "size", &SMALL_SIZES);
    set_means(find(&pairs, "wired", "1kB"), facts);
    add_failures(&pairs, facts);
    fill_table(&pairs, "size", "object", finding);
    add_ratio_chart(&pairs, finding);
}

/// Fills in finding and facts of Figure 9.
pub(super) fn fill_by_big_size(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let pairs = pairs(results, "big", &BIG_SIZES);
    set_means(find(&pairs, "wired", "1MB"), facts);
    let longest = find(&pairs, "lte", "10MB").and_then(|pair| pair.nomig.max());
    facts.set("longest", longest.map(format_seconds));
    let nomig_runs = filter_runs(results, &[("link", "lte"), ("big", "10MB"), ("scheme", "NoMig")]);
    facts.set("whole", transfer_times(&nomig_runs, "big").mean().map(format_seconds));
    add_failures(&pairs, facts);
    fill_table(&pairs, "big", "file", finding);
    add_time_chart(&pairs, finding);
}

fn find<'a>(pairs: &'a [SchemePair], link: &str, size: &str) -> Option<&'a SchemePair> {
    pairs.iter().find(|pair| pair.link == link && pair.size == size)
}

fn set_means(pair: Option<&SchemePair>, facts: &mut Facts) {
    let means = pair.and_then(|pair| pair.nomig.mean().zip(pair.migsw.mean()));
    facts.set("plain", means.map(|(plain, _)| format_seconds(plain)));
    facts.set("migrated", means.map(|(_, migrated)| format_seconds(migrated)));
}

fn add_failures(pairs: &[SchemePair], facts: &mut Facts) {
    for pair in pairs {
        let failed = pair.nomig.failed_count + pair.migsw.failed_count;
        if failed > 0 {
            facts.push(
                "failed",
                [
                    ("failed", Some(failed.to_string())),
                    ("link", Some(link_text(&pair.link).to_owned())),
                    ("size", Some(pair.size.clone())),
                ],
            );
        }
    }
}

fn fill_table(
    pairs: &[SchemePair],
    axis: &'static str,
    heading: &'static str,
    finding: &mut Finding,
) {
    finding.table.columns = vec![
        text_column("link", "link"),
        text_column(axis, heading),
        number_column("nomig_ms", "NoMig, ms", 0),
        number_column("nomig_p95_ms", "p95", 0),
        number_column("migsw_ms", "MigSW, ms", 0),
        number_column("migsw_p95_ms", "p95", 0),
        number_column("less_percent", "less, %", 1),
        number_column("low_percent", "95 % from", 1),
        number_column("high_percent", "to", 1),
        number_column("objects", "objects", 0),
    ];
    let ms = |value: Option<f64>| DataCell::of(value.map(|seconds| seconds * 1e3));
    let percent = |value: Option<f64>| DataCell::of(value.map(|share| share * 100.0));
    for pair in pairs {
        let reduction = pair.migsw.reduction_from(&pair.nomig);
        let interval = reduction.and_then(|less| less.interval);
        finding.table.rows.push(vec![
            DataCell::text(link_text(&pair.link)),
            DataCell::text(spaced_size(&pair.size)),
            ms(pair.nomig.mean()),
            ms(pair.nomig.p95()),
            ms(pair.migsw.mean()),
            ms(pair.migsw.p95()),
            percent(reduction.map(|less| less.value)),
            percent(interval.map(|(low, _)| low)),
            percent(interval.map(|(_, high)| high)),
            DataCell::Number((pair.nomig.value_count() + pair.migsw.value_count()) as f64),
        ]);
    }
}

fn groups(pairs: &[SchemePair], dots: impl Fn(&SchemePair) -> Vec<Dot>) -> Vec<DotGroup> {
    let mut groups: Vec<DotGroup> = Vec::new();
    for pair in pairs {
        let title = link_text(&pair.link);
        if groups.last().is_none_or(|group| group.title != title) {
            groups.push(DotGroup { title: title.to_owned(), dots: Vec::new() });
        }
        if let Some(group) = groups.last_mut() {
            group.dots.extend(dots(pair));
        }
    }
    groups
}

fn add_ratio_chart(pairs: &[SchemePair], finding: &mut Finding) {
    // The claim on LTE is for any size.
    let paper_percent =
        |link: &str| match finding.expected(if link == "wired" { "least" } else { "lte" }) {
            Some(Expected::LessBy(share)) => Some(100.0 - share * 100.0),
            _ => None,
        };
    let dots = |pair: &SchemePair| {
        let Some(reduction) = pair.migsw.reduction_from(&pair.nomig) else { return Vec::new() };
        let remaining_percent = |share: f64| (1.0 - share) * 100.0;
        vec![Dot {
            label: spaced_size(&pair.size),
            colour: scheme::colour("MigSW"),
            value: remaining_percent(reduction.value),
            interval: reduction
                .interval
                .map(|(low, high)| (remaining_percent(high), remaining_percent(low))),
            p95: None,
            paper_value: (pair.size == "1kB").then(|| paper_percent(&pair.link)).flatten(),
        }]
    };
    let groups = groups(pairs, dots);
    finding.add_chart("%", groups, None, AxisScale::Linear);
}

fn add_time_chart(pairs: &[SchemePair], finding: &mut Finding) {
    let dots = |pair: &SchemePair| {
        let dot = |key: &str, sample: &Sample| {
            Some(Dot {
                label: format!("{}, {}", spaced_size(&pair.size), scheme::label(key)),
                colour: scheme::colour(key),
                value: sample.mean()? * 1e3,
                interval: sample.interval().map(|(low, high)| (low * 1e3, high * 1e3)),
                p95: sample.p95().map(|p95| p95 * 1e3),
                paper_value: None,
            })
        };
        [dot("NoMig", &pair.nomig), dot("MigSW", &pair.migsw)].into_iter().flatten().collect()
    };
    let groups = groups(pairs, dots);
    finding.add_chart("ms", groups, None, AxisScale::Log);
}
