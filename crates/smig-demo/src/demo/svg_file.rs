//! The runs, at most three in a row, as one SVG file for use in a document.

use std::fmt::Write;

use smig_chart::format_ms;
use smig_chart::html::escape;
use smig_chart::svg::{STYLE, text_width, with_colour_fallbacks};

use super::data::{DemoResult, DemoRun};
use super::figures::run_figure;
use super::summary::{RunSummary, describe_setup, summaries};

/// Largest number of charts in one row.
const MAX_COLUMNS: usize = 3;
const GAP: f64 = 14.0;
const MARGIN: f64 = 12.0;
/// Height above each chart, for the run's name and numbers.
const HEAD_HEIGHT: f64 = 58.0;
/// Height below all charts, without the caption's lines.
const FOOT_HEIGHT: f64 = 12.0;
/// Height of a line of the caption.
const CAPTION_LINE_HEIGHT: f64 = 16.0;

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
    let caption = describe_setup(&result.setup);
    let lines = caption_lines(&caption, width - 2.0 * MARGIN);
    let height = top + FOOT_HEIGHT + lines.len() as f64 * CAPTION_LINE_HEIGHT;
    draw_caption(&mut body, &lines, top + CAPTION_LINE_HEIGHT);
    let caption = escape(&caption);
    with_colour_fallbacks(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\
         <title>Small objects beside a big download</title><desc>{caption}</desc>\
         <style>{STYLE}{HEAD_STYLE}</style>\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>{body}</svg>\n"
    ))
}

const HEAD_STYLE: &str = "\
.fig .paper{fill:var(--paper)}\
.fig .run{fill:var(--ink);font-size:16px;font-weight:600}\
.fig .found{fill:var(--ink);font-size:13px}\
";

/// Breaks a text at spaces into lines of at most `width` pixels, by estimate; a longer word gets a line of its own.
fn caption_lines(text: &str, width: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && text_width(&line) + text_width(" ") + text_width(word) > width {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

fn draw_caption(out: &mut String, lines: &[String], first_baseline: f64) {
    for (index, line) in lines.iter().enumerate() {
        let y = first_baseline + index as f64 * CAPTION_LINE_HEIGHT;
        let _ =
            write!(out, "<text class=\"caption\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escape(line));
    }
}

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
    /// Returns the value of an attribute as a number.
    fn number(element: &str, name: &str) -> f64 {
        let (_, rest) = element.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    }

    #[test]
    fn the_caption_fits_the_file_with_any_number_of_runs() {
        for count in 1..=Variant::ALL.len() {
            let mut result = fixtures::result();
            result.runs.truncate(count);
            let svg = render_svg(&result);
            let lines: Vec<_> = svg.split("<text class=\"caption\"").skip(1).collect();
            let mut words = Vec::new();
            for line in &lines {
                let text = line.split_once('>').unwrap().1.split_once("</text>").unwrap().0;
                words.push(text);
                let end = number(line, "x") + text_width(text);
                assert!(end <= number(&svg, "width"), "{count}: {text}");
                assert!(number(line, "y") < number(&svg, "height"), "{count}: {text}");
            }
            assert_eq!(words.join(" "), escape(&describe_setup(&result.setup)));
        }
    }
}
