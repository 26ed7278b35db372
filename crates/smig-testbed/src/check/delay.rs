//! Delay through an empty link, compared with the model packet by packet.
//!
//! A packet's error is the time from sending to its arrival at the link, plus
//! the time from its due time to its reception. The model computes the due time
//! from the arrival at the link, in virtual time. A policer is disabled: the probes
//! that it drops would be missing in the comparison.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use smig_link::{DirectionSpec, Link, LinkEvent, LinkEventKind, LinkLog, LinkSpec, Packet, Time};

use super::flow::{Flow, FlowSpec, ReceivedPacket, SenderLog};
use super::{CheckError, CheckOptions, DelayCheck, HostTiming, wait_until_empty};
use crate::netns::{Direction, Testbed, seed_of};

/// Size of a probe's IP packet.
const PROBE_BYTES: usize = 100;
/// Minimum time between probes.
const MIN_PROBE_GAP: Duration = Duration::from_millis(10);
/// Maximum share of a link's rate used by probes.
const MAX_PROBE_SHARE: f64 = 0.1;

pub(super) fn measure(
    link: &LinkSpec,
    options: &CheckOptions,
    timing: &mut HostTiming,
) -> Result<[DelayCheck; 2], CheckError> {
    let mut link = link.clone();
    (link.to_client.policer, link.to_server.policer) = (None, None);
    let logs = [Arrivals::default(), Arrivals::default()];
    let testbed = Testbed::builder(link.clone())
        .seed(options.seed)
        .log_to_client(Box::new(logs[0].clone()))
        .log_to_server(Box::new(logs[1].clone()))
        .start()?;
    let (server, client) = (testbed.server(), testbed.client());
    let probes = |direction: &DirectionSpec| {
        let rate = direction.rate.mean_bits_per_second() as f64;
        let gap = Duration::from_secs_f64(PROBE_BYTES as f64 * 8.0 / rate / MAX_PROBE_SHARE);
        FlowSpec { bytes: PROBE_BYTES, gap: gap.max(MIN_PROBE_GAP), duration: options.duration }
    };
    let down = Flow::start(server, client, client.address(), probes(&link.to_client))?;
    let up = Flow::start(client, server, server.address(), probes(&link.to_server))?;
    let (down, up) = (down.wait_until_sent()?, up.wait_until_sent()?);
    wait_until_empty(&testbed)?;
    let results = [(down.0, down.1.stop()?), (up.0, up.1.stop()?)];
    let (mut checks, mut missing_packets) = ([DelayCheck::default(); 2], 0);
    let directions =
        [(Direction::ToClient, &link.to_client), (Direction::ToServer, &link.to_server)];
    for (index, ((direction, spec), (sender_log, received_packets))) in
        directions.into_iter().zip(&results).enumerate()
    {
        let mut model = Link::new(spec, seed_of(options.seed, 0, direction))
            .map_err(crate::netns::TestbedError::Link)?;
        model.start_at(testbed.origin());
        let arrivals = logs[index].take();
        let missing;
        (checks[index], missing) = compare(sender_log, &arrivals, received_packets, &mut model);
        missing_packets += missing;
    }
    timing.record(&testbed, [&results[0].0.lateness, &results[1].0.lateness], missing_packets)?;
    Ok(checks)
}

/// Records when packets arrived at the link.
#[derive(Debug, Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<Time>>>);

impl Arrivals {
    fn take(&self) -> Vec<Time> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LinkLog for Arrivals {
    fn record(&mut self, event: LinkEvent) {
        if event.kind == LinkEventKind::Enqueue {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.at);
        }
    }
}

/// A probe in virtual time.
#[derive(Debug)]
struct Probe(u32);

impl Packet for Probe {
    fn wire_size(&self) -> usize {
        PROBE_BYTES
    }
}

/// Returns the check, and the number of packets that are missing.
fn compare(
    sender_log: &SenderLog,
    arrivals: &[Time],
    received_packets: &[ReceivedPacket],
    model: &mut Link<Probe>,
) -> (DelayCheck, u64) {
    let mut due = vec![None; arrivals.len()];
    for (number, at) in (0_u32..).zip(arrivals) {
        while let Some(delivery) = model.pop(*at) {
            due[delivery.packet.0 as usize] = Some(delivery.due);
        }
        let _ = model.enqueue(*at, Probe(number)); // a dropped probe is never due
    }
    while let Some(at) = model.next_pop_at() {
        while let Some(delivery) = model.pop(at) {
            due[delivery.packet.0 as usize] = Some(delivery.due);
        }
    }
    let expected_count = due.iter().filter(|due| due.is_some()).count();
    let missing_packets = arrivals.len().abs_diff(sender_log.sent_at.len())
        + expected_count.abs_diff(received_packets.len());
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let (mut expected_ms, mut measured_ms, mut errors_ms) = (Vec::new(), Vec::new(), Vec::new());
    for packet in received_packets {
        let number = packet.number as usize;
        let (Some(sent_at), Some(arrived_at)) =
            (sender_log.sent_at.get(number), arrivals.get(number))
        else {
            continue;
        };
        let Some(Some(due)) = due.get(number) else { continue };
        expected_ms.push(millis(due.since(*arrived_at)));
        measured_ms.push(millis(packet.received_at.since(*sent_at)));
        errors_ms.push(millis(arrived_at.since(*sent_at)) + millis(packet.received_at.since(*due)));
    }
    let check = DelayCheck {
        probes: errors_ms.len() as u64,
        expected_ms: quantile(&mut expected_ms, 0.5),
        measured_ms: quantile(&mut measured_ms, 0.5),
        error_p50_ms: quantile(&mut errors_ms, 0.5),
        error_p99_ms: quantile(&mut errors_ms, 0.99),
    };
    (check, missing_packets as u64)
}

/// Returns the `q`-quantile; 0 for an empty slice.
fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * q).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
