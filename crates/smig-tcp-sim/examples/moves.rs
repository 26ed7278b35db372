//! Prints by how much a migration to a connection in slow start delays a paced download, and what the session knows then
//! that could be a reason for it.
//!
//!   cargo run --release -p smig-tcp-sim --example moves
//!
//! The download migrates when its connection has its window, `left` bytes before its end, or stays.

use std::time::Duration;

use smig_link::LossSpec;
use smig_proto::policy::Interference;
use smig_tcp_sim::{Algorithm, BulkConnection, BulkLimit, Cell, Sending, matrix};

const SEEDS: u64 = 5;

/// Returns the mean over seeds of its time in seconds, and the number of runs in which packets were lost again and again at
/// some time.
fn run(cell: &Cell, connection: BulkConnection) -> (f64, u64) {
    let sending = Sending { has_bulk: true, connection, limit: BulkLimit::Bounded };
    let (mut seconds, mut lossy_runs) = (0.0, 0);
    for seed in 1..=SEEDS {
        let mut is_lossy = false;
        let result = cell
            .trace(sending, seed, |_, pacer, _| {
                is_lossy |= pacer.is_some_and(|pacer| pacer.interference() == Interference::Loss);
            })
            .expect("a valid cell");
        let time = result.bulk_time.expect("the download ends");
        seconds += time.as_secs_f64() / SEEDS as f64;
        lossy_runs += u64::from(is_lossy);
    }
    (seconds, lossy_runs)
}

fn main() {
    println!("{:<24}{:>6}{:>11}{:>9}  with recurring loss", "cell", "left", "delay", "%");
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        for (name, kbit, rtt_ms, queue, loss) in [
            ("2M-50ms", 2_000, 50, 60, 0.0),
            ("10M-50ms", 10_000, 50, 80, 0.0),
            ("30M-40ms", 30_000, 40, 500, 0.0),
            ("100M-20ms", 100_000, 20, 300, 0.0),
            ("100M-80ms", 100_000, 80, 1000, 0.0),
            ("10M-200ms", 10_000, 200, 160, 0.0),
            ("10M-600ms", 10_000, 600, 400, 0.0),
            ("10M-50ms-1%", 10_000, 50, 80, 0.01),
            ("10M-50ms-beside", 10_000, 50, 80, 0.0),
        ] {
            let mut cell = matrix::wired(name, kbit, rtt_ms, queue, algorithm);
            if loss > 0.0 {
                cell.path.forward.loss = Some(LossSpec::Random(loss));
            }
            if name.ends_with("beside") {
                cell.cross = matrix::beside(name, queue, algorithm, Algorithm::Cubic, 0).cross;
            }
            cell.measured.1 = Duration::from_secs(500);
            let bandwidth_delay = kbit * 125 * rtt_ms / 1000;
            let after = (bandwidth_delay * 8).max(1_000_000);
            for left in [1_000_000, 10_000_000, 50_000_000] {
                cell.bulk_bytes = Some(after + left);
                let (stayed, lossy_runs) = run(&cell, BulkConnection::Shared);
                let (moved, _) = run(&cell, BulkConnection::Moved { after });
                println!(
                    "{:<24}{:>4}MB{:>8.0} ms{:>8.2}%  {lossy_runs} of {SEEDS} runs",
                    cell.name,
                    left / 1_000_000,
                    (moved - stayed) * 1e3,
                    100.0 * (moved - stayed) / stayed,
                );
            }
        }
    }
}
