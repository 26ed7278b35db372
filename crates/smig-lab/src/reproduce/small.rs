//! The slide table and Figures 4 to 7: a small object while a big file downloads.

use smig_chart::{bytes, number};
use smig_link::LinkSpec;

use super::claim::{Measured, seconds as shown};
use super::finding::{Cell, Chart, Column, Dot, Finding, Group, Spread, numbers, words};
use super::measure::{Sample, names_on, seconds, with};
use super::scheme::{self, MOVING};
use crate::campaign::TrialResult;

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

/// Figures 4 to 7.
pub(super) fn beside_big(results: &[&TrialResult], finding: &mut Finding) {
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
    let Some(first) = settings.first() else { return };
    hold_reduction(first, finding);
    hold_worst(first, finding);
    sentences(&settings, &alone, finding);
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

/// The paper's "up to" is the best of the three. The sentence also gives a second connection that was open
/// from the start, and our server with its defaults, which also paces migrated streams.
fn hold_reduction(setting: &Setting, finding: &mut Finding) {
    let best = setting.moving().first().map(|(line, _)| *line);
    let less = |line: Option<&Line>| {
        line.zip(setting.line("NoMig"))
            .and_then(|(line, unmoved)| line.small.less_than(&unmoved.small))
    };
    let beside = |scheme, words: &str| {
        less(setting.line(scheme))
            .map_or_else(String::new, |less| format!("; {words}: {:.0} % less", less.value * 100.0))
    };
    let (pool, ours) = (beside("Pool", "a static pool"), beside("SMig", "`smig serve`"));
    let named = best.map(|line| format!("{}{pool}{ours}", line.scheme));
    finding.hold("less", less(best), &named.unwrap_or_default());
}

fn hold_worst(setting: &Setting, finding: &mut Finding) {
    let others = setting.moving().into_iter().rfind(|(line, _)| line.scheme != "MigCP");
    let ours = others
        .zip(setting.line("MigCP"))
        .and_then(|((other, _), client)| client.small.more_than(&other.small));
    let named = others.map(|(other, _)| format!("than {}", other.scheme));
    finding.hold("worst", ours, &named.unwrap_or_default());
}

fn sentences(settings: &[Setting], alone: &Sample, finding: &mut Finding) {
    let Some(first) = settings.first() else { return };
    let (unmoved, moving) = (first.mean("NoMig"), first.moving());
    let (Some(unmoved), Some((best, least))) = (unmoved, moving.first().copied()) else { return };
    let others: Vec<_> =
        moving.iter().map(|(line, mean)| format!("{} {}", line.scheme, shown(*mean))).collect();
    let alone_words =
        alone.mean().map_or(String::new(), |mean| format!(", alone on the link {}", shown(mean)));
    finding.say(format!(
        "Mean time of a small object over plain HTTP/2: {}; with migration: {}{alone_words}.",
        shown(unmoved),
        others.join(", ")
    ));
    if finding.falls_short("less") {
        finding.read(short_of_the_paper(first, unmoved, &best.scheme, least));
    }
    if finding.falls_short("worst") {
        finding.read(
            "in the paper the server's send buffer is full when the client's migration request \
             arrives; our server sends the rest of the data it has read from the file on the new \
             connection, and what is left in the old one's buffer drains before most small objects \
             are requested.",
        );
    }
    sceptic(first, finding);
    worst_of_ours(settings, alone, finding);
    for setting in settings.iter().skip(1) {
        let known: Vec<_> = ["NoMig", "Lowat", "MigSW", "SMig"]
            .iter()
            .filter_map(|key| Some(format!("{} {}", scheme::label(key), shown(setting.mean(key)?))))
            .collect();
        finding.say(format!("With {}: {}.", setting.title, known.join(", ")));
    }
    lost(settings, finding);
}

/// Explains why the reduction is smaller than the paper's.
fn short_of_the_paper(setting: &Setting, unmoved: f64, best: &str, least: f64) -> String {
    let mut words = format!(
        "the paper's share requires a slower plain HTTP/2: {} wait in front of a small object \
         here, at the link's mean rate; probably a current kernel accepts less into the same send \
         buffer",
        bytes((unmoved * rate(&setting.link) / 8.0) as u64)
    );
    words += &format!(
        "; and {best} still takes {}, because the migrated file fills the link's queue, in which \
         small objects wait on any connection",
        shown(least)
    );
    words += &setting.mean("SMig").map_or_else(
        || ".".to_owned(),
        |ours| format!(". `smig serve` keeps that queue short as well: {}.", shown(ours)),
    );
    words
}

fn rate(link: &LinkSpec) -> f64 {
    link.to_client.rate.as_bits_per_second() as f64
}

/// Schemes that the paper did not compare with.
const SCEPTICS: [&str; 8] =
    ["Lowat", "LowatPriorities", "OnePaced", "Http1", "Pool", "PoolPaced", "h2o", "h2oTuned"];

/// Reports the worst case of `smig serve`, and its cost for the big file.
fn worst_of_ours(settings: &[Setting], alone: &Sample, finding: &mut Finding) {
    let ours = |setting: &Setting| {
        Some((setting.line("SMig")?.small.times(alone)?, setting.title.clone()))
    };
    let slowest =
        settings.iter().filter_map(ours).max_by(|(a, _), (b, _)| a.value.total_cmp(&b.value));
    let ours = settings.iter().filter_map(|setting| setting.line("SMig"));
    let run = ours.filter_map(|line| line.small.slowest_run(&line.alone)).reduce(f64::max);
    let (Some((slowest, where_)), Some(run)) = (slowest, run) else { return };
    let mut words = format!(
        "`smig serve` at its worst: {} times the time alone ({where_}){}; in its slowest run {} \
         times the time of that run's objects before the big file.",
        number(slowest.value),
        interval_words(slowest, 1.0),
        number(run)
    );
    let longer = |setting: &Setting| {
        let longer = setting.line("SMig")?.big.more_than(&setting.line("NoMig")?.big)?;
        Some((longer, setting.title.clone()))
    };
    let longest =
        settings.iter().filter_map(longer).max_by(|(a, _), (b, _)| a.value.total_cmp(&b.value));
    if let Some((longest, where_)) = longest {
        let (share, word) =
            (longest.value * 100.0, if longest.value < 0.0 { "less" } else { "longer" });
        words += &format!(
            " The big file takes at worst {:.1} % {word} than over plain HTTP/2 ({where_}){}.",
            share.abs(),
            interval_words(longest, 100.0)
        );
    }
    finding.say(words);
}

fn interval_words(ours: Measured, by: f64) -> String {
    ours.interval.map_or_else(
        || ", too few runs for an interval".to_owned(),
        |(low, high)| format!(", 95 % {} to {}", number(low * by), number(high * by)),
    )
}

/// Reports the alternatives that the paper did not compare with.
fn sceptic(setting: &Setting, finding: &mut Finding) {
    let known: Vec<_> = SCEPTICS
        .iter()
        .filter_map(|key| Some(format!("{} {}", scheme::label(key), shown(setting.mean(key)?))))
        .collect();
    if known.is_empty() {
        return;
    }
    let ours = setting.mean("SMig").map_or(String::new(), |mean| {
        let rate = setting.line("SMig").and_then(|line| line.rate);
        let rate =
            rate.map_or(String::new(), |rate| format!(", the big file at {} Mbit/s", number(rate)));
        format!("; `smig serve` with its defaults {}{rate}", shown(mean))
    });
    finding.say(format!("Alternatives without migration: {}{ours}.", known.join(", ")));
}

fn lost(settings: &[Setting], finding: &mut Finding) {
    let lines = || settings.iter().flat_map(|setting| &setting.lines);
    let failed: usize = lines().map(|line| line.small.failed + line.big.failed).sum();
    if failed > 0 {
        finding.warnings.push(format!("{failed} objects did not complete and are not counted."));
    }
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
    let group = |setting: &Setting| Group {
        title: setting.title.clone(),
        dots: setting.lines.iter().filter_map(dot).collect(),
    };
    finding.charts.push(chart(finding.name, settings.iter().map(group).collect(), mean_alone));
}

fn dot(line: &Line) -> Option<Dot> {
    let ms = |seconds: f64| seconds * 1e3;
    Some(Dot {
        label: scheme::label(&line.scheme),
        colour: scheme::colour(&line.scheme),
        value: ms(line.small.mean()?),
        interval: line.small.interval().map(|(low, high)| (ms(low), ms(high))),
        p95: line.small.p95().map(ms),
        paper: None,
    })
}

fn chart(name: &str, groups: Vec<Group>, alone: Option<f64>) -> Chart {
    Chart {
        name: name.to_owned(),
        title: "Time of a 10 kB object beside the big file: ms".into(),
        caption:
            "Filled: the mean with its 95 % interval. Ring: the 95th percentile. The scale is \
            logarithmic."
                .into(),
        unit: "ms",
        groups,
        reference: alone.map(|alone| (alone * 1e3, "alone".into())),
        spread: Spread::Logarithmic,
    }
}

/// The slide table.
pub(super) fn slide_table(results: &[&TrialResult], finding: &mut Finding) {
    let alone = seconds(results, "alone");
    finding.hold("alone", alone.ours(), "");
    let setting_of = |buffer: &String| {
        setting(&with(results, &[("buffer", buffer)]), format!("{buffer} send buffers"))
    };
    let settings: Vec<_> =
        names_on(results, "buffer", &BUFFERS).iter().filter_map(setting_of).collect();
    for (key, scheme) in [("https", "Https"), ("http2", "Http2")] {
        // The talk names no send buffer: the slowest setting is compared with it.
        let slowest = settings
            .iter()
            .filter_map(|setting| {
                let ours = setting.line(scheme)?.small.ours()?;
                Some((ours, setting.title.as_str()))
            })
            .max_by(|(a, _), (b, _)| a.value.total_cmp(&b.value));
        finding.hold(key, slowest.map(|(ours, _)| ours), slowest.map_or("", |(_, title)| title));
    }
    let worst = settings.iter().filter_map(|setting| setting.mean("Http2")).reduce(f64::max);
    if let (Some(worst), Some(alone)) = (worst, alone.mean()) {
        finding.say(format!(
            "During the download a small object over HTTP/2 takes {:.0} times as long as alone; in \
             the talk it is 168 times.",
            worst / alone
        ));
    }
    if let (Some(worst), Some(link)) = (worst, settings.first().map(|setting| &setting.link))
        && finding.falls_short("http2")
    {
        finding.read(format!(
            "8.40 s at 10 Mbit/s would be 10.5 MB in front of the small object, more than the \
             largest of the paper's send buffers; here it is {}. The talk does not give the \
             setting of this table, so it cannot be reproduced exactly; probably its server's \
             kernel accepted more into the same buffer, where a current one also counts the \
             overhead of each packet.",
            bytes((worst * rate(link) / 8.0) as u64)
        ));
    }
    lost(&settings, finding);
    fill(&settings, &alone, finding);
    let paper = |label: &str| match label {
        "HTTPS" => Some(140.0),
        "HTTP/2" => Some(8_400.0),
        _ => None,
    };
    for dot in
        finding.charts.iter_mut().flat_map(|chart| &mut chart.groups).flat_map(|g| &mut g.dots)
    {
        dot.paper = paper(&dot.label);
    }
}
