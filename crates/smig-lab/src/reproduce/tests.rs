//! Scenario files, quick against full campaigns, and findings from recorded results.

use std::collections::BTreeSet;

use super::document;
use super::smig::scheme;
use super::*;
use crate::campaign::TrialResult;
use crate::scenario::{Campaign, ConditionName, Scenario};

/// Recorded runs, one per line; objects are reduced to the fields that analyses read.
const RECORDED_RUNS: &str = include_str!("recorded.jsonl");

fn recorded_results() -> Vec<TrialResult> {
    RECORDED_RUNS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn study() -> &'static Study {
    Study::by_name("smig").unwrap()
}

fn findings(results: &[TrialResult], survey: Option<smig_survey::Table>) -> Vec<Finding> {
    study().findings(results, &Evidence { survey, ..Evidence::default() })
}

fn render_html(findings: &[Finding], results: &[TrialResult]) -> String {
    document::render_html(study(), findings, results)
}

fn campaign(experiment: &Experiment, extent: Extent) -> Campaign {
    experiment
        .campaign(extent, &|_| Ok(()))
        .unwrap_or_else(|faults| panic!("{}: {faults:?}", experiment.scenario_path))
}

#[test]
fn every_scenario_parses_and_has_its_experiments_name() {
    for experiment in study().experiments() {
        let full = campaign(experiment, Extent::Full);
        assert_eq!(full.name, experiment.name);
        assert_eq!(full.repetitions, 10, "{}: the paper's", experiment.name);
        assert!(full.description.starts_with(experiment.paper_name), "{}", full.description);
        assert!(
            experiment.scenario_text.contains(&format!("smig lab reproduce {}", experiment.name))
        );
        assert!(
            experiment
                .scenario_text
                .contains(&format!("smig lab run {}", experiment.scenario_path))
        );
    }
}

#[test]
fn every_scheme_is_described() {
    for experiment in study().experiments() {
        for condition in campaign(experiment, Extent::Full).conditions {
            let scheme = condition.name.level("scheme").unwrap();
            assert!(scheme::by_key(scheme).is_some(), "{scheme}");
        }
    }
}

/// Asserts that a quick scenario differs from the full one only in lengths, and is never longer.
fn assert_is_reduced(quick: &Scenario, full: &Scenario) {
    let mut expected_quick = full.clone();
    for (name, transfer) in &mut expected_quick.workload.transfers {
        let quick_transfer = &quick.workload.transfers[name];
        assert!(quick_transfer.size_of(0) <= transfer.size_of(0), "{name}");
        assert!(quick_transfer.count.unwrap_or(0) <= transfer.count.unwrap_or(u32::MAX), "{name}");
        transfer.size = quick_transfer.size.clone();
        transfer.count = quick_transfer.count;
        if let (Some(quick_cancel), Some(full_cancel)) =
            (&quick_transfer.cancel, &mut transfer.cancel)
        {
            assert!(quick_cancel.after <= full_cancel.after, "{name}");
            full_cancel.after = quick_cancel.after;
        }
    }
    assert_eq!(*quick, expected_quick);
}

#[test]
fn quick_campaigns_are_subsets_of_full_ones() {
    for experiment in study().experiments() {
        let (full, quick) =
            (campaign(experiment, Extent::Full), campaign(experiment, Extent::Quick));
        assert!(!quick.conditions.is_empty() && quick.repetitions < full.repetitions);
        for condition in &quick.conditions {
            let full_condition = full.conditions.iter().find(|whole| whole.name == condition.name);
            assert_is_reduced(&condition.scenario, &full_condition.unwrap().scenario);
            let repetitions = experiment.repetitions(Extent::Quick, &quick, &condition.name);
            assert!((1..=quick.repetitions).contains(&repetitions), "{}", condition.name);
        }
        // Each includes plain HTTP/2, or its equivalent, as the baseline.
        let schemes: BTreeSet<_> = quick
            .conditions
            .iter()
            .filter_map(|condition| condition.name.level("scheme"))
            .collect();
        assert!(schemes.contains("NoMig") || schemes.contains("Http2"), "{schemes:?}");
    }
}

#[test]
fn small_objects_are_requested_while_the_file_downloads() {
    for experiment in study().experiments() {
        for extent in [Extent::Full, Extent::Quick] {
            for condition in campaign(experiment, extent).conditions {
                let transfers = &condition.scenario.workload.transfers;
                let (Some(small), Some(big)) = (transfers.get("small"), transfers.get("big"))
                else {
                    continue;
                };
                let (Some(count), None) = (small.count, big.count) else { continue };
                let rate = condition.scenario.link.to_client.rate.mean_bits_per_second() as f64;
                let file_end_s = big.start.0.as_secs_f64() + big.size_of(0) as f64 * 8.0 / rate;
                let interval_s = small.every.unwrap().0.as_secs_f64();
                let last_start_s = small.start.0.as_secs_f64() + interval_s * f64::from(count - 1);
                assert!(
                    last_start_s < file_end_s,
                    "{} {}: {last_start_s} {file_end_s}",
                    experiment.name,
                    condition.name
                );
            }
        }
    }
}

/// Figures 4 to 7 differ only in link and send buffers.
#[test]
fn figures_4_to_7_differ_only_in_link_and_send_buffers() {
    let scenario = |name: &str| {
        let wanted = ConditionName(vec![
            ("scheme".into(), "MigSP".into()),
            ("congestion".into(), "bbr".into()),
        ]);
        let campaign = campaign(Experiment::by_name(name).unwrap(), Extent::Full);
        let is_selected = |condition: &crate::scenario::Condition| {
            wanted.0.iter().all(|(axis, level)| condition.name.level(axis) == Some(level))
        };
        campaign.conditions.into_iter().find(is_selected).unwrap().scenario
    };
    let wired = scenario("figure-4");
    for name in ["figure-5", "figure-6", "figure-7"] {
        let mut other_scenario = scenario(name);
        other_scenario.link = wired.link.clone();
        other_scenario.hosts.server.send_buffer = wired.hosts.server.send_buffer;
        assert_eq!(other_scenario, wired, "{name}");
    }
    let paper_link = smig_link::LinkSpec::paper_wired();
    assert_eq!(wired.link, paper_link, "the wired link is the profile of this name");
}

#[test]
fn without_results_every_claim_is_not_measured() {
    let findings = findings(&[], None);
    let rows = || findings.iter().flat_map(|finding| &finding.claim_rows);
    assert!(rows().count() > 20);
    assert!(rows().all(|row| row.verdict == ClaimResult::NotMeasured && !row.ours.is_empty()));
    let html = render_html(&findings, &[]);
    assert!(html.contains("Not in this report"));
}

#[test]
fn causes_are_omitted_without_their_measurements() {
    let results = recorded_results();
    let findings_without_plain = |results: &[TrialResult]| {
        let is_plain = |result: &&TrialResult| {
            result.id.condition.level("scheme").is_some_and(|on| on == "NoMig")
        };
        let rest: Vec<_> = results.iter().filter(|result| !is_plain(result)).cloned().collect();
        findings(&rest, None)
    };
    for finding in findings_without_plain(&results) {
        let causes = ["a round trip and the link's queue remain", "the file fits into the send"];
        for cause in causes {
            let is_given = finding.interpretations.iter().any(|reading| reading.contains(cause));
            assert!(!is_given, "{}: {cause}", finding.name);
        }
    }
}

#[test]
fn another_setting_is_not_taken_for_the_papers() {
    let results = recorded_results();
    let sentences = |congestion: &str| {
        let mut results = results.clone();
        results.retain(|result| result.id.campaign == "figure-5-quick");
        for (axis, level) in results.iter_mut().flat_map(|result| &mut result.id.condition.0) {
            if axis == "congestion" {
                *level = congestion.to_owned();
            }
        }
        let findings = findings(&results, None);
        let finding = findings.into_iter().find(|finding| finding.name == "figure-5");
        finding.unwrap().sentences.join(" ")
    };
    let (papers, other) = (sentences("cubic"), sentences("bbr"));
    assert!(!papers.contains("With cubic, queue of 75 packets: "), "{papers}");
    assert!(other.contains("With bbr, queue of 75 packets: "), "{other}");
}

#[test]
fn objects_before_the_big_file_count_as_failed_too() {
    for (campaign, figure) in [("figure-5-quick", "figure-5"), ("slide-table-quick", "slide-table")]
    {
        for transfer in ["alone", "small", "big"] {
            let mut results = recorded_results();
            results.retain(|result| result.id.campaign == campaign);
            let objects = results.iter_mut().flat_map(|result| &mut result.observation.objects);
            let mut found = objects.filter(|object| object.name == transfer);
            found.next().unwrap().outcome = crate::workload::Outcome::TimedOut;
            let findings = findings(&results, None);
            let finding = findings.iter().find(|finding| finding.name == figure).unwrap();
            let warning = "1 objects did not complete and are not counted.".to_owned();
            assert!(finding.warnings.contains(&warning), "{transfer}: {:?}", finding.warnings);
        }
    }
}

#[test]
fn recorded_runs_give_the_same_report() {
    let results = recorded_results();
    let findings = findings(&results, None);
    let with_runs: Vec<_> = findings.iter().filter(|finding| finding.run_count > 0).collect();
    assert!(with_runs.len() >= 5, "{}", with_runs.len());
    for finding in &with_runs {
        assert!(!finding.omissions.is_empty(), "{}: these are quick runs", finding.name);
        assert!(!finding.sentences.is_empty(), "{}", finding.name);
        assert!(!finding.charts.is_empty(), "{}", finding.name);
        let column_count = finding.table.columns.len();
        assert!(finding.table.rows.iter().all(|row| row.len() == column_count), "{}", finding.name);
        let claim_count = finding.figure.claims.len();
        assert_eq!(
            finding.claim_rows.len(),
            claim_count,
            "{}: each claim has an answer",
            finding.name
        );
    }
    insta::assert_snapshot!(smig_chart::table::to_text(&summary(study(), &findings)));
}

#[test]
fn the_page_is_self_contained_and_complete() {
    let results = recorded_results();
    let findings = findings(&results, None);
    let html = render_html(&findings, &results);
    smig_chart::html::assert_balanced(&html);
    for external_reference in ["<script", "http:", "https:", "url(", "@import", "src="] {
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!html.contains(external_reference), "{external_reference}");
    }
    let json = render_json(study(), &findings).to_string();
    assert!(json.contains("\"place\":\"Figure 5\"") && json.contains("\"verdict\":\"not-judged\""));
    // These were recorded before results recorded their build, which the report says.
    assert!(html.contains("Not of one build with a known commit"));
    assert!(!html.contains("probably") || html.contains("Our interpretation, not measured"));
}

#[test]
fn a_report_is_written_as_files() {
    let results = recorded_results();
    let findings = findings(&results, None);
    let dir = tempfile::tempdir().unwrap();
    let report_files = write_report(dir.path(), study(), &findings, &results).unwrap();
    assert_eq!(report_files.tables.len(), 2 * report_files.figures.len());
    let all_paths = report_files.figures.iter().chain(&report_files.tables).chain([
        &report_files.page,
        &report_files.json,
        &report_files.summary,
    ]);
    for path in all_paths {
        assert!(std::fs::metadata(path).unwrap().len() > 40, "{}", path.display());
    }
}

#[test]
fn verdicts_follow_their_rules() {
    use super::claim::MeasuredValue;
    use super::judgement::Judgement;
    let without_interval = |value| MeasuredValue { value, interval: None };
    let between = |low: f64, high: f64| MeasuredValue {
        value: f64::midpoint(low, high),
        interval: Some((low, high)),
    };
    for (expected, measured, verdict) in [
        (Expected::Seconds(8.4), between(5.7, 6.0), ClaimResult::Reproduced),
        (Expected::Seconds(8.4), between(5.5, 6.0), ClaimResult::InPart),
        (Expected::Seconds(8.4), between(2.0, 2.9), ClaimResult::Undecided),
        (Expected::Seconds(8.4), between(0.4, 0.5), ClaimResult::NotReproduced),
        (Expected::Bytes(150e3), between(150e3, 160e3), ClaimResult::Reproduced),
        (Expected::Bytes(150e3), between(0.0, 0.0), ClaimResult::NotReproduced),
        (Expected::LessBy(0.9), between(0.81, 0.85), ClaimResult::Reproduced),
        // The mean is within the rule, the interval is not.
        (Expected::LessBy(0.9), between(0.79, 0.85), ClaimResult::InPart),
        (Expected::LessBy(0.9), between(0.4, 0.5), ClaimResult::Undecided),
        (Expected::LessBy(0.9), between(-0.5, 0.1), ClaimResult::NotReproduced),
        (Expected::MoreByLessThan(0.025), between(-0.01, 0.02), ClaimResult::Reproduced),
        (Expected::MoreByLessThan(0.025), between(-0.01, 0.03), ClaimResult::InPart),
        (Expected::MoreByLessThan(0.025), between(0.04, 0.06), ClaimResult::Undecided),
        (Expected::MoreByLessThan(0.025), between(0.2, 0.3), ClaimResult::NotReproduced),
        (Expected::LongerThan(5.0), between(3.0, 4.0), ClaimResult::InPart),
        (Expected::More, between(0.29, 0.31), ClaimResult::Reproduced),
        (Expected::More, between(-0.1, 0.3), ClaimResult::Undecided),
        (Expected::Less, between(-0.3, -0.2), ClaimResult::NotReproduced),
        (Expected::Seconds(8.4), without_interval(8.4), ClaimResult::NotJudged),
        (Expected::Web, without_interval(1.0), ClaimResult::NotMeasured),
    ] {
        assert_eq!(
            Judgement::standard().judge(expected, measured),
            verdict,
            "{expected:?} {measured:?}"
        );
    }
}

/// All recorded runs, repeated with other seeds.
fn repeat_recorded(times: u64) -> Vec<TrialResult> {
    let with_seed = |seed: u64| {
        recorded_results().into_iter().map(move |mut result| {
            result.seed += seed;
            result.id.repetition = 1 + u32::try_from(seed).unwrap();
            result
        })
    };
    (0..times).flat_map(with_seed).collect()
}

#[test]
fn intervals_and_verdicts_need_five_runs_and_a_maximum_has_none() {
    let measured_rows = |times| {
        let findings = findings(&repeat_recorded(times), None);
        let rows = findings.into_iter().flat_map(|finding| finding.claim_rows);
        rows.filter(|row| row.value.is_some()).collect::<Vec<_>>()
    };
    let rows_of_four_runs = measured_rows(4);
    assert!(
        rows_of_four_runs
            .iter()
            .all(|row| row.interval.is_none() && row.verdict == ClaimResult::NotJudged)
    );
    let rows_of_five_runs = measured_rows(5);
    let is_maximum = |row: &&ClaimRow| row.claim.experiment == "figure-9" && row.claim.key == "lte";
    assert!(rows_of_five_runs.iter().any(|row| row.verdict == ClaimResult::Reproduced));
    for row in &rows_of_five_runs {
        assert_eq!(row.interval.is_none(), is_maximum(&row), "{row:?}");
        assert_eq!(row.verdict == ClaimResult::NotJudged, is_maximum(&row), "{row:?}");
    }
}

#[test]
fn a_report_of_several_builds_has_a_warning() {
    use crate::campaign::{Build, Origin};
    let mut results = recorded_results();
    let origin = |program: &str| {
        let build = Build { commit: Some("c".repeat(40)), program_sha256: program.to_owned() };
        Some(Origin { build, load: [0.5, 1.5] })
    };
    for result in &mut results {
        result.origin = origin("p1");
    }
    let page = |results: &[TrialResult]| render_html(&findings(results, None), results);
    let page_of_one_build = page(&results);
    assert!(
        !page_of_one_build.contains("Not of one build")
            && page_of_one_build.contains("commit cccccccccccc"),
        "{page_of_one_build}"
    );
    assert!(page_of_one_build.contains("median 1, maximum 1.5"), "{page_of_one_build}");
    results[0].origin = origin("p2");
    assert!(page(&results).contains("Not of one build"));
}

#[test]
fn paper_conditions_have_the_papers_repetitions_and_others_fewer() {
    let missing =
        |name: &str| Experiment::by_name(name).map(|experiment| experiment.missing_runs(&[]));
    // Four schemes, two files, two send buffers.
    assert_eq!(missing("figure-10"), Some(16 * 10));
    // Twelve schemes in the paper's setting, and in five others.
    assert_eq!(missing("figure-4"), Some(12 * 10 + 60 * 3));
}

/// SHA-256 of all trials' names and hashes in docs/reproduction/full/results.jsonl.gz, shortened. A result
/// belongs to the scenario with its hash: a scenario's serialized form must not change.
const PUBLISHED_HASHES: [(&str, usize, &str); 10] = [
    ("slide-table", 80, "abe09ed136ece6ea"),
    ("table-2", 140, "96982aebbbd156b2"),
    ("figure-4", 300, "16fabdb028365ead"),
    ("figure-5", 300, "a6a35ad23f36c241"),
    ("figure-6", 156, "a177dbaacde5d48e"),
    ("figure-7", 156, "c33ffe845a2a5955"),
    ("figure-8", 280, "86ff9c3cb0a7d76e"),
    ("figure-9", 200, "0a5bc67875cf890b"),
    ("figure-10", 160, "9c38b889270e9a8d"),
    ("figure-11", 120, "1136668c3b25f00b"),
];

#[test]
fn the_hashes_of_published_trials_are_unchanged() {
    use std::collections::BTreeMap;

    use sha2::{Digest as _, Sha256};

    for (name, count, digest) in PUBLISHED_HASHES {
        let experiment = Experiment::by_name(name).unwrap();
        let full = campaign(experiment, Extent::Full);
        let is_measured = |trial: &crate::scenario::Trial| {
            trial.id.repetition <= experiment.repetitions(Extent::Full, &full, &trial.id.condition)
        };
        let trials = full.trials().into_iter().filter(is_measured);
        let hashes: BTreeMap<_, _> =
            trials.map(|trial| (trial.id.to_string(), trial.hash().to_owned())).collect();
        assert_eq!(hashes.len(), count, "{name}");
        let text: String = hashes.iter().map(|(id, hash)| format!("{id} {hash}\n")).collect();
        let found: String =
            Sha256::digest(text)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, digest, "{name}");
    }
}
