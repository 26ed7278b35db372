//! What a chart is made of.

use super::Axis;

/// A whole chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// A short name, for those who do not see the chart.
    pub title: String,
    /// What it shows, in a sentence, for the same readers.
    pub description: String,
    /// In CSS pixels. Text keeps its size, so a narrow page needs a narrow chart.
    pub width: f64,
    /// What all panels share.
    pub x: Axis,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// Moments, drawn through all panels.
    pub marks: Vec<Mark>,
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What the y axis counts; written above it.
    pub title: String,
    /// The y axis.
    pub y: Axis,
    /// Of the plot alone, in CSS pixels.
    pub height: f64,
    /// Later ones lie over earlier ones.
    pub layers: Vec<Layer>,
    /// Values to compare with.
    pub rules: Vec<Rule>,
}

/// One series of a panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// For the legend; a layer without a name is not in it.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// How it is drawn.
    pub shape: Shape,
}

/// How a layer is drawn. Values are in the axes' units.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Single values.
    Dots(Marker, Vec<Point>),
    /// Straight lines from point to point.
    Line(Vec<(f64, f64)>),
    /// Each value holds until the next: distributions.
    Steps(Vec<(f64, f64)>),
    /// Filled areas: quantities per interval, stacked by whoever makes them.
    Blocks(Vec<Block>),
    /// Blocks that each say something, with a line of paper between neighbours.
    Bars(Vec<Bar>),
    /// Between two lines: stacked quantities, and intervals along a line.
    Area(Tint, Vec<Range>),
    /// From and to, with a cap at either end: intervals of single values.
    Whiskers(Vec<Range>),
    /// Moments, as short strokes at the panel's upper edge.
    Ticks(Vec<f64>),
    /// Values over a stretch, as level strokes: medians in boxes.
    Levels(Vec<Level>),
    /// A closed line with what is inside: distributions.
    Outline(Tint, Vec<(f64, f64)>),
    /// Text whose lower edge's middle is at its place: the values of bars.
    Words(Vec<Word>),
}

/// A value over a stretch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// From and to, along.
    pub x: (f64, f64),
    /// Up.
    pub y: f64,
}

/// A few characters at a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// Along.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Plain text.
    pub text: String,
}

/// How much of its colour an area has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tint {
    /// All.
    Full,
    /// Enough to be told from both others.
    Half,
    /// So little that lines and grid show through.
    Faint,
}

/// From and to, at a place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Along.
    pub x: f64,
    /// Up.
    pub low: f64,
    /// Up.
    pub high: f64,
}

/// A block with what is shown when a pointer rests on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Where.
    pub block: Block,
    /// How much colour.
    pub tint: Tint,
    /// Plain text.
    pub tooltip: String,
}

/// The form of a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// ●
    Circle,
    /// ■
    Square,
    /// ▲
    Triangle,
    /// ○
    Ring,
}

/// A value with what is shown when a pointer rests on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Along.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Plain text.
    pub tooltip: String,
}

/// A filled rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Block {
    /// From and to, along.
    pub x: (f64, f64),
    /// From and to, up.
    pub y: (f64, f64),
}

/// A moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// When, in the x axis' unit.
    pub x: f64,
    /// A word or two, written beside the line.
    pub label: String,
}

/// A value to compare with: a horizontal line.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// In the y axis' unit.
    pub y: f64,
    /// A word or two, written above the line.
    pub label: String,
}

/// The palette. Neighbours differ in lightness as well as in hue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Red-orange.
    Vermilion,
    /// Red-purple.
    Purple,
    /// Blue.
    Blue,
    /// Dark grey-blue on light, light on dark.
    Slate,
    /// Yellow-orange.
    Amber,
    /// Blue-green.
    Teal,
    /// As text: black on light, white on dark.
    Ink,
}

impl Colour {
    /// The name of its CSS variable.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Vermilion => "--vermilion",
            Self::Purple => "--purple",
            Self::Blue => "--blue",
            Self::Slate => "--slate",
            Self::Amber => "--amber",
            Self::Teal => "--teal",
            Self::Ink => "--ink",
        }
    }
}
