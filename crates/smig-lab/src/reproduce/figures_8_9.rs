//! Figures 8 and 9: the effects of the small object's size and of the big file's size.

use super::claim::seconds as shown;
use super::finding::{Cell, Chart, Dot, Finding, Group, Spread, numbers, words};
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

/// Figure 8.
pub(super) fn by_small_size(results: &[&TrialResult], finding: &mut Finding) {
    let pairs = pairs(results, "size", &SMALL);
    let on = |link: &str| pairs.iter().filter(move |pair| pair.link == link).collect::<Vec<_>>();
    let wired = on("wired");
    let least = wired.iter().find(|pair| pair.size == "1kB");
    finding.hold("least", least.and_then(|pair| pair.moved.less_than(&pair.unmoved)), "1 KB");
    hold_trend(&wired, finding);
    let best = on("lte")
        .into_iter()
        .filter_map(|pair| Some((pair.moved.less_than(&pair.unmoved)?, spaced(&pair.size))))
        .max_by(|(a, _), (b, _)| a.value.total_cmp(&b.value));
    let named = best.as_ref().map(|(_, size)| size.clone()).unwrap_or_default();
    finding.hold("lte", best.map(|(ours, _)| ours), &named);
    if let Some((unmoved, moved)) =
        least.and_then(|pair| Some((pair.unmoved.mean()?, pair.moved.mean()?)))
    {
        finding.say(format!(
            "A 1 KB object beside the big file takes {} over plain HTTP/2 and {} with MigSW.",
            shown(unmoved),
            shown(moved)
        ));
        finding.read("a round trip and the link's queue remain, which migration does not remove.");
    }
    if finding.falls_short("lte") {
        finding.read(
            "99 % less over LTE requires plain HTTP/2 to be a hundred times slower than MigSW: \
             some six seconds or more. The paper's commercial network cannot be reproduced; ours \
             is generated, and its queued data drains sooner.",
        );
    }
    table(&pairs, "size", "object", finding);
    ratio_chart(&pairs, finding);
}

/// Compares the trend from the smallest to the largest size with the claim.
fn hold_trend(wired: &[&Pair], finding: &mut Finding) {
    let share = |pair: &Pair| Some(1.0 - pair.moved.less_than(&pair.unmoved)?.value);
    let ends = wired.first().zip(wired.last()).filter(|(first, last)| first.size != last.size);
    let ours = ends.and_then(|(first, last)| {
        // The remaining share of the largest object's time relative to that of the smallest.
        let (small, large) = (share(first)?, share(last)?);
        let interval = |pair: &Pair| {
            let (low, high) = pair.moved.less_than(&pair.unmoved)?.interval?;
            Some((1.0 - high, 1.0 - low))
        };
        let apart = interval(first)
            .zip(interval(last))
            .map(|((low, high), (from, to))| (from / high - 1.0, to / low - 1.0));
        Some(super::claim::Measured { value: large / small - 1.0, interval: apart })
    });
    let named = ends.map(|(first, last)| {
        format!(
            "of its time remains for an object of {} than for one of {}",
            spaced(&last.size),
            spaced(&first.size)
        )
    });
    finding.hold("trend", ours, &named.unwrap_or_default());
}

/// Figure 9.
pub(super) fn by_big_size(results: &[&TrialResult], finding: &mut Finding) {
    let pairs = pairs(results, "big", &BIG);
    let find =
        |link: &str, size: &str| pairs.iter().find(|pair| pair.link == link && pair.size == size);
    let one = find("wired", "1MB");
    finding.hold("1MB", one.and_then(|pair| pair.moved.less_than(&pair.unmoved)), "");
    let beside = find("lte", "10MB").map(|pair| &pair.unmoved);
    let longest = beside.and_then(Sample::most);
    match (longest, beside.and_then(Sample::mean)) {
        // A maximum grows with the number of objects, so it is shown without a verdict.
        (Some(most), Some(mean)) => {
            let words = format!("maximum {}, mean {}", shown(most), shown(mean));
            finding.beside("lte", &words, Some(most));
        }
        _ => finding.unmeasured("lte", "no runs"),
    }
    if let Some((unmoved, moved)) =
        one.and_then(|pair| Some((pair.unmoved.mean()?, pair.moved.mean()?)))
    {
        finding.say(format!(
            "A small object requested 50 ms after a file of 1 MB takes {} over plain HTTP/2 and {} \
             with MigSW.",
            shown(unmoved),
            shown(moved)
        ));
        finding.read("the file fits into the send buffer, and the small object waits for it.");
    }
    if let Some(longest) = longest {
        let mine = with(results, &[("link", "lte"), ("big", "10MB"), ("scheme", "NoMig")]);
        let whole = seconds(&mine, "big")
            .mean()
            .map_or(String::new(), |mean| format!(": the 10 MB arrive within {}", shown(mean)));
        finding.say(format!(
            "Over our LTE-like link the longest wait beside 10 MB is {}{whole}. The rate of the \
             paper's network is not given.",
            shown(longest)
        ));
    }
    table(&pairs, "big", "file", finding);
    time_chart(&pairs, finding);
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
        let failed = pair.unmoved.failed + pair.moved.failed;
        if failed > 0 {
            finding.warnings.push(format!(
                "{failed} objects ({}, {}) did not complete and are not counted.",
                link_words(&pair.link),
                pair.size
            ));
        }
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
    let dots = |pair: &Pair| {
        let Some(less) = pair.moved.less_than(&pair.unmoved) else { return Vec::new() };
        let left = |share: f64| (1.0 - share) * 100.0;
        let paper = (pair.size == "1kB").then_some(if pair.link == "wired" { 5.0 } else { 1.0 });
        vec![Dot {
            label: spaced(&pair.size),
            colour: scheme::colour("MigSW"),
            value: left(less.value),
            interval: less.interval.map(|(low, high)| (left(high), left(low))),
            p95: None,
            paper,
        }]
    };
    finding.charts.push(Chart {
        name: finding.name.to_owned(),
        title: "Time with MigSW, relative to plain HTTP/2: %".into(),
        caption:
            "By the small object's size, with 95 % intervals. Diamond: the paper's, where its text \
            gives a number (over LTE: up to 99 % less, for any size)."
                .into(),
        unit: "%",
        groups: groups(pairs, dots),
        reference: None,
        spread: Spread::Even,
    });
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
    finding.charts.push(Chart {
        name: finding.name.to_owned(),
        title: "Time of a 10 kB object, by the size of the file beside it: ms".into(),
        caption:
            "Filled: the mean with its 95 % interval. Ring: the 95th percentile. The scale is \
            logarithmic."
                .into(),
        unit: "ms",
        groups: groups(pairs, dots),
        reference: None,
        spread: Spread::Logarithmic,
    });
}
