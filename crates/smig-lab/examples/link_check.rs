//! Measures an emulated link with real TCP: `cargo run --release -p smig-lab
//! --example link_check [Mbit/s] [RTT ms] [queue packets] [seconds]`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use smig_lab::link::{LinkSpec, QueueLimit, Rate};
use smig_lab::millis;
use smig_lab::netns::{Host, HostSpec, Testbed, enter_user_namespace};

const ECHO_PORT: u16 = 7;
const BULK_PORT: u16 = 19;
const ECHOES: usize = 40;

fn main() -> Result<()> {
    let privilege = enter_user_namespace()?;
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .map(|text| text.parse().with_context(|| format!("{text:?} is not a number")))
        .collect::<Result<_>>()?;
    let argument = |index: usize, default| arguments.get(index).copied().unwrap_or(default);
    let (rate, round_trip) = (Rate::mbit(argument(0, 10)), Duration::from_millis(argument(1, 50)));
    let queue = usize::try_from(argument(2, 75))?;
    let link = LinkSpec::symmetric(rate, round_trip, QueueLimit::packets(queue));
    let seconds = Duration::from_secs(argument(3, 10));
    println!("commanded: {link} (rights from: {privilege:?})");
    for congestion_control in ["cubic", "bbr"] {
        if let Err(error) = check(link, congestion_control, seconds) {
            println!("{congestion_control}: {error:#}");
        }
    }
    Ok(())
}

fn check(link: LinkSpec, congestion_control: &str, seconds: Duration) -> Result<()> {
    let testbed = Testbed::builder(link)
        .server(HostSpec::default().congestion_control(congestion_control))
        .client(HostSpec::default().congestion_control(congestion_control))
        .start()?;
    let server = testbed.server();
    start(server, ECHO_PORT, |mut stream| {
        stream.set_nodelay(true)?;
        let mut buffer = [0; 64];
        loop {
            stream.read_exact(&mut buffer)?;
            stream.write_all(&buffer)?;
        }
    })?;
    start(server, BULK_PORT, |mut stream| {
        let block = vec![0x5a; 64 * 1024];
        loop {
            stream.write_all(&block)?;
        }
    })?;

    let address = server.address();
    let idle = testbed.client().run(move || echoes(address))?.join().expect("no panic")?;
    let bulk = testbed.client().run(move || goodput(address, seconds))?;
    let beside = testbed.client().run(move || echoes(address))?.join().expect("no panic")?;
    let bits_per_second = bulk.join().expect("no panic")?;

    let most = link.to_client.rate.as_mbit() * 1448.0 / 1500.0;
    println!("{congestion_control}:");
    println!("  echo, unloaded:    {}", describe(idle));
    println!("  echo, beside bulk: {}", describe(beside));
    println!(
        "  bulk goodput:      {:.3} Mbit/s ({:.1} % of the {most:.3} that the headers leave)",
        bits_per_second / 1e6,
        bits_per_second / 1e4 / most,
    );
    let report = testbed.report();
    let lateness = report.lateness;
    println!(
        "  link to client:    {} packets, {} dropped, queue up to {}; device drops {}",
        report.to_client.delivered_packets,
        report.to_client.dropped_packets,
        report.to_client.longest_queue,
        testbed.device_drops()?,
    );
    println!(
        "  lateness:          p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms ({:?})",
        millis::of(lateness.p50),
        millis::of(lateness.p99),
        millis::of(lateness.max),
        report.scheduling,
    );
    Ok(())
}

/// Listens on `port` in `host` and handles each connection on its own thread.
fn start(host: &Host, port: u16, handle: fn(TcpStream) -> io::Result<()>) -> Result<()> {
    let listen = host.run(move || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    let listener = listen.join().expect("no panic").context("cannot listen")?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || handle(stream));
        }
    });
    Ok(())
}

/// Round trips of 64 bytes, one after another, sorted. The first waits for TCP
/// to warm up and is not counted.
fn echoes(address: Ipv4Addr) -> io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect((address, ECHO_PORT))?;
    stream.set_nodelay(true)?;
    let mut buffer = [0; 64];
    let mut took = Vec::with_capacity(ECHOES);
    for _ in 0..=ECHOES {
        let begin = Instant::now();
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        took.push(begin.elapsed());
    }
    took.remove(0);
    took.sort();
    Ok(took)
}

/// Bits per second of payload, from the second fifth of the time on.
fn goodput(address: Ipv4Addr, seconds: Duration) -> io::Result<f64> {
    let mut stream = TcpStream::connect((address, BULK_PORT))?;
    let mut buffer = vec![0; 256 * 1024];
    let begin = Instant::now();
    let mut counted: Option<(Instant, u64)> = None;
    loop {
        let length = stream.read(&mut buffer)?;
        let now = Instant::now();
        match &mut counted {
            Some((_, bytes)) => *bytes += length as u64,
            None if now - begin >= seconds / 5 => counted = Some((now, 0)),
            None => {}
        }
        if let Some((since, bytes)) = counted
            && now - begin >= seconds
        {
            return Ok(bytes as f64 * 8.0 / (now - since).as_secs_f64());
        }
    }
}

fn describe(sorted: Vec<Duration>) -> String {
    let at = |share: f64| millis::of(sorted[((sorted.len() - 1) as f64 * share) as usize]);
    format!("p50 {:.2} ms, p95 {:.2} ms, max {:.2} ms", at(0.5), at(0.95), at(1.0))
}
