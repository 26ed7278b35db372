//! Drawing a figure.

use std::fmt::Write;

use super::figure::{Colour, Figure, Layer, Marker, Panel, Point, Rule, Shape};
use super::style::STYLE;
use crate::report::html::escape;

const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
/// Above a panel, for its title.
const TITLE: f64 = 26.0;
/// One line of a legend.
const LEGEND: f64 = 19.0;
/// Below the last panel, for the x axis.
const BOTTOM: f64 = 34.0;
const GAP: f64 = 12.0;

/// Roughly how wide text is at 12 pixels.
fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_uppercase() || c == '_' { 8.6 } else { 6.6 }).sum()
}

/// Where one panel's plot is.
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Figure {
    /// The chart as an element for a page that has the [style](STYLE).
    #[must_use]
    pub fn to_element(&self) -> String {
        self.render("")
    }

    /// The chart as a file of its own.
    #[must_use]
    pub fn to_file(&self) -> String {
        self.render(&format!("<style>{STYLE}svg{{background:var(--paper)}}</style>"))
    }

    /// In CSS pixels, as [`Figure::width`].
    #[must_use]
    pub fn height(&self) -> f64 {
        self.areas().last().map_or(0.0, |area| area.top + area.height) + BOTTOM
    }

    /// Where the panels' plots are.
    fn areas(&self) -> Vec<Area> {
        let mut top = 0.0;
        let area = |panel: &Panel| {
            top += TITLE + LEGEND * self.legend_lines(panel) as f64;
            let width = self.width - LEFT - RIGHT;
            let area = Area { left: LEFT, top, width, height: panel.height };
            top += panel.height + GAP;
            area
        };
        self.panels.iter().map(area).collect()
    }

    fn render(&self, style: &str) -> String {
        let mut out = String::new();
        let areas = self.areas();
        let height = self.height();
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
             viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\">\
             <title>{title}</title><desc>{description}</desc>{style}",
            w = round(self.width),
            h = round(height),
            title = escape(&self.title),
            description = escape(&self.description),
        );
        for (index, (panel, area)) in self.panels.iter().zip(&areas).enumerate() {
            let last = index + 1 == self.panels.len();
            self.draw_grid(
                &mut out,
                panel,
                area,
                if last { XLabels::Shown } else { XLabels::Hidden },
            );
            self.draw_heading(&mut out, panel, area);
            for layer in &panel.layers {
                self.draw_layer(&mut out, panel, area, layer);
            }
            for rule in &panel.rules {
                draw_rule(&mut out, panel, area, rule);
            }
        }
        self.draw_marks(&mut out, &areas);
        out.push_str("</svg>");
        out
    }

    fn draw_grid(&self, out: &mut String, panel: &Panel, area: &Area, labels: XLabels) {
        let mut lines = String::new();
        let mut texts = String::new();
        let wanted = (area.height / 26.0) as usize;
        for (value, text) in panel.y.ticks(wanted.max(2)) {
            let y = area.y(panel, value);
            let _ = write!(lines, "M{} {}h{}", round(area.left), round(y), round(area.width));
            let (x, y) = (round(area.left - 6.0), round(y + 4.0));
            let _ = write!(texts, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{text}</text>");
        }
        let ticks = self.x.ticks((area.width / 56.0) as usize);
        let count = ticks.len();
        let mut free_until = self.width;
        for (index, (value, mut text)) in ticks.into_iter().enumerate().rev() {
            let x = area.left + self.x.position(value) * area.width;
            let _ = write!(lines, "M{} {}v{}", round(x), round(area.top), round(area.height));
            if index + 1 == count && !self.x.unit().is_empty() {
                text = format!("{text}\u{202f}{}", self.x.unit());
            }
            let half = text_width(&text) / 2.0;
            let middle = x.min(self.width - half - 1.0);
            // The last has the unit and stays; others give way.
            if labels == XLabels::Shown && middle + half <= free_until {
                free_until = middle - half - 6.0;
                let (x, y) = (round(middle), round(area.top + area.height + 17.0));
                let text = escape(&text);
                let _ =
                    write!(texts, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
            }
        }
        let base = round(area.top + area.height);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"{lines}\"/><path class=\"axis\" d=\"M{} {base}h{}\"/>{texts}",
            round(area.left),
            round(area.width),
        );
    }

    fn draw_heading(&self, out: &mut String, panel: &Panel, area: &Area) {
        let legend = LEGEND * self.legend_lines(panel) as f64;
        let y = round(area.top - legend - 9.0);
        let _ =
            write!(out, "<text class=\"name\" x=\"2\" y=\"{y}\">{}</text>", escape(&panel.title));
        for (line, entries) in self.legend(panel).into_iter().enumerate() {
            let y = area.top - legend + LEGEND * line as f64 + 7.0;
            for (x, layer) in entries {
                draw_swatch(out, layer, x, y - 4.0);
                let _ = write!(
                    out,
                    "<text class=\"key\" x=\"{}\" y=\"{}\">{}</text>",
                    round(x + 14.0),
                    round(y),
                    escape(&layer.name)
                );
            }
        }
    }

    fn legend_lines(&self, panel: &Panel) -> usize {
        self.legend(panel).len()
    }

    /// The named layers in lines that fit, each with its position.
    fn legend<'a>(&self, panel: &'a Panel) -> Vec<Vec<(f64, &'a Layer)>> {
        let mut lines: Vec<Vec<(f64, &Layer)>> = Vec::new();
        let mut x = f64::INFINITY;
        for layer in panel.layers.iter().filter(|layer| !layer.name.is_empty()) {
            let wide = 14.0 + text_width(&layer.name) + 16.0;
            if x + wide > self.width && x > LEFT {
                lines.push(Vec::new());
                x = LEFT;
            }
            if let Some(line) = lines.last_mut() {
                line.push((x, layer));
            }
            x += wide;
        }
        lines
    }

    fn draw_layer(&self, out: &mut String, panel: &Panel, area: &Area, layer: &Layer) {
        let at = |x: f64, y: f64| (area.left + self.x.position(x) * area.width, area.y(panel, y));
        let colour = layer.colour;
        match &layer.shape {
            Shape::Dots(marker, points) => {
                let _ = write!(out, "<g class=\"dots\" {}>", fill(colour));
                for Point { x, y, tooltip } in points {
                    let (x, y) = at(*x, *y);
                    draw_marker(out, *marker, x, y, colour, &escape(tooltip));
                }
                out.push_str("</g>");
            }
            Shape::Line(points) => path(out, colour, points.iter().map(|(x, y)| at(*x, *y))),
            Shape::Steps(points) => {
                let mut corners = Vec::new();
                for (x, y) in points {
                    let (x, y) = at(*x, *y);
                    if let Some((_, before)) = corners.last().copied() {
                        corners.push((x, before));
                    }
                    corners.push((x, y));
                }
                path(out, colour, corners.into_iter());
            }
            Shape::Blocks(blocks) => {
                let _ = write!(out, "<path class=\"blocks\" {} d=\"", fill(colour));
                for block in blocks {
                    let (left, bottom) = at(block.x.0, block.y.0);
                    let (right, top) = at(block.x.1, block.y.1);
                    // A hair of paper between intervals.
                    let width = (right - left - 0.6).max(0.4);
                    let _ = write!(
                        out,
                        "M{} {}h{}v{}h-{2}z",
                        round(left),
                        round(bottom),
                        round(width),
                        round(top - bottom)
                    );
                }
                out.push_str("\"/>");
            }
        }
    }

    /// A line through every plot, and the words in the first.
    fn draw_marks(&self, out: &mut String, areas: &[Area]) {
        let Some(first) = areas.first() else { return };
        for mark in &self.marks {
            let share = self.x.position(mark.x);
            let x = first.left + share * first.width;
            let lines: String = areas
                .iter()
                .map(|area| format!("M{} {}v{}", round(x), round(area.top), round(area.height)))
                .collect();
            let (anchor, aside) = if share > 0.6 { ("end", -6.0) } else { ("start", 6.0) };
            let _ = write!(
                out,
                "<path class=\"mark\" d=\"{lines}\"/>\
                 <text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                round(x + aside),
                round(first.top + 12.0),
                escape(&mark.label),
            );
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum XLabels {
    Shown,
    Hidden,
}

impl Area {
    fn y(&self, panel: &Panel, value: f64) -> f64 {
        self.top + (1.0 - panel.y.position(value)) * self.height
    }
}

fn draw_rule(out: &mut String, panel: &Panel, area: &Area, rule: &Rule) {
    let y = area.y(panel, rule.y);
    let _ = write!(
        out,
        "<path class=\"rule\" d=\"M{} {}h{}\"/>\
         <text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        round(area.left),
        round(y),
        round(area.width),
        round(area.left + area.width - 2.0),
        round(y - 5.0),
        escape(&rule.label),
    );
}

fn draw_swatch(out: &mut String, layer: &Layer, x: f64, y: f64) {
    match &layer.shape {
        Shape::Dots(marker, _) => {
            let _ = write!(out, "<g class=\"dots\" {}>", fill(layer.colour));
            draw_marker(out, *marker, x + 5.0, y, layer.colour, "");
            out.push_str("</g>");
        }
        Shape::Line(_) | Shape::Steps(_) => {
            path(out, layer.colour, [(x, y), (x + 10.0, y)].into_iter());
        }
        Shape::Blocks(_) => {
            let _ = write!(
                out,
                "<rect {} x=\"{}\" y=\"{}\" width=\"10\" height=\"10\"/>",
                fill(layer.colour),
                round(x),
                round(y - 5.0)
            );
        }
    }
}

fn draw_marker(out: &mut String, marker: Marker, x: f64, y: f64, colour: Colour, tooltip: &str) {
    let (tag, shape) = match marker {
        Marker::Circle => ("circle", format!("cx=\"{}\" cy=\"{}\" r=\"3.6\"", round(x), round(y))),
        Marker::Ring => (
            "circle",
            format!(
                "cx=\"{}\" cy=\"{}\" r=\"3\" style=\"fill:var(--paper);stroke:var({});stroke-width:1.6\"",
                round(x),
                round(y),
                colour.variable()
            ),
        ),
        Marker::Square => {
            ("path", format!("d=\"M{} {}h6.2v6.2h-6.2z\"", round(x - 3.1), round(y - 3.1)))
        }
        Marker::Triangle => ("path", format!("d=\"M{} {}l4 7.2h-8z\"", round(x), round(y - 4.2))),
    };
    if tooltip.is_empty() {
        let _ = write!(out, "<{tag} {shape}/>");
    } else {
        let _ = write!(out, "<{tag} {shape}><title>{tooltip}</title></{tag}>");
    }
}

fn path(out: &mut String, colour: Colour, points: impl Iterator<Item = (f64, f64)>) {
    let _ = write!(out, "<path class=\"line\" style=\"stroke:var({})\" d=\"", colour.variable());
    for (index, (x, y)) in points.enumerate() {
        let _ = write!(out, "{}{} {}", if index == 0 { 'M' } else { 'L' }, round(x), round(y));
    }
    out.push_str("\"/>");
}

fn fill(colour: Colour) -> String {
    format!("style=\"fill:var({})\"", colour.variable())
}

/// To a tenth of a pixel: sharper than any screen, and shorter.
fn round(value: f64) -> f64 {
    let tenths = (value * 10.0).round() / 10.0;
    if tenths == 0.0 { 0.0 } else { tenths } // not -0
}
