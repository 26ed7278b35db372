//! Renders a figure as SVG.

use std::fmt::Write;

use super::figure::{Figure, Layer, Panel, Rule, Shape};
use super::picture_set::PictureSet;
use super::shapes::{draw_shape, draw_swatch, round_to_tenth};
use super::style::{STYLE, with_colour_fallbacks};
use crate::markup::escape;

/// Minimum space left of the plots.
const MIN_LEFT_MARGIN: f64 = 44.0;
const RIGHT_MARGIN: f64 = 12.0;
/// Space for a title above a panel.
const TITLE_HEIGHT: f64 = 26.0;
/// Space above a panel without a title.
const NO_TITLE_HEIGHT: f64 = 6.0;
/// Height of one line of a legend.
const LEGEND_LINE_HEIGHT: f64 = 19.0;
/// Space for the x axis below the last panel.
const X_AXIS_HEIGHT: f64 = 34.0;
const PANEL_GAP: f64 = 12.0;

/// Estimates the width in pixels of text of 12 pixels, as [`STYLE`] sets it; rather too much than too little.
#[must_use]
pub fn text_width(text: &str) -> f64 {
    text.chars().map(|c| if c.is_uppercase() || c == '_' { 8.6 } else { 6.6 }).sum()
}

/// Position and size of a panel's plot.
struct PlotArea {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Figure {
    /// Renders the chart as an element for a page that has the [style](STYLE).
    #[must_use]
    pub fn to_element(&self) -> String {
        self.render("", None)
    }

    /// Renders the chart as an element for a page that also has the pictures of all its charts, once each.
    #[must_use]
    pub fn to_element_with(&self, pictures: &mut PictureSet) -> String {
        self.render("", Some(pictures))
    }

    /// Renders the chart as a standalone file.
    #[must_use]
    pub fn to_file(&self) -> String {
        let style = format!("<style>{STYLE}svg{{background:var(--paper)}}</style>");
        with_colour_fallbacks(&self.render(&style, None))
    }

    /// Returns the height in CSS pixels, the unit of [`Figure::width`].
    #[must_use]
    pub fn height(&self) -> f64 {
        self.areas().last().map_or(0.0, |area| area.top + area.height) + X_AXIS_HEIGHT
    }

    /// Returns the space left of the plots, enough for the longest number or name of a y axis.
    fn left_margin(&self) -> f64 {
        let width = |panel: &Panel| {
            let texts = panel.y.ticks(8).into_iter();
            let longest = texts.map(|(_, text)| text.chars().count()).max().unwrap_or(0);
            // Letters are wider than digits in some fonts.
            longest as f64 * 7.2 + if panel.y.is_categorical() { 12.0 } else { 8.0 }
        };
        self.panels.iter().map(width).fold(MIN_LEFT_MARGIN, f64::max)
    }

    /// Lays out the panels' plots.
    fn areas(&self) -> Vec<PlotArea> {
        let (left, mut top) = (self.left_margin(), 0.0);
        let area = |panel: &Panel| {
            top += if panel.title.is_empty() { NO_TITLE_HEIGHT } else { TITLE_HEIGHT };
            top += LEGEND_LINE_HEIGHT * self.legend_line_count(panel) as f64;
            let area = PlotArea {
                left,
                top,
                width: self.width - left - RIGHT_MARGIN,
                height: panel.height,
            };
            top += panel.height + PANEL_GAP;
            area
        };
        self.panels.iter().map(area).collect()
    }

    /// Without `shared` pictures the chart has its own.
    fn render(&self, style: &str, shared: Option<&mut PictureSet>) -> String {
        let mut own = PictureSet::default();
        let pictures = shared.unwrap_or(&mut own);
        let mut plots = String::new();
        let out = &mut plots;
        let areas = self.areas();
        let height = self.height();
        for (index, (panel, area)) in self.panels.iter().zip(&areas).enumerate() {
            let is_last = index + 1 == self.panels.len();
            self.draw_grid(
                out,
                panel,
                area,
                if is_last { XLabels::Shown } else { XLabels::Hidden },
            );
            self.draw_heading(out, panel, area);
            for layer in &panel.layers {
                self.draw_layer(out, panel, area, layer, pictures);
            }
            for rule in &panel.rules {
                draw_rule(out, panel, area, rule);
            }
        }
        self.draw_event_lines(out, &areas);
        let definitions = own.to_definitions();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
             viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\">\
             <title>{title}</title><desc>{description}</desc>{style}{definitions}{plots}</svg>",
            w = round_to_tenth(self.width),
            h = round_to_tenth(height),
            title = escape(&self.title),
            description = escape(&self.description),
        )
    }

    fn draw_grid(&self, out: &mut String, panel: &Panel, area: &PlotArea, labels: XLabels) {
        let mut lines = String::new();
        let mut texts = String::new();
        let tick_count = (area.height / 26.0) as usize;
        for (value, text) in panel.y.ticks(tick_count.max(2)) {
            let y = area.y(panel, value);
            if !panel.y.is_categorical() {
                let _ = write!(
                    lines,
                    "M{} {}h{}",
                    round_to_tenth(area.left),
                    round_to_tenth(y),
                    round_to_tenth(area.width)
                );
            }
            let (x, y) = (round_to_tenth(area.left - 6.0), round_to_tenth(y + 4.0));
            let text = escape(&text);
            let _ = write!(texts, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{text}</text>");
        }
        if self.x.is_categorical() {
            if labels == XLabels::Shown {
                self.write_categories(&mut texts, area);
            }
        } else {
            self.write_x_axis(&mut lines, &mut texts, area, labels);
        }
        let base = round_to_tenth(area.top + area.height);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"{lines}\"/><path class=\"axis\" d=\"M{} {base}h{}\"/>{texts}",
            round_to_tenth(area.left),
            round_to_tenth(area.width),
        );
    }

    /// Draws the vertical grid lines and the numbers of the x axis.
    fn write_x_axis(
        &self,
        lines: &mut String,
        texts: &mut String,
        area: &PlotArea,
        labels: XLabels,
    ) {
        let ticks = self.x.ticks((area.width / 56.0) as usize);
        let count = ticks.len();
        let mut free_until = self.width;
        for (index, (value, mut text)) in ticks.into_iter().enumerate().rev() {
            let x = area.left + self.x.position(value) * area.width;
            let _ = write!(
                lines,
                "M{} {}v{}",
                round_to_tenth(x),
                round_to_tenth(area.top),
                round_to_tenth(area.height)
            );
            if index + 1 == count && !self.x.unit().is_empty() {
                text = format!("{text}\u{202f}{}", self.x.unit());
            }
            let half_width = text_width(&text) / 2.0;
            let middle = x.min(self.width - half_width - 1.0);
            // The last label has the unit and is always drawn; labels that would overlap are
            // omitted.
            if labels == XLabels::Shown && middle + half_width <= free_until {
                free_until = middle - half_width - 6.0;
                write_label(texts, middle, area.top + area.height + 17.0, &text);
            }
        }
    }

    /// Draws all categories of the x axis; if they are too wide, every second one a line lower.
    fn write_categories(&self, texts: &mut String, area: &PlotArea) {
        let names = self.x.ticks(0);
        let slot_width = area.width / names.len().max(1) as f64;
        let too_wide = names.iter().any(|(_, name)| text_width(name) > slot_width - 4.0);
        for (index, (value, name)) in names.into_iter().enumerate() {
            let half_width = text_width(&name) / 2.0;
            let x = area.left + self.x.position(value) * area.width;
            let x = x.clamp(
                half_width.min(self.width / 2.0),
                (self.width - half_width).max(self.width / 2.0),
            );
            let offset_y = if too_wide && index % 2 == 1 { 13.0 } else { 0.0 };
            write_label(texts, x, area.top + area.height + 16.0 + offset_y, &name);
        }
    }

    fn draw_heading(&self, out: &mut String, panel: &Panel, area: &PlotArea) {
        let legend_height = LEGEND_LINE_HEIGHT * self.legend_line_count(panel) as f64;
        let y = round_to_tenth(area.top - legend_height - 9.0);
        let _ =
            write!(out, "<text class=\"name\" x=\"2\" y=\"{y}\">{}</text>", escape(&panel.title));
        for (line, entries) in self.legend(panel).into_iter().enumerate() {
            let y = area.top - legend_height + LEGEND_LINE_HEIGHT * line as f64 + 7.0;
            for (x, layer) in entries {
                draw_swatch(out, layer, x, y - 4.0);
                let _ = write!(
                    out,
                    "<text class=\"key\" x=\"{}\" y=\"{}\">{}</text>",
                    round_to_tenth(x + 14.0),
                    round_to_tenth(y),
                    escape(&layer.name)
                );
            }
        }
    }

    fn legend_line_count(&self, panel: &Panel) -> usize {
        self.legend(panel).len()
    }

    /// Breaks the legend's entries into lines that fit, each entry with its position.
    fn legend<'a>(&self, panel: &'a Panel) -> Vec<Vec<(f64, &'a Layer)>> {
        let mut lines: Vec<Vec<(f64, &Layer)>> = Vec::new();
        let mut x = f64::INFINITY;
        for layer in panel.layers.iter().filter(|layer| !layer.name.is_empty()) {
            let entry_width = 14.0 + text_width(&layer.name) + 16.0;
            if x + entry_width > self.width && x > MIN_LEFT_MARGIN {
                lines.push(Vec::new());
                x = MIN_LEFT_MARGIN;
            }
            if let Some(line) = lines.last_mut() {
                line.push((x, layer));
            }
            x += entry_width;
        }
        lines
    }

    fn draw_layer(
        &self,
        out: &mut String,
        panel: &Panel,
        area: &PlotArea,
        layer: &Layer,
        pictures: &mut PictureSet,
    ) {
        let to_position =
            |x: f64, y: f64| (area.left + self.x.position(x) * area.width, area.y(panel, y));
        // What has no texts of its own has its name, so that a legend's colours are not all that tells it.
        let has_texts = matches!(
            layer.shape,
            Shape::Dots(..) | Shape::Bars(_) | Shape::Labels(_) | Shape::Pictures(_)
        );
        let is_named = !has_texts && !layer.name.is_empty();
        if is_named {
            let _ = write!(out, "<g><title>{}</title>", escape(&layer.name));
        }
        draw_shape(out, layer, area.top, &to_position, pictures);
        if is_named {
            out.push_str("</g>");
        }
    }

    /// Draws each event line through all plots, and the labels in the first plot;
    /// labels that would overlap are drawn a line lower.
    fn draw_event_lines(&self, out: &mut String, areas: &[PlotArea]) {
        let Some(first_area) = areas.first() else { return };
        let mut line_ends: Vec<f64> = Vec::new();
        let mut labels = String::new();
        for event_line in &self.event_lines {
            let share = self.x.position(event_line.x);
            let x = first_area.left + share * first_area.width;
            let strokes: String = areas
                .iter()
                .map(|area| {
                    format!(
                        "M{} {}v{}",
                        round_to_tenth(x),
                        round_to_tenth(area.top),
                        round_to_tenth(area.height)
                    )
                })
                .collect();
            let _ = write!(out, "<path class=\"mark\" d=\"{strokes}\"/>");
            let label_width = text_width(&event_line.label) + 6.0;
            let (anchor, offset) = if share > 0.6 { ("end", -6.0) } else { ("start", 6.0) };
            let (from, to) = if offset > 0.0 { (x, x + label_width) } else { (x - label_width, x) };
            let free = line_ends.iter().position(|until| *until <= from);
            let line = free.unwrap_or(line_ends.len());
            line_ends.resize(line_ends.len().max(line + 1), 0.0);
            line_ends[line] = to;
            let _ = write!(
                labels,
                "<text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                round_to_tenth(x + offset),
                round_to_tenth(first_area.top + 12.0 + 14.0 * line as f64),
                escape(&event_line.label),
            );
        }
        // Drawn after the lines, so that the labels' background-coloured edge hides them.
        out.push_str(&labels);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum XLabels {
    Shown,
    Hidden,
}

impl PlotArea {
    fn y(&self, panel: &Panel, value: f64) -> f64 {
        self.top + (1.0 - panel.y.position(value)) * self.height
    }
}

/// Draws centred text below the plot.
fn write_label(out: &mut String, x: f64, y: f64, text: &str) {
    let (x, y, text) = (round_to_tenth(x), round_to_tenth(y), escape(text));
    let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>");
}

fn draw_rule(out: &mut String, panel: &Panel, area: &PlotArea, rule: &Rule) {
    let y = area.y(panel, rule.y);
    let _ = write!(
        out,
        "<path class=\"rule\" d=\"M{} {}h{}\"/>\
         <text class=\"note\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        round_to_tenth(area.left),
        round_to_tenth(y),
        round_to_tenth(area.width),
        round_to_tenth(area.left + area.width - 2.0),
        round_to_tenth(y - 5.0),
        escape(&rule.label),
    );
}
