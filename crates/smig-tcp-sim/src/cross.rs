//! Traffic of others on the same link.

use std::time::Duration;

use smig_link::Time;

use crate::congestion::Algorithm;
use crate::network::Network;

/// Traffic of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossTraffic {
    /// A download from `start` to `end`.
    Download {
        /// Its congestion control.
        algorithm: Algorithm,
        /// When it begins.
        start: Duration,
        /// When it ends.
        end: Duration,
    },
    /// Ten downloads per second, of 30 kB each.
    ShortFlows,
    /// Datagrams at this many bytes per second.
    ConstantRate(u64),
}

/// Bytes of a short flow, and the time between two.
const SHORT_FLOW_BYTES: u64 = 30_000;
const SHORT_FLOW_INTERVAL: Duration = Duration::from_millis(100);
const DATAGRAM_BYTES: u64 = 1250;
/// More than any run delivers.
const ENDLESS_BYTES: u64 = 1 << 40;

#[derive(Debug)]
pub(crate) struct CrossSource {
    spec: CrossTraffic,
    next: Option<Time>,
    flow: Option<usize>,
    rtt: Duration,
}

impl CrossSource {
    pub(crate) fn new(spec: CrossTraffic, rtt: Duration) -> Self {
        let start = match spec {
            CrossTraffic::Download { start, .. } => start,
            CrossTraffic::ShortFlows => Duration::from_millis(37),
            CrossTraffic::ConstantRate(_) => Duration::ZERO,
        };
        Self { spec, next: Some(Time::ZERO + start), flow: None, rtt }
    }

    /// Returns when it acts next.
    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.next
    }

    /// Returns the download's connection.
    pub(crate) const fn flow(&self) -> Option<usize> {
        self.flow
    }

    pub(crate) fn poll(&mut self, network: &mut Network) {
        let now = network.now();
        let Some(at) = self.next.filter(|&at| at <= now) else { return };
        match self.spec {
            CrossTraffic::Download { algorithm, end, .. } => match self.flow {
                None => {
                    let flow = network.connect(algorithm, 10, self.rtt);
                    network.write(flow, ENDLESS_BYTES);
                    self.flow = Some(flow);
                    self.next = Some(Time::ZERO + end);
                }
                Some(flow) => {
                    network.discard_unsent(flow);
                    self.next = None;
                }
            },
            CrossTraffic::ShortFlows => {
                let flow = network.connect(Algorithm::Cubic, 10, self.rtt);
                network.write(flow, SHORT_FLOW_BYTES);
                self.next = Some(at + SHORT_FLOW_INTERVAL);
            }
            CrossTraffic::ConstantRate(rate) => {
                network.send_datagram();
                self.next = Some(at + Duration::from_nanos(DATAGRAM_BYTES * 1_000_000_000 / rate));
            }
        }
    }
}
