//! A row for each load, with a column for each variable.

use smig_chart::html::{Align, Table};

use super::summary::{MeasuredLoad, levels_of, load_of};
use crate::timeline::page_load::Cause;
use crate::workload::{Outcome, PageMetric};

/// Returns the loads' times and what they waited for, for notebooks and statistics programs.
#[must_use]
pub fn to_tidy_table(loads: &[MeasuredLoad<'_>]) -> Table {
    let mut columns = vec![
        ("link".to_owned(), Align::Left),
        ("protocol".to_owned(), Align::Left),
        ("repetition".to_owned(), Align::Right),
        ("seed".to_owned(), Align::Right),
        ("outcome".to_owned(), Align::Left),
        ("disturbed".to_owned(), Align::Left),
    ];
    let metric =
        |metric: PageMetric| (format!("{}_s", metric.as_str().replace('-', "_")), Align::Right);
    columns.extend(PageMetric::ALL.into_iter().map(metric));
    columns.extend(
        Cause::ALL
            .iter()
            .map(|cause| (format!("{}_ms", cause.to_string().replace(' ', "_")), Align::Right)),
    );
    let of_screen = [
        "speed_index_fast_s",
        "speed_index_perceptual_s",
        "frames",
        "omitted_frames",
        "clock_error_ms",
    ];
    columns.extend(of_screen.map(|name| (name.to_owned(), Align::Right)));
    let rows = loads.iter().filter_map(|measured| {
        let (result, load) = (measured.result, load_of(measured.result)?);
        let (link, protocol) = levels_of(&result.id.condition);
        let outcome = match &load.outcome {
            Outcome::Complete => "complete",
            Outcome::TimedOut => "timed-out",
            _ => "failed",
        };
        let mut row = vec![
            link.to_owned(),
            protocol.to_owned(),
            result.id.repetition.to_string(),
            result.seed.to_string(),
            outcome.to_owned(),
            if result.disturbed.is_empty() { "no" } else { "yes" }.to_owned(),
        ];
        let number =
            |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.6}"));
        row.extend(PageMetric::ALL.into_iter().map(|metric| number(metric.of(load))));
        row.extend(Cause::ALL.into_iter().map(|cause| {
            let ms = measured.lateness.as_ref().map(|lateness| lateness.us(cause) / 1e3);
            ms.map_or_else(String::new, |ms| format!("{ms:.3}"))
        }));
        let visual = load.visual.as_ref();
        let seconds = |us: u64| us as f64 / 1e6;
        row.push(number(visual.map(|visual| seconds(visual.fast_speed_index_us))));
        row.push(number(visual.map(|visual| seconds(visual.perceptual_speed_index_us))));
        row.push(visual.map_or_else(String::new, |visual| visual.frames.to_string()));
        row.push(load.omitted_frames.to_string());
        row.push(number(load.clock_error_ns.map(|error_ns| error_ns as f64 / 1e6)));
        Some(row)
    });
    Table { columns, rows: rows.collect() }
}
