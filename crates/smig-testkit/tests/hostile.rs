//! Attacks derived from random bytes; `fuzz/` runs the same with a fuzzer's input.

use smig_proto::Side;
use smig_testkit::hostile::{AttackStats, attack};

/// xorshift64*: reproducible on all platforms.
struct RandomInput(u64);

impl RandomInput {
    fn next_bytes(&mut self, count: usize) -> Vec<u8> {
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

fn seed_count() -> u64 {
    std::env::var("SMIG_SEQUENCES").map_or(5000, |text| text.parse().unwrap())
}

fn run_attacks(engine_side: Side) {
    let mut total = AttackStats::default();
    for seed in 1..=seed_count() {
        let input = RandomInput(seed).next_bytes(600);
        // Printed if the attack fails.
        println!("seed {seed}");
        let stats = attack(engine_side, &input);
        total.steps += stats.steps;
        total.streams += stats.streams;
        total.migrations += stats.migrations;
        total.ended_directions += stats.ended_directions;
        total.closed_connections += stats.closed_connections;
    }
    println!("{total:?}");
    // The attacks must cover enough of the engine.
    assert!(total.steps > 30_000 && total.streams > 2_000, "{total:?}");
    assert!(total.migrations > 100 && total.ended_directions > 100, "{total:?}");
}

#[test]
fn a_server_survives_any_frames() {
    run_attacks(Side::Server);
}

#[test]
fn a_client_survives_any_frames() {
    run_attacks(Side::Client);
}
