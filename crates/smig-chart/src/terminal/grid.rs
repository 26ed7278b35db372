//! A rectangle of painted characters. Content outside of it is clipped.

use crossterm::style::{Attribute, Color, SetAttribute, SetForegroundColor};

/// Colour or attribute of a character. Only colours that every terminal theme
/// defines for both light and dark backgrounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Paint {
    /// The terminal's default.
    #[default]
    Plain,
    /// Bold.
    Bold,
    /// Dim.
    Dim,
    /// Red.
    Red,
    /// Magenta.
    Magenta,
    /// Cyan.
    Cyan,
    /// Yellow.
    Yellow,
    /// Green.
    Green,
}

impl Paint {
    /// Returns the escape sequence that starts it after a reset.
    fn sequence(self) -> String {
        let colour = |colour| SetForegroundColor(colour).to_string();
        match self {
            Self::Plain => String::new(),
            Self::Bold => SetAttribute(Attribute::Bold).to_string(),
            Self::Dim => SetAttribute(Attribute::Dim).to_string(),
            Self::Red => colour(Color::DarkRed),
            Self::Magenta => colour(Color::DarkMagenta),
            Self::Cyan => colour(Color::DarkCyan),
            Self::Yellow => colour(Color::DarkYellow),
            Self::Green => colour(Color::DarkGreen),
        }
    }
}

/// The painted characters of one drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    width: usize,
    cells: Vec<(char, Paint)>,
}

impl Grid {
    /// Creates an empty drawing.
    #[must_use]
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, cells: vec![(' ', Paint::Plain); width * height] }
    }

    /// Returns the number of columns.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.cells.len().checked_div(self.width).unwrap_or(0)
    }

    /// Sets one character.
    pub fn put(&mut self, x: usize, y: usize, c: char, paint: Paint) {
        if x < self.width
            && let Some(cell) = self.cells.get_mut(y * self.width + x)
        {
            *cell = (c, paint);
        }
    }

    /// Writes a text, from `x` to the right.
    pub fn text(&mut self, x: usize, y: usize, text: &str, paint: Paint) {
        for (offset, c) in text.chars().enumerate() {
            self.put(x + offset, y, c, paint);
        }
    }

    /// Writes a text so that its last character is left of `x`; the start of a longer text is clipped.
    pub fn text_ending_at(&mut self, x: usize, y: usize, text: &str, paint: Paint) {
        let length = text.chars().count();
        for (offset, c) in text.chars().enumerate().skip(length.saturating_sub(x)) {
            self.put(x + offset - length, y, c, paint);
        }
    }

    /// Returns whether the cell is blank, as all cells outside are.
    #[must_use]
    pub fn is_blank(&self, x: usize, y: usize) -> bool {
        x >= self.width || self.cells.get(y * self.width + x).is_none_or(|(c, _)| *c == ' ')
    }

    /// Returns the rows as text without paint.
    #[must_use]
    pub fn plain_rows(&self) -> Vec<String> {
        let row = |cells: &[(char, Paint)]| cells.iter().map(|(c, _)| c).collect::<String>();
        self.rows().map(|cells| row(cells).trim_end().to_owned()).collect()
    }

    /// Returns the rows as text with escape sequences; each row ends with a reset if it is painted.
    #[must_use]
    pub fn painted_rows(&self) -> Vec<String> {
        self.rows().map(paint_row).collect()
    }

    fn rows(&self) -> impl Iterator<Item = &[(char, Paint)]> {
        self.cells.chunks(self.width.max(1))
    }
}

fn paint_row(cells: &[(char, Paint)]) -> String {
    let end = cells.iter().rposition(|(c, _)| *c != ' ').map_or(0, |last| last + 1);
    let reset = SetAttribute(Attribute::Reset).to_string();
    let mut out = String::new();
    let mut current_paint = Paint::Plain;
    for (c, paint) in &cells[..end] {
        // A blank looks the same with any paint.
        if *paint != current_paint && *c != ' ' {
            if current_paint != Paint::Plain {
                out.push_str(&reset);
            }
            out.push_str(&paint.sequence());
            current_paint = *paint;
        }
        out.push(*c);
    }
    if current_paint != Paint::Plain {
        out.push_str(&reset);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_outside_the_grid_is_clipped() {
        let mut grid = Grid::new(5, 2);
        grid.text(3, 1, "abc", Paint::Plain);
        grid.text(0, 2, "below", Paint::Plain);
        grid.text_ending_at(3, 0, "12", Paint::Bold);
        assert_eq!(grid.plain_rows(), [" 12", "   ab"]);
        assert_eq!((grid.width(), grid.height()), (5, 2));
        assert!(grid.is_blank(0, 0) && !grid.is_blank(1, 0));
        grid.text(0, 1, "a", Paint::Plain);
        assert!(grid.is_blank(5, 0) && grid.is_blank(0, 2));
        grid.text_ending_at(2, 0, "abc", Paint::Plain);
        assert_eq!(grid.plain_rows()[0], "bc2");
    }

    #[test]
    fn paint_ends_with_its_row() {
        let mut grid = Grid::new(6, 1);
        grid.text(0, 0, "a", Paint::Plain);
        grid.text(2, 0, "bc", Paint::Bold);
        assert_eq!(grid.painted_rows(), ["a \u{1b}[1mbc\u{1b}[0m"]);
    }

    #[test]
    fn an_empty_grid_has_no_rows() {
        assert_eq!(Grid::new(0, 3).height(), 0);
        assert!(Grid::new(0, 3).plain_rows().is_empty());
    }
}
