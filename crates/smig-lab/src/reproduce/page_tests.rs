//! The studies of pages: their scenarios, each verdict from invented loads, and their reports.

use std::collections::BTreeSet;

use super::claim::Measure;
use super::delay::{Probes, SenderProbe, WindowRatio};
use super::document::render_html;
use super::evaluate::{combinations, override_levels};
use super::*;
use crate::campaign::TrialResult;
use crate::identify::Family;
use crate::scenario::{Campaign, ConditionName};
use crate::workload::{Outcome, PageLoad, PageMetric};

/// A result whose identity and loads are replaced.
fn template() -> TrialResult {
    let line = include_str!("recorded.jsonl").lines().next().unwrap();
    let mut result: TrialResult = serde_json::from_str(line).unwrap();
    result.observation.objects.clear();
    result
}

fn load(number: u32, seconds: f64) -> PageLoad {
    let ns = |share: f64| Some((seconds * share * 1e9) as u64);
    PageLoad {
        name: "page".into(),
        number,
        started_ns: 0,
        rendered_ns: ns(0.2),
        visible_ns: ns(0.6),
        visual: None,
        omitted_frames: 0,
        clock_error_ns: None,
        ended_ns: (seconds * 1e9) as u64,
        outcome: Outcome::Complete,
        replay: None,
    }
}

/// A run of one load for each of the times, in seconds.
fn run(campaign: &str, levels: &[(&str, &str)], seed: u64, times: &[f64]) -> TrialResult {
    let mut result = template();
    result.id.campaign = campaign.into();
    let pair = |(axis, level): &(&str, &str)| ((*axis).to_owned(), (*level).to_owned());
    result.id.condition = ConditionName(levels.iter().map(pair).collect());
    result.id.repetition = u32::try_from(seed).unwrap();
    result.seed = seed;
    result.observation.pages = (0..).zip(times).map(|(number, time)| load(number, *time)).collect();
    result
}

/// Runs of HTTP/1.1 and HTTP/2 in a setting: `runs` of each, in which HTTP/2 takes `ratio` times as long.
fn pair(campaign: &str, levels: &[(&str, &str)], runs: u64, ratio: f64) -> Vec<TrialResult> {
    let of = |protocol, factor: f64| {
        (1..=runs).map(move |seed| {
            let levels = [levels, &[("protocol", protocol)]].concat();
            // Runs differ by a few percent, in both versions alike.
            run(campaign, &levels, seed, &[factor * (1.0 + seed as f64 / 50.0)])
        })
    };
    of("http1", 1.0).chain(of("http2", ratio)).collect()
}

fn row<'a>(findings: &'a [Finding], figure: &str, key: &str) -> &'a ClaimRow {
    let finding = findings.iter().find(|finding| finding.name == figure).unwrap();
    finding.claim_rows.iter().find(|row| row.claim.key == key).unwrap()
}

fn study(name: &str) -> &'static Study {
    Study::by_name(name).unwrap()
}

fn campaign(experiment: &Experiment, extent: Extent) -> Campaign {
    experiment
        .campaign(extent, &|_| Ok(()))
        .unwrap_or_else(|faults| panic!("{}: {faults:?}", experiment.scenario_path))
}

fn page_experiments() -> impl Iterator<Item = &'static Experiment> {
    ["delay", "mosaic"].into_iter().flat_map(|name| study(name).experiments())
}

#[test]
fn scenarios_say_which_command_measures_them() {
    for experiment in page_experiments() {
        assert!(!campaign(experiment, Extent::Full).conditions.is_empty());
        let word = experiment.study;
        for command in [
            format!("smig lab reproduce {word}"),
            format!("smig lab run {}", experiment.scenario_path),
        ] {
            assert!(experiment.scenario_text.contains(&command), "{}: {command}", experiment.name);
        }
    }
}

#[test]
fn quick_campaigns_are_parts_of_full_ones() {
    for experiment in page_experiments() {
        let (full, quick) =
            (campaign(experiment, Extent::Full), campaign(experiment, Extent::Quick));
        assert!(quick.repetitions <= full.repetitions, "{}", experiment.name);
        for condition in &quick.conditions {
            let whole = full.conditions.iter().find(|whole| whole.name == condition.name).unwrap();
            let mut expected = whole.scenario.clone();
            for (name, page) in &mut expected.workload.pages {
                let quick_page = &condition.scenario.workload.pages[name];
                assert!(quick_page.loads() <= page.loads(), "{}", condition.name);
                page.count = quick_page.count;
            }
            assert_eq!(condition.scenario, expected, "{}", condition.name);
        }
    }
}

/// Otherwise a quick report could judge nothing.
#[test]
fn quick_campaigns_have_every_cell_of_every_claim() {
    for experiment in page_experiments() {
        let quick = campaign(experiment, Extent::Quick);
        let has = |levels: &std::collections::BTreeMap<&str, &str>| {
            quick.conditions.iter().any(|condition| {
                levels.iter().all(|(axis, level)| condition.name.level(axis) == Some(level))
            })
        };
        for claim in &experiment.figure.claims {
            let Measure::Share(share) = &claim.measure else { continue };
            let baseline = combinations(&share.baseline);
            let along_levels = share.along_selection();
            let along = combinations(&along_levels);
            for (cell, _) in combinations(&share.cells) {
                for (further, _) in &along {
                    let cell = override_levels(&cell, further);
                    assert!(has(&cell), "{}: {cell:?}", claim.key);
                    assert!(has(&override_levels(&cell, &baseline[0].0)), "{}", claim.key);
                }
            }
        }
    }
}

/// Twelve links with the given numbers of ratios: clearly above 1, clearly below, in between.
fn places(above: usize, below: usize, between: usize) -> Vec<Finding> {
    let ratios = std::iter::repeat_n(2.0, above)
        .chain(std::iter::repeat_n(0.5, below))
        .chain(std::iter::repeat_n(1.1, between));
    let results: Vec<_> = (1..)
        .zip(ratios)
        .flat_map(|(place, ratio): (u32, f64)| {
            pair("delay-places-quick", &[("place", &place.to_string())], 1, ratio)
        })
        .collect();
    study("delay").findings(&results, &Evidence::default())
}

#[test]
fn a_claim_about_cells_has_each_verdict() {
    for ((above, below, between), verdict, text) in [
        ((9, 3, 0), ClaimResult::Reproduced, "9 of 12 cells, 3 not; 0.5 to 2; one run each"),
        ((6, 6, 0), ClaimResult::InPart, "6 of 12 cells, 6 not;"),
        ((3, 9, 0), ClaimResult::NotReproduced, "3 of 12 cells, 9 not;"),
        ((3, 0, 9), ClaimResult::Undecided, "3 of 12 cells, 9 open;"),
        ((6, 0, 0), ClaimResult::InPart, "6 of 12 cells, 6 without a run; 2;"),
        ((4, 0, 0), ClaimResult::NotJudged, "4 of 12 cells, 8 without a run; 2; one run each"),
        ((0, 0, 0), ClaimResult::NotMeasured, "no results"),
    ] {
        let findings = places(above, below, between);
        let row = row(&findings, "delay-places", "index");
        assert_eq!(row.verdict, verdict, "{above} {below} {between}: {}", row.ours);
        assert!(row.ours.starts_with(text), "{}", row.ours);
    }
    let findings = places(6, 6, 0);
    assert_eq!(row(&findings, "delay-places", "rendered").verdict, ClaimResult::Reproduced);
    let findings = places(12, 0, 0);
    assert_eq!(row(&findings, "delay-places", "rendered").verdict, ClaimResult::NotReproduced);
}

#[test]
fn from_five_runs_on_a_cell_has_an_interval_of_its_own() {
    let verdict = |runs: u64| {
        let results: Vec<_> = ["bbr", "yeah", "cubic-hystart"]
            .into_iter()
            .flat_map(|control| {
                pair("delay-cases", &[("case", "epa"), ("control", control)], runs, 0.9)
            })
            .collect();
        let findings = study("delay").findings(&results, &Evidence::default());
        (
            row(&findings, "delay-cases", "epa").verdict,
            row(&findings, "delay-cases", "epa").ours.clone(),
        )
    };
    let (few, text) = verdict(4);
    assert_eq!(few, ClaimResult::Undecided, "{text}");
    let (enough, text) = verdict(5);
    assert_eq!(enough, ClaimResult::Reproduced, "{text}");
    assert!(text.starts_with("3 of 3 cells; 0.9; 5 runs each"), "{text}");
}

#[test]
fn a_claim_along_an_axis_compares_ratios() {
    let page = |window: &'static str, ratio| {
        let levels = [
            ("network", "slowdown"),
            ("objects", "48"),
            ("total", "9MB"),
            ("control", "yeah"),
            ("window", window),
        ];
        pair("delay-grid-quick", &levels, 1, ratio)
    };
    let results = [page("10", 8.0), page("40", 2.0)].concat();
    let findings = study("delay").findings(&results, &Evidence::default());
    let row = row(&findings, "delay-grid", "window-gain");
    assert!(row.ours.starts_with("1 of 8 cells, 7 without a run; 0.25 times"), "{}", row.ours);
}

#[test]
fn percentiles_of_few_loads_are_not_judged() {
    let findings = |loads: usize| {
        let result = |protocol, factor: f64, seed: u64| {
            let times: Vec<f64> = (0..loads).map(|n| factor * (1.0 + n as f64 / 1e3)).collect();
            run("mosaic-table", &[("network", "3g"), ("protocol", protocol)], seed, &times)
        };
        let runs = |protocol, factor| (1..=5).map(move |seed| result(protocol, factor, seed));
        let results: Vec<_> = runs("http1", 5.2).chain(runs("http2", 1.4)).collect();
        study("mosaic").findings(&results, &Evidence::default())
    };
    let (few, many) = (findings(19), findings(20));
    assert_eq!(row(&few, "mosaic-table", "3g-median").verdict, ClaimResult::Reproduced);
    assert_eq!(row(&few, "mosaic-table", "3g-p99").verdict, ClaimResult::NotJudged);
    assert_eq!(row(&many, "mosaic-table", "3g-p99").verdict, ClaimResult::Reproduced);
    assert_eq!(row(&many, "mosaic-push", "push").verdict, ClaimResult::NotMeasured);
}

#[test]
fn loads_that_failed_are_counted() {
    let mut results = pair("mosaic-table", &[("network", "3g")], 2, 0.3);
    results[0].observation.pages[0].outcome = Outcome::TimedOut;
    let findings = study("mosaic").findings(&results, &Evidence::default());
    let warning = "1 loads did not complete and are not counted.".to_owned();
    assert!(findings[0].warnings.contains(&warning), "{:?}", findings[0].warnings);
}

/// Loads, windows and probes of the whole study, all invented.
fn invented() -> (Vec<TrialResult>, Evidence) {
    let mut results = Vec::new();
    for network in ["fiber", "slowdown"] {
        for (total, objects, ratio) in
            [("40kB", "6", 1.1), ("40kB", "192", 0.3), ("9MB", "6", 6.0), ("9MB", "192", 1.6)]
        {
            let levels = [
                ("network", network),
                ("objects", objects),
                ("total", total),
                ("control", "bbr"),
                ("window", "10"),
            ];
            results.extend(pair("delay-grid-quick", &levels, 1, ratio));
        }
    }
    for place in ["1", "2"] {
        results.extend(pair("delay-places-quick", &[("place", place)], 1, 1.5));
    }
    results.extend(pair("delay-windows-quick", &[("control", "cubic")], 1, 0.7));
    results.extend(pair("delay-cases-quick", &[("case", "360cn"), ("control", "cubic")], 1, 1.5));
    let window = |control: &str, ratios: [f64; 2]| WindowRatio {
        control: control.into(),
        points: vec![(0.3, ratios[0]), (0.31, ratios[1])],
    };
    let probe = |sender: &str, object_bytes, max_queue, paper_rule| SenderProbe {
        sender: sender.into(),
        object_bytes,
        mtu: 500,
        max_queue,
        time_to_max_s: 1.1,
        first_drop_s: None,
        paper_rule,
    };
    let evidence = Evidence {
        survey: None,
        windows: vec![window("cubic", [0.4, 1.6]), window("cubic-hystart", [0.2, 0.9])],
        probes: Probes {
            probes: vec![
                probe("bbr", 320_000, 23, Family::DelayBased),
                probe("cubic", 320_000, 100, Family::LossBased),
                probe("yeah", 160_000, 100, Family::LossBased),
                probe("yeah", 320_000, 100, Family::LossBased),
            ],
            picture: Some("<svg viewBox=\"0 0 1 1\"></svg>".into()),
        },
    };
    (results, evidence)
}

#[test]
fn invented_loads_give_the_same_report() {
    let (results, evidence) = invented();
    let study = study("delay");
    let findings = study.findings(&results, &evidence);
    insta::assert_snapshot!(smig_chart::table::to_text(&summary(study, &findings)));
    let grid = &findings[0];
    let names: Vec<_> = grid.drawings.iter().map(|drawing| drawing.name.as_str()).collect();
    assert_eq!(names, ["delay-grid-fiber", "delay-grid-slowdown"]);
    for finding in &findings {
        let columns = finding.table.columns.len();
        assert!(finding.table.rows.iter().all(|row| row.len() == columns), "{}", finding.name);
    }
}

#[test]
fn the_pages_report_is_self_contained_and_written_as_files() {
    let (results, evidence) = invented();
    let study = study("delay");
    let findings = study.findings(&results, &evidence);
    let html = render_html(study, &findings, &results);
    smig_chart::html::assert_balanced(&html);
    for external_reference in ["<script", "http:", "https:", "url(", "@import", "src="] {
        let html = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!html.contains(external_reference), "{external_reference}");
    }
    for text in ["Mind the Delay, measured again", "This is the quick version", "HTTP/1.1 minus"] {
        assert!(html.contains(text), "{text}");
    }
    let json = render_json(study, &findings);
    assert_eq!(json["study"], "delay");
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("figures")).unwrap();
    std::fs::write(dir.path().join("figures/delay-senders.svg"), "<svg/>").unwrap();
    let files = write_report(dir.path(), study, &findings, &results).unwrap();
    let names: BTreeSet<_> =
        files.figures.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    for name in
        ["delay-grid-slowdown.svg", "delay-windows.svg", "delay-places.svg", "delay-cases.svg"]
    {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    for path in files.figures.iter().chain(&files.tables) {
        assert!(path.exists(), "{}", path.display());
    }
}

#[test]
fn a_page_time_is_of_the_load() {
    let load = load(0, 2.0);
    let times = [PageMetric::FirstRendered, PageMetric::SpeedIndex, PageMetric::Loaded];
    let seconds = times.map(|time| time.of(&load).unwrap());
    assert!(
        seconds.iter().zip([0.4, 1.2, 2.0]).all(|(time, expected)| (time - expected).abs() < 1e-6)
    );
}

#[test]
fn a_young_window_beside_six_is_not_what_hystart_does() {
    let (results, mut evidence) = invented();
    let verdict = |evidence: &Evidence| {
        let findings = study("delay").findings(&results, evidence);
        let rows = findings.into_iter().flat_map(|finding| finding.claim_rows);
        let mut rows = rows.filter(|row| row.claim.key == "hystart");
        rows.next().unwrap().verdict
    };
    let mut with_ratios = |ratios: [f64; 2]| {
        let points = vec![(0.3, ratios[0]), (0.31, ratios[1])];
        let window = || WindowRatio { control: "cubic-hystart".into(), points: points.clone() };
        evidence.windows = (0..5).map(|_| window()).collect();
        verdict(&evidence)
    };
    assert_eq!(with_ratios([0.15, 0.6]), ClaimResult::Reproduced);
    // Small at first, as any, and then more than six together: as CUBIC's without HyStart.
    assert_eq!(with_ratios([0.15, 3.5]), ClaimResult::NotReproduced);
}
