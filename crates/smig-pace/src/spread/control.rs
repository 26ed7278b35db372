//! When a session spreads its streams over several connections, and when it goes back to one.

use std::time::Duration;

use smig_proto::Instant;

use super::evidence::{WindowEvidence, WindowWatch};
use super::trial::{BasisSource, EndReason, SpreadSample, SpreadTrial, TrialBasis};
use crate::pacer::MIN_PACED_RTT;

/// A spread takes a handshake and some rounds: it is for what takes more than this number of windows, and these bytes.
const MIN_WINDOWS_LEFT: u64 = 4;
const MIN_BYTES_LEFT: u64 = 64 << 10;
/// Rounds whose mean is the rate that a spread must exceed: since the loss, and without what slow start sent before.
const REFERENCE_ROUNDS: usize = 4;
/// Time until the next trial after one that did not help, or ended before it was known to; doubled each time.
pub(super) const MIN_RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY_DOUBLINGS: u32 = 5;
/// How long what a spread has confirmed holds for streams that begin later: then one connection has to show it again.
const CONFIRMED_TIME: Duration = Duration::from_secs(180);

/// What the owner must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadDecision {
    /// Spread the streams over several connections.
    Spread(WindowEvidence),
    /// Spread no more streams, and let those that run end where they are.
    End(EndReason),
}

/// Decides, by evidence of at least two rounds, whether a session's streams are spread.
#[derive(Debug, Default)]
pub struct SpreadControl {
    /// The connection that carries most.
    watch: WindowWatch,
    /// All of them, some of which may carry streams of an earlier spread.
    all: WindowWatch,
    state: SpreadState,
    retry_at: Option<Instant>,
    failures: u32,
    /// What a spread has confirmed.
    confirmed: Option<TrialBasis>,
}

#[derive(Debug, Default)]
enum SpreadState {
    #[default]
    Single,
    Spread(Box<SpreadTrial>),
}

impl SpreadControl {
    /// Returns whether streams are spread now.
    #[must_use]
    pub const fn is_spread(&self) -> bool {
        matches!(self.state, SpreadState::Spread(_))
    }

    /// Returns whether further connections may still be opened for what is spread.
    #[must_use]
    pub fn awaits_connections(&self) -> bool {
        matches!(&self.state, SpreadState::Spread(trial) if trial.awaits_connections())
    }

    /// Returns whether bulk may be sent as congestion control allows: what is sent is spread, and makes no queue.
    #[must_use]
    pub fn lifts_pacing(&self) -> bool {
        matches!(&self.state, SpreadState::Spread(trial) if trial.lifts_pacing())
    }

    /// Records that another connection carries most from now on: what its rounds show is compared with none of the former.
    pub fn on_other_busiest(&mut self) {
        self.watch = WindowWatch::default();
    }

    /// Records that connections were added or closed: what all have sent together differs by what those had, the TLS handshake
    /// included.
    pub fn on_other_connections(&mut self) {
        self.all.forget_round();
        if let SpreadState::Spread(trial) = &mut self.state {
            trial.on_other_connections();
        }
    }

    /// Records that nothing is left to send. What was spread has ended, and what it has confirmed is kept.
    pub fn on_complete(&mut self, now: Instant) {
        self.end(now, EndReason::Complete);
    }

    /// Records a sample, and decides.
    pub fn on_sample(&mut self, now: Instant, sample: &SpreadSample) -> Option<SpreadDecision> {
        match &mut self.state {
            SpreadState::Single => self.on_single(now, sample),
            SpreadState::Spread(trial) => {
                let reason = trial.on_sample(now, sample)?;
                self.end(now, reason);
                Some(SpreadDecision::End(reason))
            }
        }
    }

    fn on_single(&mut self, now: Instant, sample: &SpreadSample) -> Option<SpreadDecision> {
        self.all.on_sample(now, &sample.all, sample.backlog);
        let round = self.watch.on_sample(now, &sample.busiest, sample.backlog)?;
        if self.retry_at.is_some_and(|at| now < at) || !is_worthwhile(sample) {
            return None;
        }
        let found = self.watch.evidence().map(|evidence| TrialBasis {
            since: now,
            evidence,
            reference_rate: self.watch.rate(REFERENCE_ROUNDS).max(self.all.rate(REFERENCE_ROUNDS)),
            source: BasisSource::Observed,
        });
        let is_recent = |it: &TrialBasis| now.saturating_duration_since(it.since) < CONFIRMED_TIME;
        // What slow start sends is no rate to exceed: that of the first trial is.
        let confirmed = self.confirmed.filter(|it| is_recent(it) && round.is_limited);
        let basis = confirmed.or(found)?;
        self.state = SpreadState::Spread(Box::new(SpreadTrial::new(basis, sample.lanes)));
        Some(SpreadDecision::Spread(basis.evidence))
    }

    fn end(&mut self, now: Instant, reason: EndReason) {
        let SpreadState::Spread(trial) = core::mem::take(&mut self.state) else { return };
        (self.watch, self.all) = <_>::default();
        match reason {
            EndReason::Complete if trial.has_helped() => {
                self.confirmed =
                    Some(TrialBasis { source: BasisSource::Confirmed, ..trial.basis() });
                self.failures = 0;
            }
            // What was confirmed holds for streams that are too few to show it again.
            EndReason::Complete if trial.basis().source == BasisSource::Confirmed => {}
            EndReason::Complete | EndReason::NoGain | EndReason::NoConnection => {
                self.confirmed = None;
                self.retry_at =
                    Some(now + MIN_RETRY * (1 << self.failures.min(MAX_RETRY_DOUBLINGS)));
                self.failures = self.failures.saturating_add(1);
            }
        }
    }
}

/// Returns whether enough is left for other connections to help, on a path where a window that is too small matters.
fn is_worthwhile(sample: &SpreadSample) -> bool {
    if sample.busiest.min_rtt < MIN_PACED_RTT {
        return false;
    }
    let min_left = (sample.busiest.in_flight * MIN_WINDOWS_LEFT).max(MIN_BYTES_LEFT);
    // Where streams are on all of them already, or each has one of its own, a trial would compare a rate with itself.
    let may_add = sample.max_lanes.min(sample.streams) > sample.lanes;
    sample.streams >= 2 && may_add && sample.left_bytes >= min_left
}
