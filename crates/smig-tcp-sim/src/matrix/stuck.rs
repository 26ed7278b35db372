//! Cells in which bulk once stayed slow, or its queue long, for good. What counts is what is there after a while.

use smig_link::{DelayRamp, JitterSpec, Rate, RateSpec, RateStep, RateSteps};

use super::{NEVER, latecomer, ms, wifi, wired};
use crate::cell::{Cell, Responses};
use crate::congestion::Algorithm;
use crate::cross::CrossTraffic;

/// Links so slow that a round trip holds hardly a packet, with a queue of seconds.
fn slow_links() -> impl Iterator<Item = Cell> {
    let links = [
        (128, 100),
        (300, 20),
        (400, 10),
        (450, 10),
        (500, 10),
        (550, 10),
        (700, 10),
        (700, 20),
        (1_000, 5),
    ];
    // So slow that two packets, the least that a test leaves in flight, are more than the round trip's.
    let narrow = [(100, 10), (128, 5), (200, 5)];
    let slow = links.map(|(kbit, rtt_ms)| ("slow", kbit, rtt_ms));
    slow.into_iter().chain(narrow.map(|(kbit, rtt_ms)| ("narrow", kbit, rtt_ms))).map(
        |(kind, kbit, rtt_ms)| {
            let mut cell =
                wired(&format!("{kind}-{kbit}k-{rtt_ms}ms"), kbit, rtt_ms, 200, Algorithm::Cubic);
            cell.responses = Responses { bytes: 2_000, every: ms(2_097) };
            cell.measured = (ms(20_000), ms(80_000));
            cell
        },
    )
}

/// A path that is longer than the handshake was, without others.
fn short_handshakes() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (rtt_ms, handshake_ms) in [(100, 60), (120, 20), (200, 50)] {
        let name = format!("handshake-{handshake_ms}-of-{rtt_ms}");
        let mut cell = wired(&name, 10_000, rtt_ms, 200, Algorithm::Cubic);
        cell.handshake_rtt = Some(ms(handshake_ms));
        cells.push(cell);
    }
    for handshake_ms in [10, 25] {
        let mut cell = wifi(50, Algorithm::Cubic);
        cell.name = format!("handshake-{handshake_ms}-wifi/cubic");
        cell.handshake_rtt = Some(ms(handshake_ms));
        cells.push(cell);
    }
    for cell in &mut cells {
        cell.measured = (ms(20_000), ms(80_000));
    }
    cells
}

/// A path that becomes longer, in most cells several times, and then does not change.
fn longer_paths() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (mbit, rtt_ms, added_ms) in
        [(50, 20, 60), (30, 10, 40), (10, 25, 75), (10, 10, 590), (20, 20, 35)]
    {
        for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
            let name = format!("longer-{mbit}M-{rtt_ms}ms");
            let mut cell = wired(&name, mbit * 1_000, rtt_ms, 300, algorithm);
            let (step_increment, max_added) = (ms(added_ms), ms(added_ms));
            let ramp = DelayRamp { step_increment, step_interval: ms(12_000), max_added };
            cell.path.reverse.jitter = Some(JitterSpec::Ramp(ramp));
            cell.measured = (ms(40_000), ms(130_000));
            cells.push(cell);
        }
    }
    cells
}

/// Others' downloads with a deep queue, or over a long path.
fn beside_for_long() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (queue, start) in [(500, 900), (1_000, 500), (1_000, 900), (1_000, 1_300)] {
        let name = format!("together-{queue}-{start}");
        let mut cell = wired(&name, 10_000, 50, queue, Algorithm::Cubic);
        let algorithm = Algorithm::Cubic;
        cell.cross = vec![CrossTraffic::Download { algorithm, start: ms(start), end: NEVER }];
        cells.push(cell);
    }
    for (ours, theirs) in [
        (Algorithm::Cubic, Algorithm::Cubic),
        (Algorithm::Bbr, Algorithm::Bbr),
        (Algorithm::Bbr, Algorithm::Cubic),
    ] {
        let mut cell = latecomer(300, 250, ours, theirs);
        cell.bulk_start = ms(6_000);
        cells.push(cell);
    }
    let mut satellite = latecomer(600, 400, Algorithm::Cubic, Algorithm::Cubic);
    satellite.bulk_start = ms(10_000);
    cells.push(satellite);
    for cell in &mut cells {
        cell.measured = (ms(40_000), ms(160_000));
    }
    cells
}

/// Others that come and go, and such as do not yield.
fn restless_others() -> Vec<Cell> {
    let mut on_off = wired("on-off", 20_000, 40, 100, Algorithm::Cubic);
    on_off.cross = (1..30)
        .map(|number| CrossTraffic::Download {
            algorithm: Algorithm::Cubic,
            start: ms(number * 4_000),
            end: ms(number * 4_000 + 1_500),
        })
        .collect();
    let mut constant = wired("constant-80%", 10_000, 50, 80, Algorithm::Cubic);
    constant.cross = vec![CrossTraffic::ConstantRate(1_000_000)];
    let mut cells = vec![on_off, constant];
    for cell in &mut cells {
        cell.measured = (ms(10_000), ms(80_000));
    }
    cells
}

/// Others' download with a queue of many times the round trip, which small responses alone fill for a while.
fn deep_queues_on_short_paths() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (mbit, rtt_ms, queue) in [(20, 5, 1_000), (50, 5, 1_000), (20, 10, 300)] {
        let name = format!("deep-{mbit}M-{rtt_ms}ms-{queue}");
        let mut cell = wired(&name, mbit * 1_000, rtt_ms, queue, Algorithm::Cubic);
        let algorithm = Algorithm::Cubic;
        cell.cross = vec![CrossTraffic::Download { algorithm, start: ms(0), end: NEVER }];
        cell.measured = (ms(5_000), ms(40_000));
        cells.push(cell);
    }
    cells
}

/// Long paths on which others end after half a minute.
fn others_that_leave() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (rtt_ms, queue) in [(300, 250), (600, 400)] {
        for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
            let mut cell = latecomer(rtt_ms, queue, algorithm, algorithm);
            cell.name = cell.name.replace("late-", "leave-");
            cell.cross = vec![CrossTraffic::Download { algorithm, start: ms(0), end: ms(30_000) }];
            cell.bulk_start = ms(6_000);
            cell.measured = (ms(45_000), ms(110_000));
            cells.push(cell);
        }
    }
    cells
}

/// Links whose rate falls to a small part for good.
fn falling_rates() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (name, kbit) in [("falls-50M-1M", [50_000, 1_000]), ("falls-20M-2M", [20_000, 2_000])] {
        let mut cell = wired(name, kbit[0], 20, 300, Algorithm::Cubic);
        let step = |at, kbit| RateStep { at: ms(at), rate: Rate::kbit(kbit) };
        let steps = vec![step(0, kbit[0]), step(8_000, kbit[1])];
        cell.path.forward.rate = RateSpec::Steps(RateSteps { steps, period: None });
        cell.measured = (ms(12_000), ms(60_000));
        cells.push(cell);
    }
    cells
}

/// A path that becomes sixty times longer within two seconds, as the lab's link profile `slowdown`, from the download's beginning on.
fn growing_paths() -> Vec<Cell> {
    let mut cells = Vec::new();
    for algorithm in [Algorithm::Cubic, Algorithm::CubicHystart] {
        let mut cell = wired("growing", 80_000, 5, 1_333, algorithm);
        let ramp = DelayRamp { step_increment: ms(15), step_interval: ms(100), max_added: ms(300) };
        cell.path.forward.jitter = Some(JitterSpec::Ramp(ramp));
        (cell.first_response, cell.bulk_start) = (ms(0), ms(20));
        for (name, from, to) in [("begin", 500, 3_000), ("on", 3_000, 10_000)] {
            let mut cell = cell.clone();
            cell.name = cell.name.replace("growing", &format!("growing-{name}"));
            cell.measured = (ms(from), ms(to));
            cells.push(cell);
        }
    }
    cells
}

pub(super) fn cells() -> Vec<Cell> {
    let mut cells: Vec<_> = slow_links().collect();
    cells.extend(short_handshakes());
    cells.extend(longer_paths());
    cells.extend(beside_for_long());
    cells.extend(restless_others());
    cells.extend(deep_queues_on_short_paths());
    cells.extend(falling_rates());
    cells.extend(others_that_leave());
    cells.extend(growing_paths());
    cells
}
