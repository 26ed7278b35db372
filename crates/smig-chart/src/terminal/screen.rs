//! Output of drawings: redrawn in place on a terminal, lines of text elsewhere.

use std::env;
use std::io::{self, IsTerminal, Stdout, Write};

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, size};

use super::grid::Grid;

/// How drawings are written, by the capabilities of the output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    /// A terminal with colours.
    Colour,
    /// A terminal without colours (`NO_COLOR` is set).
    Plain,
    /// A file, a pipe or a dumb terminal: lines of text at intervals.
    Lines,
}

impl OutputMode {
    /// Detects the capabilities of standard output or standard error.
    #[must_use]
    pub fn detect(stream: &impl IsTerminal) -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        match (stream.is_terminal() && !is_dumb, is_set("NO_COLOR")) {
            (false, _) => Self::Lines,
            (true, true) => Self::Plain,
            (true, false) => Self::Colour,
        }
    }
}

/// An output for drawings.
#[derive(Debug)]
pub struct Screen<W: Write = Stdout> {
    writer: W,
    mode: OutputMode,
    /// Number of rows of the last drawing; the cursor is below them.
    drawn_rows: u16,
}

impl Screen {
    /// Creates a screen on standard output.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(io::stdout(), OutputMode::detect(&io::stdout()))
    }
}

impl<W: Write> Screen<W> {
    /// Creates a screen on another writer.
    pub const fn new(writer: W, mode: OutputMode) -> Self {
        Self { writer, mode, drawn_rows: 0 }
    }

    /// Returns how drawings are written.
    #[must_use]
    pub const fn mode(&self) -> OutputMode {
        self.mode
    }

    /// Returns the columns and rows of the terminal; `None` if there is no
    /// terminal, or its size is unknown.
    #[must_use]
    pub fn size(&self) -> Option<(usize, usize)> {
        if self.mode == OutputMode::Lines {
            return None;
        }
        let (columns, rows) = size().ok()?;
        (columns > 0 && rows > 0).then_some((usize::from(columns), usize::from(rows)))
    }

    /// Draws over the last drawing; without a terminal, below it.
    ///
    /// # Errors
    /// Write errors.
    pub fn draw(&mut self, grid: &Grid) -> io::Result<()> {
        let rows = match self.mode {
            OutputMode::Colour => grid.painted_rows(),
            OutputMode::Plain => grid.plain_rows(),
            OutputMode::Lines => return self.print(&grid.plain_rows().join("\n")),
        };
        queue!(self.writer, BeginSynchronizedUpdate)?;
        if self.drawn_rows > 0 {
            queue!(self.writer, MoveUp(self.drawn_rows))?;
        }
        queue!(self.writer, MoveToColumn(0))?;
        for row in &rows {
            write!(self.writer, "{row}")?;
            queue!(self.writer, Clear(ClearType::UntilNewLine))?;
            write!(self.writer, "\r\n")?;
        }
        queue!(self.writer, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        self.drawn_rows = u16::try_from(rows.len()).unwrap_or(u16::MAX);
        self.writer.flush()
    }

    /// Writes text below the last drawing, which the next one then does not replace.
    ///
    /// # Errors
    /// Write errors.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        self.drawn_rows = 0;
        writeln!(self.writer, "{text}")?;
        self.writer.flush()
    }

    /// Returns the writer.
    pub fn into_inner(self) -> W {
        self.writer
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::Paint;
    use super::*;

    #[test]
    fn a_drawing_replaces_the_previous_one() {
        let mut grid = Grid::new(3, 2);
        grid.text(0, 0, "abc", Paint::Red);
        let mut screen = Screen::new(Vec::new(), OutputMode::Plain);
        screen.draw(&grid).unwrap();
        screen.draw(&grid).unwrap();
        screen.print("end").unwrap();
        screen.draw(&grid).unwrap();
        let text = String::from_utf8(screen.into_inner()).unwrap();
        assert_eq!(
            text.matches("\u{1b}[2A").count(),
            1,
            "moves up once, and not over printed text"
        );
        assert!(!text.contains("\u{1b}[3") && !text.contains("\u{1b}[0m"), "no paint: {text:?}");
    }

    #[test]
    fn without_a_terminal_a_drawing_is_lines_of_text() {
        let mut grid = Grid::new(3, 2);
        grid.text(0, 0, "abc", Paint::Red);
        grid.text(0, 1, "d", Paint::Plain);
        let mut screen = Screen::new(Vec::new(), OutputMode::Lines);
        screen.draw(&grid).unwrap();
        screen.draw(&grid).unwrap();
        assert_eq!(String::from_utf8(screen.into_inner()).unwrap(), "abc\nd\nabc\nd\n");
    }
}
