//! Attacks derived from random bytes; `fuzz/` runs the same with a fuzzer's input.

use smig_proto::Side;
use smig_testkit::hostile::{Outcome, attack};

/// xorshift64*: reproducible on all platforms.
struct RandomInput(u64);

impl RandomInput {
    fn take(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.0 ^= self.0 >> 12;
                self.0 ^= self.0 << 25;
                self.0 ^= self.0 >> 27;
                (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
            })
            .collect()
    }
}

fn seeds() -> u64 {
    std::env::var("SMIG_SEQUENCES").map_or(5000, |text| text.parse().unwrap())
}

fn attacks(role: Side) {
    let mut total = Outcome::default();
    for seed in 1..=seeds() {
        let input = RandomInput(seed).take(600);
        // Printed if the attack fails.
        println!("seed {seed}");
        let outcome = attack(role, &input);
        total.steps += outcome.steps;
        total.streams += outcome.streams;
        total.moves += outcome.moves;
        total.ends += outcome.ends;
        total.closed += outcome.closed;
    }
    println!("{total:?}");
    // The attacks must cover enough of the engine.
    assert!(total.steps > 30_000 && total.streams > 2_000, "{total:?}");
    assert!(total.moves > 100 && total.ends > 100, "{total:?}");
}

#[test]
fn a_server_survives_any_frames() {
    attacks(Side::Server);
}

#[test]
fn a_client_survives_any_frames() {
    attacks(Side::Client);
}
