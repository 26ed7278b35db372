//! Tests that comparisons claim what their numbers support, and no more.

use smig_stats::{Bootstrap, ResamplingScheme, Run};

use crate::scenario::ConditionName;

use super::*;

fn series(unit: &str, better: BetterDirection, runs: &[&[f64]]) -> Series {
    let run = |(seed, values): (u64, &&[f64])| Run { seed, values: values.to_vec() };
    let runs = (0..).zip(runs).map(run).collect();
    Series { metric: "small 10 kB beside big".into(), unit: unit.into(), better, runs }
}

fn compare_sides(a: &Series, b: &Series) -> Comparison {
    let bootstrap = Bootstrap { resamples: 500, ..Bootstrap::default() };
    compare(&ConditionName(Vec::new()), ("NoMig", a), ("MigSW", b), &bootstrap).unwrap()
}

fn slow_and_fast() -> (Series, Series) {
    let slow: [&[f64]; 5] =
        [&[400.0, 441.0], &[430.0, 450.0], &[444.0, 420.0], &[460.0], &[439.0, 441.5]];
    let fast: [&[f64]; 5] =
        [&[100.0, 112.0], &[109.0, 111.0], &[108.0, 120.0], &[110.0], &[105.0, 113.0]];
    (series("ms", BetterDirection::Lower, &slow), series("ms", BetterDirection::Lower, &fast))
}

#[test]
fn a_clear_difference_is_reported_with_its_size() {
    let (slow, fast) = slow_and_fast();
    let comparison = compare_sides(&slow, &fast);
    assert_eq!(comparison.resampling_scheme, ResamplingScheme::Pairs);
    assert_eq!((comparison.a.runs, comparison.a.summary.n), (5, 9));
    assert_eq!(comparison.effect.delta, -1.0);
    // Two of the 252 ways to split ten runs are at least as extreme.
    let p = comparison.test.unwrap().p;
    assert!((p - 2.0 / 252.0).abs() < 1e-12, "{comparison:?}");
    let interval = comparison.ratio_interval.unwrap();
    assert!(interval.contains(110.0 / 441.0) && interval.high < 0.3, "{interval:?}");
    assert_eq!(
        comparison.sentence,
        "small 10 kB beside big: 110 ms for MigSW, 441 ms for NoMig at the median; \
         MigSW is better, 75 % less; a large effect (p = 0.0079)."
    );
}

#[test]
fn the_direction_depends_on_whether_higher_is_better() {
    let (slow, fast) = slow_and_fast();
    assert!(compare_sides(&fast, &slow).sentence.contains("MigSW is worse, 4.01 times as much"));
    let (slow, fast) = (
        Series { better: BetterDirection::Higher, ..slow },
        Series { better: BetterDirection::Higher, ..fast },
    );
    assert!(compare_sides(&fast, &slow).sentence.contains("MigSW is better"));
}

#[test]
fn the_medians_decide_what_is_better() {
    // The median falls from 10 to 9, but most values of the second side are above most of the first.
    let a: [&[f64]; 6] = [&[0.0, 0.0, 10.0, 10.0, 10.0]; 6];
    let b: [&[f64]; 6] = [&[9.0, 9.0, 9.0, 20.0, 20.0]; 6];
    let comparison = compare_sides(
        &series("ms", BetterDirection::Lower, &a),
        &series("ms", BetterDirection::Lower, &b),
    );
    assert!(comparison.effect.delta > 0.0, "{comparison:?}");
    assert!(comparison.sentence.contains("MigSW is better, 10 % less"), "{comparison:?}");
}

#[test]
fn equal_sides_show_no_difference() {
    let (slow, _) = slow_and_fast();
    let comparison = compare_sides(&slow, &slow);
    assert!(comparison.sentence.contains("no difference shown (p = 1.00)"), "{comparison:?}");
    assert_eq!(comparison.ratio, Some(1.0));
}

#[test]
fn a_significant_but_irrelevant_difference_is_practically_the_same() {
    let runs = |factor: f64| -> Vec<Run> {
        let value = |seed: u64| (100.0 + seed as f64 / 100.0) * factor;
        (0..8).map(|seed| Run { seed, values: vec![value(seed)] }).collect()
    };
    let (a, b) =
        (series("ms", BetterDirection::Lower, &[]), series("ms", BetterDirection::Lower, &[]));
    let comparison =
        compare_sides(&Series { runs: runs(1.0), ..a }, &Series { runs: runs(1.005), ..b });
    assert_eq!(comparison.effect.delta, 1.0);
    assert!(
        comparison.sentence.contains("practically the same (0.5 % more, p < 0.001)"),
        "{comparison:?}"
    );
}

#[test]
fn few_runs_have_no_interval() {
    let (slow, fast) = slow_and_fast();
    let first_runs = |series: &Series, count: usize| Series {
        runs: series.runs[..count].to_vec(),
        ..series.clone()
    };
    let comparison_of_two_runs = compare_sides(&first_runs(&slow, 2), &first_runs(&fast, 2));
    assert_eq!(
        (
            comparison_of_two_runs.test,
            comparison_of_two_runs.ratio_interval,
            comparison_of_two_runs.a.median_interval
        ),
        (None, None, None)
    );
    assert!(
        comparison_of_two_runs.sentence.contains("too few runs to compare"),
        "{comparison_of_two_runs:?}"
    );
    assert!(
        comparison_of_two_runs
            .sentence
            .ends_with("With 2 runs on a side there is no interval; 5 are needed.")
    );
    let row_text = table(std::slice::from_ref(&comparison_of_two_runs)).rows[0].join("|");
    assert!(row_text.ends_with("|-"), "{row_text}");
    let comparison_of_four_runs = compare_sides(&first_runs(&slow, 4), &slow);
    assert!(
        comparison_of_four_runs.ratio_interval.is_none()
            && comparison_of_four_runs.sentence.contains("With 4 runs on a side")
    );
}

#[test]
fn a_side_without_values_cannot_be_compared() {
    let (slow, _) = slow_and_fast();
    let series_without_values = Series { runs: vec![Run::default()], ..slow.clone() };
    let bootstrap = Bootstrap::default();
    assert_eq!(
        compare(
            &ConditionName(Vec::new()),
            ("a", &slow),
            ("b", &series_without_values),
            &bootstrap
        ),
        None
    );
    // A ratio to 0 is undefined; the other statistics are not.
    let zero_run = |seed| Run { seed, values: vec![0.0; 3] };
    let zero_series = Series { runs: (0..5).map(zero_run).collect(), ..slow.clone() };
    let comparison = compare_sides(&zero_series, &slow);
    assert_eq!((comparison.ratio, comparison.ratio_interval), (None, None));
    assert!(comparison.sentence.contains("MigSW is worse; a large effect"), "{comparison:?}");
}

#[test]
fn a_setting_column_is_shown_only_if_a_comparison_has_a_setting() {
    let (slow, fast) = slow_and_fast();
    let mut comparison = compare_sides(&slow, &fast);
    let without_setting = table(std::slice::from_ref(&comparison));
    assert_eq!(without_setting.columns[0].0, "metric");
    comparison.setting = "buffer=large".into();
    let with_setting = table(&[comparison]);
    assert_eq!(
        (with_setting.columns[0].0.as_str(), with_setting.rows[0][0].as_str()),
        ("setting", "buffer=large")
    );
    assert_eq!(with_setting.columns.len(), with_setting.rows[0].len());
}

mod selecting {
    use super::super::select::{Selector, SelectorError};
    use crate::scenario::ConditionName;

    #[test]
    fn selectors_are_parsed() {
        let parse = |text: &str| Selector::parse(text).unwrap();
        let selector = parse("results/fig4:scheme=NoMig,buffer=large");
        assert_eq!(selector.path.as_deref(), Some("results/fig4".as_ref()));
        assert_eq!(selector.label(), "NoMig large");
        assert_eq!(selector.to_string(), "results/fig4:scheme=NoMig,buffer=large");
        assert_eq!(parse(":scheme=NoMig").path, None);
        assert_eq!(parse("a:b/c").path.as_deref(), Some("a:b/c".as_ref()));
        assert_eq!(parse("results/today").label(), "today");
        assert_eq!(Selector::parse(""), Err(SelectorError::Empty));
        assert_eq!(Selector::parse("x:a=b,c"), Err(SelectorError::Syntax("c".into())));
    }

    #[test]
    fn all_selected_levels_must_match() {
        let condition = ConditionName(vec![
            ("scheme".into(), "NoMig".into()),
            ("buffer".into(), "large".into()),
        ]);
        let matches = |text: &str| Selector::parse(text).unwrap().matches(&condition);
        assert!(matches("x") && matches(":scheme=NoMig") && matches(":buffer=large,scheme=NoMig"));
        assert!(!matches(":scheme=MigSW") && !matches(":scheme=NoMig,link=lte"));
    }
}

#[test]
fn a_pivot_has_a_table_for_each_setting_of_the_other_axes() {
    let series = |factor: f64| {
        let run = |seed| Run { seed, values: vec![100.0 * factor, 101.0 * factor] };
        Series {
            metric: "grid loaded".into(),
            unit: "ms".into(),
            better: BetterDirection::Lower,
            runs: (0..6).map(run).collect(),
        }
    };
    let bootstrap = Bootstrap::default();
    let mut comparisons = Vec::new();
    for control in ["cubic", "bbr"] {
        for objects in ["6", "48"] {
            for (total, factor) in [("40kB", 1.0), ("9MB", 2.0)] {
                let levels = [("objects", objects), ("total", total), ("control", control)];
                let levels = levels.map(|(axis, level)| (axis.to_owned(), level.to_owned()));
                let (a, b) = (series(1.0), series(factor));
                let levels = ConditionName(levels.to_vec());
                comparisons.extend(compare(&levels, ("a", &a), ("b", &b), &bootstrap));
            }
        }
    }
    let pivots = pivot(&comparisons, "objects", "total").unwrap();
    let titles: Vec<_> = pivots.iter().map(|pivot| pivot.title.as_str()).collect();
    assert_eq!(titles, ["grid loaded, B/A, control=cubic", "grid loaded, B/A, control=bbr"]);
    let names: Vec<_> = pivots[0].table.columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["objects \\ total", "40kB", "9MB"]);
    assert_eq!(pivots[0].table.rows, [["6", "1.00", "2.00*"], ["48", "1.00", "2.00*"]]);
    assert_eq!(pivot(&comparisons, "objects", "loss"), Err("loss".to_owned()));
}
