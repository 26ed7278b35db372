//! TCP over a link, and the TCP settings of hosts.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use smig_link::{
    AckThinningSpec, AggregationSpec, DropReason, LinkEvent, LinkEventKind, LinkLog, LinkSpec,
    PolicerSpec, QueueLimit, Rate,
};
use smig_testbed::netns::{HostSpec, Testbed, TestbedError};

pub(crate) fn link(rate: Rate, round_trip_ms: u64, queue: usize) -> LinkSpec {
    LinkSpec::symmetric(rate, Duration::from_millis(round_trip_ms), QueueLimit::packets(queue))
}

pub(crate) fn nothing_is_faster_than_the_link() -> Result<()> {
    let bytes = 1_000_000;
    let testbed = Testbed::start(link(Rate::mbit(20), 40, 200))?;
    let Download { connect_time, transfer_time, correct_bytes } = download(&testbed, bytes)?;
    ensure!(correct_bytes == bytes, "received {correct_bytes} of {bytes} bytes");
    ensure!(connect_time >= Duration::from_millis(40), "connected in {connect_time:?}");
    let min_time = Duration::from_secs_f64(bytes as f64 * 8.0 / 20e6);
    ensure!(
        transfer_time >= min_time,
        "{bytes} bytes in {transfer_time:?}, the link needs {min_time:?}"
    );
    let report = testbed.report();
    ensure!(report.to_client.delivered_bytes > bytes as u64, "{report:?}");
    ensure!(report.to_server.delivered_packets > 0, "{report:?}");
    ensure!(report.lateness.packets >= report.to_client.delivered_packets, "{report:?}");
    ensure!(testbed.device_drops()? == 0, "the devices dropped packets");
    Ok(())
}

/// A log that the test can read.
#[derive(Clone, Default)]
pub(crate) struct SharedLog(pub(crate) Arc<Mutex<Vec<LinkEvent>>>);

impl LinkLog for SharedLog {
    fn record(&mut self, event: LinkEvent) {
        self.0.lock().expect("not poisoned").push(event);
    }
}

pub(crate) fn a_full_queue_drops_and_tcp_recovers() -> Result<()> {
    let bytes = 500_000;
    let log = SharedLog::default();
    let testbed = Testbed::builder(link(Rate::mbit(10), 20, 5))
        .server(HostSpec::default().initial_window(60))
        .log_to_client(Box::new(log.clone()))
        .start()?;
    let correct_bytes = download(&testbed, bytes)?.correct_bytes;
    ensure!(correct_bytes == bytes, "received {correct_bytes} of {bytes} bytes");

    let counted_drops = testbed.report().to_client.dropped_packets;
    ensure!(counted_drops > 0, "sixty segments at once fit into a queue of five");
    let log = log.0.lock().expect("not poisoned");
    ensure!(log.iter().all(|event| event.queue_packets <= 5), "the queue grew past its bound");
    let logged_drops =
        log.iter().filter(|event| event.kind == LinkEventKind::Drop(DropReason::Full)).count()
            as u64;
    ensure!(
        logged_drops == counted_drops,
        "{logged_drops} drops in the log, {counted_drops} counted"
    );
    Ok(())
}

pub(crate) fn access_networks_police_and_thin() -> Result<()> {
    let bytes = 1_000_000;
    let ms = Duration::from_millis;
    let mut spec = link(Rate::mbit(100), 20, 1_000);
    spec.to_client.policer = Some(PolicerSpec { rate: Rate::mbit(20), burst_bytes: 30_000 });
    spec.to_client.aggregation = Some(AggregationSpec { min: ms(2), max: ms(8) });
    spec.to_server.ack_thinning = Some(AckThinningSpec { every: 8, hold: ms(15) });
    let testbed = Testbed::builder(spec).server(HostSpec::default().initial_window(60)).start()?;
    let Download { transfer_time, correct_bytes, .. } = download(&testbed, bytes)?;
    ensure!(correct_bytes == bytes, "received {correct_bytes} of {bytes} bytes");
    let min_time = Duration::from_secs_f64((bytes as f64 - 30_000.0) * 8.0 / 20e6);
    ensure!(
        transfer_time >= min_time,
        "{bytes} bytes in {transfer_time:?}, the rate needs {min_time:?}"
    );
    let report = testbed.report();
    ensure!(report.to_client.policed_packets > 0, "nothing was policed: {report:?}");
    ensure!(report.to_server.thinned_acks > 0, "no ACK was thinned: {report:?}");
    Ok(())
}

pub(crate) fn each_host_has_its_own_settings() -> Result<()> {
    let machine_value = read_trimmed("/proc/sys/net/ipv4/tcp_wmem")?;
    let testbed = Testbed::builder(LinkSpec::paper_wired())
        .server(HostSpec::default().congestion_control("reno").send_buffer(4096, 16384, 999_424))
        .client(HostSpec::default().congestion_control("cubic").sysctl("ipv4/tcp_sack", "0"))
        .start()?;
    let read = |name: &'static str| move || read_trimmed(&format!("/proc/sys/net/ipv4/{name}"));
    let inside =
        |host: &smig_testbed::netns::Host, name| host.run(read(name))?.join().expect("no panic");
    ensure!(inside(testbed.server(), "tcp_wmem")? == "4096\t16384\t999424");
    ensure!(inside(testbed.server(), "tcp_sack")? == "1");
    ensure!(inside(testbed.client(), "tcp_sack")? == "0");
    ensure!(inside(testbed.client(), "tcp_no_metrics_save")? == "1");
    ensure!(
        read_trimmed("/proc/sys/net/ipv4/tcp_wmem")? == machine_value,
        "the machine's own changed"
    );

    let (server, client) = connect_and_read_congestion_control(&testbed)?;
    ensure!(server == "reno", "the server's connection has {server}");
    ensure!(client == "cubic", "the client's connection has {client}");
    let (server, _) =
        connect_and_read_congestion_control(&Testbed::start(LinkSpec::paper_wired())?)?;
    ensure!(server == "cubic", "without a choice the server's connection has {server}");
    Ok(())
}

pub(crate) fn an_unknown_congestion_control_is_named() -> Result<()> {
    let spec = HostSpec::default().congestion_control("nosuchcc");
    let error = Testbed::builder(LinkSpec::paper_wired()).server(spec).start().unwrap_err();
    ensure!(matches!(error, TestbedError::CongestionControl { .. }), "{error:?}");
    let text = error.to_string();
    ensure!(text.contains("nosuchcc") && text.contains("reno"), "{text}");
    Ok(())
}

pub(crate) fn connections_have_the_congestion_control_of_their_address() -> Result<()> {
    let (reno, plain) = (Ipv4Addr::new(10, 99, 0, 11), Ipv4Addr::new(10, 99, 0, 12));
    let spec = HostSpec::default().congestion_control("cubic");
    let spec = spec.address(reno, Some("reno")).address(plain, None);
    let client = HostSpec::default().congestion_control("reno");
    let testbed = Testbed::builder(LinkSpec::paper_wired()).server(spec).client(client).start()?;
    let of = |address| connect_to(&testbed, address);
    let pair = |server: &str, client: &str| (server.to_owned(), client.to_owned());
    ensure!(of(testbed.server().address())? == pair("cubic", "reno"));
    ensure!(of(reno)? == pair("reno", "reno"));
    // The client's own setting holds towards all addresses.
    ensure!(of(plain)? == pair("cubic", "reno"));
    let unknown = HostSpec::default().address(reno, Some("nosuchcc"));
    let error = Testbed::builder(LinkSpec::paper_wired()).server(unknown).start().unwrap_err();
    ensure!(matches!(error, TestbedError::CongestionControl { .. }), "{error:?}");
    let too_many = (3..=250)
        .fold(HostSpec::default(), |spec, last| spec.address(Ipv4Addr::new(10, 99, 0, last), None));
    let error = Testbed::builder(LinkSpec::paper_wired()).server(too_many).start().unwrap_err();
    ensure!(error.to_string().contains("too many addresses"), "{error}");
    Ok(())
}

pub(crate) fn testbeds_do_not_see_each_other() -> Result<()> {
    let reno_testbed = Testbed::builder(LinkSpec::paper_wired())
        .server(HostSpec::default().congestion_control("reno"))
        .start()?;
    let cubic_testbed = Testbed::builder(LinkSpec::paper_wired())
        .server(HostSpec::default().congestion_control("cubic"))
        .start()?;
    ensure!(connect_and_read_congestion_control(&reno_testbed)?.0 == "reno");
    ensure!(connect_and_read_congestion_control(&cubic_testbed)?.0 == "cubic");
    drop(reno_testbed);
    ensure!(
        connect_and_read_congestion_control(&cubic_testbed)?.0 == "cubic",
        "the end of the first changed the other"
    );
    Ok(())
}

pub(crate) fn nothing_is_left_behind() -> Result<()> {
    // Threads are joined by the time a testbed is dropped, so their descriptors are closed: a count
    // that grew is a leak.
    let descriptors = || std::fs::read_dir("/proc/self/fd").map(Iterator::count);
    let before = descriptors()?;
    for _ in 0..5 {
        connect_and_read_congestion_control(&Testbed::start(LinkSpec::paper_wired())?)?;
    }
    let after = descriptors()?;
    ensure!(after == before, "{before} descriptors before, {after} after");
    Ok(())
}

/// Result of a download.
pub(crate) struct Download {
    pub(crate) connect_time: Duration,
    /// Time from the connection's establishment to the last byte.
    pub(crate) transfer_time: Duration,
    /// Number of bytes before the first wrong byte.
    pub(crate) correct_bytes: usize,
}

/// Sends `bytes` from the server to the client.
pub(crate) fn download(testbed: &Testbed, bytes: usize) -> Result<Download> {
    download_on(testbed, 0, bytes)
}

/// Downloads over the link with index `link`, from 0.
pub(crate) fn download_on(testbed: &Testbed, link: usize, bytes: usize) -> Result<Download> {
    let address = testbed.server().address_on(link);
    let (port_tx, port_rx) = std::sync::mpsc::channel();
    let server = testbed.server().run(move || -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        port_tx.send(listener.local_addr()?.port()).map_err(io::Error::other)?;
        let body: Vec<u8> = (0..bytes).map(byte_at).collect();
        listener.accept()?.0.write_all(&body)
    })?;
    let port = port_rx.recv()?;
    let client = testbed.client().run(move || -> io::Result<Download> {
        let begin = Instant::now();
        let mut stream = TcpStream::connect((address, port))?;
        let connect_time = begin.elapsed();
        let mut body = Vec::new();
        stream.read_to_end(&mut body)?;
        let transfer_time = begin.elapsed().saturating_sub(connect_time);
        let correct_bytes =
            body.iter().enumerate().take_while(|(at, byte)| **byte == byte_at(*at)).count();
        Ok(Download { connect_time, transfer_time, correct_bytes })
    })?;
    let result = client.join().expect("no panic")?;
    server.join().expect("no panic")?;
    Ok(result)
}

fn byte_at(offset: usize) -> u8 {
    (offset % 251) as u8
}

pub(crate) fn read_trimmed(path: &str) -> Result<String> {
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

/// Opens one connection and sends a byte each way; returns the congestion control of both ends.
pub(crate) fn connect_and_read_congestion_control(testbed: &Testbed) -> Result<(String, String)> {
    connect_to(testbed, testbed.server().address())
}

/// The same to one of the server's addresses.
fn connect_to(testbed: &Testbed, address: Ipv4Addr) -> Result<(String, String)> {
    use rustix::net::sockopt::tcp_congestion;

    let (port_tx, port_rx) = std::sync::mpsc::channel();
    let server = testbed.server().run(move || -> io::Result<String> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        port_tx.send(listener.local_addr()?.port()).map_err(io::Error::other)?;
        let (mut stream, _) = listener.accept()?;
        stream.write_all(b"a")?;
        stream.read_exact(&mut [0])?;
        Ok(tcp_congestion(&stream)?)
    })?;
    let port = port_rx.recv()?;
    let client = testbed.client().run(move || -> io::Result<String> {
        let mut stream = TcpStream::connect((address, port))?;
        stream.read_exact(&mut [0])?;
        stream.write_all(b"b")?;
        Ok(tcp_congestion(&stream)?)
    })?;
    let client = client.join().expect("no panic")?;
    Ok((server.join().expect("no panic")?, client))
}
