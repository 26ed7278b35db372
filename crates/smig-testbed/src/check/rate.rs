//! The rate of a full link.
//!
//! The offered load exceeds the rate, so that the queue is never empty, and the
//! received bits are compared with the capacity of the wire in that time. Jitter
//! and aggregation are disabled, which would shift the ends of the measured interval;
//! loss, because lost packets also use capacity; a policer, because it passes less
//! than the wire.

use std::net::Ipv4Addr;
use std::time::Duration;

use smig_link::{DirectionSpec, Link, LinkSpec, RateSpec, Time};

use super::flow::{Flow, FlowSpec, ReceivedPacket};
use super::{CheckError, CheckOptions, HostTiming, RateCheck, start_testbed};
use crate::netns::{Direction, Host, TestbedError, seed_of};

/// Offered load, as a multiple of the rate.
const RELATIVE_LOAD: f64 = 1.25;
/// Offered load for a variable rate, as a multiple of its mean: above the generator's maximum. The
/// peaks of a trace file may be higher.
const RELATIVE_LOAD_OF_VARIABLE_RATE: f64 = 3.5;
/// Total rate above which the directions are measured one after the other: the
/// hosts' threads need the processors.
const MAX_PARALLEL_MBIT: f64 = 200.0;
/// Minimum time between packets: one host must not starve the other.
const MIN_GAP: Duration = Duration::from_micros(5);

pub(super) fn measure(
    link: &LinkSpec,
    options: &CheckOptions,
    timing: &mut HostTiming,
) -> Result<[RateCheck; 2], CheckError> {
    let mut unimpaired = link.clone();
    for direction in [&mut unimpaired.to_client, &mut unimpaired.to_server] {
        (direction.jitter, direction.aggregation) = (None, None);
        (direction.loss, direction.policer) = (None, None);
    }
    let testbed = start_testbed(unimpaired, options)?;
    let (server, client) = (testbed.server(), testbed.client());
    let down =
        || Flow::start(server, client, client.address(), full_load(&link.to_client, options));
    let up = || Flow::start(client, server, server.address(), full_load(&link.to_server, options));
    let total_mbit = link.to_client.rate.mean_mbit() + link.to_server.rate.mean_mbit();
    let (down, up) = if total_mbit > MAX_PARALLEL_MBIT {
        (down()?.wait_until_sent()?, up()?.wait_until_sent()?)
    } else {
        let (down, up) = (down()?, up()?);
        (down.wait_until_sent()?, up.wait_until_sent()?)
    };
    let results = [(down.0, down.1.stop()?), (up.0, up.1.stop()?)];
    // The queue is expected to drop packets here, but the hosts' devices are not.
    timing.record(&testbed, [&results[0].0.lateness, &results[1].0.lateness], 0)?;
    let mut checks = [RateCheck::default(); 2];
    let directions =
        [(&link.to_client, Direction::ToClient), (&link.to_server, Direction::ToServer)];
    for ((check, (spec, direction)), (sent, received)) in
        checks.iter_mut().zip(directions).zip(results)
    {
        let last = sent.sent_at.last().copied().unwrap_or_default();
        // The link's seed, since it determines a generated rate.
        let mut model: Link<Vec<u8>> =
            Link::new(spec, seed_of(options.seed, 0, direction)).map_err(TestbedError::Link)?;
        model.start_at(testbed.origin());
        *check = compare(spec, &model, last, &received);
    }
    Ok(checks)
}

/// Returns a flow of full-size packets that fills a direction.
fn full_load(spec: &DirectionSpec, options: &CheckOptions) -> FlowSpec {
    let mean = || spec.rate.mean_bits_per_second();
    let (rate, load) = match &spec.rate {
        RateSpec::Constant(_) => (mean(), RELATIVE_LOAD),
        RateSpec::Steps(steps) => {
            let max = steps.steps.iter().map(|step| step.rate.as_bits_per_second()).max();
            (max.unwrap_or(1), RELATIVE_LOAD)
        }
        RateSpec::Lte(_) | RateSpec::Trace(_) => (mean(), RELATIVE_LOAD_OF_VARIABLE_RATE),
    };
    flood(rate as f64 * load, spec.mtu as usize, options.duration)
}

/// Returns a flow of packets of `bytes` at a rate in bits per second.
pub(super) fn flood(bits_per_s: f64, bytes: usize, duration: Duration) -> FlowSpec {
    let gap = Duration::from_secs_f64(bytes as f64 * 8.0 / bits_per_s).max(MIN_GAP);
    FlowSpec { bytes, gap, duration }
}

fn compare(
    spec: &DirectionSpec,
    model: &Link<Vec<u8>>,
    last_sent: Time,
    received_packets: &[ReceivedPacket],
) -> RateCheck {
    let Some((first_at, last_at, bits)) = measured_window(received_packets, last_sent) else {
        return RateCheck::default();
    };
    // Returns when the last bit of a packet that arrived at this time left the wire.
    let left_wire_at =
        |at: Time| Time::from_nanos(at.as_nanos().saturating_sub(spec.delay.as_nanos() as u64));
    let seconds = last_at.since(first_at).as_secs_f64();
    let capacity_bits = model.capacity_bytes(left_wire_at(first_at), left_wire_at(last_at)) * 8.0;
    RateCheck {
        expected_mbit_per_s: capacity_bits / seconds / 1e6,
        measured_mbit_per_s: bits / seconds / 1e6,
        seconds,
    }
}

/// Returns the times of the first and the last arrival of the measured interval, and the bits
/// received after the first, up to and including the last.
pub(super) fn measured_window(
    received_packets: &[ReceivedPacket],
    last_sent: Time,
) -> Option<(Time, Time, f64)> {
    let begin = received_packets.first()?.received_at;
    // The start is excluded: the queue is still filling, bursts pass a token bucket, and the wire
    // may have been idle.
    let settled = begin + last_sent.since(begin).mul_f64(0.2);
    let within =
        |packet: &&ReceivedPacket| packet.received_at >= settled && packet.received_at <= last_sent;
    let first = received_packets.iter().find(within)?;
    let last = received_packets.iter().rfind(within)?;
    let bytes: usize = received_packets
        .iter()
        .filter(|p| p.received_at > first.received_at && p.received_at <= last.received_at)
        .map(|p| p.bytes)
        .sum();
    (last.received_at > first.received_at).then_some((
        first.received_at,
        last.received_at,
        bytes as f64 * 8.0,
    ))
}

/// Measures the rate of a path that is not an emulated link, in bits per second.
pub(super) fn measure_path(
    from_host: &Host,
    to_host: &Host,
    address: Ipv4Addr,
    packets: FlowSpec,
) -> Result<Option<f64>, CheckError> {
    let (sent, receiver) = Flow::start(from_host, to_host, address, packets)?.wait_until_sent()?;
    let last = sent.sent_at.last().copied().unwrap_or_default();
    let measured = measured_window(&receiver.stop()?, last);
    Ok(measured.map(|(first, last, bits)| bits / last.since(first).as_secs_f64()))
}
