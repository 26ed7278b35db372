//! The rate of a full link.
//!
//! The offered load exceeds the rate, so that the queue is never empty, and the
//! received bits are compared with the capacity of the wire in that time. Jitter
//! and loss are disabled: jitter would shift the ends of the measured interval,
//! and lost packets also use capacity.

use std::net::Ipv4Addr;
use std::time::Duration;

use smig_link::{DirectionSpec, Link, LinkSpec, RateSpec, Time};

use super::flow::{Flow, Packets, Received};
use super::{CheckError, CheckOptions, HostTiming, RateCheck, testbed};
use crate::netns::{Direction, Host, LabError, seed_of};

/// Offered load, as a multiple of the rate.
const LOAD: f64 = 1.25;
/// Offered load for a variable rate, as a multiple of its mean: above the generator's ceiling.
const VARIABLE_LOAD: f64 = 3.5;
/// Total rate above which the directions are measured one after the other: the
/// hosts' threads need the processors.
const MOST_AT_ONCE_MBIT: f64 = 200.0;
/// Minimum time between packets: a host must not starve the other.
const LEAST_GAP: Duration = Duration::from_micros(5);

pub(super) fn measure(
    link: &LinkSpec,
    options: &CheckOptions,
    calm: &mut HostTiming,
) -> Result<[RateCheck; 2], CheckError> {
    let mut bare = link.clone();
    for direction in [&mut bare.to_client, &mut bare.to_server] {
        (direction.jitter, direction.loss) = (None, None);
    }
    let testbed = testbed(bare, options)?;
    let (server, client) = (testbed.server(), testbed.client());
    let down = || Flow::start(server, client, client.address(), packets(&link.to_client, options));
    let up = || Flow::start(client, server, server.address(), packets(&link.to_server, options));
    let total = link.to_client.rate.as_mbit() + link.to_server.rate.as_mbit();
    let (down, up) = if total > MOST_AT_ONCE_MBIT {
        (down()?.sent()?, up()?.sent()?)
    } else {
        let (down, up) = (down()?, up()?);
        (down.sent()?, up.sent()?)
    };
    let ends = [(down.0, down.1.end()?), (up.0, up.1.end()?)];
    // The queue is expected to drop packets here, but the hosts' devices are not.
    calm.see(&testbed, [&ends[0].0.late, &ends[1].0.late])?;
    let mut checks = [RateCheck::default(); 2];
    let ways = [(&link.to_client, Direction::ToClient), (&link.to_server, Direction::ToServer)];
    for ((check, (spec, way)), (sent, received)) in checks.iter_mut().zip(ways).zip(ends) {
        let last = sent.sent.last().copied().unwrap_or_default();
        // The link's seed, since it determines a generated rate.
        let mut model: Link<Vec<u8>> =
            Link::new(spec, seed_of(options.seed, 0, way)).map_err(LabError::Link)?;
        model.start_at(testbed.origin());
        *check = compare(spec, &model, last, &received);
    }
    Ok(checks)
}

/// Returns a flow of full-size packets that fills a direction.
fn packets(spec: &DirectionSpec, options: &CheckOptions) -> Packets {
    let (rate, load) = match &spec.rate {
        RateSpec::Constant(rate) => (rate.as_bits_per_second(), LOAD),
        RateSpec::Steps(steps) => {
            let most = steps.steps.iter().map(|step| step.rate.as_bits_per_second()).max();
            (most.unwrap_or(1), LOAD)
        }
        RateSpec::Lte(lte) => (lte.mean.as_bits_per_second(), VARIABLE_LOAD),
        // The mean is unknown until the file is read, which is done here.
        RateSpec::Trace(_) => (mean_of_trace(spec), VARIABLE_LOAD),
    };
    flood(rate as f64 * load, spec.mtu as usize, options.length)
}

/// Returns a flow of packets of `bytes` at a rate in bits per second.
pub(super) fn flood(rate: f64, bytes: usize, length: Duration) -> Packets {
    let gap = Duration::from_secs_f64(bytes as f64 * 8.0 / rate).max(LEAST_GAP);
    Packets { bytes, gap, length }
}

fn mean_of_trace(spec: &DirectionSpec) -> u64 {
    const HOUR: Duration = Duration::from_secs(3_600);
    let link = Link::<Vec<u8>>::new(spec, 0);
    link.map_or(1, |link| (link.capacity(Time::ZERO, Time::ZERO + HOUR) * 8.0 / 3_600.0) as u64)
}

fn compare(
    spec: &DirectionSpec,
    model: &Link<Vec<u8>>,
    last_sent: Time,
    received: &[Received],
) -> RateCheck {
    let Some((first, last, bits)) = window(received, last_sent) else {
        return RateCheck::default();
    };
    // The time at which the last bit of such a packet left the wire.
    let before =
        |at: Time| Time::from_nanos(at.as_nanos().saturating_sub(spec.delay.as_nanos() as u64));
    let seconds = last.since(first).as_secs_f64();
    let possible = model.capacity(before(first), before(last)) * 8.0;
    RateCheck {
        commanded_mbit: possible / seconds / 1e6,
        measured_mbit: bits / seconds / 1e6,
        seconds,
    }
}

/// Returns the times of two arrivals far apart, and the bits received after the first
/// up to and including the second.
pub(super) fn window(received: &[Received], until: Time) -> Option<(Time, Time, f64)> {
    let begin = received.first()?.at;
    // The start is left out: the queue is still filling, bursts pass a token bucket, and the wire may
    // have been idle.
    let settled = begin + until.since(begin).mul_f64(0.2);
    let within = |packet: &&Received| packet.at >= settled && packet.at <= until;
    let first = received.iter().find(within)?;
    let last = received.iter().rfind(within)?;
    let bytes: usize =
        received.iter().filter(|p| p.at > first.at && p.at <= last.at).map(|p| p.bytes).sum();
    (last.at > first.at).then_some((first.at, last.at, bytes as f64 * 8.0))
}

/// Measures the rate of another bottleneck than an emulated link, in bits per second.
pub(super) fn through(
    from: &Host,
    to: &Host,
    address: Ipv4Addr,
    packets: Packets,
) -> Result<Option<f64>, CheckError> {
    let (sent, receiver) = Flow::start(from, to, address, packets)?.sent()?;
    let last = sent.sent.last().copied().unwrap_or_default();
    let measured = window(&receiver.end()?, last);
    Ok(measured.map(|(first, last, bits)| bits / last.since(first).as_secs_f64()))
}
