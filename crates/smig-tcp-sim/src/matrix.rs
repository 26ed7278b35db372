//! The cells that the controller was developed with, by name.

mod stuck;

use std::time::Duration;

use smig_link::{
    AggregationSpec, DelayRamp, DirectionSpec, GilbertElliott, JitterSpec, LossSpec, LteSpec,
    NormalJitter, Qdisc, QueueLimit, Rate, RateSpec, RateStep, RateSteps, UniformJitter,
};

use crate::cell::{Cell, Responses};
use crate::congestion::Algorithm;
use crate::cross::CrossTraffic;
use crate::network::{PathPolicerSpec, PathSpec};
use crate::process::Schedule;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const BULK_START: Duration = ms(1_000);
const NEVER: Duration = Duration::from_secs(10_000);

/// Returns a wired link with a drop-tail queue, and the usual workload.
pub fn wired(name: &str, kbit: u64, rtt_ms: u64, queue: usize, algorithm: Algorithm) -> Cell {
    let rate = Rate::kbit(kbit);
    let half = Duration::from_micros(rtt_ms * 500);
    let seconds = if kbit >= 100_000 { 12 } else { 25 } + rtt_ms / 20;
    Cell {
        name: format!("{name}/{algorithm:?}").to_lowercase(),
        path: PathSpec {
            forward: DirectionSpec::new(rate, half, QueueLimit::packets(queue)),
            reverse: DirectionSpec::new(rate, half, QueueLimit::packets(queue.max(500))),
            policer: None,
            ack_interval: None,
        },
        algorithm,
        initial_window: 10,
        cross: Vec::new(),
        responses: Responses { bytes: 10_000, every: ms(397) },
        handshake_rtt: None,
        first_response: ms(200),
        bulk_start: BULK_START,
        bulk_bytes: None,
        schedule: None,
        measured: (ms(1_500), ms(1_000 * seconds)),
    }
}

/// Returns the lab's LTE-like link.
fn lte(algorithm: Algorithm) -> Cell {
    let mut cell = wired("lte", 12_000, 70, 500, algorithm);
    let rate = |mbit| RateSpec::Lte(LteSpec { mean: Rate::mbit(mbit), ..LteSpec::default() });
    cell.path.forward.rate = rate(12);
    cell.path.reverse.rate = rate(5);
    cell.measured.1 = ms(40_000);
    cell
}

/// Packets leave in bursts, between which others use the air.
fn bursty_air(algorithm: Algorithm) -> Cell {
    let mut cell = wired("bursty-air", 30_000, 20, 300, algorithm);
    let (mut at, mut steps, mut state) = (0, Vec::new(), 12_345_u64);
    for _ in 0..2_000 {
        // Of 2 to 8 ms, the first three quarters belong to others.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let micros = 2_000 + (state >> 33) % 6_000;
        steps.push(RateStep { at: Duration::from_micros(at), rate: Rate::kbit(1) });
        let on = Duration::from_micros(at + micros * 3 / 4);
        steps.push(RateStep { at: on, rate: Rate::mbit(120) });
        at += micros;
    }
    cell.path.forward.rate =
        RateSpec::Steps(RateSteps { steps, period: Some(Duration::from_micros(at)) });
    cell
}

/// Packets arrive in bursts, and the delay varies in both directions, as in the lab's matrix.
fn wifi(rtt_ms: u64, algorithm: Algorithm) -> Cell {
    let packets = usize::try_from(rtt_ms * 10).unwrap_or(usize::MAX);
    let mut cell = wired(&format!("wifi-{rtt_ms}ms"), 30_000, rtt_ms, packets, algorithm);
    let jitter = UniformJitter { width: ms(8), redraw_interval: ms(20) };
    for direction in [&mut cell.path.forward, &mut cell.path.reverse] {
        direction.aggregation = Some(AggregationSpec { min: ms(2), max: ms(8) });
        direction.jitter = Some(JitterSpec::Uniform(jitter));
    }
    cell
}

/// Delays vary, and after eight seconds the path becomes longer by 60 ms.
fn longer_wifi(algorithm: Algorithm) -> Cell {
    let mut cell = wifi(50, algorithm);
    cell.name = cell.name.replace("50ms", "50ms-longer");
    let ramp = DelayRamp { step_increment: ms(60), step_interval: ms(8_000), max_added: ms(60) };
    cell.path.reverse.jitter = Some(JitterSpec::Ramp(ramp));
    cell.measured = (ms(10_000), ms(40_000));
    cell
}

/// The rate changes each five seconds.
fn steps(name: &str, kbit: [u64; 2], algorithm: Algorithm) -> Cell {
    let mut cell = wired(name, kbit[0], 50, 160, algorithm);
    let step =
        |index: usize| RateStep { at: ms(5_000 * index as u64), rate: Rate::kbit(kbit[index]) };
    cell.path.forward.rate =
        RateSpec::Steps(RateSteps { steps: vec![step(0), step(1)], period: Some(ms(10_000)) });
    cell
}

/// Returns a link of 10 Mbit/s and 50 ms on which others' download begins after `start_ms` and does not end.
#[must_use]
pub fn beside(
    name: &str,
    queue: usize,
    algorithm: Algorithm,
    other: Algorithm,
    start_ms: u64,
) -> Cell {
    let mut cell = wired(name, 10_000, 50, queue, algorithm);
    cell.name = format!("{name}/{algorithm:?}+{other:?}").to_lowercase();
    let download = CrossTraffic::Download { algorithm: other, start: ms(start_ms), end: NEVER };
    cell.cross = vec![download];
    cell.bulk_start = ms(5_000);
    cell.measured = (ms(10_000), ms(45_000));
    cell
}

/// Returns a link of 10 Mbit/s on which a download of others has filled the queue for a second when ours begins, and whose
/// first seconds count.
#[must_use]
pub fn latecomer(rtt_ms: u64, queue: usize, algorithm: Algorithm, other: Algorithm) -> Cell {
    let mut cell = wired("late", 10_000, rtt_ms, queue, algorithm);
    cell.name = format!("late-{rtt_ms}ms-{queue}/{algorithm:?}+{other:?}").to_lowercase();
    cell.cross = vec![CrossTraffic::Download { algorithm: other, start: ms(0), end: NEVER }];
    cell.measured = (BULK_START, ms(13_000));
    cell
}

/// A download of others beside ours on a fast link with a short queue. `start_ms` is when theirs begins, `measured` when it
/// counts.
fn beside_fast(
    name: &str,
    queue: usize,
    algorithm: Algorithm,
    other: Algorithm,
    start_ms: u64,
    measured: (u64, u64),
) -> Cell {
    let mut cell = wired(name, 30_000, 50, queue, algorithm);
    cell.name = format!("{name}/{algorithm:?}+{other:?}").to_lowercase();
    cell.cross = vec![CrossTraffic::Download { algorithm: other, start: ms(start_ms), end: NEVER }];
    cell.measured = (ms(measured.0), ms(measured.1));
    cell
}

fn changed(mut cell: Cell, change: impl FnOnce(&mut Cell)) -> Cell {
    change(&mut cell);
    cell
}

/// Wired links without others.
fn plain_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        cells.extend([
            wired("10M-50ms-80", 10_000, 50, 80, algorithm),
            wired("10M-50ms-1000", 10_000, 50, 1_000, algorithm),
            wired("10M-50ms-20", 10_000, 50, 20, algorithm),
            wired("30M-10ms-200", 30_000, 10, 200, algorithm),
            wired("100M-20ms-300", 100_000, 20, 300, algorithm),
            wired("100M-80ms-1000", 100_000, 80, 1_000, algorithm),
            wired("2M-50ms-60", 2_000, 50, 60, algorithm),
            wired("1M-80ms-60", 1_000, 80, 60, algorithm),
            wired("10M-600ms-400", 10_000, 600, 400, algorithm),
            wired("10M-200ms-160", 10_000, 200, 160, algorithm),
        ]);
    }
    cells.push(wired("10M-50ms-80", 10_000, 50, 80, Algorithm::Reno));
    cells.push(wired("10M-50ms-80", 10_000, 50, 80, Algorithm::CubicHystart));
    cells.push(wired("500M-5ms-1000", 500_000, 5, 1_000, Algorithm::Cubic));
    cells
}

/// Loss, queue disciplines, policers, rates that vary, workloads, processes that starve.
fn odd_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        let base = |name: &str| wired(name, 10_000, 50, 80, algorithm);
        let loss = |name: &str, loss| changed(base(name), |c| c.path.forward.loss = Some(loss));
        cells.extend([
            lte(algorithm),
            bursty_air(algorithm),
            wifi(50, algorithm),
            wifi(20, algorithm),
            longer_wifi(algorithm),
            steps("halve", [20_000, 10_000], algorithm),
            steps("tenth", [20_000, 2_000], algorithm),
            loss("loss-1%", LossSpec::Random(0.01)),
            loss("loss-6%", LossSpec::Random(0.06)),
            loss("loss-0.1%", LossSpec::Random(0.001)),
            loss(
                "loss-bursts",
                LossSpec::Bursts(GilbertElliott {
                    good_to_bad: 0.25 / 99.0,
                    bad_to_good: 0.25,
                    loss_bad: 1.0,
                    loss_good: 0.0,
                }),
            ),
            changed(base("codel"), |c| {
                c.path.forward.discipline = Qdisc::codel();
                c.path.forward.queue = QueueLimit::packets(1_000);
            }),
            changed(base("fq-codel"), |c| {
                c.path.forward.discipline = Qdisc::fq_codel();
                c.path.forward.queue = QueueLimit::packets(1_000);
            }),
            changed(wired("policer", 100_000, 50, 300, algorithm), |c| {
                c.path.policer = Some(PathPolicerSpec { rate: 1_250_000, burst: 60_000 });
            }),
            changed(base("thinned-acks"), |c| c.path.ack_interval = Some(ms(20))),
            changed(base("jitter"), |c| {
                let normal = NormalJitter { deviation: ms(10), redraw_interval: ms(100) };
                c.path.forward.jitter = Some(JitterSpec::Normal(normal));
            }),
            changed(base("handover"), |c| {
                let ramp = DelayRamp {
                    step_increment: ms(60),
                    step_interval: ms(8_000),
                    max_added: ms(60),
                };
                c.path.forward.jitter = Some(JitterSpec::Ramp(ramp));
            }),
            changed(wired("game", 30_000, 40, 250, algorithm), |c| {
                c.responses = Responses { bytes: 300, every: ms(3) };
            }),
            changed(wired("pages", 10_000, 50, 42, algorithm), |c| {
                c.responses = Responses { bytes: 400_000, every: ms(3_300) };
            }),
            changed(base("starved"), |c| {
                c.schedule = Some(Schedule { run: ms(10), period: ms(150) });
            }),
            changed(base("short-flows"), |c| c.cross = vec![CrossTraffic::ShortFlows]),
            changed(base("constant-30%"), |c| {
                c.cross = vec![CrossTraffic::ConstantRate(375_000)];
            }),
        ]);
    }
    cells
}

/// Fast links that lose packets, with a queue of one bandwidth-delay product.
fn fast_lossy_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (mbit, rtts) in [(100, [5, 20, 80]), (500, [5, 20, 50])] {
        for (rtt_ms, loss) in rtts.into_iter().flat_map(|rtt| [(rtt, 0.001), (rtt, 0.01)]) {
            for algorithm in [Algorithm::Cubic, Algorithm::Reno, Algorithm::Bbr] {
                let name = format!("lossy-{mbit}M-{rtt_ms}ms-{}%", loss * 100.0);
                let packets = usize::try_from(mbit * rtt_ms / 12).unwrap_or(usize::MAX);
                let mut cell = wired(&name, mbit * 1_000, rtt_ms, packets, algorithm);
                cell.path.forward.loss = Some(LossSpec::Random(loss));
                cells.push(cell);
            }
        }
    }
    cells
}

/// Round trips by satellite, and a queue of seconds.
fn long_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        cells.push(wired("1M-600ms-50", 1_000, 600, 50, algorithm));
        for (mbit, packets) in [(10, 2_000), (30, 6_000)] {
            let name = format!("{mbit}M-600ms-codel");
            let mut cell = wired(&name, mbit * 1_000, 600, packets, algorithm);
            cell.path.forward.discipline = Qdisc::codel();
            cells.push(cell);
        }
        cells.push(wired("1M-20ms-1000", 1_000, 20, 1_000, algorithm));
    }
    let mut deep = beside("theirs-first-1M-1000", 1_000, Algorithm::Cubic, Algorithm::Cubic, 0);
    for direction in [&mut deep.path.forward, &mut deep.path.reverse] {
        direction.rate = RateSpec::Constant(Rate::kbit(1_000));
    }
    cells.push(deep);
    cells
}

/// Queues that hold hardly more than a small response.
fn short_queue_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Bbr] {
        cells.extend([
            wired("short-1M-20ms-7", 1_000, 20, 7, algorithm),
            wired("short-1M-200ms-9", 1_000, 200, 9, algorithm),
            wired("short-2M-5ms-4", 2_000, 5, 4, algorithm),
            wired("short-10M-5ms-17", 10_000, 5, 17, algorithm),
            wired("short-10M-20ms-9", 10_000, 20, 9, algorithm),
            wired("short-10M-50ms-12", 10_000, 50, 12, algorithm),
        ]);
    }
    cells
}

/// Fast links, and a process that waits for a CPU.
fn busy_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (mbit, rtt_ms) in [(100, 20), (500, 5), (500, 20), (500, 50)] {
        for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
            let packets = usize::try_from(mbit * rtt_ms / 12).unwrap_or(usize::MAX);
            let name = format!("busy-{mbit}M-{rtt_ms}ms");
            let mut cell = wired(&name, mbit * 1_000, rtt_ms, packets, algorithm);
            cell.schedule = Some(Schedule { run: ms(1), period: ms(6) });
            cells.push(cell);
        }
    }
    cells
}

/// Others' downloads.
fn neighbour_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (ours, theirs) in [
        (Algorithm::Cubic, Algorithm::Cubic),
        (Algorithm::Bbr, Algorithm::Bbr),
        (Algorithm::Cubic, Algorithm::Bbr),
        (Algorithm::Bbr, Algorithm::Cubic),
        (Algorithm::Cubic, Algorithm::Reno),
    ] {
        for (name, queue, start) in [
            ("theirs-first-80", 80, 0),
            ("ours-first-80", 80, 8_000),
            ("theirs-first-500", 500, 0),
            ("ours-first-500", 500, 8_000),
        ] {
            cells.push(beside(name, queue, ours, theirs, start));
        }
        // About one, one and a half and twelve bandwidth-delay products; one with other round trips.
        for (rtt_ms, queue) in [(50, 42), (50, 60), (50, 500), (20, 17), (100, 84)] {
            cells.push(latecomer(rtt_ms, queue, ours, theirs));
        }
        // A connection that has never seen the path without others.
        let mut met = latecomer(50, 42, ours, theirs);
        met.name = met.name.replace("42", "42-met");
        (met.handshake_rtt, met.first_response) = (Some(ms(75)), ms(1_600));
        cells.push(met);
        // Half a bandwidth-delay product.
        cells.push(beside_fast("late-30m-62", 62, ours, theirs, 0, (1_000, 13_000)));
        cells.push(beside_fast("first-30m-62", 62, ours, theirs, 3_000, (3_000, 13_000)));
    }
    cells
}

/// Downloads of a fixed size, alone.
fn size_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        for (bytes, name) in [(1_000_000, "1MB"), (10_000_000, "10MB"), (50_000_000, "50MB")] {
            for (link, kbit, rtt, queue) in
                [("10M", 10_000, 50, 80), ("30M", 30_000, 40, 500), ("100M", 100_000, 80, 1_000)]
            {
                let mut cell = wired(&format!("{name}-{link}"), kbit, rtt, queue, algorithm);
                cell.bulk_bytes = Some(bytes);
                cell.measured = (BULK_START, ms(90_000));
                cells.push(cell);
            }
        }
    }
    cells
}

/// A download of a megabyte on a connection whose window other responses have opened.
fn warm_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        for (name, kbit, rtt, queue) in [
            ("warm-10M", 10_000, 50, 80),
            ("warm-30M", 30_000, 40, 500),
            ("warm-100M", 100_000, 80, 1_000),
        ] {
            let mut cell = wired(name, kbit, rtt, queue, algorithm);
            cell.responses = Responses { bytes: 400_000, every: ms(1_000) };
            (cell.bulk_start, cell.bulk_bytes) = (ms(8_700), Some(1_000_000));
            cell.measured = (ms(8_700), ms(30_000));
            cells.push(cell);
        }
    }
    cells
}

/// All of them.
#[must_use]
pub fn cells() -> Vec<Cell> {
    [
        plain_cells(),
        odd_cells(),
        fast_lossy_cells(),
        long_cells(),
        short_queue_cells(),
        busy_cells(),
        neighbour_cells(),
        size_cells(),
        warm_cells(),
        stuck::cells(),
    ]
    .concat()
}
