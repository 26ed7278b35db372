//! What sharing makes of rounds, one after the other.

use super::*;

const BASE: Duration = Duration::from_millis(50);
const ROUND: SharedRound = SharedRound {
    now: Instant::from_nanos(0),
    base: BASE,
    rtt: BASE,
    is_rtt_measured: true,
    threshold: Duration::from_millis(10),
    rate: 0.0,
    in_flight: 0.0,
    has_losses: false,
    mss: 1448,
};
const START: SharingStart = SharingStart {
    now: Instant::from_nanos(0),
    queue: BASE,
    is_queue_measured: true,
    rate: 0.0,
    in_flight: 0.0,
};

#[test]
fn a_path_that_has_slowed_down_is_not_taken_for_what_it_was() {
    let at = |round: u64| Instant::from_nanos(round * 100_000_000);
    let mut alone = AloneRate::new(at(0));
    alone.reset(at(0), 1_250_000.0);
    let mut sharing = Sharing::new(START, Duration::from_secs(2), Experience::default());
    let mut probe = AloneProbe::new(at(0));
    let mut end_round = |number, queue, rate, in_flight| {
        let threshold = Duration::from_millis(10);
        let (now, rtt) = (at(number), BASE + queue);
        let round = SharedRound { now, rtt, threshold, rate, in_flight, ..ROUND };
        sharing.on_round(&round, &mut alone, &mut probe)
    };
    assert_eq!(end_round(1, BASE, 600_000.0, 20_000.0), Verdict::Share);
    // As much in flight as allowed gives no larger share any more.
    assert_eq!(end_round(2, BASE, 125_000.0, 90_000.0), Verdict::Share);
    assert_eq!(end_round(3, BASE, 125_000.0, 90_000.0), Verdict::Share);
    let verdicts: Vec<_> =
        (4..7).map(|number| end_round(number, Duration::ZERO, 125_000.0, 6_000.0)).collect();
    assert_eq!(verdicts[2], Verdict::Alone { were_others: false });
    assert!(alone.value() < 130_000.0, "{}", alone.value());
}

/// Ends rounds of 100 ms with this round trip, rate and bytes in flight; returns the last bound in flight.
fn bound_after(
    sharing: &mut Sharing,
    alone: &mut AloneRate,
    probe: &mut AloneProbe,
    numbers: std::ops::Range<u64>,
    round_of: impl Fn(f64) -> (u64, f64, f64),
) -> f64 {
    let mut bound = f64::INFINITY;
    for number in numbers {
        let (millis, rate, in_flight) = round_of(bound);
        let round = SharedRound {
            now: Instant::from_nanos(number * 100_000_000),
            // A path that does not change would have no queue.
            rtt: Duration::from_millis(millis + number % 3 * 10),
            rate,
            in_flight,
            ..ROUND
        };
        assert_eq!(sharing.on_round(&round, alone, probe), Verdict::Share);
        bound = sharing.bounds(round.now, BASE, alone, probe).1;
    }
    bound
}

#[test]
fn a_queue_that_others_make_longer_does_not_shrink_bulk_to_nothing() {
    let now = Instant::from_nanos(0);
    let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
    let queue = Duration::from_millis(60);
    let first_test = Duration::from_millis(500);
    let mut sharing =
        Sharing::new(SharingStart { queue, ..START }, first_test, Experience::default());
    // 650 ms instead of 110: three times what bulk may at most make of it. A test halves what is in flight, and shows nothing.
    let mut in_flight = 60_000.0;
    for number in 1..400 {
        let is_testing = sharing.is_testing();
        let bound = bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, |_| {
            (650, in_flight / 0.7, in_flight)
        });
        in_flight = bound.min(60_000.0) / if is_testing { 2.0 } else { 1.0 };
    }
    assert!(in_flight >= 30_000.0, "{in_flight}");
}

#[test]
fn a_share_of_a_long_queue_grows_until_tests_can_show_something() {
    let now = Instant::from_nanos(0);
    let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
    let first_test = Duration::from_millis(500);
    let queue = Duration::from_millis(60);
    let mut sharing =
        Sharing::new(SharingStart { queue, ..START }, first_test, Experience::default());
    // 650 ms instead of 110 from the first round on, with ten packets in flight. Here no test shortens the queue.
    let mut in_flight = 15_000.0;
    for number in 1..600 {
        let is_testing = sharing.is_testing();
        let bound = bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, |_| {
            (650, in_flight / 0.65, in_flight)
        });
        in_flight = bound.min(200_000.0) / if is_testing { 2.0 } else { 1.0 };
    }
    assert!(in_flight > 60_000.0, "{in_flight}");
}

#[test]
fn a_slower_path_is_not_what_tests_have_shown_before() {
    let at = |round: u64| Instant::from_nanos(round * 100_000_000);
    let (mut alone, mut probe) = (AloneRate::new(at(0)), AloneProbe::new(at(0)));
    alone.reset(at(0), 1_250_000.0);
    let mut experience = Experience::default();
    experience.add(200_000.0, 0.16);
    let mut sharing = Sharing::new(START, Duration::from_secs(1000), experience);
    bound_after(&mut sharing, &mut alone, &mut probe, 1..6, |_| (150, 60_000.0, 1e9));
    assert!(alone.value() < 70_000.0, "{}", alone.value());
    assert_eq!(sharing.path_rate(), None);
}

#[test]
fn a_rate_that_is_not_known_for_certain_is_not_probed_for() {
    let now = Instant::from_nanos(0);
    let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
    alone.update(now, 1_250_000.0);
    let mut sharing = Sharing::new(START, Duration::from_secs(1000), Experience::default());
    // Its fair part is 687,500: for certain, it is probed for.
    let fair = |_| (100, 680_000.0, 68_000.0);
    let mut probes = 0;
    for number in 1..100 {
        bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, fair);
        probes += u32::from(probe.is_running());
    }
    assert!(probes > 0);
    // A share of a fifth resets what is known, and ends a probe.
    let share = |_| (100, 250_000.0, 1e9);
    bound_after(&mut sharing, &mut alone, &mut probe, 100..110, share);
    assert!(alone.value() < 300_000.0);
    for number in 110..400 {
        bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, share);
        assert!(!probe.is_running());
    }
}

#[test]
fn a_short_queue_that_is_not_measured_counts_less() {
    // What the kernel smooths lags, and at the beginning of a connection it is that of the handshake.
    let rounds_until_alone = |is_rtt_measured| {
        let now = Instant::from_nanos(0);
        let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
        let mut sharing = Sharing::new(START, Duration::from_secs(1000), Experience::default());
        (1..100_u64).find(|number| {
            let now = Instant::from_nanos(number * 100_000_000);
            let round = SharedRound { now, rtt: BASE, is_rtt_measured, ..ROUND };
            sharing.on_round(&round, &mut alone, &mut probe) != Verdict::Share
        })
    };
    assert_eq!(rounds_until_alone(true), Some(3));
    assert_eq!(rounds_until_alone(false), Some(12));
}

#[test]
fn a_queue_that_is_measured_late_is_others() {
    let bound_beside = |is_queue_measured| {
        let now = Instant::from_nanos(0);
        let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
        let start = SharingStart { is_queue_measured, ..START };
        let mut sharing = Sharing::new(start, Duration::from_secs(1000), Experience::default());
        // A queue of 600 ms, ten times what was guessed, in which more is a larger share.
        bound_after(&mut sharing, &mut alone, &mut probe, 1..12, |bound| {
            let in_flight = if bound.is_finite() { bound } else { 6_000.0 };
            (650, in_flight / 0.65, in_flight)
        })
    };
    let (late, early) = (bound_beside(false), bound_beside(true));
    assert!(late > early * 2.0, "{late} {early}");
}

#[test]
fn what_is_in_flight_doubles_where_the_round_trip_stays_as_it_is() {
    let most_after = |added_millis: u64| {
        let now = Instant::from_nanos(0);
        let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
        let mut sharing = Sharing::new(START, Duration::from_secs(1000), Experience::default());
        let mut bound = 60_000.0;
        for number in 1..10 {
            let now = Instant::from_nanos(number * 300_000_000);
            let rtt = Duration::from_millis(300 + number * added_millis);
            let rate = bound / rtt.as_secs_f64();
            let round = SharedRound { now, rtt, rate, in_flight: bound, ..ROUND };
            assert_eq!(sharing.on_round(&round, &mut alone, &mut probe), Verdict::Share);
            bound = sharing.bounds(now, BASE, &alone, &probe).1;
        }
        bound
    };
    assert!(most_after(0) > 500_000.0, "{}", most_after(0));
    assert!(most_after(40) < 200_000.0, "{}", most_after(40));
}

#[test]
fn a_rate_that_was_certain_is_given_up_where_much_more_in_flight_is_no_more() {
    // 50 Mbit/s before, and a megabit since: four times as much in flight makes the queue four times as long.
    let now = Instant::from_nanos(0);
    let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
    alone.update(now, 6_250_000.0);
    let start = SharingStart { rate: 125_000.0, in_flight: 10_000.0, ..START };
    let mut sharing = Sharing::new(start, Duration::from_secs(1000), Experience::default());
    let round = |number: u64, millis, in_flight| SharedRound {
        now: Instant::from_nanos(number * 400_000_000),
        rtt: Duration::from_millis(millis),
        rate: 125_000.0,
        in_flight,
        ..ROUND
    };
    sharing.on_round(&round(1, 130, 10_000.0), &mut alone, &mut probe);
    assert!(alone.value() > 6e6);
    // One such round may be one in which nothing was delivered for a while.
    sharing.on_round(&round(2, 400, 44_000.0), &mut alone, &mut probe);
    assert!(alone.value() > 6e6);
    sharing.on_round(&round(3, 500, 50_000.0), &mut alone, &mut probe);
    assert!(alone.value() < 130_000.0, "{}", alone.value());
}

#[test]
fn a_rate_that_was_certain_is_tested_where_bulk_does_not_get_its_part() {
    // A path that became shorter: its acknowledgements came at three times its rate.
    let now = Instant::from_nanos(0);
    let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
    alone.update(now, 6_250_000.0);
    let start = SharingStart { rate: 2_500_000.0, in_flight: 200_000.0, ..START };
    let mut sharing = Sharing::new(start, Duration::from_millis(500), Experience::default());
    let is_tested = (1..20).any(|number| {
        bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, |_| {
            (500, 2_500_000.0, 600_000.0)
        });
        sharing.is_testing()
    });
    assert!(is_tested);
}

#[test]
fn a_rate_that_was_certain_is_replaced_by_the_second_drained_test() {
    // BBR and losses of others empty a queue, too: 1.25 MB/s would become the fifth that bulk had beside them.
    let now = Instant::from_nanos(0);
    let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
    alone.update(now, 1_250_000.0);
    let share_and_drain = |alone: &mut AloneRate, probe: &mut AloneProbe| {
        let mut sharing = Sharing::new(START, Duration::from_millis(500), Experience::default());
        (1..60_u64).any(|number| {
            let millis = if sharing.is_testing() { 51 } else { 210 };
            let round = SharedRound {
                now: Instant::from_nanos(number * 210_000_000),
                rtt: Duration::from_millis(millis),
                rate: 200_000.0,
                in_flight: 42_000.0,
                ..ROUND
            };
            matches!(sharing.on_round(&round, alone, probe), Verdict::Alone { .. })
        })
    };
    assert!(share_and_drain(&mut alone, &mut probe));
    assert!(alone.value() > 1e6, "{}", alone.value());
    assert!(share_and_drain(&mut alone, &mut probe));
    assert!(alone.value() < 250_000.0, "{}", alone.value());
}

#[test]
fn a_flat_round_trip_with_losses_or_few_packets_is_no_free_path() {
    let most_after = |in_flight: f64, has_losses| {
        let now = Instant::from_nanos(0);
        let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
        let mut sharing = Sharing::new(START, Duration::from_secs(1000), Experience::default());
        let mut bound = in_flight;
        for number in 1..10 {
            let now = Instant::from_nanos(number * 300_000_000);
            let (rtt, rate) = (Duration::from_millis(300), bound / 0.3);
            let round = SharedRound { now, rtt, rate, in_flight: bound, has_losses, ..ROUND };
            assert_eq!(sharing.on_round(&round, &mut alone, &mut probe), Verdict::Share);
            bound = sharing.bounds(now, BASE, &alone, &probe).1;
        }
        bound / in_flight
    };
    assert!(most_after(60_000.0, false) > 8.0, "{}", most_after(60_000.0, false));
    assert!(most_after(60_000.0, true) < 3.0, "{}", most_after(60_000.0, true));
    assert!(most_after(10_000.0, false) < 3.0, "{}", most_after(10_000.0, false));
}
