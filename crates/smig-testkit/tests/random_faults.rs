//! Verifies that the checks of the random sequences detect a fault: one frame of a correct run is lost or altered.

use smig_testkit::mesh::{FaultInjection, replay, replay_with_fault, sequence_from_seed};

/// Number of sequences: with a quarter of them, shares differ by a half when anything else changes.
const SEQUENCES: u64 = 1_000;

/// Loses or alters one frame in each of many random sequences. Returns the percentage detected, of those in which
/// the fault took effect.
fn percent_detected(make_injection: fn(u32) -> FaultInjection) -> u32 {
    let (mut injected_count, mut detected_count) = (0, 0);
    for seed in 0..SEQUENCES {
        let (setup, ops) = sequence_from_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        match replay_with_fault(setup, &ops, make_injection(u32::try_from(seed % 5).unwrap())) {
            Ok(seen) if !seen.contains(&"fault injected") => {}
            Ok(_) => injected_count += 1,
            Err(_) => {
                injected_count += 1;
                detected_count += 1;
            }
        }
    }
    println!("{:?}: {detected_count} of {injected_count} detected", make_injection(0));
    assert!(injected_count >= 20, "the fault took effect only {injected_count} times");
    detected_count * 100 / injected_count
}

#[test]
fn swapped_bytes_are_detected() {
    assert!(percent_detected(FaultInjection::SwapBytes) >= 80);
}
#[test]
fn lost_data_is_detected() {
    assert!(percent_detected(FaultInjection::DropData) >= 80);
}
#[test]
fn a_body_that_ends_early_is_detected() {
    assert!(percent_detected(FaultInjection::EndEarly) >= 80);
}
#[test]
fn a_lost_window_update_of_a_stream_is_detected() {
    assert!(percent_detected(FaultInjection::DropStreamCredit) >= 50);
}
#[test]
fn a_lost_window_update_of_a_connection_is_detected() {
    assert!(percent_detected(FaultInjection::DropConnectionCredit) >= 50);
}
#[test]
fn a_lost_answer_to_migrate_is_detected() {
    assert!(percent_detected(FaultInjection::DropAnswer) >= 80);
}
#[test]
fn a_lost_reset_is_detected() {
    assert!(percent_detected(FaultInjection::DropReset) >= 15);
}
#[test]
fn the_same_sequences_pass_without_faults() {
    for seed in 0..SEQUENCES {
        let (setup, ops) = sequence_from_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        replay(setup, &ops).unwrap();
    }
}
