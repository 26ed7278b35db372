//! Each request as a bar, in the fewest rows without overlaps.

use smig_chart::svg::{Axis, Bar, Block, Colour, Layer, Marker, Panel, Point, Shape, Tint};
use smig_chart::{bytes, ms, number};

use super::connections::Connections;
use super::{View, seconds};
use crate::timeline::{Column, ConnectionName, Outcome, Span, Subject, Timeline, Track};

/// Height of a row.
const TALL: f64 = 15.0;
/// Number of rows above which further rows are lower.
const TALL_ROWS: usize = 8;
/// Maximum height of the panel.
const MOST: f64 = 170.0;
/// Minimum number of requests in a group for a series of their durations.
const MANY: usize = 5;
/// Gap between rows, as a share of a row.
const GAP: f64 = 0.16;

/// Builds the panel with at least `least_rows` rows.
pub(super) fn panel(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
    least_rows: usize,
) -> Option<Panel> {
    let spans = shown(timeline, view);
    let rows = pack(&spans);
    let count = (rows.iter().max()? + 1).max(least_rows);
    let mut bars: Vec<(Kind, Bar)> = Vec::new();
    for (span, row) in spans.iter().zip(&rows) {
        let top = (count - row) as f64;
        let y = (top - 1.0 + GAP, top - GAP);
        bars.extend(pieces(timeline, connections, span).into_iter().filter_map(|piece| {
            let from = piece.from_us.max(view.from_us);
            let to = piece.to_us.min(view.to_us);
            let block = Block { x: (seconds(from), seconds(to)), y };
            (from <= to).then(|| {
                (piece.kind, Bar { block, tint: piece.kind.tint(), tooltip: tooltip(span) })
            })
        }));
    }
    let height =
        TALL * count.min(TALL_ROWS) as f64 + TALL / 2.0 * count.saturating_sub(TALL_ROWS) as f64;
    Some(Panel {
        title: "Each request, until its last byte".into(),
        y: Axis::names(vec![String::new(); count]),
        height: height.clamp(2.0 * TALL, MOST),
        layers: layers(bars),
        rules: Vec::new(),
    })
}

/// Durations of groups of many requests. Single requests are visible enough as bars.
pub(super) fn times(timeline: &Timeline, connections: &Connections, view: &View) -> Option<Panel> {
    let shown = |span: &&Span| {
        let many = timeline.spans.iter().filter(|other| other.group == span.group).count() >= MANY;
        many && span.outcome == Outcome::Complete && view.holds(span.from_us)
    };
    let markers = [Marker::Circle, Marker::Square, Marker::Triangle];
    let mut layers: Vec<Layer> = Vec::new();
    let mut most = 0.0_f64;
    for span in timeline.spans.iter().filter(shown) {
        let by = span.connection.as_ref().and_then(|name| connections.by_name(name));
        let (colour, name) = by.map_or_else(
            || (Colour::Slate, span.group.clone()),
            |one| (one.colour, format!("{} on connection {}", span.group, one.number)),
        );
        let took = span.to_us.saturating_sub(span.from_us) as f64 / 1e3;
        most = most.max(took);
        let point = Point { x: seconds(span.from_us), y: took, tooltip: tooltip(span) };
        let at = layers.iter().position(|layer| layer.name == name).unwrap_or_else(|| {
            let marker = markers[layers.len() % markers.len()];
            layers.push(Layer { name, colour, shape: Shape::Dots(marker, Vec::new()) });
            layers.len() - 1
        });
        if let Shape::Dots(_, points) = &mut layers[at].shape {
            points.push(point);
        }
    }
    (!layers.is_empty()).then(|| Panel {
        title: "Duration of each request, ms".into(),
        y: Axis::linear_exact(most * 1.12, ""),
        height: 80.0,
        layers,
        rules: Vec::new(),
    })
}

/// Returns the number of rows that a timeline needs.
pub(super) fn rows(timeline: &Timeline, view: &View) -> usize {
    pack(&shown(timeline, view)).into_iter().max().map_or(0, |most| most + 1)
}

/// Sorts the long spans first, the others by time.
fn shown<'a>(timeline: &'a Timeline, view: &View) -> Vec<&'a Span> {
    let mut spans: Vec<&Span> = timeline
        .spans
        .iter()
        .filter(|span| span.from_us <= view.to_us && span.to_us >= view.from_us)
        .collect();
    let long = view.length_us() / 3;
    spans.sort_by_key(|span| (span.to_us - span.from_us.min(span.to_us) < long, span.from_us));
    spans
}

/// How a part of a request is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// No data yet; in the colour of the connection that carries the response.
    Waiting(Colour, usize),
    /// Data arrives on the connection of this number.
    Coming(Colour, usize),
    /// The connection is unknown.
    Unknown,
    /// The request was cancelled or failed.
    Ended,
}

impl Kind {
    const fn tint(self) -> Tint {
        match self {
            Self::Waiting(..) => Tint::Half,
            _ => Tint::Full,
        }
    }

    const fn colour(self) -> Colour {
        match self {
            Self::Waiting(colour, _) | Self::Coming(colour, _) => colour,
            Self::Unknown => Colour::Slate,
            Self::Ended => Colour::Vermilion,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Waiting(_, number) => format!("waiting on connection {number}"),
            Self::Coming(_, number) => format!("receiving on connection {number}"),
            Self::Unknown => "connection unknown".into(),
            Self::Ended => "cancelled or failed".into(),
        }
    }
}

struct Piece {
    from_us: u64,
    to_us: u64,
    kind: Kind,
}

/// Assigns each span the first free row.
fn pack(spans: &[&Span]) -> Vec<usize> {
    let mut free_from: Vec<u64> = Vec::new();
    let mut rows = Vec::with_capacity(spans.len());
    for span in spans {
        let row = free_from.iter().position(|free| *free <= span.from_us);
        let row = row.unwrap_or(free_from.len());
        free_from.resize(free_from.len().max(row + 1), 0);
        free_from[row] = span.to_us;
        rows.push(row);
    }
    rows
}

/// Splits a span by the connection that it waits for or receives from.
fn pieces(timeline: &Timeline, connections: &Connections, span: &Span) -> Vec<Piece> {
    let mut by: Vec<(u64, ConnectionName)> = changes(timeline, &span.name);
    if by.is_empty()
        && let Some(name) = &span.connection
    {
        by.push((span.from_us, name.clone()));
    }
    let first_byte = span.first_byte_us.unwrap_or(span.to_us).clamp(span.from_us, span.to_us);
    let kind = |name: &ConnectionName, waiting: bool| match connections.by_name(name) {
        Some(one) if waiting => Kind::Waiting(one.colour, one.number),
        Some(one) => Kind::Coming(one.colour, one.number),
        None => Kind::Unknown,
    };
    let begins: Vec<u64> = by.iter().map(|(at, _)| *at).skip(1).chain([span.to_us]).collect();
    let mut pieces = Vec::new();
    let mut from = span.from_us;
    for (index, ((_, name), end)) in by.iter().zip(begins).enumerate() {
        let end = end.clamp(from, span.to_us);
        if index == 0 && first_byte > from {
            let to_us = first_byte.min(end);
            pieces.push(Piece { from_us: from, to_us, kind: kind(name, true) });
            from = to_us;
        }
        if end > from {
            pieces.push(Piece { from_us: from, to_us: end, kind: kind(name, false) });
        }
        from = end;
    }
    if pieces.is_empty() {
        pieces.push(Piece { from_us: span.from_us, to_us: span.to_us, kind: Kind::Unknown });
    }
    if matches!(span.outcome, Outcome::Cancelled | Outcome::Failed) {
        // A stroke at its end, with a bar's minimum width.
        pieces.push(Piece { from_us: span.to_us, to_us: span.to_us, kind: Kind::Ended });
    }
    pieces
}

/// Returns the connections that carried a stream's bytes, with the times of the changes.
fn changes(timeline: &Timeline, stream: &str) -> Vec<(u64, ConnectionName)> {
    let tracks: Vec<(&ConnectionName, &Track)> = timeline
        .tracks
        .iter()
        .filter_map(|track| match &track.of {
            Subject::Stream { name, connection } if name == stream => Some((connection, track)),
            _ => None,
        })
        .collect();
    let mut steps: Vec<(u64, &ConnectionName)> = tracks
        .iter()
        .flat_map(|(name, track)| track.points(Column::CarriedBytes).map(|(at, _)| (at, *name)))
        .collect();
    steps.sort_by_key(|(at, _)| *at);
    steps.dedup_by_key(|(_, name)| *name);
    steps.into_iter().map(|(at, name)| (at, name.clone())).collect()
}

/// Groups bars into one layer per kind, in a fixed order for the legend.
fn layers(bars: Vec<(Kind, Bar)>) -> Vec<Layer> {
    let mut layers: Vec<(Kind, Vec<Bar>)> = Vec::new();
    for (kind, bar) in bars {
        match layers.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, bars)) => bars.push(bar),
            None => layers.push((kind, vec![bar])),
        }
    }
    let place = |kind: &Kind| match kind {
        Kind::Waiting(_, number) => 2 * number,
        Kind::Coming(_, number) => 2 * number + 1,
        Kind::Unknown => usize::MAX - 1,
        Kind::Ended => usize::MAX,
    };
    layers.sort_by_key(|(kind, _)| place(kind));
    layers
        .into_iter()
        .map(|(kind, bars)| Layer {
            name: kind.name(),
            colour: kind.colour(),
            shape: Shape::Bars(bars),
        })
        .collect()
}

fn tooltip(span: &Span) -> String {
    let took = span.to_us.saturating_sub(span.from_us) as f64 / 1e3;
    let outcome = match span.outcome {
        Outcome::Complete => "",
        Outcome::Cancelled => ", cancelled",
        Outcome::Failed => ", failed",
        Outcome::Unfinished => ", unfinished",
    };
    let at = number(seconds(span.from_us));
    format!("{}: {} in {} ms from {at} s{outcome}", span.name, bytes(span.bytes), ms(took))
}
