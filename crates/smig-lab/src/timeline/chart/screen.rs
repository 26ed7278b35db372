//! What could be seen of a page over time: by frames of a browser's screen, or without them by the pictures that had arrived.

use smig_chart::svg::{Axis, Block, Colour, Layer, Panel, Picture, Shape};

use super::{View, seconds};
use crate::timeline::page_load::end_us;
use crate::timeline::{PageSpan, ScreenFrame, Span, Timeline};

const PROGRESS_HEIGHT: f64 = 60.0;
/// Height of a picture of a filmstrip.
const PICTURE_HEIGHT: f64 = 72.0;
/// Smallest distance between the middles of two pictures, in pixels.
const MIN_PICTURE_STEP: f64 = 96.0;
/// The same in a narrow chart.
const NARROW_PICTURE_STEP: f64 = 58.0;
const NARROW_WIDTH: f64 = 600.0;
/// What a chart's width has beside the plot, about.
const MARGINS: f64 = 56.0;
/// Gap between pictures, as a share of their distance.
const GAP: f64 = 0.05;

/// Returns when the screen of a load had its final state; `None` without frames.
pub(super) fn complete_us(timeline: &Timeline, page: &PageSpan) -> Option<u64> {
    frames_of(timeline, page).find(|frame| frame.progress >= 100).map(|frame| frame.at_us)
}

/// Visual progress and filmstrip of a load, if frames were taken; else the share of the pictures that could be seen.
pub(super) fn screen_panels(
    timeline: &Timeline,
    (page, requests): (&PageSpan, &[&Span]),
    view: &View,
) -> Vec<Panel> {
    if frames_of(timeline, page).next().is_none() {
        return arrived_panel(requests, page).into_iter().collect();
    }
    let progress = progress_panel(timeline, page, view);
    let filmstrip = filmstrip_panel(timeline, page, view);
    [progress, Panel { title: format!("Screen ({FILMSTRIP_HINT})"), ..filmstrip }].into()
}

/// How a filmstrip is read.
pub(crate) const FILMSTRIP_HINT: &str = "each picture: what it showed at the time below its middle";

fn frames_of<'a>(
    timeline: &'a Timeline,
    page: &'a PageSpan,
) -> impl Iterator<Item = &'a ScreenFrame> {
    timeline.frames.iter().filter(|frame| frame.page == page.name)
}

fn progress_panel(timeline: &Timeline, page: &PageSpan, view: &View) -> Panel {
    let mut steps = vec![(seconds(page.from_us), 0.0)];
    let frames = frames_of(timeline, page).filter(|frame| view.contains(frame.at_us));
    steps.extend(frames.map(|frame| (seconds(frame.at_us), f64::from(frame.progress))));
    let last = steps.last().map_or(0.0, |(_, progress)| *progress);
    steps.push((seconds(view.to_us), last));
    progress_of_screen("Visual progress, % of the final screen", steps)
}

/// The screen of a load at equal distances of time; without a title.
pub(super) fn filmstrip_panel(timeline: &Timeline, page: &PageSpan, view: &View) -> Panel {
    let step = if view.width < NARROW_WIDTH { NARROW_PICTURE_STEP } else { MIN_PICTURE_STEP };
    let count = (((view.width - MARGINS) / step) as u64).max(1);
    let length_us = view.length_us();
    let frames: Vec<_> = frames_of(timeline, page).collect();
    let picture = |index: u64| {
        let at = |share: f64| view.from_us as f64 + length_us as f64 * share / count as f64;
        let middle_us = at(index as f64 + 0.5) as u64;
        let shown = frames.iter().rev().filter(|frame| frame.at_us <= middle_us);
        // Until its first frame, the screen is white.
        let frame = shown.clone().find(|frame| !frame.jpeg.is_empty());
        let progress = shown.clone().next().map_or(0, |frame| frame.progress);
        let left = at(index as f64 + GAP) / 1e6;
        let right = at(index as f64 + 1.0 - GAP) / 1e6;
        let since_navigation_ms = middle_us.saturating_sub(page.from_us) / 1_000;
        Picture {
            block: Block { x: (left, right), y: (0.0, 1.0) },
            jpeg_base64: frame.map_or_else(String::new, |frame| frame.jpeg.clone()),
            text: format!("after {since_navigation_ms} ms: {progress} % of the final screen"),
        }
    };
    let pictures = (0..count).map(picture).collect();
    Panel {
        title: String::new(),
        y: Axis::categorical(vec![String::new()]),
        height: if view.width < NARROW_WIDTH { PICTURE_HEIGHT * 0.6 } else { PICTURE_HEIGHT },
        layers: vec![Layer {
            name: String::new(),
            colour: Colour::Slate,
            shape: Shape::Pictures(pictures),
        }],
        rules: Vec::new(),
    }
}

/// The share of the pictures that could be seen; without pictures there is nothing to show.
fn arrived_panel(requests: &[&Span], page: &PageSpan) -> Option<Panel> {
    let rendered_us = page.rendered_us?;
    let is_picture = |span: &&&Span| span.part.as_ref().is_some_and(|part| part.kind == "image");
    let mut seen_us: Vec<u64> =
        requests.iter().filter(is_picture).map(|span| end_us(span).max(rendered_us)).collect();
    if seen_us.is_empty() {
        return None;
    }
    seen_us.sort_unstable();
    let share = |index: usize| 100.0 * index as f64 / seen_us.len() as f64;
    let mut steps = vec![(seconds(page.from_us), 0.0)];
    steps.extend(
        seen_us.iter().enumerate().map(|(index, at_us)| (seconds(*at_us), share(index + 1))),
    );
    steps.push((seconds(page.to_us), 100.0));
    Some(progress_of_screen("Pictures that could be seen, %", steps))
}

fn progress_of_screen(title: &str, steps: Vec<(f64, f64)>) -> Panel {
    Panel {
        title: title.into(),
        y: Axis::linear_exact(108.0, ""),
        height: PROGRESS_HEIGHT,
        layers: vec![Layer {
            name: String::new(),
            colour: Colour::Teal,
            shape: Shape::Steps(steps),
        }],
        rules: Vec::new(),
    }
}
