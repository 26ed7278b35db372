//! Tests that charts are well-formed and draw their input.

use super::{
    Axis, Block, Colour, EventLine, Figure, Layer, Marker, Panel, Picture, Point, Rule, Shape,
};
use crate::markup::assert_balanced;

fn figure() -> Figure {
    let point = |x, y| Point { x, y, tooltip: format!("{x} & {y}") };
    let dots = Shape::Dots(Marker::Triangle, vec![point(0.0, 60.0), point(5.0, 2_000.0)]);
    let blocks = Shape::Blocks(vec![Block { x: (0.0, 0.5), y: (0.0, 9.5) }]);
    Figure {
        title: "A <chart>".into(),
        description: "Of nothing".into(),
        width: 360.0,
        x: Axis::linear(10.0, "s"),
        panels: vec![
            Panel {
                title: "Time, ms".into(),
                y: Axis::log(60.0, 2_000.0, "ms"),
                height: 120.0,
                layers: vec![Layer { name: "objects".into(), colour: Colour::Blue, shape: dots }],
                rules: vec![Rule { y: 60.0, label: "alone".into() }],
            },
            Panel {
                title: "Rate, Mbit/s".into(),
                y: Axis::linear(9.5, "Mbit/s"),
                height: 80.0,
                layers: vec![
                    Layer { name: String::new(), colour: Colour::Slate, shape: blocks },
                    Layer {
                        name: "share".into(),
                        colour: Colour::Amber,
                        shape: Shape::Steps(vec![(0.0, 1.0), (5.0, 2.0)]),
                    },
                ],
                rules: Vec::new(),
            },
        ],
        event_lines: vec![EventLine { x: 5.0, label: "moved".into() }],
    }
}

#[test]
fn a_chart_is_well_formed_and_escaped() {
    let svg = figure().to_element();
    assert_balanced(&svg);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    assert!(svg.contains("<title>A &lt;chart&gt;</title>"));
    assert!(svg.contains("<title>5 &amp; 2000</title>"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn dots_are_at_the_positions_of_their_values() {
    let mut figure = figure();
    let Shape::Dots(marker, _) = &mut figure.panels[0].layers[0].shape else { unreachable!() };
    *marker = Marker::Circle;
    let svg = figure.to_element();
    // The plot starts at 44 and is 304 wide; its y axis extends from 50 to 2,000.
    assert!(svg.contains("<circle cx=\"44\" "), "{svg}");
    assert!(svg.contains("<circle cx=\"196\" cy=\"45\" "), "{svg}");
}

#[test]
fn pictures_have_a_frame_and_a_white_screen_has_no_picture() {
    let mut figure = figure();
    let picture = |x: f64, jpeg_base64: &str| Picture {
        block: Block { x: (x, x + 2.0), y: (0.0, 9.5) },
        jpeg_base64: jpeg_base64.to_owned(),
        text: "after <1 s".to_owned(),
    };
    let pictures = vec![picture(0.0, ""), picture(2.0, "/9j/4A=="), picture(4.0, "\"/><script>")];
    figure.panels[1].layers[0].shape = Shape::Pictures(pictures);
    let svg = figure.to_element();
    assert_balanced(&svg);
    assert_eq!(svg.matches("<image ").count(), 1);
    assert!(svg.contains("href=\"data:image/jpeg;base64,/9j/4A==\""));
    assert_eq!(svg.matches("class=\"screen\"").count(), 3);
    assert!(svg.contains("<title>after &lt;1 s</title>") && !svg.contains("<script"));
}

#[test]
fn only_files_include_the_style() {
    let figure = figure();
    assert!(figure.to_file().contains("prefers-color-scheme:dark"));
    assert!(!figure.to_element().contains("<style>"));
    assert_balanced(&figure.to_file());
}

/// Inkscape, librsvg and LaTeX's converters do not support CSS variables and draw black on black
/// without the fallbacks.
#[test]
fn each_colour_of_a_file_has_a_fallback_before_it() {
    let svg = figure().to_file();
    let colours: Vec<_> = svg.match_indices(":var(--").collect();
    assert!(colours.len() > 10, "{}", colours.len());
    for (at, _) in colours {
        let declarations: Vec<&str> = svg[..at].rsplit([';', '{', '"']).take(2).collect();
        let [property, fallback] = declarations[..] else { panic!("nothing before {at}") };
        let (fallback_property, value) = fallback.split_once(':').expect("a declaration");
        assert_eq!(fallback_property, property);
        assert!(value.starts_with('#') && value.len() >= 4, "{fallback}");
    }
    assert!(svg.contains("fill:#59636e;fill:var(--soft)"), "the light value");
}

#[test]
fn legends_wrap_and_omit_unnamed_layers() {
    let mut figure = figure();
    let one_line = figure.to_element();
    assert_eq!(one_line.matches("class=\"key\"").count(), 2);
    let layer = figure.panels[0].layers[0].clone();
    for _ in 0..4 {
        figure.panels[0].layers.push(Layer { name: "a rather long name".into(), ..layer.clone() });
    }
    let wrapped = figure.to_element();
    let height = |svg: &str| -> f64 {
        let (_, rest) = svg.split_once("height=\"").expect("a height");
        rest.split('"').next().and_then(|text| text.parse().ok()).expect("a number")
    };
    assert_eq!(height(&wrapped) - height(&one_line), 2.0 * 19.0);
}
