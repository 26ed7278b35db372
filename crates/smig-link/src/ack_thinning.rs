//! Thinning of acknowledgements, as Wi-Fi, cable and cellular modems do it: of the bare ACKs of a flow that arrive
//! close together only the last is sent, after a delay.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Packet, SpecError, Time};
use crate::millis;

/// Configuration of ACK thinning in front of a direction's queue. An ACK that carries data, SACK blocks or flags is
/// never held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AckThinningSpec {
    /// A flow's held ACK is sent when this many have arrived since the last one that was sent.
    pub every: u32,
    /// At the latest it is sent this long after the first of them.
    #[serde(with = "millis", rename = "hold_ms")]
    pub hold: Duration,
}

impl AckThinningSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if self.every == 0 || self.hold.is_zero() {
            let text = "ack_thinning: every and hold_ms must be more than 0";
            return Err(SpecError::Value(text.into()));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct HeldAck<P> {
    flow: u64,
    packet: P,
    /// Number of ACKs that it stands for.
    count: u32,
    due: Time,
}

/// The latest ACK of each flow that has one, in the order in which they are due.
#[derive(Debug)]
pub(super) struct AckThinning<P> {
    spec: AckThinningSpec,
    held: VecDeque<HeldAck<P>>,
}

/// What becomes of packets when another one arrives.
#[derive(Debug)]
pub(super) struct Thinned<P> {
    /// An earlier ACK of the flow, which is superseded.
    pub(super) superseded: Option<P>,
    /// Packets to send now, in this order.
    pub(super) released: [Option<P>; 2],
}

impl<P: Packet> AckThinning<P> {
    pub(super) const fn new(spec: AckThinningSpec) -> Self {
        Self { spec, held: VecDeque::new() }
    }

    /// Returns when the next held ACK is due.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.held.front().map(|ack| ack.due)
    }

    /// Returns the number of held ACKs.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Removes the ACK that is due first.
    pub(super) fn pop(&mut self) -> Option<P> {
        self.held.pop_front().map(|ack| ack.packet)
    }

    /// Holds a bare ACK, or passes another packet on behind the ACK of its flow that is held.
    pub(super) fn offer(&mut self, now: Time, packet: P) -> Thinned<P> {
        let flow = packet.flow_hash(0);
        let index = self.held.iter().position(|ack| ack.flow == flow);
        if !packet.is_bare_ack() {
            let held = index.and_then(|index| self.held.remove(index)).map(|ack| ack.packet);
            return Thinned { superseded: None, released: [held, Some(packet)] };
        }
        let mut superseded = None;
        let index = match index.and_then(|index| Some((index, self.held.get_mut(index)?))) {
            Some((index, ack)) => {
                superseded = Some(std::mem::replace(&mut ack.packet, packet));
                ack.count += 1;
                index
            }
            None => {
                self.held.push_back(HeldAck { flow, packet, count: 1, due: now + self.spec.hold });
                self.held.len() - 1
            }
        };
        let is_complete = self.held.get(index).is_some_and(|ack| ack.count >= self.spec.every);
        let complete = if is_complete { self.held.remove(index) } else { None };
        Thinned { superseded, released: [complete.map(|ack| ack.packet), None] }
    }
}
