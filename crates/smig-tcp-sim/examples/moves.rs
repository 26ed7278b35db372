//! Prints by how much a migration to a cold connection delays a download, as the migration policy predicts it and as
//! it is, and what the policy decides.
//!
//!   cargo run --release -p smig-tcp-sim --example moves
//!
//! The download is paced. It migrates when its connection has its window, `left` bytes before its end, or stays.

use std::time::Duration;

use smig_link::LossSpec;
use smig_proto::Priority;
use smig_proto::policy::{
    Decision, MigrationHint, MigrationPolicy, PathState, PolicyInput, Transfer,
};
use smig_tcp_sim::{Algorithm, BulkConnection, Cell, MSS, Release, Sending, TcpInfo, matrix};

const SEEDS: u64 = 5;

/// Means over seeds: its time in seconds, and what was measured when it migrated.
fn run(cell: &Cell, connection: BulkConnection) -> (f64, TcpInfo) {
    let sending = Sending { has_bulk: true, connection, release: Release::Bounded };
    let mut seconds = 0.0;
    let mut info = TcpInfo::default();
    for seed in 1..=SEEDS {
        let result = cell.run(sending, seed).expect("a valid cell");
        let time = result.bulk_time.expect("the download ends");
        seconds += time.as_secs_f64() / SEEDS as f64;
        info = result.info_at_move.unwrap_or_default();
    }
    (seconds, info)
}

fn input(info: &TcpInfo, left: u64) -> (PathState, PolicyInput) {
    let path = PathState {
        rtt: info.min_rtt,
        window: info.cwnd,
        target_window: 10 * MSS,
        is_paced: true,
        is_lossy: false,
    };
    let input = PolicyInput {
        transfer: Transfer::Sized(left),
        transferred_bytes: 0,
        age: Duration::ZERO,
        priority: Priority::default(),
        other_streams: 1,
        delivery_bytes_per_s: Some(info.delivery_rate),
        path: Some(path),
        hint: MigrationHint::None,
    };
    (path, input)
}

fn main() {
    println!(
        "{:<24}{:>6}{:>11}{:>11}{:>9}{:>9}  decision",
        "cell", "left", "predicted", "simulated", "%", "%"
    );
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
                let (stayed, _) = run(&cell, BulkConnection::Shared);
                let (moved, info) = run(&cell, BulkConnection::Moved { after });
                let (path, input) = input(&info, left);
                let predicted = path.cold_start_delay(info.delivery_rate).as_secs_f64();
                let rest = left as f64 / (info.delivery_rate as f64).max(1.0);
                println!(
                    "{:<24}{:>4}MB{:>8.0} ms{:>8.0} ms{:>8.2}%{:>8.2}%  {}",
                    cell.name,
                    left / 1_000_000,
                    predicted * 1e3,
                    (moved - stayed) * 1e3,
                    100.0 * predicted / rest,
                    100.0 * (moved - stayed) / rest,
                    match MigrationPolicy::default().decide(&input) {
                        Decision::Migrate(_) => "moves",
                        Decision::Stay(why) => why.as_str(),
                    }
                );
            }
        }
    }
}
