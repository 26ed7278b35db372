//! Random sequences of steps on two engines and several connections, held to a reference model.
//!
//! `SMIG_SEED` and `SMIG_SEQUENCES` choose the sequences. Run it with `--profile sim`.

use smig_testkit::mesh::{Coverage, random_sequences};

fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{name}={text} is not a number"))
}

/// Cases that many sequences must meet, or the test has stopped to test: in thousandths.
const EXPECTED: &[(&str, u64)] = &[];

fn check(coverage: &Coverage, sequences: u64) {
    for (case, count) in coverage {
        println!("{count:>8} sequences: {case}");
    }
    if sequences < 1000 {
        return;
    }
    for &(case, thousandths) in EXPECTED {
        let count = coverage.get(case).copied().unwrap_or(0);
        let least = sequences * thousandths / 1000;
        assert!(count >= least.max(1), "only {count} sequences met \"{case}\", not {least}");
    }
}

#[test]
fn random_steps_lose_and_invent_nothing() {
    let fresh = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |age| age.as_nanos() as u64);
    let (seed, sequences) = (number("SMIG_SEED", fresh), number("SMIG_SEQUENCES", 20_000));
    println!("SMIG_SEED={seed:#x} SMIG_SEQUENCES={sequences}");
    let start = std::time::Instant::now();
    match random_sequences(seed, sequences) {
        Ok(coverage) => {
            let seconds = start.elapsed().as_secs_f64();
            println!("{sequences} sequences in {seconds:.1} s");
            check(&coverage, sequences);
        }
        Err(failure) => panic!("{failure}"),
    }
}
