//! Renders a [`Chart`]: one horizontal line per value, its name on the left, its number on the right.
//!
//! With horizontal lines, names stay legible and the layout fits desktop and phone screens.

use std::fmt::Write;

use smig_chart::html::escape;
use smig_chart::svg::{Axis, STYLE, with_colour_fallbacks};
use smig_chart::{format_number, group_thousands};

use super::finding::{AxisScale, Chart, Dot};

const ROW_HEIGHT: f64 = 22.0;
const HEADING_HEIGHT: f64 = 26.0;
const TOP_MARGIN: f64 = 26.0;
const BOTTOM_MARGIN: f64 = 34.0;
/// Width of the numbers on the right.
const NUMBERS_WIDTH: f64 = 58.0;
const WHISKER_CAP_HALF_HEIGHT: f64 = 3.5;

/// The chart's geometry.
struct ChartLayout {
    width: f64,
    left: f64,
    right: f64,
    bottom: f64,
    axis: Axis,
}

impl Chart {
    /// Renders the chart as an element for a page that includes the style sheet.
    #[must_use]
    pub fn to_element(&self, width: f64) -> String {
        self.render(width, "")
    }

    /// Renders the chart as a standalone file.
    #[must_use]
    pub fn to_file(&self, width: f64) -> String {
        let style = format!("<style>{STYLE}svg{{background:var(--paper)}}</style>");
        with_colour_fallbacks(&self.render(width, &style))
    }

    fn dots(&self) -> impl Iterator<Item = &Dot> {
        self.groups.iter().flat_map(|group| &group.dots)
    }

    fn layout(&self, width: f64) -> ChartLayout {
        let max_label_width = self.dots().map(|dot| text_width(&dot.label)).fold(0.0, f64::max);
        let rows_height = self.dots().count() as f64 * ROW_HEIGHT;
        let headings = self.groups.iter().filter(|group| !group.title.is_empty()).count() as f64;
        ChartLayout {
            width,
            left: (max_label_width + 12.0).min(width * 0.42),
            right: width - NUMBERS_WIDTH,
            bottom: TOP_MARGIN + rows_height + headings * HEADING_HEIGHT,
            axis: self.axis(),
        }
    }

    fn axis(&self) -> Axis {
        let dot_values = |dot: &Dot| {
            let ends = dot.interval.map_or([None; 2], |(low, high)| [Some(low), Some(high)]);
            [Some(dot.value), dot.p95, dot.paper_value].into_iter().chain(ends).flatten()
        };
        let values = || {
            self.dots().flat_map(dot_values).chain(self.reference.iter().map(|(value, _)| *value))
        };
        let max = values().fold(0.0, f64::max);
        match self.scale {
            AxisScale::Log => {
                let positive = values().filter(|value| *value > 0.0);
                Axis::log(positive.fold(f64::INFINITY, f64::min), max, self.unit)
            }
            AxisScale::Linear => Axis::linear(max, self.unit),
        }
    }

    fn render(&self, width: f64, style: &str) -> String {
        let layout = self.layout(width);
        let height = layout.bottom + BOTTOM_MARGIN;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
             viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\
             <title>{}</title><desc>{}</desc>{style}\
             <text class=\"name\" x=\"2\" y=\"14\">{}</text>",
            escape(&self.title),
            escape(&self.caption),
            escape(&self.title),
        );
        layout.write_grid(&mut out);
        if let Some((value, name)) = &self.reference {
            layout.write_reference(&mut out, *value, name);
        }
        let mut y = TOP_MARGIN;
        for group in &self.groups {
            if !group.title.is_empty() {
                y += HEADING_HEIGHT;
                let _ = write!(
                    out,
                    "<text class=\"name\" x=\"2\" y=\"{}\">{}</text>",
                    y - 8.0,
                    escape(&group.title)
                );
            }
            for dot in &group.dots {
                layout.write_dot(&mut out, dot, y + ROW_HEIGHT / 2.0);
                y += ROW_HEIGHT;
            }
        }
        out.push_str("</svg>");
        out
    }
}

impl ChartLayout {
    fn x(&self, value: f64) -> f64 {
        round_to_tenths(self.left + self.axis.position(value) * (self.right - self.left))
    }

    fn write_grid(&self, out: &mut String) {
        let (mut lines, mut texts) = (String::new(), String::new());
        let ticks = self.axis.ticks(((self.right - self.left) / 62.0) as usize);
        let last_index = ticks.len().saturating_sub(1);
        let mut free_until = f64::INFINITY;
        for (index, (value, text)) in ticks.into_iter().enumerate().rev() {
            let x = self.x(value);
            let _ = write!(lines, "M{x} {TOP_MARGIN}V{}", self.bottom);
            let text = if index == last_index {
                format!("{text}\u{202f}{}", self.axis.unit())
            } else {
                text
            };
            let half_width = text_width(&text) / 2.0;
            if x + half_width < free_until {
                free_until = x - half_width - 6.0;
                let _ = write!(
                    texts,
                    "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    self.bottom + 17.0,
                    escape(&text)
                );
            }
        }
        let _ = write!(out, "<path class=\"grid\" d=\"{lines}\"/>{texts}");
    }

    fn write_dot(&self, out: &mut String, dot: &Dot, y: f64) {
        let colour = dot.colour.variable();
        let _ = write!(
            out,
            "<text class=\"key\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            round_to_tenths(self.left - 8.0),
            y + 4.0,
            escape(&dot.label)
        );
        if let Some((low, high)) = dot.interval {
            let (low, high) = (self.x(low), self.x(high));
            let (top, cap) = (y - WHISKER_CAP_HALF_HEIGHT, 2.0 * WHISKER_CAP_HALF_HEIGHT);
            let _ = write!(
                out,
                "<path class=\"whisker\" style=\"stroke:var({colour})\" \
                 d=\"M{low} {y}H{high}M{low} {top}v{cap}M{high} {top}v{cap}\"/>"
            );
        }
        if let Some(p95) = dot.p95 {
            let _ = write!(
                out,
                "<circle cx=\"{}\" cy=\"{y}\" r=\"3\" style=\"fill:var(--paper);stroke:var({colour});\
                 stroke-width:1.6\"><title>95th percentile: {}</title></circle>",
                self.x(p95),
                format_grouped(p95)
            );
        }
        let _ = write!(
            out,
            "<g class=\"dots\" style=\"fill:var({colour})\"><circle cx=\"{}\" cy=\"{y}\" r=\"4.4\">\
             <title>{}: {}</title></circle></g>",
            self.x(dot.value),
            escape(&dot.label),
            format_grouped(dot.value)
        );
        if let Some(paper) = dot.paper_value {
            let _ = write!(
                out,
                "<path d=\"M{} {}l5 5l-5 5l-5-5z\" style=\"fill:var(--paper);stroke:var(--ink);\
                 stroke-width:1.6\"><title>the paper: {}</title></path>",
                self.x(paper),
                y - 5.0,
                format_grouped(paper)
            );
        }
        let _ = write!(
            out,
            "<text class=\"key\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            self.width - 2.0,
            y + 4.0,
            format_grouped(dot.value)
        );
    }

    fn write_reference(&self, out: &mut String, value: f64, name: &str) {
        let x = self.x(value);
        let (anchor, offset) =
            if self.axis.position(value) > 0.6 { ("end", -5.0) } else { ("start", 5.0) };
        let _ = write!(
            out,
            "<path class=\"mark\" d=\"M{x} {TOP_MARGIN}V{}\"/>\
             <text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{} {}</text>",
            self.bottom,
            x + offset,
            self.bottom + 30.0,
            escape(name),
            format_grouped(value)
        );
    }
}

/// Formats a number with thousands separators.
fn format_grouped(value: f64) -> String {
    group_thousands(&format_number(value))
}

/// Returns the approximate width of text at 12 pixels.
fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_uppercase() || c == '_' { 8.6 } else { 6.4 }).sum()
}

fn round_to_tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::super::finding::DotGroup;
    use super::*;
    use smig_chart::html::assert_balanced;
    use smig_chart::svg::Colour;

    #[test]
    fn a_chart_has_every_name_and_number() {
        let dot = |label: &str, value| Dot {
            label: label.into(),
            colour: Colour::Blue,
            value,
            interval: Some((value * 0.9, value * 1.2)),
            p95: Some(value * 1.5),
            paper_value: Some(8_400.0),
        };
        let chart = Chart {
            name: "figure".into(),
            title: "Time <ms>".into(),
            caption: "c".into(),
            unit: "ms",
            groups: vec![
                DotGroup { title: "cubic & more".into(), dots: vec![dot("NoMig", 2_866.0)] },
                DotGroup { title: String::new(), dots: vec![dot("MigSW", 61.4)] },
            ],
            reference: Some((59.0, "alone".into())),
            scale: AxisScale::Log,
        };
        for width in [340.0, 860.0] {
            let svg = chart.to_file(width);
            assert_balanced(&svg);
            for text in ["Time &lt;ms&gt;", "cubic &amp; more", ">NoMig<", ">2,866<", ">61.4<"] {
                assert!(svg.contains(text), "{text}: {svg}");
            }
            assert_eq!(svg.matches("the paper: 8,400").count(), 2);
        }
    }
}
