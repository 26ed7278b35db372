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
    is_lost: bool,
    /// Indexed by receiver.
    queues: [VecDeque<Frame>; 2],
    /// Whether the receiver has noticed the end.
    end_noticed: [bool; 2],
}

/// All connections of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    conns: [ConnQueues; MAX_CONNS],
}

impl Network {
    pub(crate) fn send(&mut self, conn: Conn, receiver: Side, frame: Frame) {
        let conn_queues = &mut self.conns[conn.index()];
        if !conn_queues.is_lost {
            conn_queues.queues[receiver.index()].push_back(frame);
        }
    }

    pub(crate) fn next_frame(&self, conn: Conn, receiver: Side) -> Option<&Frame> {
        self.conns[conn.index()].queues[receiver.index()].front()
    }

    pub(crate) fn deliver(&mut self, conn: Conn, receiver: Side) -> Option<Frame> {
        self.conns[conn.index()].queues[receiver.index()].pop_front()
    }

    pub(crate) fn is_lost(&self, conn: Conn) -> bool {
        self.conns[conn.index()].is_lost
    }

    pub(crate) fn lose_connection(&mut self, conn: Conn) {
        self.conns[conn.index()].is_lost = true;
    }

    /// Returns whether the connection is broken and this side has not noticed.
    pub(crate) fn has_unnoticed_end(&self, conn: Conn, side: Side) -> bool {
        let conn_queues = &self.conns[conn.index()];
        conn_queues.is_lost && !conn_queues.end_noticed[side.index()]
    }

    /// Makes the side notice the end; frames in flight to it are lost.
    pub(crate) fn notice_end(&mut self, conn: Conn, side: Side) {
        let conn_queues = &mut self.conns[conn.index()];
        conn_queues.end_noticed[side.index()] = true;
        conn_queues.queues[side.index()].clear();
    }

    /// Returns whether nothing is in flight and every broken connection was noticed by both sides.
    pub(crate) fn is_quiet(&self) -> bool {
        self.conns.iter().all(|link| {
            link.queues.iter().all(VecDeque::is_empty)
                && (!link.is_lost || link.end_noticed == [true; 2])
        })
    }
}
