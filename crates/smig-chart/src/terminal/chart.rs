//! Small charts of dots (two by four per character) and of bars (eight steps per character).

use super::grid::{Grid, Paint};

/// A region of a grid, in characters, where values from 0 to 1 are drawn.
#[derive(Debug, Clone, Copy)]
struct Area {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
}

/// A scatter chart of braille dots.
#[derive(Debug, Clone)]
pub struct Dots {
    area: Area,
    cells: Vec<(u8, Paint)>,
}

/// The bit of each dot of a braille character: by column, then from the top.
const BRAILLE: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

impl Dots {
    /// Creates an empty chart in an area of characters.
    #[must_use]
    pub fn new(left: usize, top: usize, width: usize, height: usize) -> Self {
        let cells = vec![(0, Paint::Plain); width * height];
        Self { area: Area { left, top, width, height }, cells }
    }

    /// Adds a value: `x` from the left and `y` from the bottom, each from 0 to 1.
    /// Drawn two dots high for visibility.
    pub fn add(&mut self, x: f64, y: f64, paint: Paint) {
        let Area { width, height, .. } = self.area;
        if width == 0 || height == 0 {
            return;
        }
        let column = quantize(x, width * 2);
        let row = (height * 4 - 1) - quantize(y, height * 4);
        for row in [row, if row == 0 { 1 } else { row - 1 }] {
            let cell = &mut self.cells[row / 4 * width + column / 2];
            *cell = (cell.0 | BRAILLE[column % 2][row % 4], paint);
        }
    }

    /// Draws the dots over the grid's content.
    pub fn draw(&self, grid: &mut Grid) {
        for (index, (bits, paint)) in self.cells.iter().enumerate() {
            if *bits != 0 {
                let (x, y) = (index % self.area.width, index / self.area.width);
                let c = char::from_u32(0x2800 + u32::from(*bits)).unwrap_or('?');
                grid.put(self.area.left + x, self.area.top + y, c, *paint);
            }
        }
    }
}

/// A chart of stacked bars, one per column.
#[derive(Debug, Clone)]
pub struct Bars {
    area: Area,
}

/// Eighths of a character, from the bottom.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Bars {
    /// Creates a chart in an area of characters.
    #[must_use]
    pub const fn new(left: usize, top: usize, width: usize, height: usize) -> Self {
        Self { area: Area { left, top, width, height } }
    }

    /// Draws one column: parts from the bottom up, each with a height from 0 to
    /// 1, a paint, and the character for a full cell.
    pub fn draw(&self, grid: &mut Grid, column: usize, parts: &[(f64, Paint, char)]) {
        let Area { left, top, width, height } = self.area;
        if column >= width {
            return;
        }
        let total: f64 = parts.iter().map(|(part, ..)| part).sum();
        // A small value is still visible.
        let min_eighths = usize::from(total > 0.0);
        let eighths =
            ((total.clamp(0.0, 1.0) * (height * 8) as f64).round() as usize).max(min_eighths);
        for row in 0..height {
            let filled_eighths = eighths.saturating_sub(row * 8).min(8);
            if filled_eighths == 0 {
                return;
            }
            let middle = (row as f64 + filled_eighths as f64 / 16.0) / height as f64;
            let Some((paint, full)) = part_at(parts, middle) else { return };
            let c = if filled_eighths == 8 { full } else { EIGHTHS[filled_eighths] };
            grid.put(left + column, top + height - 1 - row, c, paint);
        }
    }
}

/// Returns the part at a height, or the last part.
fn part_at(parts: &[(f64, Paint, char)], height: f64) -> Option<(Paint, char)> {
    let mut part_top = 0.0;
    for (part, paint, c) in parts {
        part_top += part;
        if height < part_top {
            return Some((*paint, *c));
        }
    }
    parts.last().map(|(_, paint, c)| (*paint, *c))
}

/// Maps a value from 0 to 1 to one of `count` steps.
fn quantize(value: f64, count: usize) -> usize {
    let step = (value.clamp(0.0, 1.0) * count as f64) as usize; // NaN becomes 0
    step.min(count - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_reach_all_corners() {
        let mut grid = Grid::new(4, 4);
        let mut dots = Dots::new(1, 1, 2, 2);
        for (x, y) in [(0.0, 0.0), (1.0, 1.0), (f64::NAN, 2.0)] {
            dots.add(x, y, Paint::Plain);
        }
        dots.draw(&mut grid);
        assert_eq!(grid.plain_rows(), ["", " ⠃⠘", " ⡄", ""]);
    }

    #[test]
    fn bars_are_stacked_to_an_eighth() {
        let mut grid = Grid::new(4, 2);
        let bars = Bars::new(0, 0, 3, 2);
        bars.draw(&mut grid, 0, &[(0.75, Paint::Plain, '█')]);
        bars.draw(&mut grid, 1, &[(0.5, Paint::Plain, '█'), (0.5, Paint::Yellow, '▒')]);
        bars.draw(&mut grid, 2, &[(0.001, Paint::Plain, '█')]);
        bars.draw(&mut grid, 3, &[(1.0, Paint::Plain, '█')]);
        assert_eq!(grid.plain_rows(), ["▄▒", "██▁"]);
    }
}
