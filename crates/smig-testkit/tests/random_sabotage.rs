//! Verifies that the checks of the random sequences detect a fault: one frame of a correct run is corrupted.

use smig_testkit::mesh::{FaultInjection, random, replay, replay_with_fault};

/// Corrupts one frame in each of many random sequences. Returns the percentage detected, of those in which
/// the fault took effect.
fn noticed(kind: fn(u32) -> FaultInjection) -> u32 {
    let (mut happened, mut found) = (0, 0);
    for seed in 0..250_u64 {
        let (setup, ops) = random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        match replay_with_fault(setup, &ops, kind(u32::try_from(seed % 5).unwrap())) {
            Ok(seen) if !seen.contains(&"sabotage") => {}
            Ok(_) => happened += 1,
            Err(_) => {
                happened += 1;
                found += 1;
            }
        }
    }
    println!("{:?}: {found} of {happened} noticed", kind(0));
    assert!(happened >= 20, "the fault hardly ever happened: {happened}");
    found * 100 / happened
}

#[test]
fn bytes_that_change_places_are_noticed() {
    assert!(noticed(FaultInjection::SwapBytes) >= 80);
}
#[test]
fn lost_data_is_noticed() {
    assert!(noticed(FaultInjection::DropData) >= 80);
}
#[test]
fn a_body_that_ends_early_is_noticed() {
    assert!(noticed(FaultInjection::EndEarly) >= 80);
}
#[test]
fn a_lost_window_update_of_a_stream_is_noticed() {
    assert!(noticed(FaultInjection::DropStreamCredit) >= 50);
}
#[test]
fn a_lost_window_update_of_a_connection_is_noticed() {
    assert!(noticed(FaultInjection::DropConnectionCredit) >= 50);
}
#[test]
fn a_lost_answer_to_migrate_is_noticed() {
    assert!(noticed(FaultInjection::DropAnswer) >= 80);
}
#[test]
fn a_lost_reset_is_noticed() {
    assert!(noticed(FaultInjection::DropReset) >= 15);
}
#[test]
fn the_same_sequences_pass_unspoiled() {
    for seed in 0..250_u64 {
        let (setup, ops) = random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        replay(setup, &ops).unwrap();
    }
}
