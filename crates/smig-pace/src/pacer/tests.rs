//! Odd readings.

use std::time::Duration;

use smig_proto::Instant;

use super::{Pacer, RateSample};

const RTT: Duration = Duration::from_millis(50);

#[test]
fn a_round_trip_time_that_cannot_be_does_not_postpone_the_next_sample() {
    // The kernel's value before its first sample: 2^32 - 1 microseconds.
    let mut pacer = Pacer::new(Instant::from_nanos(0), Duration::from_micros(u32::MAX.into()), 0.0);
    assert!(pacer.bounds().rate >= 1448, "{pacer:?}");
    pacer.on_idle(Instant::from_nanos(0));
    assert!(pacer.is_due(Instant::from_nanos(2_000_000_000)));
}

fn steady_sample(acknowledged: u64) -> RateSample {
    RateSample {
        acknowledged,
        sent: acknowledged + 50_000,
        rtt: RTT,
        in_flight: 50_000,
        rtt_deviation: Duration::ZERO,
        min_rtt: RTT,
        retransmitted: 0,
        mss: 1448,
    }
}

/// Takes a sample of a steady 1.25 MB/s, and returns whether bulk is written ahead then.
fn writes_ahead_after_sample(pacer: &mut Pacer, now: Instant) -> bool {
    pacer.on_sample(now, steady_sample(now.as_nanos() / 800));
    pacer.bounds().write_ahead > 0
}

#[test]
fn a_process_whose_samples_are_late_writes_ahead() {
    let mut pacer = Pacer::new(Instant::from_nanos(0), RTT, 0.0);
    let mut now = Instant::from_nanos(0);
    let mut sample_after = |pacer: &mut Pacer, millis| {
        now = now + Duration::from_millis(millis);
        writes_ahead_after_sample(pacer, now)
    };
    for _ in 0..20 {
        assert!(!sample_after(&mut pacer, 7));
    }
    assert!(sample_after(&mut pacer, 150));
    let samples = (0..200).take_while(|_| sample_after(&mut pacer, 7)).count();
    assert!((10..199).contains(&samples), "{samples} samples");
}

#[test]
fn a_process_that_is_hardly_late_writes_ahead_or_does_not() {
    let mut pacer = Pacer::new(Instant::from_nanos(0), RTT, 0.0);
    let mut now = Instant::from_nanos(0);
    let mut ahead_after = |pacer: &mut Pacer, late_micros| {
        now = pacer.deadline().unwrap_or(now) + Duration::from_micros(late_micros);
        writes_ahead_after_sample(pacer, now)
    };
    assert!(!ahead_after(&mut pacer, 0));
    assert!((0..50).all(|_| !ahead_after(&mut pacer, 2_900)), "not late");
    assert!((0..50).all(|count| ahead_after(&mut pacer, 3_100 - count % 10 * 100)), "late");
    assert!(!(0..50).all(|_| ahead_after(&mut pacer, 1_900)), "not late any more");
}

#[test]
fn a_path_that_is_too_fast_to_be_paced_stays_so_with_a_queue() {
    let mut pacer = Pacer::new(Instant::from_nanos(0), RTT, 0.0);
    let sample_at = |pacer: &mut Pacer, millis: u64, rtt: Duration| {
        let (sent, in_flight) = (millis * 1_250_000, 1_250_000 * rtt.as_millis() as u64);
        let sample = RateSample {
            acknowledged: sent,
            sent: sent + in_flight,
            rtt,
            in_flight,
            rtt_deviation: Duration::ZERO,
            min_rtt: RTT,
            retransmitted: 0,
            mss: 1448,
        };
        pacer.on_sample(Instant::from_nanos(millis * 1_000_000), sample);
        pacer.bounds().rate
    };
    let rates: Vec<_> = (1..30).map(|count| sample_at(&mut pacer, 7 * count, RTT)).collect();
    assert_eq!(rates.last(), Some(&u64::MAX), "{rates:?}");
    assert!(pacer.is_path_too_fast());
    for count in 30..60 {
        assert_eq!(sample_at(&mut pacer, 7 * count, RTT * 3 / 2), u64::MAX);
    }
}

#[test]
fn a_burst_of_acknowledgements_does_not_switch_pacing_off() {
    let mut pacer = Pacer::new(Instant::from_nanos(0), RTT, 0.0);
    for count in 1..40 {
        // 10 MB arrive at once after 100 ms of 1 MB a second.
        let burst = if count >= 14 { 10_000_000 } else { 0 };
        let acknowledged = count * 7_000 + burst;
        pacer.on_sample(Instant::from_nanos(count * 7_000_000), steady_sample(acknowledged));
    }
    assert!(!pacer.is_path_too_fast());
    assert!(pacer.bounds().rate < u64::MAX);
}

#[test]
fn a_confirmed_rate_counts_for_two_round_trips() {
    let mut pacer = Pacer::new(Instant::from_nanos(0), RTT, 10e6);
    assert_eq!(pacer.bounds().rate, 10_000_000);
    let rates: Vec<_> = (1..=20)
        .map(|count: u64| {
            let acknowledged = count * 7_000;
            pacer.on_sample(Instant::from_nanos(count * 7_000_000), steady_sample(acknowledged));
            pacer.bounds().rate
        })
        .collect();
    assert_eq!(rates[0], 10_000_000);
    assert!(rates[19] < 5_000_000, "{rates:?}");
}

#[test]
fn bulk_without_a_limit_beside_others_is_paced_all_the_same() {
    // It once passed for bulk that is not paced, and migrated for its size.
    let mut pacer = Pacer::new(Instant::from_nanos(0), RTT, 0.0);
    let nothing = crate::sharing::Experience::default();
    pacer.start_sharing(Instant::from_nanos(0), &steady_sample(0), RTT, RTT * 100, nothing);
    writes_ahead_after_sample(&mut pacer, Instant::from_nanos(1_000_000));
    assert_eq!(pacer.bounds().rate, u64::MAX);
    assert!(!pacer.is_path_too_fast());
}

#[test]
fn a_late_process_keeps_its_part_beside_others() {
    let bound_after = |late: u64| {
        let mut pacer = Pacer::new(Instant::from_nanos(0), RTT, 0.0);
        pacer.alone.reset(Instant::from_nanos(0), 1_250_000.0);
        let nothing = crate::sharing::Experience::default();
        pacer.start_sharing(Instant::from_nanos(0), &steady_sample(0), RTT, RTT * 100, nothing);
        for count in 0..20 {
            let millis = count * (7 + late);
            let sample = RateSample {
                acknowledged: millis * 600,
                sent: millis * 600 + 60_000,
                rtt: RTT * 2,
                in_flight: 60_000,
                rtt_deviation: Duration::ZERO,
                min_rtt: RTT,
                retransmitted: 0,
                mss: 1448,
            };
            pacer.on_sample(Instant::from_nanos(millis * 1_000_000), sample);
        }
        pacer.bounds().max_outstanding
    };
    let (on_time, late) = (bound_after(0), bound_after(60));
    // 55 % of the rate, for the time by which it is late.
    assert!(late >= on_time + 687 * 55, "{late} instead of {on_time}");
}
