//! The slide table and Figures 4 to 7: a small object while a big file downloads.

use super::super::claim::{Expected, MeasuredValue, format_seconds};
use super::super::data_table::{DataCell, DataColumn, number_column, text_column};
use super::super::facts::{FactNames, Facts};
use super::super::finding::{AxisScale, Dot, DotGroup, Finding};
use super::super::measure::{Sample, filter_runs, levels_of, transfer_times};
use super::scheme::{self, MIGRATION_SCHEMES};
use crate::campaign::TrialResult;
use smig_chart::{format_bytes, format_number};
use smig_link::LinkSpec;

/// Measurements of one scheme in one setting.
struct SchemeRow {
    scheme: String,
    small_times: Sample,
    big_times: Sample,
    /// Small objects before the big file, in the same runs.
    alone_times: Sample,
    /// Rate of the big file, in Mbit/s.
    big_mbit_s: Option<f64>,
}

/// All schemes with one congestion control and queue, or with one send buffer.
struct Setting {
    title: String,
    rows: Vec<SchemeRow>,
    link: LinkSpec,
}

const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "bbr"];
const QUEUES: [&str; 3] = ["shallow", "deep", "fair"];
const BUFFERS: [&str; 2] = ["default", "large"];

/// The values of [`fill_beside_big`].
pub(super) const BESIDE_BIG_FACTS: FactNames = &[
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

/// The values of [`fill_slide_table`].
pub(super) const SLIDE_TABLE_FACTS: FactNames = &[("", &["times_alone", "waiting", "failed"])];

/// Fills in finding and facts of one of Figures 4 to 7.
pub(super) fn fill_beside_big(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let alone_times = transfer_times(results, "alone");
    let (mut settings, mut paper_index) = (Vec::new(), None);
    let mut queues = levels_of(results, "queue", &QUEUES);
    if queues.is_empty() {
        queues.push(String::new());
    }
    for congestion in levels_of(results, "congestion", &CONGESTION_CONTROLS) {
        for queue in &queues {
            let setting_runs =
                filter_runs(results, &[("congestion", &congestion), ("queue", queue)]);
            let title = match queue.as_str() {
                "shallow" => format!("{congestion}, queue of 75 packets"),
                "deep" => format!("{congestion}, queue of 1000 packets"),
                "fair" => format!("{congestion}, fair queue"),
                _ => congestion.clone(),
            };
            let Some(setting) = measure_setting(&setting_runs, title) else { continue };
            // The link over LTE has one queue, without a name.
            if congestion == "cubic" && matches!(queue.as_str(), "shallow" | "") {
                paper_index = Some(settings.len());
            }
            settings.push(setting);
        }
    }
    if let Some(index) = paper_index {
        set_paper_facts(&settings[index], &alone_times, facts);
    }
    set_serve_worst_case(&settings, &alone_times, facts);
    let others = (0..).zip(&settings).filter(|(index, _)| Some(*index) != paper_index);
    for (_, setting) in others {
        let times = times_text(setting, &["NoMig", "Lowat", "MigSW", "SMig"]);
        facts.push("setting", [("setting", Some(setting.title.clone())), ("times", times)]);
    }
    facts.set_failed(failed_object_count(&settings, &alone_times));
    fill_table_and_chart(&settings, &alone_times, finding);
}

fn measure_setting(results: &[&TrialResult], title: String) -> Option<Setting> {
    let link = results.first()?.scenario.link.clone();
    let scheme_row = |scheme: String| {
        let scheme_runs = filter_runs(results, &[("scheme", &scheme)]);
        let (small_times, big_times) =
            (transfer_times(&scheme_runs, "small"), transfer_times(&scheme_runs, "big"));
        let big_transfer =
            scheme_runs.first().and_then(|result| result.scenario.workload.transfers.get("big"));
        let big_bytes = big_transfer.map_or(0, |big| big.size_of(0)) as f64;
        let big_mbit_s = big_times.mean().map(|mean| big_bytes * 8e-6 / mean);
        SchemeRow {
            scheme,
            small_times,
            big_times,
            alone_times: transfer_times(&scheme_runs, "alone"),
            big_mbit_s,
        }
    };
    let rows = levels_of(results, "scheme", &scheme::keys()).into_iter().map(scheme_row).collect();
    Some(Setting { title, rows, link })
}

impl Setting {
    fn row(&self, scheme: &str) -> Option<&SchemeRow> {
        self.rows.iter().find(|row| row.scheme == scheme && row.small_times.value_count() > 0)
    }

    fn mean(&self, scheme: &str) -> Option<f64> {
        self.row(scheme)?.small_times.mean()
    }

    /// Returns the paper's migration schemes, the fastest first.
    fn migration_rows(&self) -> Vec<(&SchemeRow, f64)> {
        let mut rows: Vec<_> = MIGRATION_SCHEMES
            .iter()
            .filter_map(|key| self.row(key))
            .filter_map(|row| Some((row, row.small_times.mean()?)))
            .collect();
        rows.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        rows
    }
}

/// Returns the times of some schemes in words; `None` if none is measured.
fn times_text(setting: &Setting, schemes: &[&str]) -> Option<String> {
    let time =
        |key: &&str| Some(format!("{} {}", scheme::label(key), format_seconds(setting.mean(key)?)));
    let scheme_times: Vec<_> = schemes.iter().filter_map(time).collect();
    (!scheme_times.is_empty()).then(|| scheme_times.join(", "))
}

/// Sets the facts of the paper's own setting.
fn set_paper_facts(setting: &Setting, alone_times: &Sample, facts: &mut Facts) {
    let plain_mean = setting.mean("NoMig");
    facts.set("plain", plain_mean.map(format_seconds));
    facts.set("alone", alone_times.mean().map(format_seconds));
    let waiting =
        plain_mean.map(|mean| format_bytes((mean * bits_per_s(&setting.link) / 8.0) as u64));
    facts.set("waiting", waiting);
    let migration_rows = setting.migration_rows();
    let scheme_time =
        |(row, mean): &(&SchemeRow, f64)| format!("{} {}", row.scheme, format_seconds(*mean));
    let migrated = migration_rows.iter().map(scheme_time).collect::<Vec<_>>().join(", ");
    facts.set("migrated", Some(migrated).filter(|words| !words.is_empty()));
    facts.set("best", migration_rows.first().map(|(row, _)| row.scheme.clone()));
    facts.set("best_time", migration_rows.first().map(|(_, mean)| format_seconds(*mean)));
    facts.set("alternatives", times_text(setting, &ALTERNATIVES));
    facts.set("serve", setting.mean("SMig").map(format_seconds));
    facts.set("serve_rate", setting.row("SMig").and_then(|row| row.big_mbit_s).map(format_number));
}

fn bits_per_s(link: &LinkSpec) -> f64 {
    link.to_client.rate.mean_bits_per_second() as f64
}

/// Schemes that the paper did not compare with.
const ALTERNATIVES: [&str; 8] =
    ["Lowat", "LowatPriorities", "OnePaced", "Http1", "Pool", "PoolPaced", "h2o", "h2oTuned"];

/// Sets the facts of the worst case of SMig with the defaults of `smig serve`, and of its cost for the big file.
fn set_serve_worst_case(settings: &[Setting], alone_times: &Sample, facts: &mut Facts) {
    let largest = |of: &dyn Fn(&Setting) -> Option<MeasuredValue>| {
        let found = settings.iter().filter_map(|setting| Some((of(setting)?, &setting.title)));
        found.max_by(|(a, _), (b, _)| a.value.total_cmp(&b.value))
    };
    let worst = largest(&|setting| setting.row("SMig")?.small_times.ratio_to(alone_times));
    facts.set("worst", worst.map(|(worst, _)| format_number(worst.value)));
    facts.set("worst_setting", worst.map(|(_, setting)| setting.clone()));
    facts.set("worst_interval", worst.map(|(worst, _)| interval_text(worst, 1.0)));
    let serve_rows = settings.iter().filter_map(|setting| setting.row("SMig"));
    let slowest_run_ratio = serve_rows
        .filter_map(|row| row.small_times.max_run_ratio(&row.alone_times))
        .reduce(f64::max);
    facts.set("slowest_run", slowest_run_ratio.map(format_number));
    let largest_big_change = largest(&|setting| {
        setting.row("SMig")?.big_times.increase_from(&setting.row("NoMig")?.big_times)
    });
    let change = |longer: MeasuredValue| {
        let word = if longer.value < 0.0 { "less" } else { "longer" };
        format!("{:.1} % {word}", (longer.value * 100.0).abs())
    };
    facts.set("big_change", largest_big_change.map(|(longer, _)| change(longer)));
    facts.set("big_setting", largest_big_change.map(|(_, setting)| setting.clone()));
    facts.set("big_interval", largest_big_change.map(|(longer, _)| interval_text(longer, 100.0)));
}

fn interval_text(measured: MeasuredValue, factor: f64) -> String {
    measured.interval.map_or_else(
        || ", too few runs for an interval".to_owned(),
        |(low, high)| {
            format!(", 95 % {} to {}", format_number(low * factor), format_number(high * factor))
        },
    )
}

/// Returns the number of objects that did not complete, of all that the report counts.
fn failed_object_count(settings: &[Setting], alone_times: &Sample) -> usize {
    let rows = settings.iter().flat_map(|setting| &setting.rows);
    let beside: usize =
        rows.map(|row| row.small_times.failed_count + row.big_times.failed_count).sum();
    alone_times.failed_count + beside
}

const COLUMNS: [DataColumn; 12] = [
    text_column("setting", "setting"),
    text_column("scheme", "scheme"),
    number_column("mean_ms", "mean, ms", 0),
    number_column("low_ms", "95 % from", 0),
    number_column("high_ms", "to", 0),
    number_column("p95_ms", "p95, ms", 0),
    number_column("times_alone", "times alone", 2),
    number_column("times_low", "95 % from", 2),
    number_column("times_high", "to", 2),
    number_column("big_mbit_s", "big file, Mbit/s", 2),
    number_column("objects", "objects", 0),
    number_column("runs", "runs", 0),
];

fn table_row(
    title: &str,
    label: &str,
    sample: &Sample,
    alone_times: &Sample,
    big_mbit_s: Option<f64>,
) -> Vec<DataCell> {
    let ms = |seconds: Option<f64>| DataCell::of(seconds.map(|seconds| seconds * 1e3));
    let interval = sample.interval();
    let ratio_to_alone = sample.ratio_to(alone_times);
    let ratio_interval = ratio_to_alone.and_then(|times| times.interval);
    vec![
        DataCell::text(title),
        DataCell::text(label),
        ms(sample.mean()),
        ms(interval.map(|(low, _)| low)),
        ms(interval.map(|(_, high)| high)),
        ms(sample.p95()),
        DataCell::of(ratio_to_alone.map(|times| times.value)),
        DataCell::of(ratio_interval.map(|(low, _)| low)),
        DataCell::of(ratio_interval.map(|(_, high)| high)),
        DataCell::of(big_mbit_s),
        DataCell::Number(sample.value_count() as f64),
        DataCell::Number(sample.run_count() as f64),
    ]
}

fn fill_table_and_chart(settings: &[Setting], alone_times: &Sample, finding: &mut Finding) {
    let mean_alone = alone_times.mean();
    finding.table.columns = COLUMNS.to_vec();
    finding.table.rows.push(table_row(
        "nothing else on the link",
        "alone",
        alone_times,
        alone_times,
        None,
    ));
    for setting in settings {
        for row in &setting.rows {
            let label = scheme::label(&row.scheme);
            finding.table.rows.push(table_row(
                &setting.title,
                &label,
                &row.small_times,
                alone_times,
                row.big_mbit_s,
            ));
        }
    }
    // The paper gives times of some schemes, in the claims of the slide table.
    let paper_seconds = |row: &SchemeRow| {
        let claimed_seconds = |key: &str| match finding.expected(key) {
            Some(Expected::Seconds(seconds)) => Some(seconds),
            _ => None,
        };
        match row.scheme.as_str() {
            "Https" => claimed_seconds("https"),
            "Http2" => claimed_seconds("http2"),
            _ => None,
        }
    };
    let group = |setting: &Setting| DotGroup {
        title: setting.title.clone(),
        dots: setting.rows.iter().filter_map(|row| dot(row, paper_seconds(row))).collect(),
    };
    let groups = settings.iter().map(group).collect();
    let reference = mean_alone.map(|alone| alone * 1e3);
    finding.add_chart("ms", groups, reference, AxisScale::Log);
}

fn dot(row: &SchemeRow, paper_seconds: Option<f64>) -> Option<Dot> {
    let ms = |seconds: f64| seconds * 1e3;
    Some(Dot {
        label: scheme::label(&row.scheme),
        colour: scheme::colour(&row.scheme),
        value: ms(row.small_times.mean()?),
        interval: row.small_times.interval().map(|(low, high)| (ms(low), ms(high))),
        p95: row.small_times.p95().map(ms),
        paper_value: paper_seconds.map(ms),
    })
}

/// Fills in finding and facts of the slide table.
pub(super) fn fill_slide_table(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let alone_times = transfer_times(results, "alone");
    let setting_of = |buffer: &String| {
        measure_setting(
            &filter_runs(results, &[("buffer", buffer)]),
            format!("{buffer} send buffers"),
        )
    };
    let settings: Vec<_> =
        levels_of(results, "buffer", &BUFFERS).iter().filter_map(setting_of).collect();
    let worst_mean_s = settings.iter().filter_map(|setting| setting.mean("Http2")).reduce(f64::max);
    let worst_ratio_text =
        worst_mean_s.zip(alone_times.mean()).map(|(worst, alone)| format!("{:.0}", worst / alone));
    facts.set("times_alone", worst_ratio_text);
    let link = settings.first().map(|setting| &setting.link);
    let waiting = worst_mean_s
        .zip(link)
        .map(|(worst, link)| format_bytes((worst * bits_per_s(link) / 8.0) as u64));
    facts.set("waiting", waiting);
    facts.set_failed(failed_object_count(&settings, &alone_times));
    fill_table_and_chart(&settings, &alone_times, finding);
}
