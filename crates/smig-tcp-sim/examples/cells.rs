//! Prints, for each cell whose name contains one of the arguments, what ways of sending a download give.
//!
//!   cargo run --release -p smig-tcp-sim --example cells -- 10M-50ms lte --seeds 3
//!
//! Columns: mean and 95th percentile of small responses over those with nothing else on the link; the download's rate in
//! Mbit/s (its time in seconds, if it ends), and the same over that of one unbounded connection; the share of others'
//! downloads, its least and its most; the mean queue in packets; the number of responses that did not arrive. `--sending
//! own/lowat,own/rate` selects rows by their second column, beside plain. With `--step 131` each seed's download begins 131 ms later: beside a
//! download of others, seeds alone change nothing on wired links.

use std::process::ExitCode;
use std::time::Duration;

use smig_tcp_sim::{BulkConnection, BulkLimit, Cell, Measurement, Sending, matrix};

const SENDINGS: [(&str, BulkConnection, BulkLimit); 6] = [
    ("plain", BulkConnection::Shared, BulkLimit::Unbounded),
    ("shared/lowat", BulkConnection::Shared, BulkLimit::LowUnsent),
    ("own/lowat", BulkConnection::Own, BulkLimit::LowUnsent),
    ("own/rate", BulkConnection::Own, BulkLimit::Rate),
    ("own/bounded", BulkConnection::Own, BulkLimit::Bounded),
    ("shared/bounded", BulkConnection::Shared, BulkLimit::Bounded),
];

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut take = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.remove(at);
        (at < words.len()).then(|| words.remove(at))
    };
    let seeds = take("--seeds").and_then(|count| count.parse().ok()).unwrap_or(2);
    let only = take("--sending");
    let step = take("--step").and_then(|millis| millis.parse().ok()).unwrap_or(0);
    let starts = Starts { seeds, step: Duration::from_millis(step) };
    let chosen = |cell: &Cell| {
        words.is_empty() || words.iter().any(|w| cell.name.contains(&w.to_lowercase()))
    };
    println!(
        "{:<28}{:<16}{:>7}{:>7}{:>8}{:>7}{:>22}{:>7}{:>5}",
        "cell", "sending", "mean", "p95", "Mbit/s", "rate", "others", "queue", "miss"
    );
    let cells: Vec<_> = matrix::cells().into_iter().filter(chosen).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results: Vec<_> = cells.iter().map(|_| std::sync::Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(index) =
                    Some(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                    && let Some(cell) = cells.get(index)
                {
                    *results[index].lock().unwrap() = Some(report(cell, starts, only.as_deref()));
                }
            });
        }
    });
    for result in results {
        print!("{}", result.into_inner().unwrap().unwrap_or_default());
    }
    ExitCode::SUCCESS
}

/// Runs of a cell: as many seeds, and each download so much later than the one before.
#[derive(Clone, Copy)]
struct Starts {
    seeds: u64,
    step: Duration,
}

/// Means over the starts.
#[derive(Clone, Copy, Default)]
struct Means {
    /// The extremes of others' share.
    least_share: f64,
    most_share: f64,
    mean: f64,
    p95: f64,
    rate: f64,
    time: f64,
    share: f64,
    queue: f64,
    missing: f64,
}

fn measure(cell: &Cell, sending: Sending, starts: Starts) -> Means {
    let mut means = Means { least_share: f64::INFINITY, ..Means::default() };
    for seed in 0..starts.seeds {
        let cell = cell.clone().later(starts.step * seed as u32);
        let result: Measurement = cell.run(sending, seed + 1).expect("a valid cell");
        means.least_share = means.least_share.min(result.cross_share());
        means.most_share = means.most_share.max(result.cross_share());
        let each = 1.0 / starts.seeds as f64;
        means.mean += result.mean_ms() * each;
        means.p95 += result.quantile_ms(0.95) * each;
        means.rate += result.bulk_rate * each / 125_000.0;
        means.time += result.bulk_time.map_or(f64::NAN, |time| time.as_secs_f64()) * each;
        means.share += result.cross_share() * each;
        means.queue += result.queue * each;
        means.missing += result.missing as f64 * each;
    }
    means
}

fn report(cell: &Cell, starts: Starts, only: Option<&str>) -> String {
    let mut alone_cell = cell.clone();
    alone_cell.cross.clear();
    alone_cell.bulk_bytes = None;
    let sending = |has_bulk, connection, limit| Sending { has_bulk, connection, limit };
    let nothing = sending(false, BulkConnection::Shared, BulkLimit::Unbounded);
    alone_cell.measured.1 = alone_cell.measured.1.min(Duration::from_secs(45));
    let alone = measure(&alone_cell, nothing, starts);
    let plain = measure(cell, sending(true, BulkConnection::Shared, BulkLimit::Unbounded), starts);
    let mut text = String::new();
    for (name, connection, limit) in SENDINGS {
        if name != "plain" && only.is_some_and(|only| !only.split(',').any(|only| name == only)) {
            continue;
        }
        let means = match name {
            "plain" => plain,
            _ => measure(cell, sending(true, connection, limit), starts),
        };
        let (value, over_plain) = if cell.bulk_bytes.is_some() {
            (means.time, means.time / plain.time)
        } else {
            (means.rate, means.rate / plain.rate)
        };
        text += &format!(
            "{:<28}{:<16}{:>7.2}{:>7.2}{:>8.2}{:>7.3}{:>7.2} ({:.2} to {:.2}){:>7.1}{:>5.1}\n",
            cell.name,
            name,
            means.mean / alone.mean,
            means.p95 / alone.p95,
            value,
            over_plain,
            means.share,
            means.least_share,
            means.most_share,
            means.queue,
            means.missing
        );
    }
    text
}
