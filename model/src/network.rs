//! Connections, each with two ordered queues, until the connection breaks.
//!
//! A break loses any suffix of the frames in flight, in each direction independently. Frames that
//! were sent before it may still arrive until the receiver notices the end; later ones are lost.
//! Must never reorder the frames of one direction.

use std::collections::VecDeque;

use crate::frame::Frame;
use crate::id::{Conn, MAX_CONNS, Side};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ConnQueues {
    lost: bool,
    /// Indexed by receiver.
    queues: [VecDeque<Frame>; 2],
    /// Whether the receiver has noticed the end.
    noticed: [bool; 2],
}

/// All connections of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    links: [ConnQueues; MAX_CONNS],
}

impl Network {
    pub(crate) fn send(&mut self, conn: Conn, to: Side, frame: Frame) {
        let link = &mut self.links[conn.index()];
        if !link.lost {
            link.queues[to.index()].push_back(frame);
        }
    }

    pub(crate) fn next_frame(&self, conn: Conn, to: Side) -> Option<&Frame> {
        self.links[conn.index()].queues[to.index()].front()
    }

    pub(crate) fn deliver(&mut self, conn: Conn, to: Side) -> Option<Frame> {
        self.links[conn.index()].queues[to.index()].pop_front()
    }

    pub(crate) fn is_lost(&self, conn: Conn) -> bool {
        self.links[conn.index()].lost
    }

    pub(crate) fn lose_connection(&mut self, conn: Conn) {
        self.links[conn.index()].lost = true;
    }

    /// Returns whether the connection is broken and this side has not noticed.
    pub(crate) fn has_unnoticed_end(&self, conn: Conn, to: Side) -> bool {
        let link = &self.links[conn.index()];
        link.lost && !link.noticed[to.index()]
    }

    /// Makes the side notice the end; frames in flight to it are lost.
    pub(crate) fn notice_end(&mut self, conn: Conn, to: Side) {
        let link = &mut self.links[conn.index()];
        link.noticed[to.index()] = true;
        link.queues[to.index()].clear();
    }

    /// Returns whether nothing is in flight and every broken connection was noticed by both sides.
    pub(crate) fn is_quiet(&self) -> bool {
        self.links.iter().all(|link| {
            link.queues.iter().all(VecDeque::is_empty) && (!link.lost || link.noticed == [true; 2])
        })
    }
}
