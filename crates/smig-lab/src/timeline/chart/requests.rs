//! Each request as a bar, in as few rows as possible without overlaps.

use smig_chart::svg::{Axis, Bar, Block, Colour, Layer, Marker, Panel, Point, Shape, Tint};
use smig_chart::{format_bytes, format_ms, format_number};

use super::connections::Connections;
use super::{View, seconds};
use crate::timeline::{Column, ConnectionName, Span, SpanOutcome, Subject, Timeline, Track};

/// Height of a row.
const ROW_HEIGHT: f64 = 15.0;
/// Number of rows with full height; further ones have half.
const MAX_FULL_ROWS: usize = 8;
/// Maximum height of the panel.
const MAX_PANEL_HEIGHT: f64 = 170.0;
/// Minimum number of requests in a group for a series of their durations.
const MIN_GROUP_REQUESTS: usize = 5;
/// Gap between rows, as a share of a row.
const ROW_GAP: f64 = 0.16;

/// Builds the panel with at least `min_rows` rows.
pub(super) fn requests_panel(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
    min_rows: usize,
) -> Option<Panel> {
    let spans = visible_spans(timeline, view);
    let rows = assign_rows(&spans);
    let count = (rows.iter().max()? + 1).max(min_rows);
    let mut bars: Vec<(PieceKind, Bar)> = Vec::new();
    for (span, row) in spans.iter().zip(&rows) {
        let top = (count - row) as f64;
        let y = (top - 1.0 + ROW_GAP, top - ROW_GAP);
        bars.extend(pieces(timeline, connections, span).into_iter().filter_map(|piece| {
            let from_us = piece.from_us.max(view.from_us);
            let to_us = piece.to_us.min(view.to_us);
            let block = Block { x: (seconds(from_us), seconds(to_us)), y };
            (from_us <= to_us).then(|| {
                (piece.kind, Bar { block, tint: piece.kind.tint(), tooltip: tooltip(span) })
            })
        }));
    }
    let height = ROW_HEIGHT * count.min(MAX_FULL_ROWS) as f64
        + ROW_HEIGHT / 2.0 * count.saturating_sub(MAX_FULL_ROWS) as f64;
    Some(Panel {
        title: "Each request, until its last byte".into(),
        y: Axis::categorical(vec![String::new(); count]),
        height: height.clamp(2.0 * ROW_HEIGHT, MAX_PANEL_HEIGHT),
        layers: layers(bars),
        rules: Vec::new(),
    })
}

/// Durations of groups of many requests. Single requests are visible enough as bars.
pub(super) fn durations_panel(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let is_shown = |span: &&Span| {
        let is_large_group =
            timeline.spans.iter().filter(|other| other.group == span.group).count()
                >= MIN_GROUP_REQUESTS;
        is_large_group && span.outcome == SpanOutcome::Complete && view.contains(span.from_us)
    };
    let markers = [Marker::Circle, Marker::Square, Marker::Triangle];
    let mut layers: Vec<Layer> = Vec::new();
    let mut longest_ms = 0.0_f64;
    for span in timeline.spans.iter().filter(is_shown) {
        let connection = span.connection.as_ref().and_then(|name| connections.by_name(name));
        let (colour, name) = connection.map_or_else(
            || (Colour::Slate, span.group.clone()),
            |one| (one.colour, format!("{} on connection {}", span.group, one.number)),
        );
        let duration_ms = span.to_us.saturating_sub(span.from_us) as f64 / 1e3;
        longest_ms = longest_ms.max(duration_ms);
        let point = Point { x: seconds(span.from_us), y: duration_ms, tooltip: tooltip(span) };
        let layer_index = layers.iter().position(|layer| layer.name == name).unwrap_or_else(|| {
            let marker = markers[layers.len() % markers.len()];
            layers.push(Layer { name, colour, shape: Shape::Dots(marker, Vec::new()) });
            layers.len() - 1
        });
        if let Shape::Dots(_, points) = &mut layers[layer_index].shape {
            points.push(point);
        }
    }
    (!layers.is_empty()).then(|| Panel {
        title: "Duration of each request, ms".into(),
        y: Axis::linear_exact(longest_ms * 1.12, ""),
        height: 80.0,
        layers,
        rules: Vec::new(),
    })
}

/// Returns the number of rows that a timeline needs.
pub(super) fn row_count(timeline: &Timeline, view: &View) -> usize {
    assign_rows(&visible_spans(timeline, view)).into_iter().max().map_or(0, |most| most + 1)
}

/// Returns the spans within the view: long ones first, then by time.
fn visible_spans<'a>(timeline: &'a Timeline, view: &View) -> Vec<&'a Span> {
    let mut spans: Vec<&Span> = timeline
        .spans
        .iter()
        .filter(|span| span.from_us <= view.to_us && span.to_us >= view.from_us)
        .collect();
    let min_long_us = view.length_us() / 3;
    spans.sort_by_key(|span| {
        (span.to_us - span.from_us.min(span.to_us) < min_long_us, span.from_us)
    });
    spans
}

/// How a part of a request is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PieceKind {
    /// No data yet; in the colour of the connection that carries the response.
    Waiting(Colour, usize),
    /// Data arrives on the connection of this number.
    Receiving(Colour, usize),
    /// The connection is unknown.
    Unknown,
    /// The request was cancelled or failed.
    Aborted,
}

impl PieceKind {
    const fn tint(self) -> Tint {
        match self {
            Self::Waiting(..) => Tint::Half,
            _ => Tint::Full,
        }
    }

    const fn colour(self) -> Colour {
        match self {
            Self::Waiting(colour, _) | Self::Receiving(colour, _) => colour,
            Self::Unknown => Colour::Slate,
            Self::Aborted => Colour::Vermilion,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Waiting(_, number) => format!("waiting on connection {number}"),
            Self::Receiving(_, number) => format!("receiving on connection {number}"),
            Self::Unknown => "connection unknown".into(),
            Self::Aborted => "cancelled or failed".into(),
        }
    }
}

struct SpanPiece {
    from_us: u64,
    to_us: u64,
    kind: PieceKind,
}

/// Assigns each span the first free row.
fn assign_rows(spans: &[&Span]) -> Vec<usize> {
    let mut free_from_us: Vec<u64> = Vec::new();
    let mut rows = Vec::with_capacity(spans.len());
    for span in spans {
        let row = free_from_us.iter().position(|free| *free <= span.from_us);
        let row = row.unwrap_or(free_from_us.len());
        free_from_us.resize(free_from_us.len().max(row + 1), 0);
        free_from_us[row] = span.to_us;
        rows.push(row);
    }
    rows
}

/// Splits a span by the connection that it waits for or receives from.
fn pieces(timeline: &Timeline, connections: &Connections, span: &Span) -> Vec<SpanPiece> {
    let mut changes: Vec<(u64, ConnectionName)> = connection_changes(timeline, &span.name);
    if changes.is_empty()
        && let Some(name) = &span.connection
    {
        changes.push((span.from_us, name.clone()));
    }
    let first_byte_us = span.first_byte_us.unwrap_or(span.to_us).clamp(span.from_us, span.to_us);
    let kind = |name: &ConnectionName, is_waiting: bool| match connections.by_name(name) {
        Some(one) if is_waiting => PieceKind::Waiting(one.colour, one.number),
        Some(one) => PieceKind::Receiving(one.colour, one.number),
        None => PieceKind::Unknown,
    };
    let ends_us: Vec<u64> = changes.iter().map(|(at, _)| *at).skip(1).chain([span.to_us]).collect();
    let mut pieces = Vec::new();
    let mut from_us = span.from_us;
    for (index, ((_, name), end_us)) in changes.iter().zip(ends_us).enumerate() {
        let end_us = end_us.clamp(from_us, span.to_us);
        if index == 0 && first_byte_us > from_us {
            let to_us = first_byte_us.min(end_us);
            pieces.push(SpanPiece { from_us, to_us, kind: kind(name, true) });
            from_us = to_us;
        }
        if end_us > from_us {
            pieces.push(SpanPiece { from_us, to_us: end_us, kind: kind(name, false) });
        }
        from_us = end_us;
    }
    if pieces.is_empty() {
        pieces.push(SpanPiece {
            from_us: span.from_us,
            to_us: span.to_us,
            kind: PieceKind::Unknown,
        });
    }
    if matches!(span.outcome, SpanOutcome::Cancelled | SpanOutcome::Failed) {
        // A stroke at its end, with a bar's minimum width.
        pieces.push(SpanPiece { from_us: span.to_us, to_us: span.to_us, kind: PieceKind::Aborted });
    }
    pieces
}

/// Returns the connections that carried a stream's bytes, with the times of the changes.
fn connection_changes(timeline: &Timeline, stream: &str) -> Vec<(u64, ConnectionName)> {
    let tracks: Vec<(&ConnectionName, &Track)> = timeline
        .tracks
        .iter()
        .filter_map(|track| match &track.subject {
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
fn layers(bars: Vec<(PieceKind, Bar)>) -> Vec<Layer> {
    let mut layers: Vec<(PieceKind, Vec<Bar>)> = Vec::new();
    for (kind, bar) in bars {
        match layers.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, bars)) => bars.push(bar),
            None => layers.push((kind, vec![bar])),
        }
    }
    let legend_order = |kind: &PieceKind| match kind {
        PieceKind::Waiting(_, number) => 2 * number,
        PieceKind::Receiving(_, number) => 2 * number + 1,
        PieceKind::Unknown => usize::MAX - 1,
        PieceKind::Aborted => usize::MAX,
    };
    layers.sort_by_key(|(kind, _)| legend_order(kind));
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
    let duration_ms = span.to_us.saturating_sub(span.from_us) as f64 / 1e3;
    let outcome = match span.outcome {
        SpanOutcome::Complete => "",
        SpanOutcome::Cancelled => ", cancelled",
        SpanOutcome::Failed => ", failed",
        SpanOutcome::Unfinished => ", unfinished",
    };
    let at = format_number(seconds(span.from_us));
    format!(
        "{}: {} in {} ms from {at} s{outcome}",
        span.name,
        format_bytes(span.bytes),
        format_ms(duration_ms)
    )
}
