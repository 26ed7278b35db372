//! Figures 8 and 9: the effects of the small object's size and of the big file's size.

use super::claim::{Expected, seconds as shown};
use super::data_table::{Cell, numbers, words};
use super::facts::{FactNames, Facts};
use super::finding::{Dot, Finding, Group, Spread};
use super::measure::{Sample, names_on, seconds, spaced, with};
use super::scheme;
use crate::campaign::TrialResult;

const LINKS: [&str; 2] = ["wired", "lte"];
const SMALL: [&str; 7] = ["1kB", "2kB", "5kB", "10kB", "20kB", "50kB", "100kB"];
const BIG: [&str; 5] = ["1MB", "5MB", "10MB", "25MB", "50MB"];

/// Plain HTTP/2 and MigSW at one size.
struct Pair {
    link: String,
    size: String,
    unmoved: Sample,
    moved: Sample,
}

fn pairs(results: &[&TrialResult], axis: &str, order: &[&str]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for link in names_on(results, "link", &LINKS) {
        let there = with(results, &[("link", &link)]);
        for size in names_on(&there, axis, order) {
            let of = |scheme| seconds(&with(&there, &[(axis, &size), ("scheme", scheme)]), "small");
            let (unmoved, moved) = (of("NoMig"), of("MigSW"));
            pairs.push(Pair { link: link.clone(), size, unmoved, moved });
        }
    }
    pairs
}

fn link_words(link: &str) -> &'static str {
    if link == "wired" { "wired, 10 Mbit/s" } else { "like LTE" }
}

/// The values of [`by_small_size`].
pub(super) const BY_SMALL_SIZE: FactNames =
    &[("", &["plain", "migrated"]), ("failed", &["failed", "link", "size"])];

/// The values of [`by_big_size`].
pub(super) const BY_BIG_SIZE: FactNames =
    &[("", &["plain", "migrated", "longest", "whole"]), ("failed", &["failed", "link", "size"])];

/// Figure 8.
pub(super) fn by_small_size(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let pairs = pairs(results, "size", &SMALL);
    means(find(&pairs, "wired", "1kB"), facts);
    failed(&pairs, facts);
    table(&pairs, "size", "object", finding);
    ratio_chart(&pairs, finding);
}

/// Figure 9.
pub(super) fn by_big_size(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let pairs = pairs(results, "big", &BIG);
    means(find(&pairs, "wired", "1MB"), facts);
    let longest = find(&pairs, "lte", "10MB").and_then(|pair| pair.unmoved.most());
    facts.set("longest", longest.map(shown));
    let mine = with(results, &[("link", "lte"), ("big", "10MB"), ("scheme", "NoMig")]);
    facts.set("whole", seconds(&mine, "big").mean().map(shown));
    failed(&pairs, facts);
    table(&pairs, "big", "file", finding);
    time_chart(&pairs, finding);
}

fn find<'a>(pairs: &'a [Pair], link: &str, size: &str) -> Option<&'a Pair> {
    pairs.iter().find(|pair| pair.link == link && pair.size == size)
}

fn means(pair: Option<&Pair>, facts: &mut Facts) {
    let means = pair.and_then(|pair| pair.unmoved.mean().zip(pair.moved.mean()));
    facts.set("plain", means.map(|(plain, _)| shown(plain)));
    facts.set("migrated", means.map(|(_, migrated)| shown(migrated)));
}

fn failed(pairs: &[Pair], facts: &mut Facts) {
    for pair in pairs {
        let failed = pair.unmoved.failed + pair.moved.failed;
        if failed > 0 {
            facts.push(
                "failed",
                [
                    ("failed", Some(failed.to_string())),
                    ("link", Some(link_words(&pair.link).to_owned())),
                    ("size", Some(pair.size.clone())),
                ],
            );
        }
    }
}

fn table(pairs: &[Pair], axis: &'static str, heading: &'static str, finding: &mut Finding) {
    finding.table.columns = vec![
        words("link", "link"),
        words(axis, heading),
        numbers("nomig_ms", "NoMig, ms", 0),
        numbers("nomig_p95_ms", "p95", 0),
        numbers("migsw_ms", "MigSW, ms", 0),
        numbers("migsw_p95_ms", "p95", 0),
        numbers("less_percent", "less, %", 1),
        numbers("low_percent", "95 % from", 1),
        numbers("high_percent", "to", 1),
        numbers("objects", "objects", 0),
    ];
    let ms = |value: Option<f64>| Cell::of(value.map(|seconds| seconds * 1e3));
    let percent = |value: Option<f64>| Cell::of(value.map(|share| share * 100.0));
    for pair in pairs {
        let less = pair.moved.less_than(&pair.unmoved);
        let interval = less.and_then(|less| less.interval);
        finding.table.rows.push(vec![
            Cell::text(link_words(&pair.link)),
            Cell::text(spaced(&pair.size)),
            ms(pair.unmoved.mean()),
            ms(pair.unmoved.p95()),
            ms(pair.moved.mean()),
            ms(pair.moved.p95()),
            percent(less.map(|less| less.value)),
            percent(interval.map(|(low, _)| low)),
            percent(interval.map(|(_, high)| high)),
            Cell::Number((pair.unmoved.count() + pair.moved.count()) as f64),
        ]);
    }
}

fn groups(pairs: &[Pair], dots: impl Fn(&Pair) -> Vec<Dot>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for pair in pairs {
        let title = link_words(&pair.link);
        if groups.last().is_none_or(|group| group.title != title) {
            groups.push(Group { title: title.to_owned(), dots: Vec::new() });
        }
        if let Some(group) = groups.last_mut() {
            group.dots.extend(dots(pair));
        }
    }
    groups
}

fn ratio_chart(pairs: &[Pair], finding: &mut Finding) {
    // The claim on LTE is for any size.
    let stated = |link: &str| match finding.expected(if link == "wired" { "least" } else { "lte" })
    {
        Some(Expected::LessBy(share)) => Some(100.0 - share * 100.0),
        _ => None,
    };
    let dots = |pair: &Pair| {
        let Some(less) = pair.moved.less_than(&pair.unmoved) else { return Vec::new() };
        let left = |share: f64| (1.0 - share) * 100.0;
        vec![Dot {
            label: spaced(&pair.size),
            colour: scheme::colour("MigSW"),
            value: left(less.value),
            interval: less.interval.map(|(low, high)| (left(high), left(low))),
            p95: None,
            paper: (pair.size == "1kB").then(|| stated(&pair.link)).flatten(),
        }]
    };
    let groups = groups(pairs, dots);
    finding.draw("%", groups, None, Spread::Even);
}

fn time_chart(pairs: &[Pair], finding: &mut Finding) {
    let dots = |pair: &Pair| {
        let dot = |key: &str, sample: &Sample| {
            Some(Dot {
                label: format!("{}, {}", spaced(&pair.size), scheme::label(key)),
                colour: scheme::colour(key),
                value: sample.mean()? * 1e3,
                interval: sample.interval().map(|(low, high)| (low * 1e3, high * 1e3)),
                p95: sample.p95().map(|p95| p95 * 1e3),
                paper: None,
            })
        };
        [dot("NoMig", &pair.unmoved), dot("MigSW", &pair.moved)].into_iter().flatten().collect()
    };
    let groups = groups(pairs, dots);
    finding.draw("ms", groups, None, Spread::Logarithmic);
}
