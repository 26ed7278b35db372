//! The rows of frames as one SVG file, for use in a document.

use std::fmt::Write as _;

use smig_chart::format_number;
use smig_chart::html::escape;
use smig_chart::svg::{STYLE, with_colour_fallbacks};

use super::data::BrowserResult;
use super::mosaic::{HEIGHT, WIDTH};
use super::strip::{self, MOMENTS, Row};
use super::summary::{scene, seconds};

const MARGIN: f64 = 12.0;
const GAP: f64 = 12.0;
/// Size of one frame.
const WIDE: f64 = 200.0;
const HIGH: f64 = WIDE * HEIGHT as f64 / WIDTH as f64;
/// Height above a row, for its name, and below it, for moments and counts.
const HEAD: f64 = 30.0;
const FOOT: f64 = 24.0;
/// Height below all rows, for the caption in two lines.
const SCENE: f64 = 40.0;

/// Renders the result as a standalone SVG file that follows the reader's light or dark scheme.
#[must_use]
pub fn render_svg(result: &BrowserResult) -> String {
    let rows = strip::rows(result);
    let moments = strip::moments(&rows);
    let mut body = String::new();
    let mut top = MARGIN;
    for row in &rows {
        draw(&mut body, row, &moments, top, result.setup.tiles);
        top += HEAD + HIGH + FOOT;
    }
    let width = 2.0 * MARGIN + MOMENTS as f64 * WIDE + (MOMENTS - 1) as f64 * GAP;
    let height = top + SCENE;
    let scene = escape(&scene(&result.setup));
    let (first, second) = scene.split_once(", both").unwrap_or((&scene, ""));
    let (upper, lower) = (top + 12.0, top + 29.0);
    with_colour_fallbacks(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
         viewBox=\"0 0 {width} {height:.0}\" width=\"{width}\" height=\"{height:.0}\">\
         <title>A page beside a big download</title><desc>{scene}</desc>\
         <style>{STYLE}{POSTER_STYLE}</style>\
         <rect class=\"paper\" width=\"{width}\" height=\"{height:.0}\" rx=\"6\"/>{body}\
         <text x=\"{MARGIN}\" y=\"{upper:.0}\">{first},</text>\
         <text x=\"{MARGIN}\" y=\"{lower:.0}\">both{second}</text></svg>\n"
    ))
}

const POSTER_STYLE: &str = "\
.fig .paper{fill:var(--paper)}.fig .run{fill:var(--ink);font-size:16px;font-weight:600}\
.fig .found{fill:var(--ink);font-size:14px}.fig .edge{fill:none;stroke:var(--grid)}\
.fig .blank{fill:#fff}\
";

fn draw(out: &mut String, row: &Row<'_>, moments: &[f64; MOMENTS], top: f64, tiles: usize) {
    let right = MARGIN + MOMENTS as f64 * WIDE + (MOMENTS - 1) as f64 * GAP;
    let title = match row.variant {
        None => row.title().to_owned(),
        Some(_) => format!("Beside a download: {}", row.title()),
    };
    let (name, loaded) = (escape(&title), seconds(row.page.took_ms()));
    let baseline = top + 19.0;
    let _ = write!(
        out,
        "<text class=\"run\" x=\"{MARGIN}\" y=\"{baseline:.0}\">{name}</text>\
         <text class=\"found\" x=\"{right}\" y=\"{baseline:.0}\" text-anchor=\"end\">page loaded after \
         {loaded}</text>"
    );
    for (index, &at) in moments.iter().enumerate() {
        let (left, top) = (MARGIN + index as f64 * (WIDE + GAP), top + HEAD);
        let place = format!("x=\"{left}\" y=\"{top:.1}\" width=\"{WIDE}\" height=\"{HIGH:.1}\"");
        let _ = write!(out, "<rect class=\"blank\" {place}/>");
        if let Some(frame) = row.page.frame_at(at) {
            let jpeg = escape(&frame.jpeg);
            let _ = write!(out, "<image {place} href=\"data:image/jpeg;base64,{jpeg}\"/>");
        }
        let (below, right) = (top + HIGH + 16.0, left + WIDE);
        let (at_s, count) = (format_number(at / 1e3), row.tiles_at(at));
        let _ = write!(
            out,
            "<rect class=\"edge\" {place}/>\
             <text class=\"key\" x=\"{left}\" y=\"{below:.0}\">{at_s} s</text>\
             <text x=\"{right}\" y=\"{below:.0}\" text-anchor=\"end\">{count} of {tiles} images</text>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use smig_chart::html::assert_balanced;

    #[test]
    fn the_file_is_whole_and_stands_alone() {
        let mut result = fixtures::result();
        let svg = render_svg(&result);
        assert_balanced(&svg);
        assert_eq!(svg.matches("<image ").count(), 3 * MOMENTS);
        for words in ["page loaded after 3.20 s", "page loaded after 0.72 s", "234 of 234 images"] {
            assert!(svg.contains(words), "{words}");
        }
        for outside in ["<script", "url(", "@import", "href=\"http", "NaN"] {
            assert!(!svg.contains(outside), "{outside}");
        }
        result.runs.clear();
        assert_balanced(&render_svg(&result));
    }
}
