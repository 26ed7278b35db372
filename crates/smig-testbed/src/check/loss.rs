//! The share of packets lost on the wire. A policer is disabled: what it drops does not reach the wire.

use smig_link::{DirectionCounters, DirectionSpec, LinkSpec};

use super::flow::{Flow, MIN_PACKET_BYTES};
use super::rate::flood;
use super::{CheckError, CheckOptions, HostTiming, LossCheck, start_testbed, wait_until_empty};

/// Packet size: small, for many packets.
const PACKET_BYTES: usize = 100;
/// Load as a share of the rate: the queue must not drop packets.
const RELATIVE_LOAD: f64 = 0.4;
/// Maximum packets per second.
const MAX_PACKETS_PER_S: f64 = 4_000.0;

pub(super) fn measure(
    link: &LinkSpec,
    options: &CheckOptions,
    timing: &mut HostTiming,
) -> Result<[Option<LossCheck>; 2], CheckError> {
    let directions = [&link.to_client, &link.to_server];
    if directions.iter().all(|direction| direction.loss.is_none()) {
        return Ok([None; 2]);
    }
    let mut unpoliced = link.clone();
    (unpoliced.to_client.policer, unpoliced.to_server.policer) = (None, None);
    let testbed = start_testbed(unpoliced, options)?;
    let (server, client) = (testbed.server(), testbed.client());
    let packets = |spec: &DirectionSpec| {
        let rate = spec.rate.mean_bits_per_second() as f64 * RELATIVE_LOAD;
        let rate = rate.min(MAX_PACKETS_PER_S * PACKET_BYTES as f64 * 8.0);
        flood(rate, PACKET_BYTES.max(MIN_PACKET_BYTES), options.duration)
    };
    let down = Flow::start(server, client, client.address(), packets(&link.to_client))?;
    let up = Flow::start(client, server, server.address(), packets(&link.to_server))?;
    let (down, up) = (down.wait_until_sent()?, up.wait_until_sent()?);
    wait_until_empty(&testbed)?;
    let results = [(down.0, down.1.stop()?), (up.0, up.1.stop()?)];
    let report = testbed.report();
    let counters = [report.to_client, report.to_server];
    let (mut checks, mut missing_packets) = ([None; 2], 0);
    for (index, (sender_log, received_packets)) in results.iter().enumerate() {
        let (sent_count, received_count) =
            (sender_log.sent_at.len() as u64, received_packets.len() as u64);
        let DirectionCounters { offered_packets, dropped_packets, lost_packets, .. } =
            counters[index];
        // Packets neither lost on the wire nor received were lost by the machine.
        missing_packets += sent_count.abs_diff(offered_packets);
        missing_packets += (offered_packets - dropped_packets).abs_diff(received_count);
        checks[index] = directions[index].loss.map(|loss| LossCheck {
            packets: sent_count,
            expected: loss.share(),
            standard_deviation: loss.standard_deviation(sent_count),
            measured: sent_count.saturating_sub(received_count + dropped_packets - lost_packets)
                as f64
                / sent_count.max(1) as f64,
        });
    }
    timing.record(&testbed, [&results[0].0.lateness, &results[1].0.lateness], missing_packets)?;
    Ok(checks)
}
