//! Data model of a chart.

use super::Axis;

/// A complete chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Accessible name.
    pub title: String,
    /// Accessible description: what the chart shows, in a sentence.
    pub description: String,
    /// Width in CSS pixels. Text does not scale, so a narrow page needs a narrow chart.
    pub width: f64,
    /// The x axis that all panels share.
    pub x: Axis,
    /// Panels from top to bottom.
    pub panels: Vec<Panel>,
    /// Points in time, drawn through all panels.
    pub event_lines: Vec<EventLine>,
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Quantity of the y axis, written above it.
    pub title: String,
    /// The y axis.
    pub y: Axis,
    /// Height of the plot alone, in CSS pixels.
    pub height: f64,
    /// Layers; later ones are drawn over earlier ones.
    pub layers: Vec<Layer>,
    /// Reference values.
    pub rules: Vec<Rule>,
}

/// One series of a panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Name for the legend; a layer without a name has no entry.
    pub name: String,
    /// Colour of the layer.
    pub colour: Colour,
    /// Shape of the layer.
    pub shape: Shape,
}

/// Shape of a layer. Values are in the axes' units.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Individual values.
    Dots(Marker, Vec<Point>),
    /// A polyline.
    Line(Vec<(f64, f64)>),
    /// A step function, where each value holds until the next: distributions.
    Steps(Vec<(f64, f64)>),
    /// The same for a reference value that changes: drawn as a [`Rule`].
    Reference(Vec<(f64, f64)>),
    /// Filled rectangles: quantities per interval, stacked by the caller.
    Blocks(Vec<Block>),
    /// Rectangles with tooltips, and a gap between neighbours.
    Bars(Vec<Bar>),
    /// The area between two lines: stacked quantities, and intervals along a line.
    Area(Tint, Vec<VerticalRange>),
    /// Error bars with caps: intervals of individual values.
    Whiskers(Vec<VerticalRange>),
    /// A rug plot: points in time, as short strokes at the panel's upper edge.
    Rug(Vec<f64>),
    /// Horizontal strokes: medians in boxes.
    Levels(Vec<Level>),
    /// Text, centred above its position: the values of bars.
    Labels(Vec<Label>),
    /// Pictures with a hairline frame: what a screen showed.
    Pictures(Vec<Picture>),
}

/// A JPEG in a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Where it is; it keeps its proportions within.
    pub block: Block,
    /// The file in base64; empty for a white screen.
    pub jpeg_base64: String,
    /// What it shows, plain text: its tooltip, and what is read aloud.
    pub text: String,
}

/// A horizontal stroke.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Left and right end.
    pub x: (f64, f64),
    /// Vertical value.
    pub y: f64,
}

/// A short text at a position.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Plain text.
    pub text: String,
}

/// Opacity of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tint {
    /// Opaque.
    Full,
    /// Distinguishable from both others.
    Half,
    /// Transparent enough for lines and grid to show through.
    Faint,
}

/// A vertical range at a position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VerticalRange {
    /// Horizontal value.
    pub x: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A rectangle with a tooltip.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Position and size.
    pub block: Block,
    /// Opacity.
    pub tint: Tint,
    /// Tooltip, plain text.
    pub tooltip: String,
}

/// Form of a dot.
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

/// A point with a tooltip.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// Tooltip, plain text.
    pub tooltip: String,
}

/// A filled rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Block {
    /// Left and right end.
    pub x: (f64, f64),
    /// Lower and upper end.
    pub y: (f64, f64),
}

/// A labelled point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct EventLine {
    /// Position, in the x axis' unit.
    pub x: f64,
    /// Short label, written beside the line.
    pub label: String,
}

/// A reference value, drawn as a horizontal line.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Value, in the y axis' unit.
    pub y: f64,
    /// Short label, written above the line.
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
    /// Dark grey-blue in the light style, light in the dark style.
    Slate,
    /// Yellow-orange.
    Amber,
    /// Blue-green.
    Teal,
    /// Brown.
    Brown,
    /// The text colour: black in the light style, white in the dark style.
    Ink,
}

impl Colour {
    /// Returns the name of its CSS variable.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Vermilion => "--vermilion",
            Self::Purple => "--purple",
            Self::Blue => "--blue",
            Self::Slate => "--slate",
            Self::Amber => "--amber",
            Self::Teal => "--teal",
            Self::Brown => "--brown",
            Self::Ink => "--ink",
        }
    }
}
