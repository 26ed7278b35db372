//! A heat map: one field for each row and column, with a shade, a number and a bar.

use std::fmt::Write;

use super::shapes::round_to_tenth;
use super::style::{STYLE, with_colour_fallbacks};
use crate::markup::escape;

const ROW_HEIGHT: f64 = 18.0;
const HEADING_HEIGHT: f64 = 32.0;
const LEGEND_HEIGHT: f64 = 22.0;
const TITLE_HEIGHT: f64 = 24.0;
const GROUP_GAP: f64 = 8.0;
const BAR_HEIGHT: f64 = 3.0;
const FIELD_GAP: f64 = 2.0;
/// Opacity of the strongest shade: the number on it must be readable.
const MAX_OPACITY: f64 = 0.85;

/// A heat map. Shade and bar show two independent quantities: the shade how bad, or how good, a field's number is, the bar a
/// share of the best value.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// Accessible name, and the heading.
    pub title: String,
    /// Accessible description.
    pub description: String,
    /// Width in CSS pixels.
    pub width: f64,
    /// Width of the rows' names.
    pub label_width: f64,
    /// Meaning of the shade: its name, and numbers with their shades.
    pub shade_legend: (String, Vec<(String, f64)>),
    /// Meaning of the bar; empty if no field has one.
    pub bar_legend: String,
    /// Meaning of a marked field; empty if there is none.
    pub mark_legend: String,
    /// What the rows' names state.
    pub row_heading: String,
    /// The columns.
    pub columns: Vec<HeatColumn>,
    /// Rows from top to bottom.
    pub rows: Vec<HeatRow>,
}

/// A column of a heat map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatColumn {
    /// Its name, in two lines.
    pub name: [String; 2],
    /// Whether its name is emphasized.
    pub is_emphasized: bool,
    /// Whether it begins a group.
    pub begins_group: bool,
}

/// A row of a heat map.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatRow {
    /// Its name.
    pub name: String,
    /// More about it.
    pub tooltip: String,
    /// A field for each column; none where nothing was measured.
    pub fields: Vec<Option<HeatField>>,
}

/// A field of a heat map.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatField {
    /// The number.
    pub text: String,
    /// How bad it is, from 0 to 1; how good, in another colour, from 0 to -1.
    pub shade: f64,
    /// Filled share of the bar, from 0 to 1; `None` draws no bar.
    pub bar: Option<f64>,
    /// Whether the field is the best of its row.
    pub is_marked: bool,
    /// More about it.
    pub tooltip: String,
}

impl HeatMap {
    /// Renders the map as a standalone file.
    #[must_use]
    pub fn to_file(&self) -> String {
        let style = format!("<style>{STYLE}svg{{background:var(--paper)}}</style>");
        with_colour_fallbacks(&self.render(&style))
    }

    /// Renders the map as an element for a page that has the [style](STYLE).
    #[must_use]
    pub fn to_element(&self) -> String {
        self.render("")
    }

    fn body_top() -> f64 {
        TITLE_HEIGHT + LEGEND_HEIGHT + HEADING_HEIGHT
    }

    /// Returns the left edge of each column, and the width of a field.
    fn column_lefts(&self) -> (Vec<f64>, f64) {
        let is_later_group =
            |(index, column): &(usize, &HeatColumn)| *index > 0 && column.begins_group;
        let gaps = self.columns.iter().enumerate().filter(is_later_group).count() as f64;
        let room = self.width - self.label_width - gaps * GROUP_GAP;
        let column_width = room / self.columns.len().max(1) as f64;
        let mut left = self.label_width;
        let lefts = self.columns.iter().enumerate().map(|item| {
            if is_later_group(&item) {
                left += GROUP_GAP;
            }
            let own = left;
            left += column_width;
            own
        });
        (lefts.collect(), column_width - FIELD_GAP)
    }

    fn render(&self, style: &str) -> String {
        let mut out = String::new();
        let height = Self::body_top() + ROW_HEIGHT * self.rows.len() as f64 + 4.0;
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
             viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\">\
             <title>{title}</title><desc>{description}</desc>{style}\
             <text class=\"name\" x=\"2\" y=\"15\">{title}</text>",
            w = round_to_tenth(self.width),
            h = round_to_tenth(height),
            title = escape(&self.title),
            description = escape(&self.description),
        );
        self.draw_legend(&mut out);
        let (lefts, width) = self.column_lefts();
        let _ = write!(
            out,
            "<text x=\"2\" y=\"{}\">{}</text>",
            TITLE_HEIGHT + LEGEND_HEIGHT + 25.0,
            escape(&self.row_heading)
        );
        for (column, left) in self.columns.iter().zip(&lefts) {
            draw_column_name(&mut out, column, left + width / 2.0);
        }
        for (index, row) in self.rows.iter().enumerate() {
            let top = Self::body_top() + ROW_HEIGHT * index as f64;
            let y = round_to_tenth(top + 12.5);
            let (name, tooltip) = (escape(&row.name), escape(&row.tooltip));
            let _ = write!(
                out,
                "<text class=\"key\" font-size=\"11\" x=\"2\" y=\"{y}\">{name}<title>{tooltip}</title></text>"
            );
            for (field, left) in row.fields.iter().zip(&lefts) {
                if let Some(field) = field {
                    draw_field(&mut out, field, *left, top, width);
                }
            }
        }
        out.push_str("</svg>");
        out
    }

    fn draw_legend(&self, out: &mut String) {
        let (y, mut x) = (TITLE_HEIGHT + 11.0, 2.0);
        let text = |out: &mut String, x: &mut f64, text: &str| {
            let _ = write!(
                out,
                "<text x=\"{}\" y=\"{}\">{}</text>",
                round_to_tenth(*x),
                round_to_tenth(y),
                escape(text)
            );
            *x += text.chars().count() as f64 * 6.1 + 8.0;
        };
        text(out, &mut x, &self.shade_legend.0);
        for (number, shade) in &self.shade_legend.1 {
            let sample = HeatField {
                text: number.clone(),
                shade: *shade,
                bar: None,
                is_marked: false,
                tooltip: String::new(),
            };
            draw_field(out, &sample, x, y - 13.0, 30.0);
            x += 32.0;
        }
        x += 14.0;
        if !self.bar_legend.is_empty() {
            draw_bar(out, 1.0, x, y - 5.0, 24.0);
            x += 30.0;
            text(out, &mut x, &self.bar_legend);
            draw_bar(out, 0.0, x, y - 5.0, 24.0);
            x += 44.0;
        }
        if !self.mark_legend.is_empty() {
            draw_mark(out, x, y - 11.0, 24.0, 14.0);
            x += 30.0;
            text(out, &mut x, &self.mark_legend);
        }
    }
}

fn draw_column_name(out: &mut String, column: &HeatColumn, x: f64) {
    let class = if column.is_emphasized { " class=\"key\" font-weight=\"600\"" } else { "" };
    for (line, text) in column.name.iter().enumerate() {
        let y = TITLE_HEIGHT + LEGEND_HEIGHT + 12.0 + 13.0 * line as f64;
        let _ = write!(
            out,
            "<text{class} x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            round_to_tenth(x),
            round_to_tenth(y),
            escape(text)
        );
    }
}

fn draw_field(out: &mut String, field: &HeatField, left: f64, top: f64, width: f64) {
    let (x, y) = (round_to_tenth(left), round_to_tenth(top));
    let height = ROW_HEIGHT - FIELD_GAP;
    let colour = if field.shade < 0.0 { "blue" } else { "vermilion" };
    let opacity = (field.shade.abs().min(1.0) * MAX_OPACITY * 100.0).round() / 100.0;
    let _ = write!(
        out,
        "<g><path class=\"blocks\" style=\"fill:var(--grid)\" fill-opacity=\".35\" \
         d=\"M{x} {y}h{w}v{height}h-{w}z\"/>\
         <path class=\"blocks\" style=\"fill:var(--{colour})\" fill-opacity=\"{opacity}\" \
         d=\"M{x} {y}h{w}v{height}h-{w}z\"/>",
        w = round_to_tenth(width),
    );
    if let Some(bar) = field.bar {
        draw_bar(out, bar, left, top + height - BAR_HEIGHT, width);
    }
    if field.is_marked {
        draw_mark(out, left, top, width, height);
    }
    let weight = if field.is_marked { " font-weight=\"700\"" } else { "" };
    let _ = write!(
        out,
        "<text class=\"key\"{weight} font-size=\"11\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        round_to_tenth(left + width / 2.0),
        round_to_tenth(top + 11.0),
        escape(&field.text)
    );
    if !field.tooltip.is_empty() {
        let _ = write!(out, "<title>{}</title>", escape(&field.tooltip));
    }
    out.push_str("</g>");
}

/// Draws a bar that is filled to this share, from 0 to 1; the rest has another colour.
fn draw_bar(out: &mut String, length: f64, left: f64, top: f64, width: f64) {
    let full = round_to_tenth(length.clamp(0.0, 1.0) * width);
    let lost = round_to_tenth(width - full);
    let (left, top) = (round_to_tenth(left), round_to_tenth(top));
    for (colour, x, part) in [("blue", left, full), ("purple", left + full, lost)] {
        if part > 0.0 {
            let x = round_to_tenth(x);
            let _ = write!(
                out,
                "<path class=\"blocks\" style=\"fill:var(--{colour})\" \
                 d=\"M{x} {top}h{part}v{BAR_HEIGHT}h-{part}z\"/>"
            );
        }
    }
}

/// Draws the frame of a row's best field.
fn draw_mark(out: &mut String, left: f64, top: f64, width: f64, height: f64) {
    let _ = write!(
        out,
        "<rect style=\"fill:none;stroke:var(--ink);stroke-width:1.6\" x=\"{}\" y=\"{}\" \
         width=\"{}\" height=\"{}\"/>",
        round_to_tenth(left + 0.5),
        round_to_tenth(top + 0.5),
        round_to_tenth(width - 1.0),
        round_to_tenth(height - 1.0)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::assert_balanced;

    #[test]
    fn a_map_has_every_field_and_is_balanced() {
        let field = |text: &str, is_marked| {
            let (shade, bar, tooltip) = (0.5, Some(0.9), "more <of it>".to_owned());
            Some(HeatField { text: text.into(), shade, bar, is_marked, tooltip })
        };
        let column = |name: &str, begins_group| HeatColumn {
            name: [name.into(), "two".into()],
            is_emphasized: begins_group,
            begins_group,
        };
        let map = HeatMap {
            title: "who & where".into(),
            description: "a map".into(),
            width: 900.0,
            label_width: 200.0,
            shade_legend: ("slower".into(), vec![("1".into(), 0.0), ("9".into(), 1.0)]),
            bar_legend: "rate".into(),
            mark_legend: "best".into(),
            row_heading: "rows".into(),
            columns: vec![column("a", false), column("b", true)],
            rows: vec![
                HeatRow {
                    name: "one".into(),
                    tooltip: "1".into(),
                    fields: vec![field("1.1", true), field("7", false)],
                },
                HeatRow {
                    name: "two".into(),
                    tooltip: "2".into(),
                    fields: vec![None, field("2.5", true)],
                },
            ],
        };
        let file = map.to_file();
        assert_balanced(&file);
        for text in ["who &amp; where", ">1.1<", ">7<", ">2.5<", "more &lt;of it&gt;"] {
            assert!(file.contains(text), "{text}");
        }
        assert_eq!(file.matches("<rect").count(), 3, "two best fields and the legend");
        let plain = HeatMap {
            bar_legend: String::new(),
            mark_legend: String::new(),
            rows: vec![HeatRow {
                fields: vec![field("1", false).map(|field| HeatField { shade: -0.5, ..field })],
                ..map.rows[0].clone()
            }],
            ..map.clone()
        };
        let plain = plain.to_file();
        assert!(!plain.contains("<rect"), "without a legend nothing is marked");
        assert!(plain.contains("var(--blue)\" fill-opacity"), "{plain}");
        assert!(!map.to_element().contains("<style>"));
    }
}
