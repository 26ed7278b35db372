//! Synthetic results for tests and previews of the output. Not measurements.

use std::time::Duration;

use smig_link::LatenessSummary;
use smig_link::{DirectionCounters, LinkReport, LinkSpec, Scheduling};

use super::data::{
    BackgroundLoad, BigFileSample, ConnectionBytes, ConnectionId, DemoResult, DemoSetup, Migration,
    SmallObject, Variant,
};
use super::recorder::{DemoEvent, DemoRecorder};

const OBJECT_INTERVAL: Duration = Duration::from_millis(500);
const UNLOADED_OBJECTS: u32 = 6;

/// A typical setup.
pub fn setup() -> DemoSetup {
    DemoSetup {
        link: LinkSpec::paper_wired(),
        variants: Variant::ALL.to_vec(),
        congestion_control: "cubic".into(),
        bulk_congestion_control: Some("bbr".into()),
        max_bulk_deferral: Duration::from_millis(40),
        object_bytes: 10_000,
        object_interval: OBJECT_INTERVAL,
        big_file_bytes: 20_000_000,
        sample_interval: OBJECT_INTERVAL,
        program: "smig 0.1.0".into(),
        kernel: "Linux 6.18".into(),
    }
}

/// A result with a complete run of each variant.
pub fn result() -> DemoResult {
    let mut recorder = DemoRecorder::new(setup());
    for event in Variant::ALL.into_iter().flat_map(events) {
        recorder.apply(&event);
    }
    recorder.finish()
}

/// The events of one run, in chronological order.
pub fn events(variant: Variant) -> Vec<DemoEvent> {
    let mut events = vec![DemoEvent::RunStarted(variant)];
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15 ^ variant as u64);
    let (mut now, mut remaining_bytes, mut migrations) =
        (Duration::ZERO, setup().big_file_bytes, 0);
    for step in 0.. {
        let load = if step < UNLOADED_OBJECTS {
            BackgroundLoad::Unloaded
        } else {
            BackgroundLoad::BigFile
        };
        if step == UNLOADED_OBJECTS {
            events.push(DemoEvent::BigFileStarted(now));
        }
        let steps_since_big_file = f64::from(step.saturating_sub(UNLOADED_OBJECTS));
        let duration_ms = match (load, variant) {
            (BackgroundLoad::Unloaded, _) => 60.0 + 4.0 * noise.next(),
            (_, Variant::PlainHttp2) => {
                90.0 + 1_200.0 * (steps_since_big_file / 10.0).min(1.0) + 900.0 * noise.next()
            }
            (_, Variant::NotsentLowat) => 120.0 + 120.0 * noise.next(),
            (_, Variant::Serve | Variant::Smig) => 64.0 + 25.0 * noise.next() * noise.next(),
        };
        let duration = Duration::from_secs_f64(duration_ms / 1e3);
        events.push(DemoEvent::Object(SmallObject { requested_at: now, duration, load }));
        now += OBJECT_INTERVAL;
        if load == BackgroundLoad::BigFile {
            let capacity_bytes = (590_000.0 * (steps_since_big_file / 3.0).clamp(0.3, 1.0)
                - 10_000.0 * noise.next()) as u64;
            let is_on_first = variant != Variant::Smig || steps_since_big_file < 2.0;
            if !is_on_first && migrations == 0 {
                migrations = 1;
                let (from, to) = (ConnectionId(1), ConnectionId(2));
                events.push(DemoEvent::Migrated(Migration {
                    observed_at: now - OBJECT_INTERVAL / 2,
                    from,
                    to,
                }));
            }
            let connection = ConnectionId(if is_on_first { 1 } else { 2 });
            let bytes = capacity_bytes.min(remaining_bytes);
            remaining_bytes -= bytes;
            events.push(DemoEvent::BigFileBytes(BigFileSample {
                interval_end: now,
                connection,
                bytes,
            }));
        }
        if remaining_bytes == 0 {
            break;
        }
    }
    events.push(DemoEvent::BigFileFinished(now - OBJECT_INTERVAL / 4));
    let connection_bytes =
        |connection, bytes| ConnectionBytes { connection: ConnectionId(connection), bytes };
    let connections = match variant {
        Variant::Smig => vec![connection_bytes(1, 1_190_000), connection_bytes(2, 19_230_000)],
        _ => vec![connection_bytes(1, 20_420_000)],
    };
    events.push(DemoEvent::RunFinished { connections, link: Some(Box::new(link_report())) });
    events
}

pub(crate) fn link_report() -> LinkReport {
    let counters = DirectionCounters {
        delivered_packets: 14_123,
        delivered_bytes: 21_000_000,
        dropped_packets: 12,
        max_queue_packets: 75,
        ..DirectionCounters::default()
    };
    let micros = Duration::from_micros;
    LinkReport {
        to_client: counters,
        to_server: DirectionCounters::default(),
        lateness: LatenessSummary {
            packets: 20_000,
            p50: micros(39),
            p99: micros(109),
            max: micros(526),
        },
        scheduling: Scheduling::RealTime,
    }
}

/// Pseudorandom numbers between 0 and 1, the same in every test run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f64 / f64::from(1 << 24)
    }
}
