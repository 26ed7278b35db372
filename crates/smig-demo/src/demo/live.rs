//! The live view: both series of all runs, redrawn in place; without a terminal, a line of text at
//! intervals.

use std::io::{self, Stdout, Write};
use std::time::Duration;

use smig_chart::format_ms;
use smig_chart::terminal::Screen;

use super::data::{DemoResult, DemoRun, DemoSetup};
use super::picture::draw;
use super::recorder::{DemoEvent, DemoRecorder};
use super::summary::{describe_setup, findings, render_text, summaries, summarise};

/// Interval between lines of text without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Records the demonstration and displays it while it runs.
#[derive(Debug)]
pub struct LiveView<W: Write = Stdout> {
    recorder: DemoRecorder,
    screen: Screen<W>,
    /// When the next line is due, since the start of the run.
    next_line_at: Duration,
}

impl LiveView {
    /// Creates a live view on standard output.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn stdout(setup: DemoSetup) -> io::Result<Self> {
        Self::new(setup, Screen::stdout())
    }
}

impl<W: Write> LiveView<W> {
    /// Creates a live view on a screen and prints a description of the demonstration.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn new(setup: DemoSetup, mut screen: Screen<W>) -> io::Result<Self> {
        let width = screen.size().map_or(usize::MAX, |(columns, _)| columns.max(40) - 1);
        screen.print(&wrap(&describe_setup(&setup), width))?;
        let seconds = setup.expected_duration().as_secs();
        let text = match setup.variants.len() {
            0 | 1 => format!("It takes about {seconds} s. Ctrl-C ends it."),
            runs => format!("It takes {runs} runs of about {seconds} s each. Ctrl-C ends it."),
        };
        screen.print(&wrap(&text, width))?;
        screen.print("")?;
        Ok(Self { recorder: DemoRecorder::new(setup), screen, next_line_at: LINE_INTERVAL })
    }

    /// Records one event and redraws the screen.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn apply(&mut self, event: &DemoEvent) -> io::Result<()> {
        self.recorder.apply(event);
        let drawing = self.screen.size().and_then(|size| draw(self.recorder.result(), size));
        match drawing {
            Some(grid) => self.screen.draw(&grid),
            None => self.print_event(event),
        }
    }

    /// Prints the table and the sentences, and returns the result.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn finish(mut self) -> io::Result<DemoResult> {
        let width = self.screen.size().map_or(80, |(columns, _)| columns.clamp(40, 100) - 1);
        let result = self.recorder.finish();
        self.screen.print("")?;
        self.screen.print(&render_text(&result))?;
        for sentence in findings(&summaries(&result)) {
            self.screen.print(&wrap(&sentence, width))?;
        }
        Ok(result)
    }

    /// Prints an event as a line, except for frequent ones.
    fn print_event(&mut self, event: &DemoEvent) -> io::Result<()> {
        let result = self.recorder.result();
        let Some(run) = result.runs.last() else { return Ok(()) };
        let time_prefix = |at: &Duration| format!("  {:>4.1} s  ", at.as_secs_f64());
        let line = match event {
            DemoEvent::RunStarted(variant) => {
                self.next_line_at = LINE_INTERVAL;
                format!("{} of {}: {variant}", result.runs.len(), result.setup.variants.len())
            }
            DemoEvent::BigFileStarted(moment) => {
                format!("{}big file requested", time_prefix(moment))
            }
            DemoEvent::BigFileFinished(moment) => {
                format!("{}big file complete", time_prefix(moment))
            }
            DemoEvent::Migrated(migration) => {
                format!(
                    "{}migrated from {} to {}",
                    time_prefix(&migration.observed_at),
                    migration.from,
                    migration.to
                )
            }
            DemoEvent::BigFileBytes(sample) if sample.interval_end >= self.next_line_at => {
                self.next_line_at = sample.interval_end + LINE_INTERVAL;
                format!(
                    "{}{}",
                    time_prefix(&sample.interval_end),
                    progress_texts(&result.setup, run)[..3].join(", ")
                )
            }
            DemoEvent::Problem(problem) => format!("  {problem}"),
            DemoEvent::Object(_)
            | DemoEvent::BigFileBytes(_)
            | DemoEvent::BulkCongestionControlMissing
            | DemoEvent::RunFinished { .. } => return Ok(()),
        };
        self.screen.print(&line)
    }
}

/// Returns the state of a run as a few short texts.
pub(super) fn progress_texts(setup: &DemoSetup, run: &DemoRun) -> Vec<String> {
    let summary = summarise(setup, run);
    let mut texts = Vec::new();
    match (summary.median_ms, summary.p95_ms) {
        (Some(median), Some(p95)) => {
            texts.push(format!("median {} ms", format_ms(median)));
            texts.push(format!("p95 {} ms", format_ms(p95)));
        }
        _ => match summary.unloaded_median_ms {
            Some(alone) => texts.extend([format!("alone {} ms", format_ms(alone)), String::new()]),
            None => texts.extend([String::new(), String::new()]),
        },
    }
    texts.push(match (summary.big_file_s, run.big_file_started_at) {
        (Some(seconds), _) => format!("big file {seconds:.1} s"),
        (None, None) => String::new(),
        (None, Some(_)) => {
            let share = run.big_file_bytes() as f64 / setup.big_file_bytes.max(1) as f64;
            format!("big file {:.0} %", share * 100.0)
        }
    });
    texts.push(match run.migrations.last() {
        Some(migration) => format!("on {}", migration.to),
        None if run.big_file_started_at.is_some() => "one connection".into(),
        None => String::new(),
    });
    texts
}

/// Wraps a text at spaces into lines of at most `width` characters; a longer word gets a line of its own.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::data::Variant;
    use crate::demo::fixtures;
    use smig_chart::terminal::OutputMode;

    #[test]
    fn without_a_terminal_there_are_lines() {
        let screen = Screen::new(Vec::new(), OutputMode::Lines);
        let mut view = LiveView::new(fixtures::setup(), screen).unwrap();
        for event in Variant::ALL.into_iter().flat_map(fixtures::events) {
            view.apply(&event).unwrap();
        }
        let text = String::from_utf8(view.screen.into_inner()).unwrap();
        assert!(!text.contains('\u{1b}'), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn words_are_not_split() {
        assert_eq!(wrap("aa bb cc", 5), "aa bb\ncc");
        assert_eq!(wrap("toolong a", 3), "toolong\na");
    }
}
