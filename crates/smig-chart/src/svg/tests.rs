//! Tests that charts are well-formed and draw their input.

use super::{
    Axis, Block, Colour, EventLine, Figure, Layer, Marker, Panel, Picture, Point, Rule, STYLE,
    Shape,
};
use crate::html::Page;
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
    let mut pictures =
        vec![picture(0.0, ""), picture(2.0, "/9j/4A=="), picture(4.0, "\"/><script>")];
    figure.panels[1].layers[0].shape = Shape::Pictures(pictures.clone());
    let svg = figure.to_element();
    assert_balanced(&svg);
    assert_eq!((svg.matches("<image ").count(), svg.matches("<use ").count()), (1, 1));
    assert!(svg.contains("href=\"data:image/jpeg;base64,/9j/4A==\""));
    assert_eq!(svg.matches("class=\"screen\"").count(), 3);
    assert!(svg.contains("<title>after &lt;1 s</title>") && !svg.contains("<script"));
    // A screen that does not change is one picture, in a file as well as in a page of several charts.
    pictures.extend([picture(6.0, "/9j/4A=="), picture(8.0, "/9j/4B==")]);
    figure.panels[1].layers[0].shape = Shape::Pictures(pictures);
    let mut page = Page::new("pictures");
    page.figure(&figure, &figure, "twice");
    for (text, uses) in [(figure.to_file(), 3), (page.finish(), 6)] {
        assert_balanced(&text);
        let counts = (text.matches("<image ").count(), text.matches("<use ").count());
        assert_eq!(counts, (2, uses));
        for name in text.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert_eq!(text.matches(&format!("id=\"{name}\"")).count(), 1, "{name}");
        }
    }
}

#[test]
fn areas_are_told_by_their_names_and_not_by_colours_alone() {
    let mut figure = figure();
    figure.panels[1].layers[0].name = "on <1>".into();
    let svg = figure.to_element();
    assert_balanced(&svg);
    assert!(svg.contains("<title>on &lt;1&gt;</title><path class=\"blocks\""), "{svg}");
    assert!(svg.contains("<title>share</title><path class=\"line\""), "{svg}");
    assert!(!svg.contains("<title>objects</title>"), "dots have their own");
}

/// In CIELAB, of each pair of connections' colours, as readers with each kind of colour vision see them (Machado and others, 2009).
#[test]
fn the_palette_is_distinguishable_with_any_colour_vision() {
    const VISIONS: [(&str, [[f64; 3]; 3], f64); 4] = [
        ("all", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 28.0),
        (
            "protanopia",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
            14.0,
        ),
        (
            "deuteranopia",
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
            14.0,
        ),
        (
            "tritanopia",
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
            14.0,
        ),
    ];
    let colours = [
        Colour::Blue,
        Colour::Amber,
        Colour::Teal,
        Colour::Purple,
        Colour::Slate,
        Colour::Brown,
        Colour::Ink,
    ];
    let (light, dark) = STYLE.split_once("@media").expect("two schemes");
    for scheme in [light, dark] {
        for (vision, matrix, min_distance) in VISIONS {
            let seen = |colour: &Colour| {
                let (_, rest) = scheme.split_once(&format!("{}:", colour.variable())).unwrap();
                to_lab(apply(matrix, linear(&rest[..7])))
            };
            for (index, a) in colours.iter().enumerate() {
                for b in &colours[..index] {
                    let (x, y) = (seen(a), seen(b));
                    let distance = (0..3).map(|i| (x[i] - y[i]).powi(2)).sum::<f64>().sqrt();
                    assert!(distance >= min_distance, "{vision}: {a:?}, {b:?}: {distance}");
                }
            }
        }
    }
}

/// Returns the light of a colour such as `#1c2128`.
fn linear(hex: &str) -> [f64; 3] {
    [1, 3, 5].map(|at| {
        let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    })
}

fn apply(matrix: [[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| (0..3).map(|index| row[index] * vector[index]).sum::<f64>().clamp(0.0, 1.0))
}

fn to_lab(light: [f64; 3]) -> [f64; 3] {
    let xyz = apply(
        [
            [0.412_456, 0.357_576, 0.180_438],
            [0.212_673, 0.715_152, 0.072_175],
            [0.019_334, 0.119_192, 0.950_304],
        ],
        light,
    );
    let f = |value: f64| {
        if value > 0.008_856 { value.cbrt() } else { 7.787 * value + 16.0 / 116.0 }
    };
    let [x, y, z] = [f(xyz[0] / 0.950_47), f(xyz[1]), f(xyz[2] / 1.088_83)];
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// What waits in a report of a page is a half-tinted brown: it is neither taken for the paper, as a faint slate was in the dark style, nor for
/// the slate beside it.
#[test]
fn half_tinted_brown_is_told_from_paper_and_slate_in_both_styles() {
    let (light, dark) = STYLE.split_once("@media").expect("two schemes");
    for scheme in [light, dark] {
        let bytes_of = |name: &str| -> [u8; 3] {
            let (_, rest) = scheme.split_once(&format!("{name}:")).unwrap();
            let value = rest.split(';').next().unwrap();
            let value = if value == "#fff" { "#ffffff" } else { value };
            [1, 3, 5].map(|at| u8::from_str_radix(&value[at..at + 2], 16).unwrap())
        };
        let lab_of = |bytes: [u8; 3]| {
            let hex = bytes.map(|byte| format!("{byte:02x}")).concat();
            to_lab(linear(&format!("#{hex}")))
        };
        let (brown, paper) = (bytes_of("--brown"), bytes_of("--paper"));
        let half: [u8; 3] = std::array::from_fn(|at| brown[at].midpoint(paper[at]));
        for other in [paper, bytes_of("--slate")] {
            let (x, y) = (lab_of(half), lab_of(other));
            let distance = (0..3).map(|i| (x[i] - y[i]).powi(2)).sum::<f64>().sqrt();
            assert!(distance > 20.0, "{scheme}: {distance}");
        }
    }
}

#[test]
fn a_reference_that_changes_is_dotted_as_a_rule() {
    let mut figure = figure();
    let points = vec![(0.0, 1.0), (5.0, 2.0), (9.0, 2.0)];
    figure.panels[1].layers[0].shape = Shape::Reference(points);
    let svg = figure.to_element();
    assert_balanced(&svg);
    let before = self::figure().to_element().matches("class=\"rule\"").count();
    assert_eq!(svg.matches("class=\"rule\"").count(), before + 1);
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
