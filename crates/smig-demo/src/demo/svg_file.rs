//! The runs, two or three in a row, as one SVG file for use in a document.

use std::fmt::Write;

use smig_chart::format_ms;
use smig_chart::html::escape;
use smig_chart::svg::{STYLE, with_colour_fallbacks};

use super::data::{DemoResult, DemoRun};
use super::figures::run_figure;
use super::summary::{RunSummary, describe_setup, summaries};

/// Largest number of charts in one row.
const MAX_COLUMNS: usize = 3;
const GAP: f64 = 14.0;
const MARGIN: f64 = 12.0;
/// Height above each chart, for the run's name and numbers.
const HEAD_HEIGHT: f64 = 58.0;
/// Height below all charts, for the caption.
const FOOT_HEIGHT: f64 = 28.0;

/// Renders the result as a standalone SVG file that follows the reader's light or dark scheme.
#[must_use]
pub fn render_svg(result: &DemoResult) -> String {
    let summaries = summaries(result);
    let figures: Vec<_> = result.runs.iter().zip(&summaries).collect();
    // A row of four is too wide for a page.
    let columns = if figures.len() > MAX_COLUMNS { 2 } else { figures.len().max(1) };
    let mut body = String::new();
    let (mut width, mut top) = (2.0 * MARGIN, 0.0);
    for row in figures.chunks(columns) {
        let (mut left, mut row_height) = (MARGIN, 0.0_f64);
        for (run, summary) in row {
            let figure = run_figure(result, &summaries, run);
            let (y, element) = (HEAD_HEIGHT + MARGIN, figure.to_element());
            let _ = write!(body, "<g transform=\"translate({left} {top})\">");
            draw_head(&mut body, run, summary);
            let _ = write!(body, "<g transform=\"translate(0 {y})\">{element}</g></g>");
            left += figure.width + GAP;
            row_height = row_height.max(figure.height());
        }
        width = width.max(left - GAP + MARGIN);
        top += MARGIN + HEAD_HEIGHT + row_height;
    }
    let height = top + FOOT_HEIGHT;
    let caption = escape(&describe_setup(&result.setup));
    let caption_y = height - MARGIN;
    with_colour_fallbacks(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\
         <title>Small objects beside a big download</title><desc>{caption}</desc>\
         <style>{STYLE}{HEAD_STYLE}</style>\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>{body}\
         <text x=\"{MARGIN}\" y=\"{caption_y}\">{caption}</text></svg>\n"
    ))
}

const HEAD_STYLE: &str = "\
.fig .paper{fill:var(--paper)}\
.fig .run{fill:var(--ink);font-size:16px;font-weight:600}\
.fig .found{fill:var(--ink);font-size:13px}\
";

fn draw_head(out: &mut String, run: &DemoRun, summary: &RunSummary) {
    let mut findings = Vec::new();
    if let Some(median) = summary.median_ms {
        findings.push(format!("small objects: median {} ms", format_ms(median)));
    }
    if let Some(seconds) = summary.big_file_s {
        findings.push(format!("big file: {seconds:.1} s"));
    }
    let (name, findings) = (escape(run.variant.title()), escape(&findings.join(", ")));
    let _ = write!(
        out,
        "<text class=\"run\" x=\"2\" y=\"30\">{name}</text>\
         <text class=\"found\" x=\"2\" y=\"51\">{findings}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::data::Variant;
    use crate::demo::fixtures;
    use smig_chart::html::assert_balanced;

    #[test]
    fn the_file_is_well_formed_and_self_contained() {
        let mut result = fixtures::result();
        let svg = render_svg(&result);
        assert_balanced(&svg);
        assert_eq!(svg.matches("<style>").count(), 1);
        for variant in Variant::ALL {
            assert!(svg.contains(&format!(">{}</text>", variant.title())), "{variant}");
        }
        for external in ["<script", "url(", "@import", "href=", "NaN"] {
            assert!(!svg.contains(external), "{external}");
        }
        result.runs.clear();
        assert_balanced(&render_svg(&result));
    }
}
