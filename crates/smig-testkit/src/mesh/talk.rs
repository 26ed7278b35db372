//! One exchange as the applications at both ends see it: the reference for the engines.

use smig_proto::{StreamError, StreamKey};

use crate::mesh::link::Side;
use crate::mesh::plan::Plan;

/// State of one end's application.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each known to the application"
)]
pub(crate) struct SideModel {
    pub(crate) session: usize,
    pub(crate) key: Option<StreamKey>,
    /// The head was passed to the engine.
    pub(crate) head_sent: bool,
    /// Bytes passed to the engine.
    pub(crate) queued: u64,
    /// The end was passed to the engine.
    pub(crate) finished: bool,
    /// The peer's head was received.
    pub(crate) head_got: bool,
    pub(crate) hints_got: u8,
    /// Bytes read and verified.
    pub(crate) received: u64,
    pub(crate) trailers_got: bool,
    /// The end was read.
    pub(crate) ended: bool,
    pub(crate) failed: Option<StreamError>,
    /// This application reset the stream, or released it before its end.
    pub(crate) gave_up: bool,
    pub(crate) released: bool,
    /// This application, at the server, needs no more of the request.
    pub(crate) stopped: bool,
    /// The application does not read at present.
    pub(crate) paused: bool,
    /// The engine has reported readable data.
    pub(crate) readable: bool,
    /// The engine has reported room, or has never reported a lack of it.
    pub(crate) writable: bool,
}

impl SideModel {
    /// Returns whether the stream exists or has completed, and nothing ended it early.
    pub(crate) const fn is_alive(&self) -> bool {
        self.key.is_some() && self.failed.is_none() && !self.released
    }

    /// Returns whether both directions are complete for this application.
    pub(crate) const fn is_complete(&self) -> bool {
        self.finished && self.ended
    }

    pub(crate) fn live_key(&self) -> Option<StreamKey> {
        self.key.filter(|_| self.is_alive())
    }
}

/// One exchange at both ends.
#[derive(Debug)]
pub(crate) struct ExchangeModel {
    pub(crate) plan: Plan,
    pub(crate) parts: [SideModel; 2],
    /// The client was offered a migration and has not answered.
    pub(crate) offered: bool,
    pub(crate) pushed: bool,
}

impl ExchangeModel {
    pub(crate) fn new(plan: Plan) -> Self {
        let part = || SideModel { writable: true, ..SideModel::default() };
        Self { plan, parts: [part(), part()], offered: false, pushed: false }
    }

    pub(crate) fn part(&mut self, side: Side) -> &mut SideModel {
        &mut self.parts[side.index()]
    }

    pub(crate) const fn part_at(&self, side: Side) -> &SideModel {
        &self.parts[side.index()]
    }
}
