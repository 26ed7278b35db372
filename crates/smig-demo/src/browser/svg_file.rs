//! The rows of frames as one SVG file, for use in a document.

use std::fmt::Write as _;

use smig_chart::format_number;
use smig_chart::html::escape;
use smig_chart::svg::{STYLE, with_colour_fallbacks};

use super::data::BrowserResult;
use super::mosaic::{PAGE_HEIGHT_PX, PAGE_WIDTH_PX};
use super::strip::{self, FRAMES_PER_ROW, FrameRow};
use super::summary::{describe_setup, format_seconds};

const MARGIN: f64 = 12.0;
const GAP: f64 = 12.0;
/// Width and height of one frame.
const FRAME_WIDTH: f64 = 200.0;
const FRAME_HEIGHT: f64 = FRAME_WIDTH * PAGE_HEIGHT_PX as f64 / PAGE_WIDTH_PX as f64;
/// Height above a row, for its name, and below it, for moments and counts.
const ROW_HEAD_HEIGHT: f64 = 30.0;
const ROW_FOOT_HEIGHT: f64 = 24.0;
/// Height below all rows, for the caption in two lines.
const CAPTION_HEIGHT: f64 = 40.0;

/// Renders the result as a standalone SVG file that follows the reader's light or dark scheme.
#[must_use]
pub fn render_svg(result: &BrowserResult) -> String {
    let rows = strip::rows(result);
    let moments_ms = strip::frame_times_ms(&rows);
    let mut body = String::new();
    let mut top = MARGIN;
    for row in &rows {
        draw_row(&mut body, row, &moments_ms, top, result.setup.tile_count);
        top += ROW_HEAD_HEIGHT + FRAME_HEIGHT + ROW_FOOT_HEIGHT;
    }
    let width =
        2.0 * MARGIN + FRAMES_PER_ROW as f64 * FRAME_WIDTH + (FRAMES_PER_ROW - 1) as f64 * GAP;
    let height = top + CAPTION_HEIGHT;
    let caption = escape(&describe_setup(&result.setup));
    let (first_line, second_line) = caption.split_once(", both").unwrap_or((&caption, ""));
    let (first_baseline, second_baseline) = (top + 12.0, top + 29.0);
    with_colour_fallbacks(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
         viewBox=\"0 0 {width} {height:.0}\" width=\"{width}\" height=\"{height:.0}\">\
         <title>A page beside a big download</title><desc>{caption}</desc>\
         <style>{STYLE}{FRAME_ROWS_STYLE}</style>\
         <rect class=\"paper\" width=\"{width}\" height=\"{height:.0}\" rx=\"6\"/>{body}\
         <text x=\"{MARGIN}\" y=\"{first_baseline:.0}\">{first_line},</text>\
         <text x=\"{MARGIN}\" y=\"{second_baseline:.0}\">both{second_line}</text></svg>\n"
    ))
}

const FRAME_ROWS_STYLE: &str = "\
.fig .paper{fill:var(--paper)}.fig .run{fill:var(--ink);font-size:16px;font-weight:600}\
.fig .found{fill:var(--ink);font-size:14px}.fig .edge{fill:none;stroke:var(--grid)}\
.fig .blank{fill:#fff}\
";

fn draw_row(
    out: &mut String,
    row: &FrameRow<'_>,
    moments_ms: &[f64; FRAMES_PER_ROW],
    top: f64,
    tile_count: usize,
) {
    let right = MARGIN + FRAMES_PER_ROW as f64 * FRAME_WIDTH + (FRAMES_PER_ROW - 1) as f64 * GAP;
    let title = match row.variant {
        None => row.title().to_owned(),
        Some(_) => format!("Beside a download: {}", row.title()),
    };
    let (name, load_time) = (escape(&title), format_seconds(row.page_load.load_time_ms()));
    let baseline = top + 19.0;
    let _ = write!(
        out,
        "<text class=\"run\" x=\"{MARGIN}\" y=\"{baseline:.0}\">{name}</text>\
         <text class=\"found\" x=\"{right}\" y=\"{baseline:.0}\" text-anchor=\"end\">page loaded after \
         {load_time}</text>"
    );
    for (index, &moment_ms) in moments_ms.iter().enumerate() {
        let (left, top) = (MARGIN + index as f64 * (FRAME_WIDTH + GAP), top + ROW_HEAD_HEIGHT);
        let geometry = format!(
            "x=\"{left}\" y=\"{top:.1}\" width=\"{FRAME_WIDTH}\" height=\"{FRAME_HEIGHT:.1}\""
        );
        let _ = write!(out, "<rect class=\"blank\" {geometry}/>");
        if let Some(frame) = row.page_load.frame_at(moment_ms) {
            let jpeg = escape(&frame.jpeg);
            let _ = write!(out, "<image {geometry} href=\"data:image/jpeg;base64,{jpeg}\"/>");
        }
        let (label_y, right) = (top + FRAME_HEIGHT + 16.0, left + FRAME_WIDTH);
        let (at_s, count) = (format_number(moment_ms / 1e3), row.tiles_at(moment_ms));
        let _ = write!(
            out,
            "<rect class=\"edge\" {geometry}/>\
             <text class=\"key\" x=\"{left}\" y=\"{label_y:.0}\">{at_s} s</text>\
             <text x=\"{right}\" y=\"{label_y:.0}\" text-anchor=\"end\">{count} of {tile_count} images</text>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use smig_chart::html::assert_balanced;

    #[test]
    fn the_file_is_well_formed_and_self_contained() {
        let mut result = fixtures::result();
        let svg = render_svg(&result);
        assert_balanced(&svg);
        assert_eq!(svg.matches("<image ").count(), 3 * FRAMES_PER_ROW);
        for text in ["page loaded after 3.20 s", "page loaded after 0.72 s", "234 of 234 images"] {
            assert!(svg.contains(text), "{text}");
        }
        for external in ["<script", "url(", "@import", "href=\"http", "NaN"] {
            assert!(!svg.contains(external), "{external}");
        }
        result.runs.clear();
        assert_balanced(&render_svg(&result));
    }
}
