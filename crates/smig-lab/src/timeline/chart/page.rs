//! Renders the chart as a page: the complete run, and a close-up of each migration.

use smig_chart::format_bytes;
use smig_chart::html::{Align, Page, Table};

use super::connections::Connections;
use super::svg_file::summary;
use super::{View, figure};
use crate::timeline::{AnnotationKind, Column, Timeline};

const DESKTOP_WIDTH: f64 = 1_092.0;
const PHONE_WIDTH: f64 = 360.0;
/// Time that a close-up shows before and after its migration.
const CLOSE_UP_BEFORE_US: u64 = 400_000;
const CLOSE_UP_AFTER_US: u64 = 800_000;
/// Maximum number of close-ups.
const MAX_CLOSE_UPS: usize = 6;

/// Renders the chart as one page that needs neither network access nor scripts.
#[must_use]
pub fn render_html(timeline: &Timeline) -> String {
    let mut page = Page::new(&timeline.head.title);
    page.lead(&summary(timeline));
    let wide_and_narrow = |view: View| {
        let at = |width| figure(timeline, &View { width, ..view }).to_element();
        (at(DESKTOP_WIDTH), at(PHONE_WIDTH))
    };
    let (wide, narrow) = wide_and_narrow(View::of_timeline(timeline, DESKTOP_WIDTH));
    page.chart(&wide, &narrow, CAPTION);
    let close_ups = close_ups(timeline);
    if !close_ups.is_empty() {
        page.heading("Details");
    }
    for (at_us, caption) in close_ups {
        let from_us = at_us.saturating_sub(CLOSE_UP_BEFORE_US);
        let view = View { from_us, to_us: at_us + CLOSE_UP_AFTER_US, width: DESKTOP_WIDTH };
        let (wide, narrow) = wide_and_narrow(view);
        page.chart(&wide, &narrow, &caption);
    }
    page.heading("Connections");
    page.table(&table(timeline));
    let facts: Vec<(&str, String)> =
        timeline.head.facts.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    if !facts.is_empty() {
        page.heading("About the run");
        page.facts(&facts);
    }
    page.finish()
}

const CAPTION: &str = "All panels share one clock. Bars: each request, pale until its first byte. \
    Queue: packets waiting for the emulated link, in the colours of their connections. Send \
    buffer: data of one connection that is sent and not acknowledged, and above it data not sent \
    yet; the line is the congestion window.";

/// Returns the first migration of each group that fits one close-up.
fn close_ups(timeline: &Timeline) -> Vec<(u64, String)> {
    let mut close_ups: Vec<(u64, String)> = Vec::new();
    let migrations =
        timeline.annotations.iter().filter(|mark| mark.kind == AnnotationKind::Migrate);
    for mark in migrations {
        if close_ups.last().is_none_or(|(at, _)| mark.at_us > at + CLOSE_UP_AFTER_US) {
            let seconds = mark.at_us as f64 / 1e6;
            close_ups.push((mark.at_us, format!("Around the migration at {seconds:.2} s")));
        }
    }
    close_ups.truncate(MAX_CLOSE_UPS);
    close_ups
}

fn table(timeline: &Timeline) -> Table {
    let columns = [
        ("connection", Align::Left),
        ("client address", Align::Left),
        ("congestion control", Align::Left),
        ("carried", Align::Right),
        ("retransmitted", Align::Right),
        ("minimum round-trip time", Align::Right),
        ("busy", Align::Right),
        ("limited by the receiver", Align::Right),
        ("limited by the send buffer", Align::Right),
    ];
    let row = |connection: &super::connections::Connection| {
        let track = connection.track(timeline);
        let last_value = |column| track.and_then(|track| track.last(column)).unwrap_or(0);
        let time = |column| format!("{:.2} s", last_value(column) as f64 / 1e6);
        vec![
            connection.number.to_string(),
            connection.name.to_string(),
            connection.congestion_controls.join(", then "),
            format_bytes(connection.carried_bytes),
            format_bytes(last_value(Column::RetransmittedBytes)),
            format!("{:.1} ms", last_value(Column::MinRttUs) as f64 / 1e3),
            time(Column::BusyUs),
            time(Column::ReceiverLimitedUs),
            time(Column::BufferLimitedUs),
        ]
    };
    Table {
        columns: columns.map(|(name, align)| (name.to_owned(), align)).to_vec(),
        rows: Connections::of(timeline).used_connections().map(row).collect(),
    }
}
