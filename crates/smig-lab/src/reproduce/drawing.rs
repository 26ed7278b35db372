//! Pictures of a finding that are not dots on lines: heat maps, curves, and files that another command drew.

use smig_chart::svg::{Figure, HeatMap};

/// A picture in two widths, so that text keeps its size on a phone.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drawing {
    /// The file name without its extension.
    pub(super) name: String,
    /// The caption, in a sentence.
    pub(super) caption: String,
    pub(super) shape: Shape,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// A heat map, and the same with rows and columns exchanged for narrow pages.
    HeatMaps(Box<[HeatMap; 2]>),
    /// Curves; the width is replaced.
    Curves(Figure),
    /// A file that exists in the report's directory: its markup.
    File(String),
}

impl Drawing {
    /// Renders it for a page that includes the style sheet: for wide and for narrow screens.
    pub(super) fn to_elements(&self, wide: f64, narrow: f64) -> [String; 2] {
        match &self.shape {
            Shape::HeatMaps(maps) => {
                let [map, narrow_map] = maps.as_ref();
                [
                    HeatMap { width: wide, ..map.clone() }.to_element(),
                    HeatMap { width: narrow, ..narrow_map.clone() }.to_element(),
                ]
            }
            Shape::Curves(figure) => {
                [wide, narrow].map(|width| Figure { width, ..figure.clone() }.to_element())
            }
            Shape::File(markup) => {
                let scaled = "<svg style=\"max-width:100%;height:auto\" ";
                let element = markup.replacen("<svg ", scaled, 1);
                [element.clone(), element]
            }
        }
    }

    /// Renders it as a standalone file; `None` if it is one.
    pub(super) fn to_file(&self, width: f64) -> Option<String> {
        match &self.shape {
            Shape::HeatMaps(maps) => Some(HeatMap { width, ..maps[0].clone() }.to_file()),
            Shape::Curves(figure) => Some(Figure { width, ..figure.clone() }.to_file()),
            Shape::File(_) => None,
        }
    }
}
