//! Congestion control of a simulated sender, as Linux has it: what it is notified of, and what it decides.

mod bbr;
mod cubic;
mod loss_based;

use std::fmt::Debug;
use std::time::Duration;

use smig_link::Time;

/// Which congestion control a sender uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 5681.
    Reno,
    /// RFC 9438, without `HyStart`.
    Cubic,
    /// RFC 9438 with `HyStart` by delay and by ACK train.
    CubicHystart,
    /// BBR version 1, as in Linux.
    Bbr,
}

/// A delivery rate sample (draft-cheng-iccrg-delivery-rate-estimation), in packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeliverySample {
    /// Packets delivered over the interval; zero if there is no valid sample.
    pub(crate) delivered: f64,
    pub(crate) interval: Duration,
    /// Packets that had been delivered when the packet of this sample was sent.
    pub(crate) prior_delivered: f64,
    pub(crate) is_app_limited: bool,
}

impl DeliverySample {
    /// Returns packets per second.
    pub(crate) fn rate(&self) -> Option<f64> {
        let valid = self.delivered > 0.0 && !self.interval.is_zero();
        valid.then(|| self.delivered / self.interval.as_secs_f64())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryState {
    Open,
    Recovery,
    Loss,
}

/// What an acknowledgement showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckEvent {
    pub(crate) now: Time,
    pub(crate) sample: DeliverySample,
    /// Packets newly acknowledged or SACKed, and newly marked lost.
    pub(crate) newly_delivered: f64,
    pub(crate) newly_lost: f64,
    /// Packets delivered in all, and in flight after and before this acknowledgement.
    pub(crate) delivered: f64,
    pub(crate) in_flight: f64,
    pub(crate) prior_in_flight: f64,
    pub(crate) rtt: Option<Duration>,
    pub(crate) srtt: Duration,
    pub(crate) min_rtt: Duration,
    pub(crate) state: RecoveryState,
    /// Whether the window limited what was sent since the last acknowledgement, and the most in flight then.
    pub(crate) is_cwnd_limited: bool,
    pub(crate) max_in_flight: f64,
}

pub(crate) trait CongestionControl: Debug {
    fn on_ack(&mut self, event: &AckEvent);
    /// A loss was found, and recovery begins.
    fn on_enter_recovery(&mut self, in_flight: f64);
    fn on_exit_recovery(&mut self);
    fn on_timeout(&mut self);
    /// The timeout was spurious.
    fn on_undo(&mut self);
    /// Sends again after nothing was in flight.
    fn on_restart_from_idle(&mut self, now: Time, is_app_limited: bool);
    /// Whether it sends so little on purpose that what is delivered does not show the path's rate.
    fn is_rate_limited(&self) -> bool {
        false
    }
    /// Packets.
    fn cwnd(&self) -> f64;
    /// Packets per second, if the algorithm itself paces.
    fn pacing_rate(&self) -> Option<f64>;
    /// Packets per second at which a sender is paced that has a pacing limit.
    fn window_pacing_rate(&self, srtt: Duration) -> f64;
}

impl Algorithm {
    pub(crate) fn build(self, initial_window: f64) -> Box<dyn CongestionControl> {
        match self {
            Self::Reno => Box::new(loss_based::LossBased::reno(initial_window)),
            Self::Cubic => Box::new(loss_based::LossBased::cubic(initial_window, false)),
            Self::CubicHystart => Box::new(loss_based::LossBased::cubic(initial_window, true)),
            Self::Bbr => Box::new(bbr::Bbr::new(initial_window)),
        }
    }
}
