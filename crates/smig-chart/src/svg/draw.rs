//! Renders a figure as SVG.

use std::fmt::Write;

use super::figure::{Figure, Layer, Panel, Rule};
use super::shapes::{draw_shape, draw_swatch, round};
use super::style::{STYLE, with_plain_colours};
use crate::markup::escape;

/// Minimum space left of the plots.
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
/// Space for a title above a panel.
const TITLE: f64 = 26.0;
/// Space above a panel without a title.
const NO_TITLE: f64 = 6.0;
/// Height of one line of a legend.
const LEGEND: f64 = 19.0;
/// Space for the x axis below the last panel.
const BOTTOM: f64 = 34.0;
const GAP: f64 = 12.0;

/// Estimates the width of text at 12 pixels.
fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_uppercase() || c == '_' { 8.6 } else { 6.6 }).sum()
}

/// Position and size of a panel's plot.
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Figure {
    /// Renders the chart as an element for a page that has the [style](STYLE).
    #[must_use]
    pub fn to_element(&self) -> String {
        self.render("")
    }

    /// Renders the chart as a standalone file.
    #[must_use]
    pub fn to_file(&self) -> String {
        let style = format!("<style>{STYLE}svg{{background:var(--paper)}}</style>");
        with_plain_colours(&self.render(&style))
    }

    /// Returns the height in CSS pixels, the unit of [`Figure::width`].
    #[must_use]
    pub fn height(&self) -> f64 {
        self.areas().last().map_or(0.0, |area| area.top + area.height) + BOTTOM
    }

    /// Returns the space left of the plots, enough for the longest number of a y axis.
    fn left(&self) -> f64 {
        let ticks = self.panels.iter().flat_map(|panel| panel.y.ticks(8));
        let longest = ticks.map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        LEFT.max(longest as f64 * 7.2 + 8.0)
    }

    /// Lays out the panels' plots.
    fn areas(&self) -> Vec<Area> {
        let (left, mut top) = (self.left(), 0.0);
        let area = |panel: &Panel| {
            top += if panel.title.is_empty() { NO_TITLE } else { TITLE };
            top += LEGEND * self.legend_lines(panel) as f64;
            let area = Area { left, top, width: self.width - left - RIGHT, height: panel.height };
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
            if !panel.y.has_names() {
                let _ = write!(lines, "M{} {}h{}", round(area.left), round(y), round(area.width));
            }
            let (x, y) = (round(area.left - 6.0), round(y + 4.0));
            let text = escape(&text);
            let _ = write!(texts, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{text}</text>");
        }
        if self.x.has_names() {
            if labels == XLabels::Shown {
                self.write_names(&mut texts, area);
            }
        } else {
            self.write_x_axis(&mut lines, &mut texts, area, labels);
        }
        let base = round(area.top + area.height);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"{lines}\"/><path class=\"axis\" d=\"M{} {base}h{}\"/>{texts}",
            round(area.left),
            round(area.width),
        );
    }

    /// Draws the vertical grid lines and the numbers of the x axis.
    fn write_x_axis(&self, lines: &mut String, texts: &mut String, area: &Area, labels: XLabels) {
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
            // The last label has the unit and is always drawn; labels that would overlap are
            // omitted.
            if labels == XLabels::Shown && middle + half <= free_until {
                free_until = middle - half - 6.0;
                write_label(texts, middle, area.top + area.height + 17.0, &text);
            }
        }
    }

    /// Draws all names of the x axis; if they are too wide, every other one a line lower.
    fn write_names(&self, texts: &mut String, area: &Area) {
        let names = self.x.ticks(0);
        let place = area.width / names.len().max(1) as f64;
        let wide = names.iter().any(|(_, name)| text_width(name) > place - 4.0);
        for (index, (value, name)) in names.into_iter().enumerate() {
            let half = text_width(&name) / 2.0;
            let x = area.left + self.x.position(value) * area.width;
            let x = x.clamp(half.min(self.width / 2.0), (self.width - half).max(self.width / 2.0));
            let lower = if wide && index % 2 == 1 { 13.0 } else { 0.0 };
            write_label(texts, x, area.top + area.height + 16.0 + lower, &name);
        }
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

    /// Breaks the legend's entries into lines that fit, each entry with its position.
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
        draw_shape(out, layer, area.top, &at);
    }

    /// Draws a vertical line through all plots for each mark, and the labels in the first plot:
    /// labels that would overlap go a line lower.
    fn draw_marks(&self, out: &mut String, areas: &[Area]) {
        let Some(first) = areas.first() else { return };
        let mut lines_until: Vec<f64> = Vec::new();
        let mut words = String::new();
        for mark in &self.marks {
            let share = self.x.position(mark.x);
            let x = first.left + share * first.width;
            let strokes: String = areas
                .iter()
                .map(|area| format!("M{} {}v{}", round(x), round(area.top), round(area.height)))
                .collect();
            let _ = write!(out, "<path class=\"mark\" d=\"{strokes}\"/>");
            let wide = text_width(&mark.label) + 6.0;
            let (anchor, aside) = if share > 0.6 { ("end", -6.0) } else { ("start", 6.0) };
            let (from, to) = if aside > 0.0 { (x, x + wide) } else { (x - wide, x) };
            let free = lines_until.iter().position(|until| *until <= from);
            let line = free.unwrap_or(lines_until.len());
            lines_until.resize(lines_until.len().max(line + 1), 0.0);
            lines_until[line] = to;
            let _ = write!(
                words,
                "<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                round(x + aside),
                round(first.top + 12.0 + 14.0 * line as f64),
                escape(&mark.label),
            );
        }
        // Drawn after the lines, so that the labels' background-coloured edge hides them.
        out.push_str(&words);
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

/// Draws centred text below the plot.
fn write_label(out: &mut String, x: f64, y: f64, text: &str) {
    let (x, y, text) = (round(x), round(y), escape(text));
    let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
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
