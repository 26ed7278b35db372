//! Prints what is possible on a path: the delay of small responses and the rate of a download that keeps a number of bytes in
//! flight that is known beforehand, beside those of the pacer, which has to find it.
//!
//!   cargo run --release -p smig-tcp-sim --example frontier -- wifi lte
//!
//! For each cell whose name contains one of the arguments and whose download does not end, and windows in units of its bandwidth-delay product (the rate of one
//! unbounded connection times the round-trip time without a queue): mean and 95th percentile of small responses over those
//! without a download, and the rate over that of the unbounded connection.

use smig_tcp_sim::{BulkConnection, BulkLimit, Cell, Sending, matrix};

const SEEDS: u64 = 3;
const WINDOWS: [f64; 9] = [0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0];

/// Returns the mean and the 95th percentile of small responses in milliseconds, and the download's bytes per second.
fn measure(cell: &Cell, has_bulk: bool, limit: BulkLimit) -> [f64; 3] {
    let sending = Sending { has_bulk, connection: BulkConnection::Shared, limit };
    let mut sums = [0.0; 3];
    for seed in 1..=SEEDS {
        let result = cell.run(sending, seed).expect("a valid cell");
        let values = [result.mean_ms(), result.quantile_ms(0.95), result.bulk_rate];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value / SEEDS as f64);
    }
    sums
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).map(|word| word.to_lowercase()).collect();
    println!("{:<28}{:<10}{:>7}{:>7}{:>7}", "cell", "window", "mean", "p95", "rate");
    for cell in matrix::cells() {
        if cell.bulk_bytes.is_some() || !words.iter().any(|word| cell.name.contains(word)) {
            continue;
        }
        let alone = measure(&cell, false, BulkLimit::Unbounded);
        let plain = measure(&cell, true, BulkLimit::Unbounded);
        let print = |name: &str, values: [f64; 3]| {
            let [mean, p95] = [values[0] / alone[0], values[1] / alone[1]];
            println!(
                "{:<28}{name:<10}{mean:>7.2}{p95:>7.2}{:>7.3}",
                cell.name,
                values[2] / plain[2]
            );
        };
        print("unbounded", plain);
        print("pacer", measure(&cell, true, BulkLimit::Bounded));
        let round_trip = cell.path.forward.delay + cell.path.reverse.delay;
        let product = plain[2] * round_trip.as_secs_f64();
        for window in WINDOWS {
            let bytes = (product * window) as u64;
            print(&format!("{window:.2}"), measure(&cell, true, BulkLimit::Window(bytes)));
        }
    }
}
