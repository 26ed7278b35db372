//! Packets per second through one direction of a link, on one thread, without any network.
//!
//! `cargo bench -p smig-link --bench link` prints one line per case: the fastest of several rounds,
//! since other load on the machine can only make a round slower. 1 Gbit/s of 1,500-byte packets is
//! 83,333 packets per second in each direction; the last column is how many such directions one
//! core could emulate if the kernel's share cost nothing.

use std::hint::black_box;
use std::time::{Duration, Instant};

use smig_link::{
    DirectionSpec, GilbertElliott, JitterSpec, Link, LinkEvent, LossSpec, LteSpec, NormalJitter,
    Qdisc, QueueLimit, Rate, RateSpec, Time,
};

const ROUNDS: usize = 20;
const PACKETS: u32 = 200_000;
const PACKET_BYTES: usize = 1_500;
const GIGABIT_PACKETS_PER_S: f64 = 1e9 / 8.0 / PACKET_BYTES as f64;

fn main() {
    println!("{:<36} {:>12} {:>9} {:>11}", "case", "packets/s", "ns each", "x 1 Gbit/s");
    let gigabit = Rate::mbit(1_000);
    let plain = DirectionSpec::new(gigabit, Duration::from_millis(25), QueueLimit::packets(1_000));
    let with = |discipline| DirectionSpec { discipline, ..plain.clone() };
    run("constant, drop-tail", &plain, 1.0);
    run("constant, drop-tail, 2 x overload", &plain, 2.0);
    run("constant, drop-head, 2 x overload", &with(Qdisc::DropHead), 2.0);
    run("constant, codel, 2 x overload", &with(Qdisc::codel()), 2.0);
    run("constant, fq_codel, 100 flows", &with(Qdisc::fq_codel()), 1.0);
    run("constant, fq_codel, 100 flows, 2 x overload", &with(Qdisc::fq_codel()), 2.0);
    let normal =
        NormalJitter { deviation: Duration::from_millis(5), redraw_interval: Duration::ZERO };
    let bursts =
        GilbertElliott { good_to_bad: 0.001, bad_to_good: 0.25, loss_bad: 1.0, loss_good: 0.0 };
    let impaired = DirectionSpec {
        jitter: Some(JitterSpec::Normal(normal)),
        loss: Some(LossSpec::Bursts(bursts)),
        ..plain.clone()
    };
    run("jitter of each packet, bursts of loss", &impaired, 1.0);
    let lte = LteSpec { mean: gigabit, period_s: 10, seed: Some(1) };
    run("generated trace of 1 Gbit/s", &DirectionSpec { rate: RateSpec::Lte(lte), ..plain }, 1.0);
}

/// Offers packets at `load` times 1 Gbit/s and removes those that arrive, one event at a time.
fn run(name: &str, spec: &DirectionSpec, load: f64) {
    let best = (0..ROUNDS).map(|_| round(spec, load)).min().unwrap_or_default();
    let each = best.as_secs_f64() / f64::from(PACKETS);
    let rate = 1.0 / each;
    let times = rate / GIGABIT_PACKETS_PER_S;
    println!("{name:<36} {rate:>12.0} {:>9.1} {times:>11.0}", each * 1e9);
}

fn round(spec: &DirectionSpec, load: f64) -> Duration {
    let mut link = Link::with_log(spec, 1, QueueBytesSum::default()).expect("a valid spec");
    let gap = Duration::from_secs_f64(1.0 / GIGABIT_PACKETS_PER_S / load);
    // Packet buffers are reused, as in the thread that forwards real packets.
    let mut free_packets: Vec<Vec<u8>> = (0..64).map(packet).collect();
    let begin = Instant::now();
    for index in 0..PACKETS {
        let now = Time::ZERO + gap * index;
        while let Some(arrival) = link.pop(now) {
            free_packets.push(arrival.packet);
        }
        free_packets.extend(link.reclaim());
        let packet = free_packets.pop().unwrap_or_else(|| packet(index));
        if let smig_link::EnqueueResult::Dropped(packet) = link.enqueue(now, packet) {
            free_packets.push(packet);
        }
        black_box(link.next_pop_at());
    }
    let took = begin.elapsed();
    black_box((link.counters(), link.log().0));
    took
}

/// Receives every event, like the log of a recorded run, and adds up something, so that none is optimised away.
#[derive(Default)]
struct QueueBytesSum(u64);

impl smig_link::LinkLog for QueueBytesSum {
    fn record(&mut self, event: LinkEvent) {
        self.0 = self.0.wrapping_add(event.queue_bytes);
    }
}

/// A TCP packet of one of a hundred flows.
fn packet(index: u32) -> Vec<u8> {
    let mut packet = vec![0; PACKET_BYTES];
    packet[0] = 0x45;
    packet[9] = 6;
    packet[12..20].copy_from_slice(&[10, 99, 0, 1, 10, 99, 0, 2]);
    packet[20..22].copy_from_slice(&443_u16.to_be_bytes());
    packet[22..24].copy_from_slice(&(50_000 + (index % 100) as u16).to_be_bytes());
    packet
}
