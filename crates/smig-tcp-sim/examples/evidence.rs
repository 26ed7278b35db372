//! When the samples of a download on one connection show that a single window is the limit, by cell: `cargo run --release -p
//! smig-tcp-sim --example evidence [NAME]`. Where one connection suffices they must not.

use std::time::Duration;

use smig_pace::{Backlog, ConnSample, SpreadControl, SpreadDecision, SpreadSample};
use smig_proto::Instant;
use smig_tcp_sim::{BulkConnection, BulkLimit, Cell, Sending, matrix};

/// Runs of a cell.
const SEEDS: u64 = 8;

/// Returns when evidence was there, after the download's start, and what it says.
fn evidence(cell: &Cell, limit: BulkLimit, seed: u64) -> Option<(Duration, String)> {
    let sending = Sending { has_bulk: true, connection: BulkConnection::Shared, limit };
    let backlog = if limit == BulkLimit::Bounded { Backlog::Paced } else { Backlog::Window };
    let mut control = SpreadControl::default();
    let (mut next, mut found) = (cell.bulk_start, None);
    let observe = |at: Duration, busiest: ConnSample| {
        if at < next || found.is_some() {
            return;
        }
        next = at + (busiest.rtt / 4).clamp(Duration::from_millis(5), Duration::from_millis(50));
        let left_bytes = 1 << 40;
        let sample = SpreadSample {
            busiest,
            backlog,
            all: busiest,
            left_bytes,
            streams: 6,
            lanes: 1,
            max_lanes: 4,
        };
        let now = Instant::from_nanos(at.as_nanos() as u64);
        if let Some(SpreadDecision::Spread(evidence)) = control.on_sample(now, &sample) {
            found = Some((at.saturating_sub(cell.bulk_start), evidence.to_string()));
        }
    };
    cell.sample(sending, seed, observe).expect("a valid link");
    found
}

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    for cell in matrix::cells().iter().filter(|cell| cell.name.contains(&name)) {
        for (label, limit) in [("plain", BulkLimit::LowUnsent), ("paced", BulkLimit::Bounded)] {
            let found: Vec<_> = (0..SEEDS).filter_map(|seed| evidence(cell, limit, seed)).collect();
            let mut times: Vec<u128> = found.iter().map(|(at, _)| at.as_millis()).collect();
            times.sort_unstable();
            let median =
                times.get(times.len() / 2).map_or_else(|| "-".into(), |ms| format!("{ms} ms"));
            let text = found.first().map_or("", |(_, text)| text.as_str());
            println!("{:40} {label} {}/{SEEDS} {median:>9} {text}", cell.name, found.len());
        }
    }
}
