//! The picture of a running demonstration: the series of all runs side by side,
//! small objects above and the big file below, with a few numbers under them.

use std::time::Duration;

use smig_chart::svg::Axis;
use smig_chart::terminal::{Bars, Dots, Grid, Paint};
use smig_link::millis;

use super::data::{BackgroundLoad, BigFileSample, ConnectionId, DemoResult, DemoRun, Variant};
use super::live::progress_texts;

/// Columns left of the charts, for the numbers at the axis.
const GUTTER: usize = 8;
/// Columns between charts.
const GAP: usize = 2;
/// Maximum number of rows of the upper chart.
const MAX_OBJECT_ROWS: usize = 8;
/// Number of rows of the lower chart.
const BULK_ROWS: usize = 4;
/// Rows other than the charts.
const OTHER_ROWS: usize = 10;
/// Minimum width of a chart; a narrower one is illegible.
const MIN_COLUMNS: usize = 20;
/// Maximum width of a chart; a wider one adds no detail.
const MAX_COLUMNS: usize = 60;

/// Draws the complete picture; `None` if the terminal is too small for it.
pub(super) fn draw(result: &DemoResult, (columns, rows): (usize, usize)) -> Option<Grid> {
    // One column and one row less, for the cursor.
    let width = (columns - 1).min(132);
    let object_rows = (rows - 1).checked_sub(OTHER_ROWS + BULK_ROWS)?.min(MAX_OBJECT_ROWS);
    if object_rows < 3 || width < GUTTER + MIN_COLUMNS {
        return None;
    }
    let variants = &result.setup.variants;
    let count = variants.len().max(1);
    let shared_width = ((width - GUTTER - GAP * (count - 1)) / count).min(MAX_COLUMNS);
    // If not all fit, only the current run.
    let (panels, panel_width) = if shared_width >= MIN_COLUMNS {
        (variants.clone(), shared_width)
    } else {
        (vec![result.runs.last()?.variant], (width - GUTTER).min(MAX_COLUMNS))
    };
    let mut picture = Picture {
        grid: Grid::new(width, object_rows + BULK_ROWS + OTHER_ROWS),
        result,
        panel_width,
        object_rows,
        x: Axis::linear_exact(run_length(result).as_secs_f64(), "s"),
        objects: object_axis(result),
        bulk: Axis::linear(result.setup.link.to_client.rate.mean_mbit(), ""),
    };
    picture.draw_axes();
    for (index, variant) in panels.into_iter().enumerate() {
        picture.draw_panel(GUTTER + index * (panel_width + GAP), variant);
    }
    Some(picture.grid)
}

/// Returns the duration of a run: the expected one, or that of the longest run if it is longer.
fn run_length(result: &DemoResult) -> Duration {
    let latest = result.runs.iter().map(DemoRun::end).max().unwrap_or_default();
    latest.max(result.setup.expected_duration())
}

fn object_axis(result: &DemoResult) -> Axis {
    let alone = millis::of(result.setup.link.round_trip());
    let times = || result.runs.iter().flat_map(|run| &run.objects).map(|o| millis::of(o.took));
    Axis::log(times().fold(alone, f64::min), times().fold(alone * 12.0, f64::max), "ms")
}

/// A picture under construction.
struct Picture<'a> {
    grid: Grid,
    result: &'a DemoResult,
    panel_width: usize,
    object_rows: usize,
    x: Axis,
    objects: Axis,
    bulk: Axis,
}

impl Picture<'_> {
    /// First row of the upper chart; its heading and the run's name are above.
    const OBJECTS_TOP: usize = 2;

    const fn objects_axis_row(&self) -> usize {
        Self::OBJECTS_TOP + self.object_rows
    }

    const fn bulk_top_row(&self) -> usize {
        self.objects_axis_row() + 2
    }

    const fn bulk_axis_row(&self) -> usize {
        self.bulk_top_row() + BULK_ROWS
    }

    /// Draws names and numbers left of the charts.
    fn draw_axes(&mut self) {
        self.grid.text(0, 1, "small object, ms", Paint::Dim);
        self.draw_ticks(&self.objects.clone(), Self::OBJECTS_TOP, self.object_rows);
        self.grid.text(0, self.objects_axis_row() + 1, "big file, Mbit/s", Paint::Dim);
        self.draw_ticks(&self.bulk.clone(), self.bulk_top_row(), BULK_ROWS);
    }

    fn draw_ticks(&mut self, axis: &Axis, top: usize, rows: usize) {
        for (value, text) in axis.ticks(rows) {
            // The row that contains the value; each row is labelled at most once.
            let above = (axis.position(value) * rows as f64) as usize;
            let row = top + rows - 1 - above.min(rows - 1);
            if self.grid.is_blank(GUTTER - 1, row) {
                self.grid.text_ending_at(GUTTER - 2, row, &text, Paint::Dim);
                self.grid.put(GUTTER - 1, row, '┤', Paint::Dim);
            }
        }
    }

    fn draw_panel(&mut self, left: usize, variant: Variant) {
        let run = self.result.runs.iter().find(|run| run.variant == variant);
        let name = match variant.title() {
            title if title.len() <= self.panel_width => title,
            _ => variant.short_title(),
        };
        let paint = if run.is_some() { Paint::Bold } else { Paint::Dim };
        self.grid.text(left, 0, name, paint);
        for row in [self.objects_axis_row(), self.bulk_axis_row()] {
            self.grid.text(left, row, &"─".repeat(self.panel_width), Paint::Dim);
        }
        self.draw_time(left);
        let Some(run) = run else { return };
        self.draw_bulk(left, run);
        self.draw_migrations(left, run);
        self.draw_objects(left, run);
        let texts = progress_texts(&self.result.setup, run);
        for (row, text) in texts.iter().enumerate() {
            let text: String = text.chars().take(self.panel_width).collect();
            self.grid.text(left, self.bulk_axis_row() + 2 + row, &text, Paint::Plain);
        }
    }

    fn draw_time(&mut self, left: usize) {
        let row = self.bulk_axis_row() + 1;
        let ticks = self.x.ticks(self.panel_width / 7);
        let last = ticks.len().saturating_sub(1);
        for (index, (value, text)) in ticks.into_iter().enumerate() {
            let text = if index == last { format!("{text} s") } else { text };
            let column = (self.x.position(value) * self.panel_width as f64) as usize;
            let column = column.min(self.panel_width.saturating_sub(text.len()));
            self.grid.text(left + column, row, &text, Paint::Dim);
        }
    }

    fn draw_objects(&mut self, left: usize, run: &DemoRun) {
        let mut dots = Dots::new(left, Self::OBJECTS_TOP, self.panel_width, self.object_rows);
        for object in &run.objects {
            let paint = match object.load {
                BackgroundLoad::Unloaded => Paint::Plain,
                BackgroundLoad::BigFile => paint(run.variant),
            };
            let y = self.objects.position(millis::of(object.took));
            dots.add(self.x.position(object.at.as_secs_f64()), y, paint);
        }
        dots.draw(&mut self.grid);
    }

    fn draw_bulk(&mut self, left: usize, run: &DemoRun) {
        let bars = Bars::new(left, self.bulk_top_row(), self.panel_width, BULK_ROWS);
        let length = run_length(self.result).as_secs_f64();
        for column in 0..self.panel_width {
            let middle = (column as f64 + 0.5) / self.panel_width as f64 * length;
            let segments = self.bar_segments(run, middle);
            bars.draw(&mut self.grid, column, &segments);
        }
    }

    /// Returns the rates of all connections at a moment, as segments of a bar.
    fn bar_segments(&self, run: &DemoRun, moment: f64) -> Vec<(f64, Paint, char)> {
        let interval = self.result.setup.sample_interval.as_secs_f64().max(1e-3);
        let covers = |sample: &&BigFileSample| {
            let end = sample.at.as_secs_f64();
            moment <= end && moment > end - interval
        };
        let mut samples: Vec<_> = run.big_file_samples.iter().filter(covers).collect();
        samples.sort_by_key(|sample| sample.connection);
        let segment = |sample: &BigFileSample| {
            let rate = sample.bytes as f64 * 8e-6 / interval;
            let (paint, full) = connection_paint(sample.connection);
            (self.bulk.position(rate), paint, full)
        };
        samples.into_iter().map(segment).collect()
    }

    fn draw_migrations(&mut self, left: usize, run: &DemoRun) {
        for migration in &run.migrations {
            let share = self.x.position(migration.at.as_secs_f64());
            let column = (share * self.panel_width as f64) as usize;
            let x = left + column.min(self.panel_width - 1);
            for row in Self::OBJECTS_TOP..self.bulk_axis_row() {
                if self.grid.is_blank(x, row) {
                    self.grid.put(x, row, '┊', Paint::Dim);
                }
            }
        }
    }
}

const fn paint(variant: Variant) -> Paint {
    match variant {
        Variant::PlainHttp2 => Paint::Red,
        Variant::NotsentLowat => Paint::Magenta,
        Variant::Smig => Paint::Cyan,
    }
}

/// Returns a connection's colour and character, which differ for terminals without colour.
const fn connection_paint(connection: ConnectionId) -> (Paint, char) {
    match connection.0 {
        0 | 1 => (Paint::Plain, '█'),
        2 => (Paint::Yellow, '▓'),
        _ => (Paint::Green, '▒'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fixtures;
    use crate::demo::recorder::DemoRecorder;

    fn rows(result: &DemoResult, columns: usize, rows: usize) -> String {
        let grid = draw(result, (columns, rows)).expect("large enough");
        assert!(grid.width() < columns && grid.height() < rows);
        grid.plain_rows().join("\n")
    }

    #[test]
    fn three_runs_stand_side_by_side() {
        insta::assert_snapshot!(rows(&fixtures::result(), 100, 30));
    }

    #[test]
    fn eighty_by_twenty_four_is_enough_for_all() {
        insta::assert_snapshot!(rows(&fixtures::result(), 80, 24));
    }

    #[test]
    fn a_narrow_terminal_shows_the_current_run() {
        let text = rows(&fixtures::result(), 50, 24);
        assert!(text.contains("SMig") && !text.contains("HTTP/2"), "{text}");
    }

    #[test]
    fn a_tiny_terminal_gets_lines() {
        let result = fixtures::result();
        for size in [(80, 10), (20, 30), (1, 1)] {
            assert!(draw(&result, size).is_none(), "{size:?}");
        }
    }

    #[test]
    fn every_step_of_a_run_can_be_drawn() {
        let mut recorder = DemoRecorder::new(fixtures::setup());
        let mut drawn = 0;
        for event in Variant::ALL.into_iter().flat_map(fixtures::events) {
            recorder.apply(&event);
            for size in [(80, 24), (133, 50), (40, 24)] {
                drawn += usize::from(draw(recorder.result(), size).is_some());
            }
        }
        assert!(drawn > 300, "{drawn}");
    }
}
