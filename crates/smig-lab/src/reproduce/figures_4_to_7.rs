//! The slide table and Figures 4 to 7: a small object while a big file downloads.

use super::claim::{Expected, Measured, seconds as shown};
use super::data_table::{Cell, Column, numbers, words};
use super::facts::{FactNames, Facts};
use super::finding::{Dot, Finding, Group, Spread};
use super::measure::{Sample, names_on, seconds, with};
use super::scheme::{self, MOVING};
use crate::campaign::TrialResult;
use smig_chart::{bytes, number};
use smig_link::LinkSpec;

/// One scheme in one setting.
struct Line {
    scheme: String,
    small: Sample,
    big: Sample,
    /// Small objects before the big file, in the same runs.
    alone: Sample,
    /// Rate of the big file, in Mbit/s.
    rate: Option<f64>,
}

/// All schemes on one network or with one buffer.
struct Setting {
    title: String,
    lines: Vec<Line>,
    link: LinkSpec,
}

const CONGESTION: [&str; 2] = ["cubic", "bbr"];
const QUEUES: [&str; 3] = ["shallow", "deep", "fair"];
const BUFFERS: [&str; 2] = ["default", "large"];

/// The values of [`beside_big`].
pub(super) const BESIDE_BIG: FactNames = &[
    (
        "",
        &[
            "plain",
            "migrated",
            "alone",
            "alternatives",
            "serve",
            "serve_rate",
            "worst",
            "worst_setting",
            "worst_interval",
            "slowest_run",
            "big_change",
            "big_setting",
            "big_interval",
            "waiting",
            "best",
            "best_time",
            "failed",
        ],
    ),
    ("setting", &["setting", "times"]),
];

/// The values of [`slide_table`].
pub(super) const SLIDE_TABLE: FactNames = &[("", &["times_alone", "waiting", "failed"])];

/// Figures 4 to 7.
pub(super) fn beside_big(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let alone = seconds(results, "alone");
    let mut settings = Vec::new();
    let mut queues = names_on(results, "queue", &QUEUES);
    if queues.is_empty() {
        queues.push(String::new());
    }
    for congestion in names_on(results, "congestion", &CONGESTION) {
        for queue in &queues {
            let mine = with(results, &[("congestion", &congestion), ("queue", queue)]);
            let title = match queue.as_str() {
                "shallow" => format!("{congestion}, queue of 75 packets"),
                "deep" => format!("{congestion}, queue of 1000 packets"),
                "fair" => format!("{congestion}, fair queue"),
                _ => congestion.clone(),
            };
            settings.extend(setting(&mine, title));
        }
    }
    if let Some(first) = settings.first() {
        papers_setting(first, &alone, facts);
    }
    worst_of_ours(&settings, &alone, facts);
    for setting in settings.iter().skip(1) {
        let times = times(setting, &["NoMig", "Lowat", "MigSW", "SMig"]);
        facts.push("setting", [("setting", Some(setting.title.clone())), ("times", times)]);
    }
    facts.set_failed(failed(&settings));
    fill(&settings, &alone, finding);
}

fn setting(results: &[&TrialResult], title: String) -> Option<Setting> {
    let link = results.first()?.scenario.link.clone();
    let line = |scheme: String| {
        let mine = with(results, &[("scheme", &scheme)]);
        let (small, big) = (seconds(&mine, "small"), seconds(&mine, "big"));
        let size = mine.first().and_then(|result| result.scenario.workload.transfers.get("big"));
        let size = size.map_or(0, |big| big.size_of(0)) as f64;
        let rate = big.mean().map(|mean| size * 8e-6 / mean);
        Line { scheme, small, big, alone: seconds(&mine, "alone"), rate }
    };
    let lines = names_on(results, "scheme", &scheme::order()).into_iter().map(line).collect();
    Some(Setting { title, lines, link })
}

impl Setting {
    fn line(&self, scheme: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.scheme == scheme && line.small.count() > 0)
    }

    fn mean(&self, scheme: &str) -> Option<f64> {
        self.line(scheme)?.small.mean()
    }

    /// Returns the paper's migration schemes, the fastest first.
    fn moving(&self) -> Vec<(&Line, f64)> {
        let mut moving: Vec<_> = MOVING
            .iter()
            .filter_map(|scheme| self.line(scheme))
            .filter_map(|line| Some((line, line.small.mean()?)))
            .collect();
        moving.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        moving
    }
}

/// Returns the times of some schemes in words; `None` if none is measured.
fn times(setting: &Setting, schemes: &[&str]) -> Option<String> {
    let time = |key: &&str| Some(format!("{} {}", scheme::label(key), shown(setting.mean(key)?)));
    let known: Vec<_> = schemes.iter().filter_map(time).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The setting that the paper has.
fn papers_setting(setting: &Setting, alone: &Sample, facts: &mut Facts) {
    let plain = setting.mean("NoMig");
    facts.set("plain", plain.map(shown));
    facts.set("alone", alone.mean().map(shown));
    let waiting = plain.map(|mean| bytes((mean * rate(&setting.link) / 8.0) as u64));
    facts.set("waiting", waiting);
    let moving = setting.moving();
    let words = |(line, mean): &(&Line, f64)| format!("{} {}", line.scheme, shown(*mean));
    let migrated = moving.iter().map(words).collect::<Vec<_>>().join(", ");
    facts.set("migrated", Some(migrated).filter(|words| !words.is_empty()));
    facts.set("best", moving.first().map(|(line, _)| line.scheme.clone()));
    facts.set("best_time", moving.first().map(|(_, mean)| shown(*mean)));
    facts.set("alternatives", times(setting, &ALTERNATIVES));
    facts.set("serve", setting.mean("SMig").map(shown));
    facts.set("serve_rate", setting.line("SMig").and_then(|line| line.rate).map(number));
}

fn rate(link: &LinkSpec) -> f64 {
    link.to_client.rate.as_bits_per_second() as f64
}

/// Schemes that the paper did not compare with.
const ALTERNATIVES: [&str; 8] =
    ["Lowat", "LowatPriorities", "OnePaced", "Http1", "Pool", "PoolPaced", "h2o", "h2oTuned"];

/// The worst case of `smig serve`, and its cost for the big file.
fn worst_of_ours(settings: &[Setting], alone: &Sample, facts: &mut Facts) {
    let largest = |of: &dyn Fn(&Setting) -> Option<Measured>| {
        let found = settings.iter().filter_map(|setting| Some((of(setting)?, &setting.title)));
        found.max_by(|(a, _), (b, _)| a.value.total_cmp(&b.value))
    };
    let slowest = largest(&|setting| setting.line("SMig")?.small.times(alone));
    facts.set("worst", slowest.map(|(worst, _)| number(worst.value)));
    facts.set("worst_setting", slowest.map(|(_, setting)| setting.clone()));
    facts.set("worst_interval", slowest.map(|(worst, _)| interval_words(worst, 1.0)));
    let ours = settings.iter().filter_map(|setting| setting.line("SMig"));
    let run = ours.filter_map(|line| line.small.slowest_run(&line.alone)).reduce(f64::max);
    facts.set("slowest_run", run.map(number));
    let longest =
        largest(&|setting| setting.line("SMig")?.big.more_than(&setting.line("NoMig")?.big));
    let change = |longer: Measured| {
        let word = if longer.value < 0.0 { "less" } else { "longer" };
        format!("{:.1} % {word}", (longer.value * 100.0).abs())
    };
    facts.set("big_change", longest.map(|(longer, _)| change(longer)));
    facts.set("big_setting", longest.map(|(_, setting)| setting.clone()));
    facts.set("big_interval", longest.map(|(longer, _)| interval_words(longer, 100.0)));
}

fn interval_words(ours: Measured, by: f64) -> String {
    ours.interval.map_or_else(
        || ", too few runs for an interval".to_owned(),
        |(low, high)| format!(", 95 % {} to {}", number(low * by), number(high * by)),
    )
}

/// Returns the number of objects that did not complete.
fn failed(settings: &[Setting]) -> usize {
    let lines = settings.iter().flat_map(|setting| &setting.lines);
    lines.map(|line| line.small.failed + line.big.failed).sum()
}

const COLUMNS: [Column; 12] = [
    words("setting", "setting"),
    words("scheme", "scheme"),
    numbers("mean_ms", "mean, ms", 0),
    numbers("low_ms", "95 % from", 0),
    numbers("high_ms", "to", 0),
    numbers("p95_ms", "p95, ms", 0),
    numbers("times_alone", "times alone", 2),
    numbers("times_low", "95 % from", 2),
    numbers("times_high", "to", 2),
    numbers("big_mbit_s", "big file, Mbit/s", 2),
    numbers("objects", "objects", 0),
    numbers("runs", "runs", 0),
];

fn cells(
    title: &str,
    label: &str,
    sample: &Sample,
    alone: &Sample,
    rate: Option<f64>,
) -> Vec<Cell> {
    let ms = |seconds: Option<f64>| Cell::of(seconds.map(|seconds| seconds * 1e3));
    let interval = sample.interval();
    let times = sample.times(alone);
    let apart = times.and_then(|times| times.interval);
    vec![
        Cell::text(title),
        Cell::text(label),
        ms(sample.mean()),
        ms(interval.map(|(low, _)| low)),
        ms(interval.map(|(_, high)| high)),
        ms(sample.p95()),
        Cell::of(times.map(|times| times.value)),
        Cell::of(apart.map(|(low, _)| low)),
        Cell::of(apart.map(|(_, high)| high)),
        Cell::of(rate),
        Cell::Number(sample.count() as f64),
        Cell::Number(sample.runs() as f64),
    ]
}

fn fill(settings: &[Setting], alone: &Sample, finding: &mut Finding) {
    let mean_alone = alone.mean();
    finding.table.columns = COLUMNS.to_vec();
    finding.table.rows.push(cells("nothing else on the link", "alone", alone, alone, None));
    for setting in settings {
        for line in &setting.lines {
            let label = scheme::label(&line.scheme);
            finding.table.rows.push(cells(&setting.title, &label, &line.small, alone, line.rate));
        }
    }
    // The paper gives times of some schemes, in the claims of the slide table.
    let paper = |line: &Line| {
        let stated = |key: &str| match finding.expected(key) {
            Some(Expected::Seconds(seconds)) => Some(seconds),
            _ => None,
        };
        match line.scheme.as_str() {
            "Https" => stated("https"),
            "Http2" => stated("http2"),
            _ => None,
        }
    };
    let group = |setting: &Setting| Group {
        title: setting.title.clone(),
        dots: setting.lines.iter().filter_map(|line| dot(line, paper(line))).collect(),
    };
    let groups = settings.iter().map(group).collect();
    let reference = mean_alone.map(|alone| alone * 1e3);
    finding.draw("ms", groups, reference, Spread::Logarithmic);
}

fn dot(line: &Line, paper: Option<f64>) -> Option<Dot> {
    let ms = |seconds: f64| seconds * 1e3;
    Some(Dot {
        label: scheme::label(&line.scheme),
        colour: scheme::colour(&line.scheme),
        value: ms(line.small.mean()?),
        interval: line.small.interval().map(|(low, high)| (ms(low), ms(high))),
        p95: line.small.p95().map(ms),
        paper: paper.map(ms),
    })
}

/// The slide table.
pub(super) fn slide_table(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let alone = seconds(results, "alone");
    let setting_of = |buffer: &String| {
        setting(&with(results, &[("buffer", buffer)]), format!("{buffer} send buffers"))
    };
    let settings: Vec<_> =
        names_on(results, "buffer", &BUFFERS).iter().filter_map(setting_of).collect();
    let worst = settings.iter().filter_map(|setting| setting.mean("Http2")).reduce(f64::max);
    let times = worst.zip(alone.mean()).map(|(worst, alone)| format!("{:.0}", worst / alone));
    facts.set("times_alone", times);
    let link = settings.first().map(|setting| &setting.link);
    let waiting = worst.zip(link).map(|(worst, link)| bytes((worst * rate(link) / 8.0) as u64));
    facts.set("waiting", waiting);
    facts.set_failed(failed(&settings));
    fill(&settings, &alone, finding);
}
