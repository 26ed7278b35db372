//! The result as numbers and sentences.

use serde::{Deserialize, Serialize};
use smig_chart::html::{Align, Table};
use smig_chart::{format_bytes, format_ms, format_number, table};
use smig_link::millis;
use smig_stats::{quantile, sorted_finite};

use super::data::{BrowserResult, BrowserSetup, PageLoad, VariantRun};
use super::variant::{BrowserVariant, Route};
use crate::demo::{BackgroundLoad, wrap};

/// One variant as numbers; a number is `None` if there are no values for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantSummary {
    /// The variant.
    pub variant: BrowserVariant,
    /// Median of the page loads without a download, in ms.
    #[serde(rename = "alone_ms")]
    pub unloaded_median_ms: Option<f64>,
    /// Number of page loads beside the download.
    pub loads: usize,
    /// Their median, in ms.
    pub median_ms: Option<f64>,
    /// Their minimum, in ms.
    pub min_ms: Option<f64>,
    /// Their maximum, in ms.
    pub max_ms: Option<f64>,
    /// Median time from the beginning of the navigation to the page's first byte, beside the
    /// download, in ms.
    pub first_byte_ms: Option<f64>,
    /// Rate of the download meanwhile, in Mbit/s.
    pub download_mbit_per_s: Option<f64>,
    /// Number of stream migrations; `None` if the route is direct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// Number of problems.
    pub problems: usize,
}

/// Summarises all variants.
#[must_use]
pub fn summaries(result: &BrowserResult) -> Vec<VariantSummary> {
    result.runs.iter().map(summarise).collect()
}

fn summarise(run: &VariantRun) -> VariantSummary {
    let times = |background, value: fn(&PageLoad) -> f64| {
        let loads = run.loads.iter().filter(|page| page.background == background);
        sorted_finite(&loads.map(value).collect::<Vec<_>>())
    };
    let with_download_ms = times(BackgroundLoad::BigFile, PageLoad::load_time_ms);
    VariantSummary {
        variant: run.variant,
        unloaded_median_ms: quantile(&times(BackgroundLoad::Unloaded, PageLoad::load_time_ms), 0.5),
        loads: with_download_ms.len(),
        median_ms: quantile(&with_download_ms, 0.5),
        min_ms: with_download_ms.first().copied(),
        max_ms: with_download_ms.last().copied(),
        first_byte_ms: quantile(
            &times(BackgroundLoad::BigFile, |page| page.timing.response_start_ms),
            0.5,
        ),
        download_mbit_per_s: run.download_mbit_per_s,
        migrations: run.migrations,
        problems: run.problems.len(),
    }
}

/// Returns the median of the variants' medians without a download, if these differ only by noise: on the
/// direct route the variants are different servers, and each is its own reference.
pub(super) fn unloaded_median(route: Route, summaries: &[VariantSummary]) -> Option<f64> {
    if route == Route::Direct {
        return None;
    }
    quantile(
        &sorted_finite(&summaries.iter().filter_map(|s| s.unloaded_median_ms).collect::<Vec<_>>()),
        0.5,
    )
}

/// Describes the measurement in one sentence.
#[must_use]
pub fn describe_setup(setup: &BrowserSetup) -> String {
    let download = match setup.route {
        Route::Direct => {
            "while it downloads a big file, both over one ordinary HTTP/2 connection to one server"
        }
        Route::Agent => "while a big file downloads, both through one agent and one gateway",
    };
    format!(
        "Chromium loads a page of {} images ({} in total) {download}, over an emulated link: {}.",
        setup.tile_count,
        format_bytes(setup.tiles_bytes),
        setup.link,
    )
}

/// Formats a page load time in seconds.
pub(super) fn format_seconds(time_ms: f64) -> String {
    format!("{:.2} s", time_ms / 1e3)
}

/// Returns the findings as sentences; they follow the numbers, whichever variant is ahead.
#[must_use]
pub fn findings(route: Route, summaries: &[VariantSummary]) -> Vec<String> {
    let mut sentences = match route {
        Route::Direct => summaries.iter().filter_map(direct_sentence).collect(),
        Route::Agent => agent_sentences(summaries),
    };
    sentences.extend(rates_sentence(summaries));
    sentences
}

/// States a variant's two medians. Not their ratio: alone, the connection was idle, and starts slowly.
fn direct_sentence(summary: &VariantSummary) -> Option<String> {
    let during = format_seconds(summary.median_ms?);
    let alone = summary
        .unloaded_median_ms
        .map_or_else(String::new, |alone| format!("{} alone, and ", format_seconds(alone)));
    let variant = phrase(summary.variant);
    Some(format!("With {variant}, the median page load takes {alone}{during} during the download."))
}

fn agent_sentences(summaries: &[VariantSummary]) -> Vec<String> {
    let unloaded_ms = unloaded_median(Route::Agent, summaries);
    let mut sentences = Vec::new();
    if let Some(unloaded_ms) = unloaded_ms {
        let text = format!(
            "The median page load takes {} with nothing else on the link.",
            format_seconds(unloaded_ms)
        );
        sentences.push(text);
    }
    for summary in summaries {
        let Some(median) = summary.median_ms else { continue };
        let ratio = unloaded_ms.map_or_else(String::new, |alone| {
            format!(", {} times as long as alone", format_number(median / alone))
        });
        let variant_phrase = match summary.variant {
            BrowserVariant::Smig if summary.migrations.unwrap_or_default() > 0 => {
                "SMig, where streams migrated to other connections"
            }
            BrowserVariant::Smig => "SMig, but without a migration",
            variant => phrase(variant),
        };
        let median_text = format_seconds(median);
        sentences.push(format!(
            "During the download, with {variant_phrase}, it takes {median_text}{ratio}."
        ));
    }
    sentences
}

fn rates_sentence(summaries: &[VariantSummary]) -> Option<String> {
    let rates: Vec<_> = summaries.iter().filter_map(rate_phrase).collect();
    let [first, middle @ .., last] = &rates[..] else { return None };
    let middle: String = middle.iter().map(|rate| format!(", {rate}")).collect();
    Some(format!("During the page loads the download gets {first}{middle} and {last}."))
}

const fn phrase(variant: BrowserVariant) -> &'static str {
    match variant {
        BrowserVariant::PlainHttp2 => "plain HTTP/2",
        BrowserVariant::NotsentLowat => "TCP_NOTSENT_LOWAT",
        _ => variant.title(),
    }
}

fn rate_phrase(summary: &VariantSummary) -> Option<String> {
    let rate = summary.download_mbit_per_s?;
    Some(format!("{rate:.1} Mbit/s with {}", phrase(summary.variant)))
}

/// Returns the final table.
pub(super) fn summary_table(route: Route, summaries: &[VariantSummary]) -> Table {
    let mut columns = vec![
        ("", Align::Left),
        ("alone", Align::Right),
        ("median", Align::Right),
        ("fastest", Align::Right),
        ("slowest", Align::Right),
        ("first byte", Align::Right),
        ("download", Align::Right),
    ];
    if route == Route::Agent {
        columns.push(("migrations", Align::Right));
    }
    let column_count = columns.len();
    let time =
        |value: Option<f64>| value.map_or_else(|| "–".into(), |v| format!("{} ms", format_ms(v)));
    let rate = |value: Option<f64>| value.map_or_else(|| "–".into(), |v| format!("{v:.1} Mb/s"));
    let row = |s: &VariantSummary| {
        let mut cells = vec![
            s.variant.short_title().to_owned(),
            time(s.unloaded_median_ms),
            time(s.median_ms),
            time(s.min_ms),
            time(s.max_ms),
            time(s.first_byte_ms),
            rate(s.download_mbit_per_s),
            s.migrations.unwrap_or_default().to_string(),
        ];
        cells.truncate(column_count);
        cells
    };
    Table {
        columns: columns.into_iter().map(|(name, align)| (name.to_owned(), align)).collect(),
        rows: summaries.iter().map(row).collect(),
    }
}

/// Maximum lateness of packets that does not affect measurements of a round trip of tens of
/// milliseconds.
const MAX_LATENESS_MS: f64 = 2.0;

/// Number of page loads from which a median is more than a glimpse.
const MIN_LOADS: usize = 5;

/// Warns if a variant has too few loads of one kind.
fn few_loads_warning(result: &BrowserResult) -> Option<String> {
    let counts = result.runs.iter().flat_map(|run| {
        [BackgroundLoad::Unloaded, BackgroundLoad::BigFile]
            .map(|kind| run.loads.iter().filter(|page| page.background == kind).count())
    });
    let fewest = counts.min().filter(|&count| count < MIN_LOADS)?;
    Some(format!(
        "Few loads: a median of {fewest} says little about small differences; measure with --loads \
         {MIN_LOADS} or more."
    ))
}

/// Returns problems, and reasons why the numbers may not reflect the link alone.
pub(super) fn warnings(result: &BrowserResult) -> Vec<String> {
    let mut warnings = Vec::from_iter(few_loads_warning(result));
    for run in &result.runs {
        warnings.extend(run.problems.iter().map(|problem| format!("{}: {problem}", run.variant)));
        let lateness_ms = run.link.map_or(0.0, |link| millis::of(link.lateness.p99));
        if lateness_ms > MAX_LATENESS_MS {
            warnings.push(format!(
                "{}: the machine was overloaded: one packet in a hundred was over {} ms late. \
                 Measure again on an idle machine before relying on small differences.",
                run.variant,
                format_number(lateness_ms)
            ));
        }
    }
    warnings
}

/// Renders the result as text: sentences of at most 79 columns, and a wider table.
#[must_use]
pub fn render_text(result: &BrowserResult) -> String {
    let summaries = summaries(result);
    let mut out = table::to_text(&summary_table(result.setup.route, &summaries));
    for sentence in findings(result.setup.route, &summaries).into_iter().chain(warnings(result)) {
        out.push('\n');
        out.push_str(&wrap(&sentence, 79));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixtures;
    use super::*;

    #[test]
    fn pages_alone_and_beside_the_download_are_summarised_separately() {
        let summaries = summaries(&fixtures::result());
        let [plain, smig] = &summaries[..] else { panic!("two variants") };
        assert_eq!(
            (plain.unloaded_median_ms, plain.loads, plain.median_ms),
            (Some(620.0), 3, Some(3_200.0))
        );
        assert_eq!(
            (smig.min_ms, smig.max_ms, smig.migrations),
            (Some(700.0), Some(760.0), Some(1))
        );
        assert_eq!(unloaded_median(Route::Agent, &summaries), Some(620.0));
        assert_eq!(unloaded_median(Route::Direct, &summaries), None);
    }

    #[test]
    fn the_text_is_at_most_100_columns_wide() {
        let result = fixtures::result();
        let text = render_text(&result);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(format!("{}\n\n{text}", describe_setup(&result.setup)));
    }

    #[test]
    fn the_direct_comparison_counts_no_migrations() {
        let result = fixtures::direct_result();
        let text = render_text(&result);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(!text.contains("migration"), "{text}");
        assert!(!text.contains("times as long"), "{text}");
        insta::assert_snapshot!(format!("{}\n\n{text}", describe_setup(&result.setup)));
    }

    #[test]
    fn few_loads_are_reported() {
        let mut result = fixtures::result();
        let text = few_loads_warning(&result).unwrap();
        assert!(text.starts_with("Few loads: a median of 3"), "{text}");
        for run in &mut result.runs {
            run.loads.extend(run.loads.clone());
        }
        assert_eq!(few_loads_warning(&result), None);
        result.runs[1].loads.retain(|page| page.background == BackgroundLoad::Unloaded);
        assert!(few_loads_warning(&result).unwrap().contains("median of 0"));
        result.runs.clear();
        assert_eq!(few_loads_warning(&result), None);
    }

    #[test]
    fn problems_and_lateness_are_reported() {
        let mut result = fixtures::result();
        assert_eq!(warnings(&result).len(), 1, "few loads");
        result.runs[1].migrations = Some(0);
        result.runs[1].problems.push("Something broke.".into());
        if let Some(link) = &mut result.runs[0].link {
            link.lateness.p99 = Duration::from_millis(7);
        }
        let text = render_text(&result);
        for word in ["SMig at both ends: Something broke.", "7 ms", "without a migration"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        result.runs[1].loads.clear();
        assert!(render_text(&result).contains('–'));
    }
}
