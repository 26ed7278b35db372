//! Tests that comparisons claim what their numbers support, and no more.

use smig_stats::{Bootstrap, Drawn, Run};

use super::*;

fn series(unit: &str, better: Better, runs: &[&[f64]]) -> Series {
    let run = |(seed, values): (u64, &&[f64])| Run { seed, values: values.to_vec() };
    let runs = (0..).zip(runs).map(run).collect();
    Series { metric: "small 10 kB beside big".into(), unit: unit.into(), better, runs }
}

fn against(a: &Series, b: &Series) -> Comparison {
    let bootstrap = Bootstrap { resamples: 500, ..Bootstrap::default() };
    compare("", ("NoMig", a), ("MigSW", b), &bootstrap).unwrap()
}

fn slow_and_fast() -> (Series, Series) {
    let slow: [&[f64]; 5] =
        [&[400.0, 441.0], &[430.0, 450.0], &[444.0, 420.0], &[460.0], &[439.0, 441.5]];
    let fast: [&[f64]; 5] =
        [&[100.0, 112.0], &[109.0, 111.0], &[108.0, 120.0], &[110.0], &[105.0, 113.0]];
    (series("ms", Better::Lower, &slow), series("ms", Better::Lower, &fast))
}

#[test]
fn a_clear_difference_is_told_with_its_size() {
    let (slow, fast) = slow_and_fast();
    let comparison = against(&slow, &fast);
    assert_eq!(comparison.drawn, Drawn::Pairs);
    assert_eq!((comparison.a.runs, comparison.a.summary.n), (5, 9));
    assert_eq!(comparison.effect.delta, -1.0);
    // 2 of the 252 ways to divide ten runs.
    let p = comparison.test.unwrap().p;
    assert!((p - 2.0 / 252.0).abs() < 1e-12, "{comparison:?}");
    let interval = comparison.ratio_interval.unwrap();
    assert!(interval.holds(110.0 / 441.0) && interval.high < 0.3, "{interval:?}");
    assert_eq!(
        comparison.sentence,
        "small 10 kB beside big: 110 ms for MigSW, 441 ms for NoMig at the median; \
         MigSW is better, 75 % less; a large effect (p = 0.0079)."
    );
}

#[test]
fn worse_is_worse_and_rates_are_the_other_way_round() {
    let (slow, fast) = slow_and_fast();
    assert!(against(&fast, &slow).sentence.contains("MigSW is worse, 4.01 times as much"));
    let (slow, fast) =
        (Series { better: Better::Higher, ..slow }, Series { better: Better::Higher, ..fast });
    assert!(against(&fast, &slow).sentence.contains("MigSW is better"));
}

#[test]
fn without_a_difference_none_is_claimed() {
    let (slow, _) = slow_and_fast();
    let comparison = against(&slow, &slow);
    assert!(comparison.sentence.contains("no difference shown (p = 1.00)"), "{comparison:?}");
    assert_eq!(comparison.ratio, Some(1.0));
}

#[test]
fn a_sure_difference_that_is_none_is_called_so() {
    let runs = |by: f64| -> Vec<Run> {
        let value = |seed: u64| (100.0 + seed as f64 / 100.0) * by;
        (0..8).map(|seed| Run { seed, values: vec![value(seed)] }).collect()
    };
    let (a, b) = (series("ms", Better::Lower, &[]), series("ms", Better::Lower, &[]));
    let comparison = against(&Series { runs: runs(1.0), ..a }, &Series { runs: runs(1.005), ..b });
    assert_eq!(comparison.effect.delta, 1.0);
    assert!(
        comparison.sentence.contains("practically the same (0.5 % more, p < 0.001)"),
        "{comparison:?}"
    );
}

#[test]
fn few_runs_are_admitted() {
    let (slow, fast) = slow_and_fast();
    let first = |series: &Series, count: usize| Series {
        runs: series.runs[..count].to_vec(),
        ..series.clone()
    };
    let two = against(&first(&slow, 2), &first(&fast, 2));
    assert_eq!((two.test, two.ratio_interval, two.a.median_interval), (None, None, None));
    assert!(two.sentence.contains("too few runs to compare"), "{two:?}");
    assert!(two.sentence.ends_with("With 2 runs per side there is no interval; 5 are needed."));
    let shown = table(std::slice::from_ref(&two)).rows[0].join("|");
    assert!(shown.ends_with("|-"), "{shown}");
    let four = against(&first(&slow, 4), &slow);
    assert!(four.ratio_interval.is_none() && four.sentence.contains("With 4 runs per side"));
}

#[test]
fn a_side_without_values_cannot_be_compared() {
    let (slow, _) = slow_and_fast();
    let empty = Series { runs: vec![Run::default()], ..slow.clone() };
    let bootstrap = Bootstrap::default();
    assert_eq!(compare("", ("a", &slow), ("b", &empty), &bootstrap), None);
    // A ratio to 0 is undefined; the other statistics are not.
    let none = |seed| Run { seed, values: vec![0.0; 3] };
    let zero = Series { runs: (0..5).map(none).collect(), ..slow.clone() };
    let comparison = against(&zero, &slow);
    assert_eq!((comparison.ratio, comparison.ratio_interval), (None, None));
    assert!(comparison.sentence.contains("MigSW is worse; a large effect"), "{comparison:?}");
}

#[test]
fn tables_have_a_column_for_settings_only_where_there_are_some() {
    let (slow, fast) = slow_and_fast();
    let mut comparison = against(&slow, &fast);
    let plain = table(std::slice::from_ref(&comparison));
    assert_eq!(plain.columns[0].0, "metric");
    comparison.setting = "buffer=large".into();
    let with = table(&[comparison]);
    assert_eq!((with.columns[0].0.as_str(), with.rows[0][0].as_str()), ("setting", "buffer=large"));
    assert_eq!(with.columns.len(), with.rows[0].len());
}

mod selecting {
    use super::super::select::{Selector, SelectorError};
    use crate::scenario::Variant;

    #[test]
    fn selectors_are_read() {
        let read = |text: &str| Selector::parse(text).unwrap();
        let both = read("results/fig4:scheme=NoMig,buffer=large");
        assert_eq!(both.path.as_deref(), Some("results/fig4".as_ref()));
        assert_eq!(both.label(), "NoMig large");
        assert_eq!(both.to_string(), "results/fig4:scheme=NoMig,buffer=large");
        assert_eq!(read(":scheme=NoMig").path, None);
        assert_eq!(read("a:b/c").path.as_deref(), Some("a:b/c".as_ref()));
        assert_eq!(read("results/today").label(), "today");
        assert_eq!(Selector::parse(""), Err(SelectorError::Empty));
        assert_eq!(Selector::parse("x:a=b,c"), Err(SelectorError::Form("c".into())));
    }

    #[test]
    fn all_wanted_names_must_fit() {
        let variant =
            Variant(vec![("scheme".into(), "NoMig".into()), ("buffer".into(), "large".into())]);
        let takes = |text: &str| Selector::parse(text).unwrap().takes(&variant);
        assert!(takes("x") && takes(":scheme=NoMig") && takes(":buffer=large,scheme=NoMig"));
        assert!(!takes(":scheme=MigSW") && !takes(":scheme=NoMig,link=lte"));
    }
}
