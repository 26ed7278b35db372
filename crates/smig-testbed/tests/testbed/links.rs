//! Several links, their logs, captures and packet sizes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use smig_link::{
    DropReason, LinkEventKind, LinkSpec, LossSpec, LteSpec, Outage, PolicerSpec, Rate, RateSpec,
};
use smig_testbed::check::{CheckOptions, check};
use smig_testbed::netns::{CaptureSpec, LinkSetup, Testbed, TestbedError};

use super::tcp::{SharedLog, connect_and_read_congestion_control, download, download_on, link};

pub(crate) fn links_are_independent() -> Result<()> {
    let slow = link(Rate::mbit(5), 60, 100);
    let testbed = Testbed::builder(link(Rate::mbit(20), 10, 100))
        .add_link(LinkSetup::new(slow.clone()))
        .add_link(LinkSetup::new(slow))
        .start()?;
    let bytes = 300_000;
    let first_download = download_on(&testbed, 0, bytes)?;
    let second_download = download_on(&testbed, 1, bytes)?;
    ensure!((first_download.correct_bytes, second_download.correct_bytes) == (bytes, bytes));
    ensure!(
        second_download.connect_time >= Duration::from_millis(60),
        "connected in {:?}",
        second_download.connect_time
    );
    let min_time = Duration::from_secs_f64(bytes as f64 * 8.0 / 5e6);
    ensure!(
        second_download.transfer_time >= min_time,
        "{bytes} bytes in {:?}, the link needs {min_time:?}",
        second_download.transfer_time
    );

    let reports = testbed.reports();
    ensure!(reports.len() == 3);
    for report in &reports[..2] {
        let bytes_to_client = report.to_client.delivered_bytes;
        ensure!((300_000..600_000).contains(&bytes_to_client), "{report:?}");
    }
    ensure!(reports[2].to_client.offered_packets == 0, "{:?}", reports[2]);
    let addresses: Vec<_> = testbed.client().addresses().map(|a| a.to_string()).collect();
    ensure!(addresses == ["10.99.0.2", "10.99.1.2", "10.99.2.2"], "{addresses:?}");
    ensure!(testbed.client().device_name_on(2).as_deref() == Some("link2"));
    ensure!(testbed.device_drops()? == 0, "the devices dropped packets");
    Ok(())
}

pub(crate) fn an_outage_waits_for_the_run() -> Result<()> {
    let mut spec = link(Rate::mbit(20), 10, 100);
    spec.to_client.outages =
        vec![Outage { at: Duration::ZERO, lasts: Some(Duration::from_millis(500)) }];
    let mut testbed = Testbed::builder(spec).hold_back_outages().start()?;
    ensure!(download(&testbed, 10_000)?.correct_bytes == 10_000);
    let outage_packets = || testbed.report().to_client.outage_packets;
    ensure!(outage_packets() == 0, "lost before the run: {}", outage_packets());
    testbed.restart_clock();
    ensure!(download(&testbed, 10_000)?.correct_bytes == 10_000);
    ensure!(testbed.report().to_client.outage_packets > 0, "there was no outage");
    Ok(())
}

pub(crate) fn a_log_agrees_with_the_counters() -> Result<()> {
    let mut spec = link(Rate::mbit(20), 10, 20);
    spec.to_client.loss = Some(LossSpec::Random(0.02));
    let log = SharedLog::default();
    let testbed = Testbed::builder(spec).seed(7).log_to_client(Box::new(log.clone())).start()?;
    ensure!(download(&testbed, 500_000)?.correct_bytes == 500_000);
    let counters = testbed.finish()?[0].to_client;
    let events = log.0.lock().expect("not poisoned");
    let count = |kind| events.iter().filter(|event| event.kind == kind).count() as u64;
    let lost_drops = count(LinkEventKind::Drop(DropReason::Lost));
    let full_queue_drops = count(LinkEventKind::Drop(DropReason::Full));
    ensure!(
        lost_drops == counters.lost_packets && lost_drops > 0,
        "{lost_drops} lost, {counters:?}"
    );
    ensure!(
        full_queue_drops == counters.dropped_queue_full,
        "{full_queue_drops} dropped by a full queue, {counters:?}"
    );
    ensure!(
        count(LinkEventKind::Enqueue) + full_queue_drops == counters.offered_packets,
        "{counters:?}"
    );
    ensure!(events.is_sorted_by(|a, b| a.at <= b.at));
    Ok(())
}

pub(crate) fn packets_are_captured_at_both_ends() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let testbed = Testbed::builder(link(Rate::mbit(50), 30, 500))
        .capture(CaptureSpec { snaplen: 64, ..CaptureSpec::new(directory.path()) })
        .start()?;
    ensure!(download(&testbed, 100_000)?.correct_bytes == 100_000);
    let report = testbed.finish()?[0];
    let server_packets = parse_pcap(&std::fs::read(directory.path().join("link0-server.pcap"))?);
    let client_packets = parse_pcap(&std::fs::read(directory.path().join("link0-client.pcap"))?);
    // Packets from the server (10.99.0.1) arrive in order, later by the delay.
    let from_server = |packets: &[CapturedPacket]| {
        packets.iter().filter(|p| p.source == 1).copied().collect::<Vec<_>>()
    };
    let (sent_packets, arrived_packets) =
        (from_server(&server_packets), from_server(&client_packets));
    ensure!(arrived_packets.len() as u64 == report.to_client.delivered_packets);
    ensure!(
        arrived_packets.len() <= sent_packets.len() && arrived_packets.len() > 60,
        "{} arrived",
        arrived_packets.len()
    );
    for (sent, arrived) in sent_packets.iter().zip(&arrived_packets) {
        ensure!(sent.ip_id == arrived.ip_id && sent.length == arrived.length, "reordered or lost");
        let took = Duration::from_nanos(arrived.nanos - sent.nanos);
        ensure!(took >= Duration::from_millis(15), "{took:?} for a packet");
    }
    ensure!(server_packets.is_sorted_by(|a, b| a.nanos <= b.nanos), "one clock");
    Ok(())
}

#[derive(Clone, Copy)]
struct CapturedPacket {
    nanos: u64,
    length: u32,
    ip_id: u16,
    /// The last byte of the source address.
    source: u8,
}

fn parse_pcap(mut file: &[u8]) -> Vec<CapturedPacket> {
    let word = |bytes: &[u8], at: usize| {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    file = &file[24..];
    let mut packets = Vec::new();
    while !file.is_empty() {
        let (captured_bytes, packet) = (word(file, 8) as usize, &file[16..]);
        packets.push(CapturedPacket {
            nanos: u64::from(word(file, 0)) * 1_000_000_000 + u64::from(word(file, 4)),
            length: word(file, 12),
            ip_id: u16::from_be_bytes([packet[4], packet[5]]),
            source: packet[15],
        });
        file = &file[16 + captured_bytes..];
    }
    packets
}

pub(crate) fn packets_respect_the_links_mtu() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut spec = link(Rate::mbit(20), 10, 500);
    spec.to_client.mtu = 600;
    let testbed = Testbed::builder(spec).capture(CaptureSpec::new(directory.path())).start()?;
    ensure!(download(&testbed, 100_000)?.correct_bytes == 100_000);
    ensure!(testbed.finish()?[0].to_client.dropped_packets == 0);
    let sent = parse_pcap(&std::fs::read(directory.path().join("link0-server.pcap"))?);
    ensure!(sent.iter().map(|packet| packet.length).max() == Some(600));
    Ok(())
}

pub(crate) fn an_invalid_link_is_refused() -> Result<()> {
    let mut spec = LinkSpec::paper_wired();
    spec.to_server.loss = Some(LossSpec::Random(7.0));
    let error = Testbed::start(spec).unwrap_err();
    ensure!(matches!(error, TestbedError::Link(_)), "{error:?}");
    ensure!(error.to_string().contains("to_server.loss.random"), "{error}");
    // The failed testbed was removed completely: the next one starts.
    connect_and_read_congestion_control(&Testbed::start(LinkSpec::paper_wired())?).map(drop)
}

pub(crate) fn a_link_is_measured() -> Result<()> {
    let options = CheckOptions { duration: Duration::from_millis(600), max_repeats: 0, seed: 3 };
    let mut spec = link(Rate::mbit(8), 20, 20);
    spec.to_client.loss = Some(LossSpec::Random(0.1));
    let check = check("a link", &spec, &options)?;
    for direction in [&check.to_client, &check.to_server] {
        ensure!((direction.rate.expected_mbit_per_s - 8.0).abs() < 1e-6, "{direction:?}");
        // A slow machine makes a link slower, never faster.
        ensure!(direction.rate.measured_mbit_per_s < 8.08, "{direction:?}");
        // 10 ms, and the transmission time of 100 bytes at 8 Mbit/s.
        ensure!((direction.delay.expected_ms - 10.1).abs() < 1e-6, "{direction:?}");
        ensure!(direction.delay.measured_ms >= 10.1 && direction.delay.probes > 0, "{direction:?}");
        ensure!(
            direction.delay.error_p50_ms > 0.0
                && direction.delay.error_p99_ms >= direction.delay.error_p50_ms
        );
    }
    let loss = check.to_client.loss.context("the link has loss")?;
    let (low, high) = loss.interval();
    ensure!(
        check.timing.packets_lost_outside_link > 0 || (low..high).contains(&loss.measured),
        "{loss:?}"
    );
    ensure!(check.to_server.loss.is_none());
    Ok(())
}

/// The wire of a link with a policer is measured, and that of one with a trace file at its mean rate.
pub(crate) fn a_policer_and_a_trace_do_not_hide_the_wire() -> Result<()> {
    let options = CheckOptions { duration: Duration::from_millis(600), max_repeats: 0, seed: 3 };
    let mut policed = link(Rate::mbit(8), 20, 20);
    // Less than the probes of the delay need.
    let rate = Rate::bits_per_second(40_000);
    policed.to_client.policer = Some(PolicerSpec { rate, burst_bytes: 1_500 });
    let to_client = check("a link with a policer", &policed, &options)?.to_client;
    ensure!((to_client.rate.expected_mbit_per_s - 8.0).abs() < 1e-6, "{to_client:?}");
    ensure!(to_client.rate.measured_mbit_per_s > 0.5, "{to_client:?}");
    ensure!(to_client.delay.probes > 50, "{to_client:?}");

    let directory = tempfile::tempdir()?;
    let mut traced = link(Rate::mbit(8), 20, 20);
    // Two packets in 3 ms: 8 Mbit/s.
    let trace = directory.path().join("8-mbit.trace");
    std::fs::write(&trace, "3\n3\n")?;
    traced.to_client.rate = RateSpec::Trace(trace);
    let to_client = check("a link with a trace", &traced, &options)?.to_client;
    ensure!(to_client.delay.probes > 10, "{to_client:?}");
    Ok(())
}

/// A generated link's expected rate follows from the run's seed, like the link itself.
pub(crate) fn a_varying_link_is_compared_with_its_model() -> Result<()> {
    let mut spec = link(Rate::mbit(6), 20, 200);
    for (direction, seed) in [(&mut spec.to_client, None), (&mut spec.to_server, Some(5))] {
        direction.rate = RateSpec::Lte(LteSpec { seed, mean: Rate::mbit(6), period_s: 60 });
    }
    let options = CheckOptions { duration: Duration::from_millis(800), max_repeats: 0, seed: 1 };
    let check = check("a link that varies", &spec, &options)?;
    for direction in [&check.to_client, &check.to_server] {
        ensure!(direction.rate.expected_mbit_per_s > 0.0, "{direction:?}");
        // A slow machine makes a link slower, never faster; an undisturbed machine does neither.
        ensure!(direction.rate.relative_error() < 0.02, "{direction:?}");
        ensure!(
            !check.timing.is_undisturbed() || direction.rate.relative_error() > -0.1,
            "{direction:?}"
        );
    }
    Ok(())
}
