//! Output of drawings: redrawn in place on a terminal, lines of text elsewhere.

use std::env;
use std::io::{self, IsTerminal, Stdout, Write};

use crossterm::cursor::{MoveToColumn, MoveUp};
use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, size};

use super::grid::Grid;

/// Capabilities of an output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A terminal with colours.
    Painted,
    /// A terminal without colours (`NO_COLOR` is set).
    Unpainted,
    /// A file, a pipe or a dumb terminal: lines of text from time to time.
    Lines,
}

impl Output {
    /// Detects the capabilities of standard output or standard error.
    #[must_use]
    pub fn of(stream: &impl IsTerminal) -> Self {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        match (stream.is_terminal() && !dumb, set("NO_COLOR")) {
            (false, _) => Self::Lines,
            (true, true) => Self::Unpainted,
            (true, false) => Self::Painted,
        }
    }
}

/// An output for drawings.
#[derive(Debug)]
pub struct Screen<W: Write = Stdout> {
    to: W,
    output: Output,
    /// Number of rows of the last drawing; the cursor is below them.
    drawn: u16,
}

impl Screen {
    /// Creates a screen on standard output.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(io::stdout(), Output::of(&io::stdout()))
    }
}

impl<W: Write> Screen<W> {
    /// Creates a screen on another writer.
    pub const fn new(to: W, output: Output) -> Self {
        Self { to, output, drawn: 0 }
    }

    /// Returns the capabilities of the output.
    #[must_use]
    pub const fn output(&self) -> Output {
        self.output
    }

    /// Returns the columns and rows of the terminal; `None` if there is no
    /// terminal, or its size is unknown.
    #[must_use]
    pub fn size(&self) -> Option<(usize, usize)> {
        if self.output == Output::Lines {
            return None;
        }
        let (columns, rows) = size().ok()?;
        (columns > 0 && rows > 0).then_some((usize::from(columns), usize::from(rows)))
    }

    /// Draws over the last drawing.
    ///
    /// # Errors
    /// Write errors.
    pub fn draw(&mut self, grid: &Grid) -> io::Result<()> {
        queue!(self.to, BeginSynchronizedUpdate)?;
        if self.drawn > 0 {
            queue!(self.to, MoveUp(self.drawn))?;
        }
        queue!(self.to, MoveToColumn(0))?;
        let rows = match self.output {
            Output::Painted => grid.painted_rows(),
            Output::Unpainted | Output::Lines => grid.plain_rows(),
        };
        for row in &rows {
            write!(self.to, "{row}")?;
            queue!(self.to, Clear(ClearType::UntilNewLine))?;
            write!(self.to, "\r\n")?;
        }
        queue!(self.to, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        self.drawn = u16::try_from(rows.len()).unwrap_or(u16::MAX);
        self.to.flush()
    }

    /// Writes text below the last drawing, which stays as it is.
    ///
    /// # Errors
    /// Write errors.
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.drawn = 0;
        writeln!(self.to, "{text}")?;
        self.to.flush()
    }

    /// Returns the writer.
    pub fn into_inner(self) -> W {
        self.to
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::Paint;
    use super::*;

    #[test]
    fn a_drawing_covers_the_one_before() {
        let mut grid = Grid::new(3, 2);
        grid.text(0, 0, "abc", Paint::Red);
        let mut screen = Screen::new(Vec::new(), Output::Unpainted);
        screen.draw(&grid).unwrap();
        screen.draw(&grid).unwrap();
        screen.say("end").unwrap();
        screen.draw(&grid).unwrap();
        let text = String::from_utf8(screen.into_inner()).unwrap();
        assert_eq!(
            text.matches("\u{1b}[2A").count(),
            1,
            "moves up once, and not over printed text"
        );
        assert!(!text.contains("\u{1b}[3") && !text.contains("\u{1b}[0m"), "no paint: {text:?}");
    }
}
