//! Tests that charts show their input, and are well-formed with any input.

use super::*;
use crate::html::assert_balanced;
use crate::svg::{Layer, Shape};

fn outline(scale: Scale) -> Outline {
    Outline {
        name: "A <chart>".into(),
        description: "Not of measurements".into(),
        title: "Time, ms".into(),
        width: 520.0,
        height: 200.0,
        scale,
    }
}

fn names(figure: &Figure) -> Vec<&str> {
    let layers = figure.panels[0].layers.iter();
    layers.map(|layer: &Layer| layer.name.as_str()).filter(|name| !name.is_empty()).collect()
}

fn bar(value: f64) -> Option<BarValue> {
    let interval = Some((value * 0.8, value * 1.3));
    Some(BarValue { value, interval, reference: Some(value * 2.0) })
}

fn bars(scale: Scale) -> Figure {
    let groups = ["1 kB", "10 kB", "100 kB"].map(str::to_owned);
    let series = [
        BarSeries { name: "NoMig".into(), values: vec![bar(400.0), bar(8_400.0), bar(900.0)] },
        BarSeries { name: "MigSW".into(), values: vec![bar(60.0), None, bar(110.0)] },
    ];
    grouped_bars(outline(scale), &groups, &series, "paper")
}

fn noise(count: u64, around: f64) -> Vec<f64> {
    // Multiplicative noise with a few outliers.
    (1..=count).map(|at| around * (1.0 + (at * 7_919 % 1_000) as f64 / 300.0)).collect()
}

fn distributions() -> Vec<(String, Vec<f64>)> {
    vec![
        ("NoMig".into(), noise(200, 400.0)),
        ("MigSW".into(), noise(100, 60.0)),
        ("none".into(), vec![f64::NAN]),
        ("one".into(), vec![75.0]),
    ]
}

#[test]
fn bars_stand_in_their_groups() {
    let figure = bars(Scale::Log);
    assert_eq!(names(&figure), ["NoMig", "MigSW", "paper"]);
    let Shape::Bars(second) = &figure.panels[0].layers[1].shape else { panic!("bars") };
    assert_eq!(second.len(), 2, "a missing value has no bar");
    let block = second[1].block;
    assert!((block.x.0 - 2.5).abs() < 1e-9 && (block.x.1 - 2.9).abs() < 1e-9, "{block:?}");
    assert_eq!(block.y, (figure.panels[0].y.from(), 110.0));
    assert_eq!(second[1].tooltip, "MigSW, 100 kB: 110 (88 to 143); paper: 220");
    let svg = figure.to_element();
    assert!(svg.contains(">10 kB</text>") && !svg.contains(">8,400</text>"), "{svg}");
    let alone = BarValue { value: 8_400.0, interval: None, reference: None };
    let series = [BarSeries { name: "NoMig".into(), values: vec![Some(alone)] }];
    let figure = grouped_bars(outline(Scale::Linear), &["10 kB".into()], &series, "");
    assert!(figure.to_element().contains(">8,400</text>"));
}

#[test]
fn distributions_reach_from_nothing_to_all() {
    let figure = cdf(outline(Scale::Log), "ms", &distributions());
    assert_eq!(names(&figure), ["NoMig (n = 200)", "MigSW (n = 100)", "one (n = 1)"]);
    let Shape::Steps(steps) = &figure.panels[0].layers[0].shape else { panic!("steps") };
    assert_eq!((steps[0].1, steps[steps.len() - 1].1), (0.0, 100.0));
    assert!(steps.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1));
    let Shape::Dots(_, dots) = &figure.panels[0].layers[1].shape else { panic!("dots") };
    assert_eq!(dots.iter().map(|dot| dot.y).collect::<Vec<_>>(), [25.0, 50.0, 75.0]);
}

#[test]
fn a_box_holds_the_middle_half() {
    let values: Vec<f64> = (0..=100).map(f64::from).collect();
    let figure = boxes(outline(Scale::Linear), Form::Box, &[("a".into(), values)]);
    let layers = &figure.panels[0].layers;
    let Shape::Bars(boxes) = &layers[0].shape else { panic!("bars") };
    assert_eq!(boxes[0].block.y, (25.0, 75.0));
    let Shape::Dots(_, outside) = &layers[1].shape else { panic!("dots") };
    assert_eq!(outside.len(), 10, "five below the 5th percentile, five above the 95th");
    let Shape::Whiskers(whiskers) = &layers[2].shape else { panic!("whiskers") };
    assert_eq!((whiskers[0].low, whiskers[0].high), (5.0, 95.0));
}

#[test]
fn a_violin_is_widest_where_values_are_dense() {
    let values: Vec<f64> =
        (0..100).map(|at| if at < 90 { 50.0 + at as f64 / 10.0 } else { at as f64 }).collect();
    let figure = boxes(outline(Scale::Linear), Form::Violin, &[("a".into(), values)]);
    let Shape::Outline(_, corners) = &figure.panels[0].layers[0].shape else { panic!("outline") };
    let widest = corners.iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("corners");
    assert!((50.0..60.0).contains(&widest.1), "{widest:?}");
    assert!((widest.0 - 0.92).abs() < 1e-9);
    let mirrored = corners.iter().map(|(x, _)| x - 0.5).sum::<f64>();
    assert!(mirrored.abs() < 1e-9, "both sides are alike");
}

#[test]
fn bands_are_where_intervals_are() {
    let point = |x, interval| LinePoint { x, y: x * 2.0, interval };
    let known = |x: f64| point(x, Some((x, x * 3.0)));
    let series = [LineSeries {
        name: "MigSP".into(),
        points: vec![known(1.0), known(2.0), point(3.0, None), known(4.0)],
    }];
    let figure = lines(outline(Scale::Linear), Axis::linear(5.0, "MB"), &series);
    let layers = &figure.panels[0].layers;
    assert_eq!(layers.len(), 3, "one band, a line, its markers");
    let Shape::Area(_, band) = &layers[0].shape else { panic!("area") };
    assert_eq!(band.iter().map(|range| range.x).collect::<Vec<_>>(), [1.0, 2.0]);
}

#[test]
fn all_are_well_formed_with_any_numbers() {
    let odd = [LineSeries {
        name: "odd".into(),
        points: vec![
            LinePoint { x: f64::NAN, y: f64::INFINITY, interval: None },
            LinePoint { x: 0.0, y: -1.0, interval: Some((f64::NAN, 2.0)) },
        ],
    }];
    for scale in [Scale::Linear, Scale::Log] {
        for figure in [
            bars(scale),
            grouped_bars(outline(scale), &[], &[], ""),
            cdf(outline(scale), "ms", &distributions()),
            cdf(outline(scale), "ms", &[]),
            boxes(outline(scale), Form::Box, &distributions()),
            boxes(outline(scale), Form::Violin, &distributions()),
            boxes(outline(scale), Form::Violin, &[]),
            lines(outline(scale), Axis::linear(5.0, "MB"), &odd),
        ] {
            let svg = figure.to_file();
            assert_balanced(&svg);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}

#[test]
fn pictures_are_what_they_were() {
    insta::assert_snapshot!("bars", lined(&bars(Scale::Log)));
    insta::assert_snapshot!(
        "cdf",
        lined(&cdf(
            outline(Scale::Log),
            "ms",
            &[("a".into(), vec![50.0, 60.0, 70.0, 500.0]), ("b".into(), vec![400.0, 900.0]),]
        ))
    );
}

/// Puts each element on a line of its own, for readable differences.
fn lined(figure: &Figure) -> String {
    figure.to_element().replace("><", ">\n<")
}
