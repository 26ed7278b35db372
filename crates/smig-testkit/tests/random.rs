//! Random sequences of steps on two engines and several connections, compared with a reference model.
//!
//! `SMIG_SEED` and `SMIG_SEQUENCES` select the sequences; `SMIG_SEED=fresh` uses a new seed. Run it with
//! `--profile sim`.

use smig_testkit::mesh::{Coverage, run_random_sequences};

/// Fixed by default, so that results are reproducible on other machines.
const SEED: u64 = 0x51_4d49_4721;

fn seed() -> u64 {
    if std::env::var("SMIG_SEED").is_ok_and(|seed| seed == "fresh") {
        return std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(SEED, |age| age.as_nanos() as u64);
    }
    number_from_env("SMIG_SEED", SEED)
}

fn number_from_env(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{name}={text} is not a number"))
}

/// Returns the default number of sequences. Without optimisation, a sequence takes twenty times as long.
/// Cargo names the directory of a test after its profile.
fn default_sequence_count() -> u64 {
    let path = std::env::current_exe().unwrap_or_default();
    if path.components().any(|part| part.as_os_str() == "sim") { 20_000 } else { 1000 }
}

/// Minimum frequency of each case, in thousandths of the sequences: about half of what is usual. Below it,
/// the test does not cover the case any more.
const MIN_CASE_PERMILLE: &[(&str, u64)] = &[
    ("accepting answer", 200),
    ("adrift", 6),
    ("bulk", 300),
    ("bulk held back", 30),
    ("collision", 100),
    ("connection closed to cancel", 5),
    ("cut", 150),
    ("decline", 250),
    ("decline after the carrier was used", 20),
    ("drain", 120),
    ("followed by client", 150),
    ("followed by server", 200),
    ("frames before their barrier", 50),
    ("goaway", 150),
    ("join accepted", 500),
    ("join refused", 20),
    ("join refused by its owner", 4),
    ("join of an unknown session", 20),
    ("migration answer time", 20),
    ("migrations", 100),
    ("MIGRATE by client", 300),
    ("MIGRATE by server", 250),
    ("MIGRATE on a connection that is going away", 40),
    ("migration of a push", 40),
    ("migration of a tunnel", 150),
    ("migration completed by client", 200),
    ("migration completed by server", 150),
    ("new connection lost during a migration", 10),
    ("offer", 200),
    ("offer declined", 150),
    ("offer in a collision", 40),
    ("old connection lost during a migration", 25),
    ("pull", 100),
    ("push", 150),
    ("refused stream", 30),
    ("reset during a migration", 60),
    ("resumed at the client", 100),
    ("resumed at the server", 100),
    ("shutdown", 30),
    ("stalled stream", 10),
    ("unbound carrier time", 1),
    ("upload stopped", 10),
    ("upload stopped during its own migration", 1),
    ("complete response, rest of the request not needed", 0),
];

fn check_coverage(coverage: &Coverage, sequences: u64) {
    for (case, count) in coverage {
        println!("{count:>8} sequences: {case}");
    }
    if sequences < 10_000 {
        // Too few for the rare cases.
        return;
    }
    for &(case, thousandths) in MIN_CASE_PERMILLE {
        let count = coverage.get(case).copied().unwrap_or(0);
        let min_count = sequences * thousandths / 1000;
        assert!(
            count >= min_count.max(1),
            "only {count} sequences met \"{case}\", not {min_count}"
        );
    }
}

#[test]
fn random_sequences_pass_all_checks() {
    let (seed, sequences) = (seed(), number_from_env("SMIG_SEQUENCES", default_sequence_count()));
    println!("SMIG_SEED={seed:#x} SMIG_SEQUENCES={sequences}");
    let start = std::time::Instant::now();
    match run_random_sequences(seed, sequences) {
        Ok(coverage) => {
            let seconds = start.elapsed().as_secs_f64();
            println!("{sequences} sequences in {seconds:.1} s");
            check_coverage(&coverage, sequences);
        }
        Err(failure) => panic!("{failure}"),
    }
}
