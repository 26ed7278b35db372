//! Named link profiles.
//!
//! Rates and round-trip times are from the sources named. Where a source does
//! not specify the queue, it holds 200 ms of full-size packets, but at least
//! 20: like a home router's, neither shallow nor bloated. Each direction has
//! half of the round-trip time as its delay.

use std::time::Duration;

use super::delays::{JitterSpec, NormalJitter, Slowdown};
use super::{Bursts, DirectionSpec, LinkSpec, LossSpec, LteSpec, QueueLimit, Rate, RateSpec};

/// A named link.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name in scenarios and on the command line.
    pub name: &'static str,
    /// The source of its numbers; one line.
    pub about: &'static str,
    /// The link.
    pub spec: LinkSpec,
}

impl Profile {
    /// Returns the profile with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|profile| profile.name == name)
    }

    /// Returns all profiles: first those from papers, then those of page-speed tools.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = papers();
        all.extend(tools());
        all
    }

    /// Returns the name of the profile that is equal to this link, if there is one.
    #[must_use]
    pub fn name_of(spec: &LinkSpec) -> Option<&'static str> {
        Self::all().into_iter().find(|profile| profile.spec == *spec).map(|profile| profile.name)
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the queue limit that holds 200 ms of full-size packets, but at least 20.
fn usual_queue(rate: Rate) -> QueueLimit {
    let packets = rate.as_bits_per_second() / 5 / (1_500 * 8);
    QueueLimit::packets(usize::try_from(packets).unwrap_or(usize::MAX).max(20))
}

fn usual(name: &'static str, about: &'static str, rates: [Rate; 2], round_trip: u64) -> Profile {
    let half = ms(round_trip) / 2;
    let direction = |rate| DirectionSpec::new(rate, half, usual_queue(rate));
    let [to_client, to_server] = rates.map(direction);
    Profile { name, about, spec: LinkSpec { to_client, to_server } }
}

fn papers() -> Vec<Profile> {
    let same = |name, about, rate, round_trip| usual(name, about, [rate; 2], round_trip);
    vec![
        Profile {
            name: "paper-wired",
            about: "SMig, CoNEXT 2016: 10 Mbit/s, 50 ms, queue of 75 packets",
            spec: LinkSpec::paper_wired(),
        },
        lte_like(),
        same("fiber", "Mind the Delay: 80 Mbit/s, 5 ms", Rate::mbit(80), 5),
        jitter(),
        slowdown(),
        same("3g", "Mosaic: 780 kbit/s, 100 ms", Rate::kbit(780), 100),
        same("wifi", "Mosaic: 8 Mbit/s, 43 ms", Rate::mbit(8), 43),
        same("ftth", "Mosaic: 30 Mbit/s, 40 ms", Rate::mbit(30), 40),
        lossy("loss-random", "our own: paper-wired, 1 % lost", LossSpec::Random(0.01)),
        lossy("loss-bursts", "our own: paper-wired, 1 % lost, four packets at a time", BURSTS),
    ]
}

/// A loss burst starts about every 400 packets and lasts four packets on average.
const BURSTS: LossSpec =
    LossSpec::Bursts(Bursts { enter: 0.25 / 99.0, leave: 0.25, inside: 1.0, outside: 0.0 });

fn lossy(name: &'static str, about: &'static str, loss: LossSpec) -> Profile {
    let mut spec = LinkSpec::paper_wired();
    spec.to_client.loss = Some(loss);
    spec.to_server.loss = Some(loss);
    Profile { name, about, spec }
}

/// Base stations have large buffers; the uplink is slower and varies independently.
fn lte_like() -> Profile {
    let direction = |mean, packets| {
        let queue = QueueLimit::packets(packets);
        let lte = LteSpec { mean, ..LteSpec::default() };
        let rate = RateSpec::Lte(lte);
        DirectionSpec { rate, ..DirectionSpec::new(mean, ms(35), queue) }
    };
    Profile {
        name: "lte-like",
        about: "generated like Sprout's model: about 12 Mbit/s down and 5 up, 70 ms",
        spec: LinkSpec {
            to_client: direction(Rate::mbit(12), 500),
            to_server: direction(Rate::mbit(5), 500),
        },
    }
}

fn jitter() -> Profile {
    let rate = Rate::mbit(40);
    let every = ms(100);
    let normal = JitterSpec::Normal(NormalJitter { deviation: ms(70), every });
    let mut to_client = DirectionSpec::new(rate, ms(50), usual_queue(rate));
    to_client.jitter = Some(normal);
    let to_server = DirectionSpec::new(rate, Duration::from_micros(2_500), usual_queue(rate));
    Profile {
        name: "jitter",
        about: "Mind the Delay: 40 Mbit/s, delay to the client redrawn from N(50, 70) ms",
        spec: LinkSpec { to_client, to_server },
    }
}

fn slowdown() -> Profile {
    let mut profile = usual(
        "slowdown",
        "Mind the Delay: fiber, and 15 ms more each 100 ms up to 300 ms",
        [Rate::mbit(80); 2],
        5,
    );
    let slowdown = Slowdown { add: ms(15), every: ms(100), up_to: ms(300) };
    profile.spec.to_client.jitter = Some(JitterSpec::Slowdown(slowdown));
    profile
}

/// Profiles of page-speed tools: kbit/s down, kbit/s up (bit/s with `exact`), ms round trip.
fn tools() -> Vec<Profile> {
    const SITESPEED: &str = "sitespeed.io and WebPageTest";
    let kbit = |name, about, down, up, round_trip| {
        usual(name, about, [Rate::kbit(down), Rate::kbit(up)], round_trip)
    };
    let exact = |name, about, down, up, round_trip| {
        usual(name, about, [Rate::bits_per_second(down), Rate::bits_per_second(up)], round_trip)
    };
    vec![
        kbit("sitespeed-2g", SITESPEED, 280, 256, 800),
        kbit("sitespeed-edge", SITESPEED, 240, 200, 840),
        kbit("sitespeed-3g", SITESPEED, 1_600, 768, 300),
        kbit("sitespeed-3gfast", SITESPEED, 1_600, 768, 150),
        kbit("sitespeed-3gslow", SITESPEED, 400, 400, 400),
        kbit("sitespeed-4g", SITESPEED, 9_000, 9_000, 170),
        kbit("sitespeed-lte", SITESPEED, 12_000, 12_000, 70),
        kbit("sitespeed-dsl", SITESPEED, 1_500, 384, 50),
        kbit("sitespeed-cable", SITESPEED, 5_000, 1_000, 28),
        kbit("sitespeed-fios", SITESPEED, 20_000, 5_000, 4),
        exact("lighthouse-slow-4g", "Lighthouse, mobile", 1_638_400, 750_000, 150),
        exact("lighthouse-regular-3g", "Lighthouse", 700_000, 700_000, 300),
        exact("lighthouse-desktop", "Lighthouse, dense 4G", 10_240_000, 10_240_000, 40),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_a_link_with_a_name_of_its_own() {
        let all = Profile::all();
        for (index, profile) in all.iter().enumerate() {
            profile.spec.check().unwrap();
            assert_eq!(all.iter().position(|other| other.name == profile.name), Some(index));
            assert_eq!(Profile::named(profile.name).as_ref(), Some(profile));
            assert!(Profile::name_of(&profile.spec).is_some());
        }
        assert!(Profile::named("3G").is_none());
    }

    #[test]
    fn queues_hold_200_ms() {
        let cable = Profile::named("sitespeed-cable").unwrap().spec;
        assert_eq!(cable.to_client.queue, QueueLimit::packets(83));
        assert_eq!(cable.to_server.queue, QueueLimit::packets(20));
    }
}
