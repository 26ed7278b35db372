//! What pacing costs uploads, and what small requests gain, over paths in virtual time.

mod world;

use std::time::Duration;

use self::world::{Conditions, ONE_WAY, RATE, Source, World};
use super::credit_watch::UploadProgress;
use super::shares::BulkUploads;

const SECOND: Duration = Duration::from_secs(1);
/// How long uploads run: what is lost once must be little of it.
const TIME: Duration = Duration::from_secs(30);
/// What pacing may cost.
const MAX_COST: f64 = 0.03;
/// The target, the credit beside the window of three uploads, and what a rate over two rounds is too high.
const MAX_QUEUE: Duration = Duration::from_millis(45);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A run in which a small request follows the other, four in a second.
struct Outcome {
    /// Bytes per second, of all uploads and of each.
    rate: f64,
    rates: Vec<f64>,
    /// After the first tenth of the time.
    median_delay: Duration,
}

fn run(conditions: Conditions, sources: &[Source], is_paced: bool) -> Outcome {
    let mut world = World::new(conditions, is_paced);
    for &source in sources {
        world.upload(source);
    }
    let mut delays = Vec::new();
    while world.time() < TIME {
        let delay = world.small_request();
        if world.time() > TIME / 10 {
            delays.push(delay);
        }
        world.run(ms(250).saturating_sub(delay));
    }
    delays.sort();
    let time = world.time().as_secs_f64();
    Outcome {
        rate: world.received() as f64 / time,
        rates: (0..sources.len()).map(|upload| world.received_of(upload) as f64 / time).collect(),
        median_delay: delays[delays.len() / 2],
    }
}

/// Checks what pacing costs all uploads together. Returns the outcomes with pacing and without.
fn check_cost(conditions: Conditions, sources: &[Source]) -> (Outcome, Outcome) {
    let (paced, off) = (run(conditions, sources, true), run(conditions, sources, false));
    let cost = 1.0 - paced.rate / off.rate;
    assert!(cost <= MAX_COST, "{:.1} % with {sources:?}, {conditions:?}", cost * 100.0);
    (paced, off)
}

#[test]
fn small_requests_do_not_wait_behind_uploads() {
    for uploads in [1, 3] {
        let sources = vec![Source::Fast; uploads];
        let (paced, off) = check_cost(Conditions::default(), &sources);
        assert!(off.median_delay > ms(400), "{:?} without pacing", off.median_delay);
        assert!(paced.median_delay < ONE_WAY + MAX_QUEUE, "{:?}", paced.median_delay);
        let slow = Conditions { rate: RATE / 5, ..Conditions::default() };
        check_cost(slow, &sources);
    }
}

#[test]
fn a_path_that_is_longer_than_the_kernel_sees_costs_little() {
    for hidden in [10, 20, 30, 100] {
        for since in [Duration::ZERO, SECOND * 10] {
            let hidden_rtt = (since, ms(hidden));
            let (paced, off) =
                check_cost(Conditions { hidden_rtt, ..Conditions::default() }, &[Source::Fast]);
            assert!(paced.median_delay < off.median_delay / 2, "{:?}", paced.median_delay);
        }
    }
}

#[test]
fn ten_uploads_and_more_lose_nothing() {
    for uploads in [10, 30] {
        check_cost(Conditions::default(), &vec![Source::Fast; uploads]);
    }
}

#[test]
fn an_idle_upload_costs_the_others_nothing() {
    let paused = Source::PausedBetween(SECOND * 2, TIME * 2);
    for rate in [RATE, RATE / 5] {
        check_cost(Conditions { rate, ..Conditions::default() }, &[Source::Fast, paused]);
    }
    check_cost(Conditions::default(), &[Source::Fast, Source::Slow(RATE / 10)]);
    check_cost(Conditions::default(), &[Source::Slow(RATE / 2)]);
}

#[test]
fn an_upload_that_continues_gets_its_part_again() {
    let paused = Source::PausedBetween(SECOND * 8, SECOND * 16);
    let (paced, off) = check_cost(Conditions::default(), &[Source::Fast, paused]);
    let (part, fair) = (paced.rates[1] / off.rates[1], paced.rates[0] / off.rates[0]);
    assert!(part > 0.9 && fair > 0.9, "{part} of its rate, {fair} of the other's");
}

#[test]
fn the_window_follows_the_path_at_no_cost() {
    for rate in [RATE / 2, RATE * 2, RATE * 4] {
        let later_rate = Some((SECOND * 10, rate));
        check_cost(Conditions { later_rate, ..Conditions::default() }, &[Source::Fast]);
    }
    for burst in [10, 20, 40] {
        check_cost(Conditions { burst: ms(burst), ..Conditions::default() }, &[Source::Fast]);
    }
}

#[test]
fn a_pause_does_not_hide_for_long_that_the_path_has_changed() {
    let later_rate = Some((SECOND * 10, RATE * 4));
    let conditions = Conditions { later_rate, ..Conditions::default() };
    let source = [Source::PausedBetween(SECOND * 5, SECOND * 13)];
    let [paced, off] = [true, false].map(|is_paced| run(conditions, &source, is_paced));
    let cost = 1.0 - paced.rate / off.rate;
    assert!(cost < 0.1, "{:.1} %", cost * 100.0);
}

#[test]
fn others_and_losses_end_the_limit() {
    for until in [SECOND * 15, TIME * 2] {
        let foreign = Some((SECOND * 5, until, RATE / 4));
        check_cost(Conditions { foreign, ..Conditions::default() }, &[Source::Fast]);
    }
    for every in [100, 200, 1_000, 10_000] {
        let packets_per_loss = Some(every);
        check_cost(Conditions { packets_per_loss, ..Conditions::default() }, &[Source::Fast]);
    }
}

#[test]
fn a_lone_upload_keeps_its_window() {
    let mut world = World::new(Conditions::default(), true);
    world.has_others = false;
    world.upload(Source::Fast);
    world.run(SECOND * 5);
    assert!(world.small_request() > ms(400));
    // From the first small request on it is paced: what has been granted is used up first.
    world.has_others = true;
    world.run(SECOND * 3);
    let delay = world.small_request();
    assert!(delay < ONE_WAY + MAX_QUEUE, "{delay:?}");
}

#[test]
fn an_upload_that_nobody_reads_for_some_time_continues() {
    let mut world = World::new(Conditions::default(), true);
    world.upload(Source::Fast);
    world.run(SECOND * 5);
    world.is_reading = false;
    assert!(world.rate_in(SECOND * 3) < RATE / 2, "the window is used up");
    assert_eq!(world.rate_in(SECOND), 0);
    world.is_reading = true;
    world.run(SECOND * 2);
    let rate = world.rate_in(SECOND * 20);
    assert!(rate > RATE * 97 / 100, "{rate} of {RATE}");
    assert!(world.is_consistent());
}
