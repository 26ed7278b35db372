//! Draws the shape of a layer.

use std::fmt::Write;

use super::figure::{
    Bar, Block, Colour, Label, Layer, Level, Marker, Picture, Point, Shape, Tint, VerticalRange,
};
use super::picture_set::PictureSet;
use crate::markup::escape;

/// Half the width of a whisker's cap.
const CAP_HALF_WIDTH: f64 = 3.5;
/// Length of the strokes of a rug plot.
const RUG_STROKE_LENGTH: f64 = 7.0;

/// Draws a layer; `to_position` maps values to positions, `top` is the plot's upper edge.
pub(super) fn draw_shape(
    out: &mut String,
    layer: &Layer,
    top: f64,
    to_position: &dyn Fn(f64, f64) -> (f64, f64),
    pictures: &mut PictureSet,
) {
    let colour = layer.colour;
    match &layer.shape {
        Shape::Dots(marker, points) => {
            let _ = write!(out, "<g class=\"dots\" {}>", fill_style(colour));
            for Point { x, y, tooltip } in points {
                let (x, y) = to_position(*x, *y);
                draw_marker(out, *marker, x, y, colour, &escape(tooltip));
            }
            out.push_str("</g>");
        }
        Shape::Line(points) => {
            draw_polyline(out, colour, points.iter().map(|(x, y)| to_position(*x, *y)))
        }
        Shape::Steps(points) => {
            draw_polyline(out, colour, corners(points, to_position).into_iter());
        }
        Shape::Reference(points) => {
            out.push_str("<path class=\"rule\" d=\"");
            append_polyline(out, corners(points, to_position).into_iter());
            out.push_str("\"/>");
        }
        Shape::Blocks(blocks) => {
            let _ = write!(out, "<path class=\"blocks\" {} d=\"", fill_style(colour));
            for block in blocks {
                append_rectangle(out, block, 0.4, to_position);
            }
            out.push_str("\"/>");
        }
        Shape::Bars(bars) => draw_bars(out, colour, bars, to_position),
        Shape::Area(tint, ranges) => draw_area(out, colour, *tint, ranges, to_position),
        Shape::Whiskers(ranges) => draw_whiskers(out, colour, ranges, to_position),
        Shape::Levels(levels) => draw_levels(out, colour, levels, to_position),
        Shape::Labels(labels) => {
            for Label { x, y, text } in labels {
                let (x, y) = to_position(*x, *y);
                let (x, y, text) = (round_to_tenth(x), round_to_tenth(y - 4.0), escape(text));
                let _ = write!(
                    out,
                    "<text class=\"note\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>"
                );
            }
        }
        Shape::Pictures(shown) => {
            for picture in shown {
                draw_picture(out, picture, to_position, pictures);
            }
        }
        Shape::Rug(positions) => {
            draw_rug(out, colour, top, positions.iter().map(|x| to_position(*x, 0.0).0));
        }
    }
}

/// Returns the corners of a step function.
fn corners(points: &[(f64, f64)], to_position: &dyn Fn(f64, f64) -> (f64, f64)) -> Vec<(f64, f64)> {
    let mut corners = Vec::new();
    for (x, y) in points {
        let (x, y) = to_position(*x, *y);
        if let Some((_, previous_y)) = corners.last().copied() {
            corners.push((x, previous_y));
        }
        corners.push((x, y));
    }
    corners
}

fn draw_rug(out: &mut String, colour: Colour, top: f64, positions: impl Iterator<Item = f64>) {
    let stroke = |x| format!("M{} {}v{RUG_STROKE_LENGTH}", round_to_tenth(x), round_to_tenth(top));
    let strokes: String = positions.map(stroke).collect();
    let variable = colour.variable();
    let _ = write!(out, "<path class=\"ticks\" style=\"stroke:var({variable})\" d=\"{strokes}\"/>");
}

fn draw_picture(
    out: &mut String,
    picture: &Picture,
    to_position: &dyn Fn(f64, f64) -> (f64, f64),
    pictures: &mut PictureSet,
) {
    let (left, bottom) = to_position(picture.block.x.0, picture.block.y.0);
    let (right, top) = to_position(picture.block.x.1, picture.block.y.1);
    let frame = format!(
        "x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
        round_to_tenth(left),
        round_to_tenth(top),
        round_to_tenth((right - left).max(1.0)),
        round_to_tenth((bottom - top).max(1.0))
    );
    let _ = write!(out, "<g><title>{}</title>", escape(&picture.text));
    match pictures.insert(&picture.jpeg_base64) {
        None => {
            let _ = write!(out, "<rect class=\"screen\" style=\"fill:#fff\" {frame}/></g>");
        }
        Some(name) => {
            let _ =
                write!(out, "<use {frame} href=\"#{name}\"/><rect class=\"screen\" {frame}/></g>");
        }
    }
}

/// Appends a rectangle to a path, with a hairline gap to its right.
fn append_rectangle(
    out: &mut String,
    block: &Block,
    min_width: f64,
    to_position: &dyn Fn(f64, f64) -> (f64, f64),
) {
    let (left, bottom) = to_position(block.x.0, block.y.0);
    let (right, top) = to_position(block.x.1, block.y.1);
    let width = (right - left - 0.6).max(min_width);
    let (left, bottom, height) =
        (round_to_tenth(left), round_to_tenth(bottom), round_to_tenth(top - bottom));
    let _ = write!(out, "M{left} {bottom}h{}v{height}h-{0}z", round_to_tenth(width));
}

fn draw_bars(
    out: &mut String,
    colour: Colour,
    bars: &[Bar],
    to_position: &dyn Fn(f64, f64) -> (f64, f64),
) {
    let _ = write!(out, "<g class=\"blocks\" {}>", fill_style(colour));
    for bar in bars {
        let _ = write!(out, "<path{} d=\"", bar_tint_style(bar.tint));
        append_rectangle(out, &bar.block, 1.0, to_position);
        if bar.tooltip.is_empty() {
            out.push_str("\"/>");
        } else {
            let _ = write!(out, "\"><title>{}</title></path>", escape(&bar.tooltip));
        }
    }
    out.push_str("</g>");
}

fn draw_area(
    out: &mut String,
    colour: Colour,
    tint: Tint,
    ranges: &[VerticalRange],
    to_position: &dyn Fn(f64, f64) -> (f64, f64),
) {
    let upper = ranges.iter().map(|range| to_position(range.x, range.high));
    let lower = ranges.iter().rev().map(|range| to_position(range.x, range.low));
    draw_polygon(out, colour, tint, upper.chain(lower));
}

/// Draws a filled polygon with these corners.
fn draw_polygon(
    out: &mut String,
    colour: Colour,
    tint: Tint,
    corners: impl Iterator<Item = (f64, f64)>,
) {
    let _ =
        write!(out, "<g {}><path class=\"blocks\"{} d=\"", fill_style(colour), tint_style(tint));
    let mut command = 'M';
    for (x, y) in corners {
        let _ = write!(out, "{command}{} {}", round_to_tenth(x), round_to_tenth(y));
        command = 'L';
    }
    out.push_str(if command == 'L' { "z\"/></g>" } else { "\"/></g>" });
}

fn draw_levels(
    out: &mut String,
    colour: Colour,
    levels: &[Level],
    to_position: &dyn Fn(f64, f64) -> (f64, f64),
) {
    let variable = colour.variable();
    let _ = write!(out, "<path class=\"line\" style=\"stroke:var({variable})\" d=\"");
    for level in levels {
        let ((from, y), (to, _)) =
            (to_position(level.x.0, level.y), to_position(level.x.1, level.y));
        let _ =
            write!(out, "M{} {}H{}", round_to_tenth(from), round_to_tenth(y), round_to_tenth(to));
    }
    out.push_str("\"/>");
}

fn draw_whiskers(
    out: &mut String,
    colour: Colour,
    ranges: &[VerticalRange],
    to_position: &dyn Fn(f64, f64) -> (f64, f64),
) {
    let variable = colour.variable();
    let _ = write!(out, "<path class=\"whisker\" style=\"stroke:var({variable})\" d=\"");
    for range in ranges {
        let ((x, low), (_, high)) =
            (to_position(range.x, range.low), to_position(range.x, range.high));
        let (left, cap_width) = (round_to_tenth(x - CAP_HALF_WIDTH), 2.0 * CAP_HALF_WIDTH);
        let (x, low, high) = (round_to_tenth(x), round_to_tenth(low), round_to_tenth(high));
        let _ = write!(out, "M{x} {low}V{high}M{left} {low}h{cap_width}M{left} {high}h{cap_width}");
    }
    out.push_str("\"/>");
}

const fn tint_style(tint: Tint) -> &'static str {
    match tint {
        Tint::Full => "",
        Tint::Half => " fill-opacity=\".5\"",
        Tint::Faint => " fill-opacity=\".18\"",
    }
}

/// Nothing is drawn below bars, and in the dark style faint ones would hardly be seen.
const fn bar_tint_style(tint: Tint) -> &'static str {
    match tint {
        Tint::Faint => " fill-opacity=\".3\"",
        tint => tint_style(tint),
    }
}

/// Draws a layer's symbol in a legend, ten pixels wide; (`x`, `y`) is the middle of its left edge.
pub(super) fn draw_swatch(out: &mut String, layer: &Layer, x: f64, y: f64) {
    match &layer.shape {
        Shape::Dots(marker, _) => {
            let _ = write!(out, "<g class=\"dots\" {}>", fill_style(layer.colour));
            draw_marker(out, *marker, x + 5.0, y, layer.colour, "");
            out.push_str("</g>");
        }
        Shape::Line(_) | Shape::Steps(_) | Shape::Levels(_) => {
            draw_polyline(out, layer.colour, [(x, y), (x + 10.0, y)].into_iter());
        }
        Shape::Blocks(_) => draw_rect_swatch(out, layer.colour, "", x, y),
        Shape::Bars(bars) => {
            let tint = bars.first().map_or(Tint::Full, |bar| bar.tint);
            draw_rect_swatch(out, layer.colour, bar_tint_style(tint), x, y);
        }
        Shape::Area(tint, _) => draw_rect_swatch(out, layer.colour, tint_style(*tint), x, y),
        // Text and pictures need no symbol, and a reference is named by its panel's title.
        Shape::Labels(_) | Shape::Pictures(_) | Shape::Reference(_) => {}
        Shape::Whiskers(_) => {
            let identity = |x: f64, y: f64| (x, y);
            draw_whiskers(
                out,
                layer.colour,
                &[VerticalRange { x: x + 5.0, low: y + 5.0, high: y - 5.0 }],
                &identity,
            );
        }
        Shape::Rug(_) => draw_rug(out, layer.colour, y - 3.5, std::iter::once(x + 5.0)),
    }
}

fn draw_rect_swatch(out: &mut String, colour: Colour, tint_style: &str, x: f64, y: f64) {
    let _ = write!(
        out,
        "<rect {}{} x=\"{}\" y=\"{}\" width=\"10\" height=\"10\"/>",
        fill_style(colour),
        tint_style,
        round_to_tenth(x),
        round_to_tenth(y - 5.0)
    );
}

fn draw_marker(out: &mut String, marker: Marker, x: f64, y: f64, colour: Colour, tooltip: &str) {
    let (tag, shape) = match marker {
        Marker::Circle => (
            "circle",
            format!("cx=\"{}\" cy=\"{}\" r=\"3.6\"", round_to_tenth(x), round_to_tenth(y)),
        ),
        Marker::Ring => (
            "circle",
            format!(
                "cx=\"{}\" cy=\"{}\" r=\"3\" style=\"fill:var(--paper);stroke:var({});stroke-width:1.6\"",
                round_to_tenth(x),
                round_to_tenth(y),
                colour.variable()
            ),
        ),
        Marker::Square => (
            "path",
            format!("d=\"M{} {}h6.2v6.2h-6.2z\"", round_to_tenth(x - 3.1), round_to_tenth(y - 3.1)),
        ),
        Marker::Triangle => {
            ("path", format!("d=\"M{} {}l4 7.2h-8z\"", round_to_tenth(x), round_to_tenth(y - 4.2)))
        }
    };
    if tooltip.is_empty() {
        let _ = write!(out, "<{tag} {shape}/>");
    } else {
        let _ = write!(out, "<{tag} {shape}><title>{tooltip}</title></{tag}>");
    }
}

fn draw_polyline(out: &mut String, colour: Colour, points: impl Iterator<Item = (f64, f64)>) {
    let _ = write!(out, "<path class=\"line\" style=\"stroke:var({})\" d=\"", colour.variable());
    append_polyline(out, points);
    out.push_str("\"/>");
}

fn append_polyline(out: &mut String, points: impl Iterator<Item = (f64, f64)>) {
    for (index, (x, y)) in points.enumerate() {
        let _ = write!(
            out,
            "{}{} {}",
            if index == 0 { 'M' } else { 'L' },
            round_to_tenth(x),
            round_to_tenth(y)
        );
    }
}

fn fill_style(colour: Colour) -> String {
    format!("style=\"fill:var({})\"", colour.variable())
}

/// Rounds to a tenth of a pixel: finer than any screen, and shorter output.
pub(super) fn round_to_tenth(value: f64) -> f64 {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 { 0.0 } else { rounded } // normalizes -0
}
