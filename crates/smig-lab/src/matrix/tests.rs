//! The scenario covers what it says, and a report says what was measured.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::scenario::{Campaign, Cell};

fn full_campaign() -> Campaign {
    campaign(&|_| Ok(())).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

#[test]
fn every_arm_of_the_scenario_is_known_and_the_reference_is_among_them() {
    let campaign = full_campaign();
    let names: BTreeSet<_> =
        campaign.conditions.iter().filter_map(|condition| condition.name.level("arm")).collect();
    for name in &names {
        assert!(Arm::by_key(name).is_some(), "{name}");
    }
    assert!(names.contains("alone"));
}

#[test]
fn every_level_is_in_three_cells_and_every_pair_of_main_levels_in_one() {
    let cells = full_campaign().cells;
    assert_eq!(cells.len(), 60);
    let names: BTreeSet<_> = cells.iter().map(|cell| &cell.name).collect();
    assert_eq!(names.len(), 60);
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (axis, level) in cells.iter().flat_map(|cell| &cell.levels) {
        *counts.entry((axis, level)).or_default() += 1;
    }
    assert!(counts.values().all(|count| *count >= 3), "{counts:?}");
    let levels = |axis: &str| {
        let levels = cells.iter().filter_map(|cell| cell.level(axis));
        levels.collect::<BTreeSet<_>>()
    };
    for (a, b) in [
        ("rate", "rtt"),
        ("rate", "queue"),
        ("rate", "control"),
        ("rtt", "queue"),
        ("rtt", "control"),
        ("queue", "control"),
    ] {
        let pairs: BTreeSet<_> = cells.iter().map(|cell| (cell.level(a), cell.level(b))).collect();
        // `allowed` in scenarios/matrix/choose excludes these.
        let impossible = match (a, b) {
            ("rate", "rtt") => 3,
            ("rate", "queue") => 1,
            ("rtt", "queue") => 3,
            _ => 0,
        };
        assert_eq!(pairs.len(), levels(a).len() * levels(b).len() - impossible, "{a} and {b}");
    }
}

#[test]
fn selections_keep_whole_cells_and_the_reference() {
    let mut campaign = full_campaign();
    let all = campaign.conditions.len();
    select(&mut campaign, &[], &[]).unwrap();
    assert_eq!(campaign.conditions.len(), all);
    select(&mut campaign, &["control=bbr".into()], &["moved".into()]).unwrap();
    assert!(campaign.cells.iter().all(|cell| cell.level("control") == Some("bbr")));
    assert_eq!(campaign.conditions.len(), 2 * campaign.cells.len(), "moved and alone");

    let mut one = full_campaign();
    select(&mut one, &["r10-t50-q1-cubic".into()], &[]).unwrap();
    assert_eq!(one.cells.len(), 1, "a name, and not a part of others");

    let mut quick = full_campaign();
    select_quick(&mut quick);
    assert_eq!((quick.cells.len(), quick.conditions.len()), (8, 40));

    let mut unprivileged = full_campaign();
    keep_machine_hystart(&mut unprivileged);
    assert_eq!(unprivileged.cells.len(), 57);
    let hosts = unprivileged.conditions.iter().map(|condition| &condition.scenario.hosts);
    assert!(hosts.map(|hosts| hosts.hystart()).all(|hystart| hystart.is_none()));

    let error = |patterns: &[&str], arms: &[&str]| {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.into()).collect::<Vec<_>>();
        select(&mut full_campaign(), &owned(patterns), &owned(arms)).unwrap_err().to_string()
    };
    assert!(error(&["r11"], &[]).contains("--plan"));
    assert!(error(&[], &["movd"]).contains("did you mean \"moved\""));
}

fn measurement(mean_ms: f64, p95_ms: f64, bulk_mbit: f64) -> Measurement {
    let (runs, objects) = (1, 20);
    Measurement {
        runs,
        disturbed_runs: 0,
        objects,
        mean_ms,
        p95_ms,
        bulk_mbit,
        total_mbit: bulk_mbit,
        other_mbit: None,
        failed: 0,
        times_ms: vec![smig_stats::Run { seed: 1, values: vec![p95_ms; objects] }],
    }
}

/// Reports a cell of these levels and measurements.
fn report(levels: &[(&str, &str)], measured: &[(&str, Measurement)]) -> CellReport {
    let levels = levels.iter().map(|(axis, level)| ((*axis).into(), (*level).into())).collect();
    let cell = Cell { name: "c".into(), levels };
    let measure = |arm: &Arm| {
        let found = measured.iter().find(|(key, _)| *key == arm.key);
        found.map(|(_, measured)| measured.clone())
    };
    CellReport::new(&cell, &measure).unwrap()
}

fn verdict(moved: Measurement, levels: &[(&str, &str)]) -> Option<Verdict> {
    let measured = [
        ("alone", measurement(60.0, 61.0, 0.0)),
        ("off", measurement(500.0, 700.0, 9.5)),
        ("paced", measurement(66.0, 70.0, 9.3)),
        ("moved", moved),
    ];
    report(levels, &measured).arm("moved").unwrap().verdict
}

#[test]
fn a_label_mentions_what_differs() {
    let campaign = full_campaign();
    let labels: Vec<String> = (campaign.cells.iter())
        .map(|cell| label::label(&cell.levels.iter().cloned().collect()))
        .collect();
    assert_eq!(labels[0], "10 M 50 ms 1\u{d7} cubic");
    assert_eq!(labels[10], "10 M 50 ms 1\u{d7} cubic + cubic");
    let different: BTreeSet<_> = labels.iter().collect();
    assert_eq!(different.len(), labels.len());
    let longest = labels.iter().max_by_key(|label| label.chars().count()).unwrap();
    assert!(longest.chars().count() <= 44, "no room for {longest:?}");
}

#[test]
fn an_arm_is_judged_against_the_best_baseline_and_the_goal() {
    let good = || measurement(64.0, 68.0, 9.45);
    assert_eq!(verdict(good(), &[]), Some(Verdict::Good));
    assert_eq!(verdict(measurement(64.0, 75.0, 9.45), &[]), Some(Verdict::Worse), "objects");
    assert_eq!(verdict(measurement(64.0, 68.0, 9.1), &[]), Some(Verdict::Worse), "download");
    assert_eq!(verdict(measurement(70.0, 71.0, 9.45), &[]), Some(Verdict::MissesGoal), "mean");
    let lossy = [("loss", "some")];
    assert_eq!(verdict(measurement(70.0, 71.0, 9.45), &lossy), Some(Verdict::Good), "no goal");
    let failed = Measurement { failed: 1, ..good() };
    assert_eq!(verdict(failed, &[]), Some(Verdict::Failed));
}

#[test]
fn bytes_of_objects_that_a_baseline_leaves_waiting_are_no_excess() {
    let mut moved = measurement(64.0, 68.0, 9.1);
    moved.total_mbit = 9.4;
    assert_eq!(verdict(moved, &[]), Some(Verdict::Good));
}

#[test]
fn a_percentile_that_chance_explains_is_not_called_worse() {
    let with_times = |p95_ms, times: &[f64]| {
        let values = times.repeat(5);
        let times_ms = vec![smig_stats::Run { seed: 1, values }];
        Measurement { times_ms, ..measurement(64.0, p95_ms, 9.45) }
    };
    let judge = |moved| {
        let measured = [
            ("alone", measurement(60.0, 61.0, 0.0)),
            ("off", with_times(70.0, &[60.0, 61.0, 62.0, 70.0])),
            ("moved", moved),
        ];
        report(&[], &measured).arm("moved").unwrap().verdict
    };
    // One object of twenty was late.
    let mut times = [60.0, 61.0, 62.0, 64.0].repeat(5);
    times[19] = 90.0;
    let mut by_chance = with_times(76.0, &[]);
    by_chance.times_ms[0].values = times;
    assert_eq!(judge(by_chance), Some(Verdict::Unclear));
    assert_eq!(judge(with_times(78.0, &[76.0, 77.0, 78.0, 78.0])), Some(Verdict::Worse));
}

#[test]
fn an_interval_needs_data_and_covers_all_of_it() {
    let run = |seed, values: Vec<f64>| smig_stats::Run { seed, values };
    let with_runs = |p95_ms, times_ms| Measurement { times_ms, ..measurement(64.0, p95_ms, 9.45) };
    let moved = |baseline, moved| {
        let measured =
            [("alone", measurement(60.0, 61.0, 0.0)), ("off", baseline), ("moved", moved)];
        report(&[], &measured).arm("moved").unwrap().clone()
    };
    // One of five runs has no object.
    let few = (0..5).map(|seed| run(seed, if seed == 0 { vec![] } else { vec![60.0, 61.0] }));
    let mut late: Vec<_> = few.clone().collect();
    late[4].values[1] = 90.0;
    let found = moved(with_runs(61.0, few.collect()), with_runs(75.0, late));
    assert_eq!(found.verdict, Some(Verdict::Unclear), "{found:?}");
    let found = moved(with_runs(61.0, vec![]), with_runs(75.0, vec![]));
    assert_eq!(found.verdict, Some(Verdict::Unclear), "nothing is known");
    // The late ones are behind the baseline's number of objects.
    let baseline = vec![run(1, vec![60.0; 20])];
    let late = vec![run(1, vec![60.0; 20]), run(2, vec![90.0; 20])];
    let interval = moved(with_runs(60.0, baseline), with_runs(90.0, late)).p95_to_best_interval;
    assert!(interval.unwrap().contains(1.5), "{interval:?}");
}

#[test]
fn beside_another_download_the_share_is_judged_and_not_the_rate() {
    let neighbour = [("cross", "cubic")];
    let with_other = |bulk_mbit, other_mbit| Measurement {
        other_mbit: Some(other_mbit),
        ..measurement(64.0, 68.0, bulk_mbit)
    };
    assert_eq!(verdict(with_other(4.6, 4.8), &neighbour), Some(Verdict::Good));
    assert_eq!(verdict(with_other(2.0, 7.4), &neighbour), Some(Verdict::Unfair));
    assert_eq!(verdict(with_other(7.4, 2.0), &neighbour), Some(Verdict::Unfair));
}

#[test]
fn the_winner_beside_another_download_shares_fairly() {
    let with_other = |p95_ms, bulk_mbit, other_mbit| Measurement {
        other_mbit: Some(other_mbit),
        ..measurement(60.0, p95_ms, bulk_mbit)
    };
    let measured = [
        ("off", with_other(60.0, 7.0, 2.4)),
        ("lowat", with_other(90.0, 4.7, 4.7)),
        ("moved", with_other(80.0, 4.5, 4.9)),
    ];
    assert_eq!(report(&[("cross", "bbr")], &measured).winner, Some("moved"));
    assert_eq!(report(&[("cross", "bbr")], &measured[..1]).winner, None);
}

#[test]
fn the_winner_has_most_rate_for_its_delay_and_the_excess_counts_from_the_limit() {
    let measured = [
        ("alone", measurement(60.0, 60.0, 0.0)),
        ("off", measurement(500.0, 700.0, 9.5)),
        ("lowat", measurement(100.0, 120.0, 9.45)),
        ("pool-paced", measurement(61.0, 70.0, 5.0)),
        ("moved", measurement(64.0, 126.0, 8.0)),
    ];
    let report = report(&[], &measured);
    assert_eq!(report.winner, Some("lowat"));
    assert_eq!(report.arm("moved").unwrap().p95_ratio, Some(2.1));
    assert!((report.excess - (9.5 / 8.0 - 1.0) / 0.03).abs() < 1e-9, "{}", report.excess);
    let matrix = MatrixReport { cells: vec![report], missing_cells: 0, builds: vec![] };
    let text = smig_chart::table::to_text(&to_table(&matrix));
    assert!(text.contains("2.10") && text.contains("84.2 %") && text.contains("worse"), "{text}");
    assert_eq!(to_csv_table(&matrix).rows.len(), 4);
    let picture = draw(&matrix);
    smig_chart::html::assert_balanced(&picture);
    assert!(picture.contains(">2.1<"), "{picture}");
}
