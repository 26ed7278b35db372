//! The picture of a running demonstration: the series of all runs side by side,
//! small objects above and the big file below, with a few numbers under them.

use std::time::Duration;

use smig_chart::svg::Axis;
use smig_chart::terminal::{Bars, Dots, Grid, Paint};
use smig_link::millis;

use super::data::{BackgroundLoad, BigFileSample, ConnectionId, DemoResult, DemoRun, Variant};
use super::live::progress_texts;

/// Columns left of the charts, for the numbers at the axis.
const GUTTER_COLUMNS: usize = 8;
/// Columns between charts.
const GAP_COLUMNS: usize = 2;
/// Maximum number of rows of the upper chart.
const MAX_OBJECT_ROWS: usize = 8;
/// Number of rows of the lower chart.
const BIG_FILE_ROWS: usize = 4;
/// Rows other than the charts.
const OTHER_ROWS: usize = 10;
/// Minimum width of a chart; a narrower one is illegible.
const MIN_CHART_COLUMNS: usize = 16;
/// Maximum width of a chart; a wider one adds no detail.
const MAX_CHART_COLUMNS: usize = 60;

/// Draws the complete picture; `None` if the terminal is too small for it.
pub(super) fn draw(result: &DemoResult, (columns, rows): (usize, usize)) -> Option<Grid> {
    // One column and one row less, for the cursor.
    let width = (columns - 1).min(132);
    let object_rows = (rows - 1).checked_sub(OTHER_ROWS + BIG_FILE_ROWS)?.min(MAX_OBJECT_ROWS);
    if object_rows < 3 || width < GUTTER_COLUMNS + MIN_CHART_COLUMNS {
        return None;
    }
    let variants = &result.setup.variants;
    let count = variants.len().max(1);
    let shared_width =
        ((width - GUTTER_COLUMNS - GAP_COLUMNS * (count - 1)) / count).min(MAX_CHART_COLUMNS);
    // If not all fit, only the current run.
    let (panels, panel_width) = if shared_width >= MIN_CHART_COLUMNS {
        (variants.clone(), shared_width)
    } else {
        (vec![result.runs.last()?.variant], (width - GUTTER_COLUMNS).min(MAX_CHART_COLUMNS))
    };
    let mut picture = Picture {
        grid: Grid::new(width, object_rows + BIG_FILE_ROWS + OTHER_ROWS),
        result,
        panel_width,
        object_rows,
        time_axis: Axis::linear_exact(run_duration(result).as_secs_f64(), "s"),
        object_axis: object_axis(result),
        rate_axis: Axis::linear(result.setup.link.to_client.rate.mean_mbit(), ""),
    };
    picture.draw_axes();
    for (index, variant) in panels.into_iter().enumerate() {
        picture.draw_panel(GUTTER_COLUMNS + index * (panel_width + GAP_COLUMNS), variant);
    }
    Some(picture.grid)
}

/// Returns the duration of a run: the expected one, or that of the longest run if it is longer.
fn run_duration(result: &DemoResult) -> Duration {
    let latest = result.runs.iter().map(DemoRun::end).max().unwrap_or_default();
    latest.max(result.setup.expected_duration())
}

fn object_axis(result: &DemoResult) -> Axis {
    let round_trip_ms = millis::of(result.setup.link.round_trip());
    let times = || result.runs.iter().flat_map(|run| &run.objects).map(|o| millis::of(o.duration));
    Axis::log(
        times().fold(round_trip_ms, f64::min),
        times().fold(round_trip_ms * 12.0, f64::max),
        "ms",
    )
}

/// A picture under construction.
struct Picture<'a> {
    grid: Grid,
    result: &'a DemoResult,
    panel_width: usize,
    object_rows: usize,
    time_axis: Axis,
    object_axis: Axis,
    rate_axis: Axis,
}

impl Picture<'_> {
    /// First row of the upper chart; its heading and the run's name are above.
    const OBJECTS_TOP_ROW: usize = 2;

    const fn objects_axis_row(&self) -> usize {
        Self::OBJECTS_TOP_ROW + self.object_rows
    }

    const fn big_file_top_row(&self) -> usize {
        self.objects_axis_row() + 2
    }

    const fn big_file_axis_row(&self) -> usize {
        self.big_file_top_row() + BIG_FILE_ROWS
    }

    /// Draws names and numbers left of the charts.
    fn draw_axes(&mut self) {
        self.grid.text(0, 1, "small object, ms", Paint::Dim);
        self.draw_ticks(&self.object_axis.clone(), Self::OBJECTS_TOP_ROW, self.object_rows);
        self.grid.text(0, self.objects_axis_row() + 1, "big file, Mbit/s", Paint::Dim);
        self.draw_ticks(&self.rate_axis.clone(), self.big_file_top_row(), BIG_FILE_ROWS);
    }

    fn draw_ticks(&mut self, axis: &Axis, top: usize, rows: usize) {
        for (value, text) in axis.ticks(rows) {
            // The row that contains the value; each row is labelled at most once.
            let rows_from_bottom = (axis.position(value) * rows as f64) as usize;
            let row = top + rows - 1 - rows_from_bottom.min(rows - 1);
            if self.grid.is_blank(GUTTER_COLUMNS - 1, row) {
                self.grid.text_ending_at(GUTTER_COLUMNS - 2, row, &text, Paint::Dim);
                self.grid.put(GUTTER_COLUMNS - 1, row, '┤', Paint::Dim);
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
        for row in [self.objects_axis_row(), self.big_file_axis_row()] {
            self.grid.text(left, row, &"─".repeat(self.panel_width), Paint::Dim);
        }
        self.draw_time(left);
        let Some(run) = run else { return };
        self.draw_big_file(left, run);
        self.draw_migrations(left, run);
        self.draw_objects(left, run);
        let texts = progress_texts(&self.result.setup, run);
        for (row, text) in texts.iter().enumerate() {
            let text: String = text.chars().take(self.panel_width).collect();
            self.grid.text(left, self.big_file_axis_row() + 2 + row, &text, Paint::Plain);
        }
    }

    fn draw_time(&mut self, left: usize) {
        let row = self.big_file_axis_row() + 1;
        let ticks = self.time_axis.ticks(self.panel_width / 7);
        let last = ticks.len().saturating_sub(1);
        for (index, (value, text)) in ticks.into_iter().enumerate() {
            let text = if index == last { format!("{text} s") } else { text };
            let column = (self.time_axis.position(value) * self.panel_width as f64) as usize;
            let column = column.min(self.panel_width.saturating_sub(text.len()));
            self.grid.text(left + column, row, &text, Paint::Dim);
        }
    }

    fn draw_objects(&mut self, left: usize, run: &DemoRun) {
        let mut dots = Dots::new(left, Self::OBJECTS_TOP_ROW, self.panel_width, self.object_rows);
        for object in &run.objects {
            let paint = match object.load {
                BackgroundLoad::Unloaded => Paint::Plain,
                BackgroundLoad::BigFile => variant_paint(run.variant),
            };
            let y = self.object_axis.position(millis::of(object.duration));
            dots.add(self.time_axis.position(object.requested_at.as_secs_f64()), y, paint);
        }
        dots.draw(&mut self.grid);
    }

    fn draw_big_file(&mut self, left: usize, run: &DemoRun) {
        let bars = Bars::new(left, self.big_file_top_row(), self.panel_width, BIG_FILE_ROWS);
        let run_seconds = run_duration(self.result).as_secs_f64();
        for column in 0..self.panel_width {
            let moment_s = (column as f64 + 0.5) / self.panel_width as f64 * run_seconds;
            let segments = self.bar_segments(run, moment_s);
            bars.draw(&mut self.grid, column, &segments);
        }
    }

    /// Returns the rates of all connections at a moment, as segments of a bar.
    fn bar_segments(&self, run: &DemoRun, moment_s: f64) -> Vec<(f64, Paint, char)> {
        let max_interval = self.result.setup.sample_interval;
        let covers = |sample: &&BigFileSample| {
            let end = sample.interval_end.as_secs_f64();
            moment_s <= end && moment_s > end - run.interval_of(sample, max_interval).as_secs_f64()
        };
        let mut samples: Vec<_> = run.big_file_samples.iter().filter(covers).collect();
        samples.sort_by_key(|sample| sample.connection);
        let segment = |sample: &BigFileSample| {
            let rate = run.sample_mbit_per_s(sample, max_interval);
            let (paint, character) = connection_paint(sample.connection);
            (self.rate_axis.position(rate), paint, character)
        };
        samples.into_iter().map(segment).collect()
    }

    fn draw_migrations(&mut self, left: usize, run: &DemoRun) {
        for migration in &run.migrations {
            let share = self.time_axis.position(migration.observed_at.as_secs_f64());
            let column = (share * self.panel_width as f64) as usize;
            let x = left + column.min(self.panel_width - 1);
            for row in Self::OBJECTS_TOP_ROW..self.big_file_axis_row() {
                if self.grid.is_blank(x, row) {
                    self.grid.put(x, row, '┊', Paint::Dim);
                }
            }
        }
    }
}

const fn variant_paint(variant: Variant) -> Paint {
    match variant {
        Variant::PlainHttp2 => Paint::Red,
        Variant::NotsentLowat => Paint::Magenta,
        Variant::Serve => Paint::Green,
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

    fn draw_text(result: &DemoResult, columns: usize, rows: usize) -> String {
        let grid = draw(result, (columns, rows)).expect("large enough");
        assert!(grid.width() < columns && grid.height() < rows);
        grid.plain_rows().join("\n")
    }

    #[test]
    fn all_runs_stand_side_by_side() {
        insta::assert_snapshot!(draw_text(&fixtures::result(), 100, 30));
    }

    #[test]
    fn eighty_by_twenty_four_is_enough_for_all() {
        insta::assert_snapshot!(draw_text(&fixtures::result(), 80, 24));
    }

    #[test]
    fn a_narrow_terminal_shows_the_current_run() {
        let text = draw_text(&fixtures::result(), 50, 24);
        assert!(text.contains("SMig at both ends") && !text.contains("HTTP/2"), "{text}");
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
        let mut drawn_count = 0;
        for event in Variant::ALL.into_iter().flat_map(fixtures::events) {
            recorder.apply(&event);
            for size in [(80, 24), (133, 50), (40, 24)] {
                drawn_count += usize::from(draw(recorder.result(), size).is_some());
            }
        }
        assert!(drawn_count > 300, "{drawn_count}");
    }
}
