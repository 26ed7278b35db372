//! Delivery rate samples (draft-cheng-iccrg-delivery-rate-estimation).

use std::time::Duration;

use smig_link::Time;

use super::scoreboard::Segment;
use crate::congestion::DeliverySample;
use crate::packet::MSS;

#[derive(Debug, Default)]
pub(super) struct RateSampler {
    delivered: f64,
    delivered_at: Time,
    first_sent_at: Time,
    /// Until this much is delivered, samples are limited by the application.
    app_limited_until: Option<f64>,
    last: DeliverySample,
}

impl RateSampler {
    pub(super) const fn delivered(&self) -> f64 {
        self.delivered
    }

    pub(super) const fn is_app_limited(&self) -> bool {
        self.app_limited_until.is_some()
    }

    pub(super) fn last_rate(&self) -> u64 {
        self.last.rate().map_or(0, |packets| (packets * MSS as f64) as u64)
    }

    pub(super) const fn last_is_app_limited(&self) -> bool {
        self.last.is_app_limited
    }

    pub(super) const fn on_restart(&mut self, now: Time) {
        self.first_sent_at = now;
        self.delivered_at = now;
    }

    pub(super) fn on_app_limited(&mut self, in_flight: f64) {
        self.app_limited_until = Some((self.delivered + in_flight).max(1.0));
    }

    /// Notes in a segment what was delivered when it is sent.
    pub(super) const fn stamp(&self, now: Time, number: u64, segment: &mut Segment) {
        segment.number = number;
        segment.sent_at = now;
        segment.first_sent_at = self.first_sent_at;
        segment.delivered = self.delivered;
        segment.delivered_at = self.delivered_at;
        segment.is_app_limited = self.app_limited_until.is_some();
    }

    /// Computes the sample of an acknowledgement for `count` packets, the newest of which is `newest`.
    pub(super) fn on_delivered(
        &mut self,
        now: Time,
        count: f64,
        newest: Option<&Segment>,
        min_rtt: Duration,
    ) -> DeliverySample {
        let Some(newest) = newest else { return DeliverySample::default() };
        self.delivered += count;
        self.delivered_at = now;
        if self.app_limited_until.is_some_and(|until| self.delivered > until) {
            self.app_limited_until = None;
        }
        let send_time = newest.sent_at.since(newest.first_sent_at);
        let ack_time = now.since(newest.delivered_at);
        self.first_sent_at = newest.sent_at;
        let interval = send_time.max(ack_time);
        let sample = DeliverySample {
            // A shorter interval than the path's cannot be right.
            delivered: if interval < min_rtt { 0.0 } else { self.delivered - newest.delivered },
            interval,
            prior_delivered: newest.delivered,
            is_app_limited: newest.is_app_limited,
        };
        // TCP_INFO keeps the last valid sample that the application did not limit, or a higher one.
        if sample.rate().is_some() && (sample.rate() >= self.last.rate() || !sample.is_app_limited)
        {
            self.last = sample;
        }
        sample
    }
}
