//! Connections: two queues each, in order, until the connection breaks.
//!
//! A break loses, in each direction on its own, any suffix of what is under way: what was sent
//! before it may still arrive until the receiver notices the end, what is sent after it is gone.
//! Must never reorder the frames of one direction.

use std::collections::VecDeque;

use crate::frame::Frame;
use crate::id::{Conn, MAX_CONNS, Side};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Link {
    broken: bool,
    /// Indexed by the receiver.
    queues: [VecDeque<Frame>; 2],
    /// The receiver has noticed the end.
    noticed: [bool; 2],
}

/// All connections of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    links: [Link; MAX_CONNS],
}

impl Network {
    pub(crate) fn send(&mut self, conn: Conn, to: Side, frame: Frame) {
        let link = &mut self.links[conn.index()];
        if !link.broken {
            link.queues[to.index()].push_back(frame);
        }
    }

    pub(crate) fn head(&self, conn: Conn, to: Side) -> Option<&Frame> {
        self.links[conn.index()].queues[to.index()].front()
    }

    pub(crate) fn deliver(&mut self, conn: Conn, to: Side) -> Option<Frame> {
        self.links[conn.index()].queues[to.index()].pop_front()
    }

    pub(crate) fn is_broken(&self, conn: Conn) -> bool {
        self.links[conn.index()].broken
    }

    pub(crate) fn break_up(&mut self, conn: Conn) {
        self.links[conn.index()].broken = true;
    }

    /// The connection is broken and this side does not know it yet.
    pub(crate) fn end_is_near(&self, conn: Conn, to: Side) -> bool {
        let link = &self.links[conn.index()];
        link.broken && !link.noticed[to.index()]
    }

    /// The side notices the end; what was still under way to it is lost.
    pub(crate) fn cut(&mut self, conn: Conn, to: Side) {
        let link = &mut self.links[conn.index()];
        link.noticed[to.index()] = true;
        link.queues[to.index()].clear();
    }

    /// Nothing is under way, and every end of a connection has been noticed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.links.iter().all(|link| {
            link.queues.iter().all(VecDeque::is_empty)
                && (!link.broken || link.noticed == [true; 2])
        })
    }
}
