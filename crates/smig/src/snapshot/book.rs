//! What a session remembers for those who look: its name, and moves that outlive their streams.

use std::cell::OnceCell;
use std::collections::VecDeque;

use smig_proto::{ConnId, Instant, Mover, StreamKey};

use super::{Departure, MoveCause, Record, SessionId, StreamPlace};
use crate::driver::Turn;
use crate::entropy;

/// Moves of streams that are over and whose answer is to come, at most.
const KEPT: usize = 64;

#[derive(Debug)]
pub(crate) struct Book {
    id: OnceCell<SessionId>,
    pub(super) born: Instant,
    /// The last octet may be sent before the answer to the move is there.
    left: VecDeque<(StreamKey, Departure)>,
}

impl Book {
    pub(crate) const fn begin(born: Instant) -> Self {
        Self { id: OnceCell::new(), born, left: VecDeque::new() }
    }

    /// The session's name, made when somebody wants it.
    pub(crate) fn id(&self) -> SessionId {
        *self.id.get_or_init(|| SessionId(u64::from_ne_bytes(entropy::bytes())))
    }

    /// A stream and the connection that it is on.
    pub(crate) fn place(&self, turn: &Turn<'_>, stream: StreamKey) -> Option<StreamPlace> {
        Some(self.place_on(stream, turn.session.stream(stream)?.connection))
    }

    /// A stream on this connection.
    pub(crate) fn place_on(&self, stream: StreamKey, connection: ConnId) -> StreamPlace {
        StreamPlace { session: self.id(), stream, connection }
    }

    /// A stream is over.
    pub(crate) fn close(&mut self, stream: StreamKey, record: &Record) {
        let Some(departure) = record.departure else { return };
        if self.left.len() == KEPT {
            self.left.pop_front();
        }
        self.left.push_back((stream, departure));
    }

    /// A stream has moved: why, and the octets of body that went before, of which this end counted
    /// `counted` when it learned of the move.
    pub(crate) fn moved(
        &mut self,
        stream: StreamKey,
        record: Option<&mut Record>,
        mover: Mover,
        counted: u64,
    ) -> (MoveCause, u64) {
        let departure = self.take(stream, record);
        // A move by the peer may be the answer to an offer, which knew no offset.
        let begun = departure.filter(|_| mover == Mover::Local).and_then(|d| d.offset);
        (departure.map_or(MoveCause::Peer, |d| d.why), begun.unwrap_or(counted))
    }

    /// Nothing comes of a move.
    pub(crate) fn declined(&mut self, stream: StreamKey, record: Option<&mut Record>) {
        self.take(stream, record);
    }

    fn take(&mut self, stream: StreamKey, record: Option<&mut Record>) -> Option<Departure> {
        if let Some(record) = record {
            return record.departure.take();
        }
        let index = self.left.iter().position(|(left, _)| *left == stream)?;
        self.left.remove(index).map(|(_, departure)| departure)
    }
}
