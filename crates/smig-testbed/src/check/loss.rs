//! The share of packets lost on the wire.

use smig_link::{DirectionSpec, LinkCounters, LinkSpec};

use super::flow::{Flow, SMALLEST};
use super::rate::flood;
use super::{CheckError, CheckOptions, HostTiming, LossCheck, testbed, wait_until_empty};

/// Packet size: small, for many packets.
const BYTES: usize = 100;
/// Load as a share of the rate: the queue must not drop packets.
const LOAD: f64 = 0.4;
/// Maximum packets per second.
const MOST: f64 = 4_000.0;

pub(super) fn measure(
    link: &LinkSpec,
    options: &CheckOptions,
    calm: &mut HostTiming,
) -> Result<[Option<LossCheck>; 2], CheckError> {
    let ways = [&link.to_client, &link.to_server];
    if ways.iter().all(|way| way.loss.is_none()) {
        return Ok([None; 2]);
    }
    let testbed = testbed(link.clone(), options)?;
    let (server, client) = (testbed.server(), testbed.client());
    let packets = |spec: &DirectionSpec| {
        let rate = spec.rate.as_bits_per_second() as f64 * LOAD;
        let rate = rate.min(MOST * BYTES as f64 * 8.0);
        flood(rate, BYTES.max(SMALLEST), options.length)
    };
    let down = Flow::start(server, client, client.address(), packets(&link.to_client))?;
    let up = Flow::start(client, server, server.address(), packets(&link.to_server))?;
    let (down, up) = (down.sent()?, up.sent()?);
    wait_until_empty(&testbed)?;
    let ends = [(down.0, down.1.end()?), (up.0, up.1.end()?)];
    calm.see(&testbed, [&ends[0].0.late, &ends[1].0.late])?;
    let report = testbed.report();
    let counters = [report.to_client, report.to_server];
    let mut checks = [None; 2];
    for (index, (sent, received)) in ends.iter().enumerate() {
        let (sent, received) = (sent.sent.len() as u64, received.len() as u64);
        let LinkCounters { offered_packets, dropped_packets, lost_packets, .. } = counters[index];
        // Packets neither lost on the wire nor received were lost by the machine.
        calm.lost_outside += sent.abs_diff(offered_packets);
        calm.lost_outside += (offered_packets - dropped_packets).abs_diff(received);
        checks[index] = ways[index].loss.map(|loss| LossCheck {
            packets: sent,
            commanded: loss.share(),
            deviation: loss.deviation(sent),
            measured: sent.saturating_sub(received + dropped_packets - lost_packets) as f64
                / sent.max(1) as f64,
        });
    }
    Ok(checks)
}
