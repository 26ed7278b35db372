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
    pub(crate) sent_bytes: u64,
    /// The end was passed to the engine.
    pub(crate) end_sent: bool,
    /// The peer's head was received.
    pub(crate) head_received: bool,
    pub(crate) informational_count: u8,
    /// Bytes read and verified.
    pub(crate) received_bytes: u64,
    pub(crate) trailers_received: bool,
    /// The end was read.
    pub(crate) end_received: bool,
    pub(crate) error: Option<StreamError>,
    /// This application reset the stream, or released it before its end.
    pub(crate) is_abandoned: bool,
    pub(crate) is_released: bool,
    /// This application, at the server, stopped the upload after its response.
    pub(crate) upload_stopped: bool,
    /// The application does not read at present.
    pub(crate) is_paused: bool,
    /// The engine has reported readable data.
    pub(crate) is_readable: bool,
    /// The engine has reported send capacity, or has never reported a lack of it.
    pub(crate) is_writable: bool,
}

impl SideModel {
    /// Returns whether the stream was opened at this end, has not failed, and is not released.
    pub(crate) const fn is_alive(&self) -> bool {
        self.key.is_some() && self.error.is_none() && !self.is_released
    }

    /// Returns whether both directions are complete for this application.
    pub(crate) const fn is_complete(&self) -> bool {
        self.end_sent && self.end_received
    }

    pub(crate) fn live_key(&self) -> Option<StreamKey> {
        self.key.filter(|_| self.is_alive())
    }
}

/// One exchange at both ends.
#[derive(Debug)]
pub(crate) struct ExchangeModel {
    pub(crate) plan: Plan,
    pub(crate) sides: [SideModel; 2],
    /// The client was offered a migration and has not answered.
    pub(crate) has_open_offer: bool,
    pub(crate) is_push: bool,
}

impl ExchangeModel {
    pub(crate) fn new(plan: Plan) -> Self {
        let model = || SideModel { is_writable: true, ..SideModel::default() };
        Self { plan, sides: [model(), model()], has_open_offer: false, is_push: false }
    }

    pub(crate) fn side_mut(&mut self, side: Side) -> &mut SideModel {
        &mut self.sides[side.index()]
    }

    pub(crate) const fn side(&self, side: Side) -> &SideModel {
        &self.sides[side.index()]
    }
}
