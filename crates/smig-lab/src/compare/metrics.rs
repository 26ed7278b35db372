//! Extracts metrics from a campaign's results.
//!
//! Incomplete objects have no time. Their number is a separate metric, so that a scheme does not
//! win by losing its slowest objects.

use smig_chart::format_bytes;

use crate::scenario::{SizeClass, TransferDirection};
use crate::trial::TrialResult;
use crate::workload::{ObjectResult, Outcome, PageLoad, PageMetric};

use smig_stats::Run;

use super::difference::{BetterDirection, Series};

/// Collects all metrics of results that are runs of the same condition:
///
/// - the time of a small object, for each transfer and size, beside a big transfer and alone;
/// - the time of a big transfer, and its share of the link's rate;
/// - for each page the times of its load ([`PageMetric`]);
/// - bytes that arrived after a cancel;
/// - failed objects, in percent of those requested.
#[must_use]
pub fn series_of(results: &[&TrialResult]) -> Vec<Series> {
    let mut collector = SeriesCollector { results, series: Vec::new() };
    for (run_index, result) in results.iter().enumerate() {
        let objects = &result.observation.objects;
        for load in &result.observation.pages {
            collector.add_page(run_index, load);
        }
        for (name, page) in &result.scenario.workload.pages {
            let loads = result.observation.pages.iter().filter(|load| load.name == *name);
            let complete = loads.filter(|load| load.outcome == Outcome::Complete).count();
            let failed = f64::from(page.loads()) - complete as f64;
            let percent = failed / f64::from(page.loads()).max(1.0) * 100.0;
            let metric = format!("{name}: loads that failed");
            collector.push(&metric, "%", BetterDirection::Lower, run_index, percent);
        }
        let is_resource =
            |object: &&ObjectResult| result.scenario.workload.pages.contains_key(&object.name);
        for object in objects.iter().filter(|object| !is_resource(object)) {
            collector.add_object(run_index, object, result);
        }
        let failed = objects.iter().filter(|object| has_failed(object)).count();
        if !objects.is_empty() {
            let percent = failed as f64 / objects.len() as f64 * 100.0;
            collector.push("objects that failed", "%", BetterDirection::Lower, run_index, percent);
        }
    }
    // Omit the failure percentage if it is zero in every run.
    collector.series.retain(|series| {
        series.unit != "%"
            || series.runs.iter().flat_map(|run| &run.values).any(|value| *value > 0.0)
    });
    collector.series
}

struct SeriesCollector<'a> {
    results: &'a [&'a TrialResult],
    series: Vec<Series>,
}

impl SeriesCollector<'_> {
    fn push(
        &mut self,
        metric: &str,
        unit: &str,
        better: BetterDirection,
        run_index: usize,
        value: f64,
    ) {
        let existing = self.series.iter().position(|series| series.metric == metric);
        let index = existing.unwrap_or_else(|| {
            let (metric, unit) = (metric.to_owned(), unit.to_owned());
            let empty = |result: &&TrialResult| Run { seed: result.seed, values: Vec::new() };
            let runs = self.results.iter().map(empty).collect();
            self.series.push(Series { metric, unit, better, runs });
            self.series.len() - 1
        });
        self.series[index].runs[run_index].values.push(value);
    }

    fn add_page(&mut self, run_index: usize, load: &PageLoad) {
        for time in PageMetric::ALL {
            let Some(seconds) = time.of(load) else { continue };
            let metric = format!("{} {}", load.name, time.title());
            self.push(&metric, "ms", BetterDirection::Lower, run_index, seconds * 1e3);
        }
    }

    fn add_object(&mut self, run_index: usize, object: &ObjectResult, result: &TrialResult) {
        let name = format!("{} {}", object.name, format_bytes(object.size));
        if let Some(cancel) = object.cancel {
            let after_kb = cancel.wire_bytes.saturating_sub(cancel.other_bytes) as f64 / 1e3;
            self.push(
                &format!("{name}, after its cancel"),
                "kB",
                BetterDirection::Lower,
                run_index,
                after_kb,
            );
        }
        if object.outcome != Outcome::Complete {
            return;
        }
        match object.size_class {
            SizeClass::Small => {
                let metric = match concurrent_bulk(object, result) {
                    Some(other) => format!("{name} beside {other}"),
                    None => format!("{name} alone"),
                };
                self.push(
                    &metric,
                    "ms",
                    BetterDirection::Lower,
                    run_index,
                    object.duration_s() * 1e3,
                );
            }
            SizeClass::Large => {
                self.push(&name, "s", BetterDirection::Lower, run_index, object.duration_s());
                let link = match object.direction {
                    TransferDirection::Download => &result.scenario.link.to_client,
                    TransferDirection::Upload => &result.scenario.link.to_server,
                };
                // The mean rate of a trace is unknown before it runs.
                if let Some(mean) = link.rate.mean() {
                    let rate = object.bytes as f64 * 8.0 / object.duration_s().max(1e-9);
                    let share = rate / mean.as_bits_per_second() as f64 * 100.0;
                    let metric = format!("{name}, share of the link");
                    self.push(&metric, "% of the link", BetterDirection::Higher, run_index, share);
                }
            }
        }
    }
}

/// Returns the name of a page or a big transfer that was in progress when the object was requested.
fn concurrent_bulk<'a>(object: &ObjectResult, result: &'a TrialResult) -> Option<&'a str> {
    let at_ns = object.started_ns;
    let observation = &result.observation;
    let pages = &result.scenario.workload.pages;
    let is_big = |other: &&ObjectResult| {
        other.size_class == SizeClass::Large
            && !pages.contains_key(&other.name)
            && (other.started_ns..other.ended_ns).contains(&at_ns)
    };
    let is_in_progress = |load: &&PageLoad| (load.started_ns..load.ended_ns).contains(&at_ns);
    let load = || observation.pages.iter().find(is_in_progress);
    let big = observation.objects.iter().find(is_big).map(|big| big.name.as_str());
    big.or_else(|| load().map(|load| load.name.as_str()))
}

const fn has_failed(object: &ObjectResult) -> bool {
    !matches!(object.outcome, Outcome::Complete | Outcome::Cancelled)
}
