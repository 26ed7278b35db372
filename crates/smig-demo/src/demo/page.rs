//! The demonstration as one web page, and as JSON.

use std::time::Duration;

use serde::Serialize;
use smig_chart::html::{Align, Bar, Page, Table};
use smig_chart::svg::Colour;
use smig_chart::{format_bytes, format_ms, format_number};
use smig_link::millis;

use super::data::{DemoResult, DemoSetup, Variant};
use super::figures::{colour, distribution_figure, run_figure};
use super::summary::{self, RunSummary};

/// Renders the result with its summary as a JSON document.
///
/// # Panics
/// Never: every value can be serialised as JSON.
#[must_use]
pub fn render_json(result: &DemoResult) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        format: &'static str,
        summary: Vec<RunSummary>,
        #[serde(flatten)]
        result: &'a DemoResult,
    }
    let summary = summary::summaries(result);
    let document = Document { format: "smig-demo/2", summary, result };
    serde_json::to_string_pretty(&document).expect("numbers, strings and lists") + "\n"
}

/// Renders the result as one self-contained page.
#[must_use]
pub fn render_html(result: &DemoResult) -> String {
    let summaries = summary::summaries(result);
    let mut page = Page::new("Small objects beside a big download");
    page.lead(&summary::describe_setup(&result.setup));
    page.bars(
        "Median time of a small object: with nothing else on the link, then during the download",
        &bars(&summaries),
    );
    for sentence in summary::findings(&summaries) {
        page.paragraph(&sentence);
    }
    if let Some(warning) = summary::lateness_warning(result) {
        page.warning(&warning);
    }
    for run in &result.runs {
        for problem in &run.problems {
            page.warning(&format!("{}: {problem}", run.variant));
        }
    }

    page.heading("The runs over time");
    let charts: Vec<_> = result
        .runs
        .iter()
        .map(|run| {
            (run.variant.title().to_owned(), run_figure(result, &summaries, run).to_element())
        })
        .collect();
    page.charts(
        &charts,
        "Above, each dot is one small object: the time of its request and its duration, on a \
         logarithmic scale. Below, the rate of the big file, by connection. All runs have the \
         same axes.",
    );

    page.heading("Times of small objects");
    page.chart(
        &distribution_figure(result, &summaries, 860.0).to_element(),
        &distribution_figure(result, &summaries, 340.0).to_element(),
        "The share of small objects that were complete within a time, during the download. \
         Further left is better; a steep line means that the times vary little.",
    );

    page.heading("In numbers");
    page.table(&summary_table(&summaries));
    page.heading("How it was measured");
    page.facts(&facts(&result.setup, result));
    page.finish()
}

/// Returns the bars of medians, the one without load first.
fn bars(summaries: &[RunSummary]) -> Vec<Bar> {
    let bar = |name: &str, value: f64, colour: Colour| {
        let text = format!("{} ms", format_ms(value));
        Bar { name: name.to_owned(), value, text, colour }
    };
    let alone = summary::unloaded_median(summaries);
    let mut bars: Vec<_> =
        alone.map(|ms| bar("nothing else on the link", ms, Colour::Slate)).into_iter().collect();
    bars.extend(summaries.iter().filter_map(|summary| {
        Some(bar(summary.variant.title(), summary.median_ms?, colour(summary.variant)))
    }));
    bars
}

fn summary_table(summaries: &[RunSummary]) -> Table {
    let (headings, mut rows) = summary::table(summaries);
    let mut columns: Vec<_> =
        headings.into_iter().map(|heading| (heading.to_owned(), Align::Right)).collect();
    columns[0].1 = Align::Left;
    columns.push(("bytes by connection".into(), Align::Right));
    for (row, summary) in rows.iter_mut().zip(summaries) {
        row.push(summary::format_connections(summary));
    }
    Table { columns, rows }
}

/// Describes the congestion control; a run's numbers may depend on it.
fn describe_congestion_control(setup: &DemoSetup) -> String {
    let default_name = &setup.congestion_control;
    match &setup.bulk_congestion_control {
        Some(bulk) if bulk != default_name && setup.variants.contains(&Variant::Smig) => {
            format!("{default_name}; {bulk} where SMig migrates the big file")
        }
        _ => default_name.clone(),
    }
}

fn facts(setup: &DemoSetup, result: &DemoResult) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Link", format!("{}, emulated below TCP", setup.link)),
        ("Congestion control", describe_congestion_control(setup)),
        (
            "Small objects",
            format!(
                "{}, one every {} ms, whether or not the previous one is complete",
                format_bytes(setup.object_bytes),
                format_number(millis::of(setup.object_interval))
            ),
        ),
        ("Big file", format_bytes(setup.big_file_bytes)),
        (
            "SMig's big file",
            format!(
                "slowed down by each small object for up to {} ms",
                format_number(millis::of(setup.max_bulk_deferral))
            ),
        ),
        ("TCP, TLS, files", "real: the kernel's TCP in two network namespaces".into()),
        ("Program", setup.program.clone()),
        ("Kernel", setup.kernel.clone()),
    ];
    let lateness = result.runs.iter().filter_map(|run| run.link).map(|link| link.lateness);
    let ms = |duration: Duration| format_number(millis::of(duration));
    if let Some(worst_lateness) = lateness.max_by_key(|lateness| lateness.p99) {
        let text = format!(
            "in the worst run, half of the packets were at most {} ms late, 99 % at most {} ms, \
             all at most {} ms",
            ms(worst_lateness.p50),
            ms(worst_lateness.p99),
            ms(worst_lateness.max)
        );
        facts.push(("Lateness of the link", text));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::data::DemoRun;
    use crate::demo::fixtures;
    use crate::demo::recorder::{DemoEvent, DemoRecorder};
    use smig_chart::html::assert_balanced;

    #[test]
    fn the_page_is_well_formed_and_shows_every_run() {
        let result = fixtures::result();
        let html = render_html(&result);
        assert_balanced(&html);
        for variant in Variant::ALL {
            assert!(html.contains(&format!("<h3>{}</h3>", variant.title())), "{variant}");
        }
        let dots: usize = result.runs.iter().map(|run| run.objects.len()).sum();
        assert_eq!(html.matches("<title>at ").count(), dots, "a dot for each object");
        assert!(html.contains(">migrated</text>"));
        for external in ["<script", "url(", "@import", "src=", "NaN", "href="] {
            assert!(!html.contains(external), "{external}");
        }
    }

    #[test]
    fn the_published_data_have_the_format_of_this_program() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images/demo.json");
        let text = std::fs::read_to_string(path).unwrap();
        let result: DemoResult = serde_json::from_str(&text).unwrap();
        let published: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_value(&result.setup).unwrap(), published["setup"]);
        let summaries = serde_json::to_value(summary::summaries(&result)).unwrap();
        let keys = |summary: &serde_json::Value| {
            summary.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(keys(&summaries[0]), keys(&published["summary"][0]));
        assert!(render_html(&result).contains(&summary::describe_setup(&result.setup)));
    }

    #[test]
    fn the_facts_state_the_congestion_control_that_was_used() {
        let mut recorder = DemoRecorder::new(fixtures::setup());
        recorder.apply(&DemoEvent::RunStarted(Variant::Smig));
        let text = |recorder: &DemoRecorder| describe_congestion_control(&recorder.result().setup);
        assert_eq!(text(&recorder), "cubic; bbr where SMig migrates the big file");
        recorder.apply(&DemoEvent::BulkCongestionControlMissing);
        assert_eq!(text(&recorder), "cubic");
    }

    #[test]
    fn empty_results_render_without_nan() {
        let mut result = fixtures::result();
        result.runs.clear();
        assert_balanced(&render_html(&result));
        result.runs.push(DemoRun::new(Variant::Smig));
        result.runs[0].problems.push("It <broke>.".into());
        let html = render_html(&result);
        assert_balanced(&html);
        assert!(html.contains("SMig at both ends: It &lt;broke&gt;."));
        assert!(!html.contains("NaN") && !html.contains("inf"));
    }

    #[test]
    fn json_round_trips() {
        let result = fixtures::result();
        let text = render_json(&result);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["format"], "smig-demo/2");
        assert_eq!(value["summary"][3]["migrations"], 1);
        assert_eq!(value["runs"][0]["objects"][0]["load"], "unloaded");
        assert!(value["setup"]["link"]["to_client"]["delay_ms"].as_f64() == Some(25.0));
        let parsed: DemoResult = serde_json::from_value(value).unwrap();
        assert_eq!(parsed.runs[1].objects.len(), result.runs[1].objects.len());
        assert_eq!(parsed.runs[3].migrations, result.runs[3].migrations);
    }
}
