//! Outages.

use std::time::Duration;

use super::{NumberedPacket, check_log, micros, new_logged_link, offer, spec};
use crate::{DirectionSpec, DropReason, LinkEventKind, LinkSpec, Outage, Rate};

const fn outage(at_ms: u64, lasts_ms: Option<u64>) -> Outage {
    let lasts = match lasts_ms {
        Some(millis) => Some(Duration::from_millis(millis)),
        None => None,
    };
    Outage { at: Duration::from_millis(at_ms), lasts }
}

/// Offers a packet of one millisecond's length each millisecond, from the start of the link's clock.
fn arrivals(outages: Vec<Outage>, count: u32) -> Vec<u32> {
    let direction = DirectionSpec { outages, ..spec(Rate::mbit(12), 7, 100) };
    let mut link = new_logged_link(direction);
    let origin = micros(500_000);
    link.start_at(origin);
    let at = |number: u32| origin + Duration::from_millis(u64::from(number));
    let packets = (0..count).map(|number| (at(number), NumberedPacket(number, 1_500)));
    let deliveries = offer(&mut link, packets);
    check_log(link.log(), u64::from(count));
    let dropped = LinkEventKind::Drop(DropReason::Outage);
    let in_log = link.log().iter().filter(|event| event.kind == dropped).count();
    assert_eq!(in_log, count as usize - deliveries.len());
    assert_eq!(link.counters().outage_packets, in_log as u64);
    assert_eq!(link.counters().lost_packets, 0);
    deliveries.iter().map(|delivery| delivery.packet.0).collect()
}

#[test]
fn what_leaves_the_wire_during_an_outage_is_lost() {
    // Packet 9 has left at 10 ms, packet 12 at 13 ms.
    let expected: Vec<_> = (0..9).chain(12..20).collect();
    assert_eq!(arrivals(vec![outage(10, Some(3))], 20), expected);
    let expected: Vec<_> = (0..9).chain(12..17).collect();
    assert_eq!(arrivals(vec![outage(10, Some(3)), outage(18, None)], 40), expected);
}

#[test]
fn an_outage_that_is_held_back_begins_with_the_run() {
    let outages = vec![outage(0, Some(3))];
    let mut link = new_logged_link(DirectionSpec { outages, ..spec(Rate::mbit(12), 7, 100) });
    link.start_at(micros(0));
    link.hold_back_outages();
    let during_set_up = offer(&mut link, [(micros(1_000), NumberedPacket(0, 1_500))]);
    assert_eq!(during_set_up.len(), 1);
    link.start_at(micros(50_000));
    let at_ms =
        |number: u32| (micros(50_000 + u64::from(number) * 1_000), NumberedPacket(number, 1_500));
    let during_run = offer(&mut link, (0..5).map(at_ms));
    let numbers: Vec<_> = during_run.iter().map(|delivery| delivery.packet.0).collect();
    assert_eq!(numbers, [2, 3, 4]);
}

#[test]
fn outages_are_read_and_checked() {
    let read = |outages: &str| {
        let direction = format!(
            r#"{{"both": {{"rate": "1 Mbit/s", "delay_ms": 5, "queue": {{"packets": 9}}, "outages": {outages}}}}}"#
        );
        let link: LinkSpec = serde_json::from_str(&direction).map_err(|error| error.to_string())?;
        link.check().map_err(|error| error.to_string())?;
        Ok::<_, String>(link)
    };
    let link = read(r#"[{"at_ms": 5000, "for_ms": 3000}, {"at_ms": 8000}]"#).unwrap();
    assert_eq!(link.to_client.outages, [outage(5_000, Some(3_000)), outage(8_000, None)]);
    assert!(link.to_string().contains("with outages"), "{link}");
    let written = serde_json::to_string(&link).unwrap();
    assert_eq!(serde_json::from_str::<LinkSpec>(&written).unwrap(), link);
    for wrong in [
        r#"[{"at_ms": 5000, "for_ms": 3000}, {"at_ms": 7999}]"#,
        r#"[{"at_ms": 5}, {"at_ms": 9}]"#,
        r#"[{"at_ms": 9, "for_ms": 1}, {"at_ms": 5}]"#,
    ] {
        let error = read(wrong).unwrap_err();
        assert!(error.starts_with("to_client.outages: the one at"), "{error}");
    }
    assert!(read(r#"[{"at_ms": -1}]"#).is_err());
}
