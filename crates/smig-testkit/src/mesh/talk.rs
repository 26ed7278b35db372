//! One exchange, as the applications at both ends know it: the reference that engines are held to.

use smig_proto::{StreamError, StreamKey};

use crate::mesh::link::Side;
use crate::mesh::plan::Plan;

/// What one end's application did and saw.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each known to the application"
)]
pub(crate) struct Part {
    pub(crate) session: usize,
    pub(crate) key: Option<StreamKey>,
    /// Our head was handed to the engine.
    pub(crate) head_sent: bool,
    /// Octets handed to the engine.
    pub(crate) queued: u64,
    /// The end was handed to the engine.
    pub(crate) finished: bool,
    /// The peer's head came.
    pub(crate) head_got: bool,
    pub(crate) hints_got: u8,
    /// Octets read and found right.
    pub(crate) received: u64,
    pub(crate) trailers_got: bool,
    /// The end was read.
    pub(crate) ended: bool,
    pub(crate) failed: Option<StreamError>,
    /// This application reset it, or let go of it unfinished.
    pub(crate) gave_up: bool,
    pub(crate) released: bool,
    /// This application, the server's, wants no more of the request.
    pub(crate) stopped: bool,
    /// The application does not read now.
    pub(crate) paused: bool,
    /// The engine said that there is something to read.
    pub(crate) readable: bool,
    /// The engine said that there is room, or never said that there is none.
    pub(crate) writable: bool,
}

impl Part {
    /// Whether the application has, or had, a stream and nothing ended it early.
    pub(crate) const fn is_alive(&self) -> bool {
        self.key.is_some() && self.failed.is_none() && !self.released
    }

    /// Both directions are complete for this application.
    pub(crate) const fn is_complete(&self) -> bool {
        self.finished && self.ended
    }

    pub(crate) fn live_key(&self) -> Option<StreamKey> {
        self.key.filter(|_| self.is_alive())
    }
}

/// One exchange at both ends.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) plan: Plan,
    pub(crate) parts: [Part; 2],
    /// The client was offered a move and has not answered.
    pub(crate) offered: bool,
    pub(crate) pushed: bool,
}

impl Talk {
    pub(crate) fn new(plan: Plan) -> Self {
        let part = || Part { writable: true, ..Part::default() };
        Self { plan, parts: [part(), part()], offered: false, pushed: false }
    }

    pub(crate) fn part(&mut self, side: Side) -> &mut Part {
        &mut self.parts[side.index()]
    }

    pub(crate) const fn part_at(&self, side: Side) -> &Part {
        &self.parts[side.index()]
    }
}
