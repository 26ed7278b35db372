//! The report: all findings as one page, and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use smig_chart::html::{Align, Page, Table};
use smig_chart::{format_count, format_number};

use super::claim::ClaimResult;
use super::finding::Finding;
use super::judgement::Judgement;
use super::smig::scheme;
use super::study::Study;
use crate::campaign::{TrialResult, build_inconsistency};

/// Chart widths for desktop and for phone screens.
const DESKTOP_WIDTH: f64 = 860.0;
const PHONE_WIDTH: f64 = 340.0;

/// Returns a table of every claim of a study with our measurement.
#[must_use]
pub fn summary(study: &Study, findings: &[Finding]) -> Table {
    let heading = |text: &str| (text.to_owned(), Align::Left);
    let table_row = |finding: &Finding, row: &super::ClaimRow| {
        let symbol = match row.verdict {
            ClaimResult::Reproduced => "✓",
            ClaimResult::InPart => "◐",
            ClaimResult::NotReproduced => "✗",
            ClaimResult::Undecided => "?",
            ClaimResult::NotJudged => "·",
            ClaimResult::NotMeasured => "–",
        };
        vec![
            finding.paper_name.to_owned(),
            row.claim.text.clone(),
            row.ours.clone(),
            format!("{symbol} {}", row.verdict),
        ]
    };
    Table {
        columns: ["figure", &format!("the {}", study.texts.claimant), "ours", "verdict"]
            .map(heading)
            .to_vec(),
        rows: findings
            .iter()
            .flat_map(|finding| finding.claim_rows.iter().map(move |one| table_row(finding, one)))
            .collect(),
    }
}

/// Renders the report as one self-contained page.
pub(super) fn render_html(study: &Study, findings: &[Finding], results: &[TrialResult]) -> String {
    let texts = study.texts;
    let mut page = Page::new(&texts.title);
    page.lead(&lead_text(study, findings));
    if findings.iter().any(|finding| !finding.omissions.is_empty()) {
        page.warning(&texts.quick);
    }
    if let Some(inconsistency) =
        build_inconsistency(results.iter().map(|result| result.origin.as_ref()))
    {
        page.warning(&format!("Not of one build with a known commit: {inconsistency}."));
    }
    page.raw(
        "<style>.claims th,.claims td:last-child{white-space:nowrap}</style><div class=\"claims\">",
    );
    page.table(&summary(study, findings));
    page.raw("</div>");
    page.paragraph(&Judgement::standard().text(texts.rules));
    for note in &texts.notes {
        page.paragraph(note);
    }
    for finding in findings.iter().filter(|finding| finding.run_count > 0) {
        add_section(&mut page, finding);
    }
    let unmeasured_names: Vec<_> = findings
        .iter()
        .filter(|finding| finding.run_count == 0)
        .map(|finding| finding.paper_name)
        .collect();
    if !unmeasured_names.is_empty() {
        page.heading("Not in this report");
        page.paragraph(&format!(
            "{}. To measure: smig lab reproduce {}",
            unmeasured_names.join(", "),
            findings
                .iter()
                .filter(|finding| finding.run_count == 0)
                .map(|finding| finding.name)
                .collect::<Vec<_>>()
                .join(" ")
        ));
    }
    page.heading(&texts.terms_heading);
    page.facts(&terms(study));
    page.heading("How it was measured");
    page.facts(&measurement_facts(study, results));
    page.finish()
}

/// Returns the names in charts and tables with their meanings. Those of the SMig paper are its schemes.
fn terms(study: &Study) -> Vec<(&'static str, String)> {
    if study.name == "smig" {
        return scheme::descriptions().map(|(label, about)| (label, about.to_owned())).collect();
    }
    study.texts.terms.iter().map(|term| (term.name.as_str(), term.about.clone())).collect()
}

fn lead_text(study: &Study, findings: &[Finding]) -> String {
    let rows = || findings.iter().flat_map(|finding| &finding.claim_rows);
    let count = |verdict| rows().filter(|row| row.verdict == verdict).count();
    format!(
        "Of {} claims that the {} states in numbers or plain words, {} are reproduced, {} in \
         part, {} not; {} are undecided, {} not judged, {} not measured.",
        rows().count(),
        study.texts.claimant,
        count(ClaimResult::Reproduced),
        count(ClaimResult::InPart),
        count(ClaimResult::NotReproduced),
        count(ClaimResult::Undecided),
        count(ClaimResult::NotJudged),
        count(ClaimResult::NotMeasured)
    )
}

fn add_section(page: &mut Page, finding: &Finding) {
    page.heading(&format!("{}: {}", finding.paper_name, finding.title));
    page.paragraph(finding.question);
    for warning in &finding.warnings {
        page.warning(warning);
    }
    for sentence in &finding.sentences {
        page.paragraph(sentence);
    }
    for interpretation in &finding.interpretations {
        page.paragraph(&format!("Our interpretation, not measured: {interpretation}"));
    }
    for chart in &finding.charts {
        page.chart(
            &chart.to_element(DESKTOP_WIDTH),
            &chart.to_element(PHONE_WIDTH),
            &chart.caption,
        );
    }
    for drawing in &finding.drawings {
        let [wide, narrow] = drawing.to_elements(DESKTOP_WIDTH, PHONE_WIDTH);
        page.chart(&wide, &narrow, &drawing.caption);
    }
    let mut source =
        format!("{}; scenario: {}.", format_count(finding.run_count, "run"), finding.source_file);
    if !finding.omissions.is_empty() {
        source += &format!(" Quick version: {}.", finding.omissions.join("; "));
    }
    if finding.missing_runs > 0 {
        source += &format!(
            " {} of the full version are missing; to continue: smig lab reproduce {}.",
            format_count(finding.missing_runs, "run"),
            finding.name
        );
    }
    page.paragraph(&source);
    page.raw("<details><summary>All numbers</summary>");
    page.table(&finding.table.to_display_table());
    page.raw("</details>");
}

/// Returns the conditions of the measurement: machines, versions, load, lateness.
fn measurement_facts(study: &Study, results: &[TrialResult]) -> Vec<(&'static str, String)> {
    let mut machines: BTreeMap<String, usize> = BTreeMap::new();
    let mut versions = BTreeSet::new();
    for result in results {
        let machine = &result.machine;
        let description = format!(
            "{}, {} of {}, up to {} at once",
            machine.kernel,
            format_count(machine.cpus, "processor"),
            machine.cpu,
            format_count(machine.jobs, "run")
        );
        *machines.entry(description).or_default() += 1;
        let is_used = |kind: &str| {
            kind == "smig"
                || result.scenario.servers.values().any(|server| server.kind.as_str() == kind)
        };
        versions.extend(result.versions.iter().filter(|(kind, _)| is_used(kind)).map(
            |(kind, version)| {
                if version.starts_with(kind.as_str()) {
                    version.clone()
                } else {
                    format!("{kind}: {version}")
                }
            },
        ));
    }
    let machines: Vec<_> = machines
        .into_iter()
        .map(|(description, runs)| format!("{description} ({})", format_count(runs, "run")))
        .collect();
    let seconds: f64 = results.iter().map(|result| result.seconds).sum();
    vec![
        (
            "Runs",
            format!(
                "{}, {} hours with setup and teardown",
                results.len(),
                format_number(seconds / 3600.0)
            ),
        ),
        ("Machine", machines.join("; ")),
        ("Programs", versions.into_iter().collect::<Vec<_>>().join("; ")),
        ("Build", builds(results)),
        ("Load of the machine", load(results)),
        ("Lateness of the link", lateness(results)),
        ("Network", study.texts.network.clone()),
        ("Numbers", study.texts.numbers.clone()),
        (source_term(study), study.texts.source.clone()),
    ]
}

fn source_term(study: &Study) -> &'static str {
    if study.texts.claimant == "post" { "The post" } else { "The paper" }
}

/// Returns the builds of smig that produced the results.
fn builds(results: &[TrialResult]) -> String {
    let mut builds: BTreeMap<String, usize> = BTreeMap::new();
    for result in results {
        let text = result.origin.as_ref().map(|origin| origin.build.to_string());
        *builds.entry(text.unwrap_or_else(|| "not recorded".into())).or_default() += 1;
    }
    let texts =
        builds.into_iter().map(|(build, runs)| format!("{build} ({})", format_count(runs, "run")));
    texts.collect::<Vec<_>>().join("; ")
}

/// Returns the load average, which includes the runs themselves.
fn load(results: &[TrialResult]) -> String {
    let origins = results.iter().filter_map(|result| result.origin.as_ref());
    let loads: Vec<f64> = origins.flat_map(|origin| origin.load).collect();
    match (smig_stats::median(&loads), loads.iter().copied().reduce(f64::max)) {
        (Some(median), Some(max)) => format!(
            "average over one minute, at the start and end of each run: median {}, maximum {}",
            format_number(median),
            format_number(max)
        ),
        _ => "not recorded".into(),
    }
}

fn lateness(results: &[TrialResult]) -> String {
    let lateness_ms = |result: &TrialResult| result.link.lateness.p99.as_secs_f64() * 1e3;
    let mut lateness_values: Vec<f64> = results.iter().map(lateness_ms).collect();
    lateness_values.sort_by(f64::total_cmp);
    let median = smig_stats::median(&lateness_values).unwrap_or(0.0);
    let max = lateness_values.last().copied().unwrap_or(0.0);
    let repeated_runs = results.iter().filter(|result| result.attempt > 1).count();
    format!(
        "99th percentile: {} ms in the median run, {} ms in the worst; {} repeated because of a \
         disturbance",
        format_number(median),
        format_number(max),
        format_count(repeated_runs, "run")
    )
}

/// Renders all findings as JSON.
#[must_use]
pub fn render_json(study: &Study, findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "name": finding.name, "place": finding.paper_name, "title": finding.title,
            "scenario": finding.source_file, "runs": finding.run_count, "missing": finding.missing_runs, "trimmed": finding.omissions,
            "claims": finding.claim_rows, "sentences": finding.sentences, "readings": finding.interpretations,
            "warnings": finding.warnings,
            "table": finding.table.to_json(),
        })
    };
    let mut document = json!({
        "format": "smig-reproduction/2",
        "rules": Judgement::standard().text(study.texts.rules),
        "figures": findings.iter().map(finding).collect::<Vec<_>>(),
    });
    // The first study's documents were published before there were others.
    if study.name != "smig" {
        document["study"] = json!(study.name);
    }
    document
}
