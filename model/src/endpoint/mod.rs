//! One side of the stream, as `spec/smig.md` specifies.
//!
//! An endpoint processes a frame, a choice of its application or the end of a connection, and puts
//! the frames that it sends into its outbox. It must never access its peer or the network.
//!
//! - `stream`: data, windows, SETTINGS_INITIAL_WINDOW_SIZE (sections 5 and 7)
//! - `mover`: the open migration, its answer, yielding (sections 5 and 6)
//! - `follower`: MIGRATE, unbound carriers, offers (sections 5 and 6)
//! - `ends`: resets, lost connections, GOAWAY (section 8)
//! - `resume`: a stream goes on after the end of its connection (`spec/resumption.md`)

mod ends;
mod follower;
mod mover;
mod resume;
mod stream;

use resume::Resumption;

use crate::frame::{Data, EndStream, Frame, MigrateKind};
use crate::id::{Conn, MAX_CONNS, Side, StreamAddr, StreamAddrSet};
use crate::omission::Omission;
use crate::scenario::{EndAt, Scenario};

/// The stream's state for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StreamState {
    /// The request has not arrived.
    Idle,
    Running,
    Complete,
    Failed,
    /// The server has promised that it never processes the request: it may be sent again.
    Refused,
}

/// Protocol errors, which a correct peer never causes: each violates a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ProtocolError {
    /// A unit is missing or duplicated.
    OutOfOrder,
    /// END_STREAM arrived before the last unit.
    EarlyEnd,
    /// DATA arrived after END_STREAM.
    DataAfterEnd,
    /// DATA arrived without credit.
    WindowExceeded,
    /// A frame that RFC 9113 forbids on an idle ID.
    IdleId,
    /// A frame on S1 after its sender's barrier.
    AfterBarrier,
    /// An answer without a MIGRATE or an offer, or to a different one.
    UnexpectedAnswer,
    /// GOAWAY excludes a carrier that the peer accepted.
    AcceptedButExcluded,
    /// A unit that has to be sent again is kept no more.
    NotKept,
}

/// Whether a follower declines when it has the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Choice {
    Follow,
    Decline,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SendHalf {
    total_units: u8,
    next_unit: u8,
    has_ended: bool,
    window: i8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RecvHalf {
    total_units: u8,
    next_unit: u8,
    has_ended: bool,
    window: i8,
    /// Delivered units for which no credit was sent yet.
    owed_credit: u8,
}

/// An offer: unanswered or declined at the server, or to be answered by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OfferState {
    No,
    Open,
    Declined,
}

/// The ID on which a stream was reset while the migration was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ResetOn {
    OldAddr,
    Carrier,
}

/// The mover's state from its MIGRATE to the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OpenMigration {
    from: StreamAddr,
    to: StreamAddr,
    /// The sending half at the barrier.
    next_at_barrier: u8,
    ended_at_barrier: bool,
    /// Credit sent on the carrier.
    credit: u8,
    /// Changes of the initial window that were processed after the barrier.
    window_change: i8,
    /// A frame was sent on the carrier.
    carrier_used: bool,
    reset: Option<ResetOn>,
    early_frames: Vec<EarlyFrame>,
}

/// A frame that arrived on the carrier before the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EarlyFrame {
    Data(Data),
    Migrate(MigrateKind),
    Stop,
}

/// A MIGRATE that waits for the answer to a JOIN (SMIG-5.12/join-pending).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DeferredMigrate {
    to: StreamAddr,
    /// Acknowledged changes of the initial window, which a decline applies.
    window_change: i8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UnboundCarrier {
    at: StreamAddr,
    data: Vec<Data>,
    credit: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ConnView {
    is_joined: bool,
    has_ended: bool,
    goaway_sent: Option<u8>,
    goaway_received: Option<u8>,
}

impl ConnView {
    /// Returns whether frames can be sent on it.
    const fn is_usable(&self) -> bool {
        self.is_joined && !self.has_ended
    }
}

/// One side of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    side: Side,
    omission: Option<Omission>,
    end_at: EndAt,
    initial_window: i8,
    send: SendHalf,
    recv: RecvHalf,
    state: StreamState,
    addr: StreamAddr,
    open_migration: Option<OpenMigration>,
    deferred_migrate: Option<DeferredMigrate>,
    offer: OfferState,
    /// A reset was sent on a carrier that was then abandoned (SMIG-8.3/reset-remembered).
    reset_owed: bool,
    unbound_carriers: Vec<UnboundCarrier>,
    closed_addrs: StreamAddrSet,
    next_id: [u8; MAX_CONNS],
    /// The highest ID of the peer's that this side has accepted, if resumption is on.
    accepted_ids: [u8; MAX_CONNS],
    conns: [ConnView; MAX_CONNS],
    sent_window_change: Option<i8>,
    /// None if resumption is off.
    resumption: Option<Resumption>,
    fault: Option<ProtocolError>,
    outbox: Vec<(Conn, Frame)>,
}

impl Endpoint {
    pub(crate) fn new(side: Side, scenario: &Scenario) -> Self {
        let (send_units, recv_units) = match side {
            Side::Client => (scenario.upload_units, scenario.download_units),
            Side::Server => (scenario.download_units, scenario.upload_units),
        };
        let window = i8::try_from(scenario.window).unwrap_or(i8::MAX);
        let mut conns: [ConnView; MAX_CONNS] = Default::default();
        for conn in Conn::all(scenario.conns) {
            let is_joining = scenario.has_joining_conn && side == Side::Client && conn == Conn(1);
            conns[conn.index()].is_joined = !is_joining;
        }
        let first_id = match side {
            Side::Client => 3,
            Side::Server => 2,
        };
        Self {
            side,
            omission: scenario.omission,
            end_at: scenario.end_at,
            initial_window: window,
            send: SendHalf {
                total_units: send_units,
                next_unit: 0,
                has_ended: send_units == 0,
                window,
            },
            recv: RecvHalf {
                total_units: recv_units,
                next_unit: 0,
                has_ended: recv_units == 0,
                window,
                owed_credit: 0,
            },
            state: match (side, scenario.is_request_in_flight) {
                (Side::Server, true) => StreamState::Idle,
                _ => StreamState::Running,
            },
            addr: StreamAddr::ORIGIN,
            open_migration: None,
            deferred_migrate: None,
            offer: OfferState::No,
            reset_owed: false,
            unbound_carriers: Vec::new(),
            closed_addrs: StreamAddrSet::default(),
            next_id: [first_id; MAX_CONNS],
            accepted_ids: [0; MAX_CONNS],
            conns,
            sent_window_change: None,
            resumption: scenario.has_resumption.then(|| Resumption::new(side, scenario)),
            fault: None,
            outbox: Vec::new(),
        }
    }

    pub(crate) fn state(&self) -> StreamState {
        self.state
    }

    pub(crate) fn fault(&self) -> Option<ProtocolError> {
        self.fault
    }

    /// Empties the outbox; returns the frames to send, in order.
    pub(crate) fn drain_outbox(&mut self) -> Vec<(Conn, Frame)> {
        std::mem::take(&mut self.outbox)
    }

    /// Processes one frame. `choice` matters only for a MIGRATE that this side may decline.
    pub(crate) fn receive(&mut self, conn: Conn, frame: Frame, choice: Choice) {
        let at = |id| StreamAddr { conn, id };
        self.count_read(conn);
        match frame {
            Frame::Data(id, data) => self.on_data(at(id), data),
            Frame::WindowUpdate(id, by) => self.on_credit(at(id), by),
            Frame::Reset(id) => self.on_reset(at(id)),
            Frame::Stop(id) => self.on_stop(at(id)),
            Frame::Migrate(id, migrate) => self.on_migrate(at(id), migrate, choice),
            Frame::Answer(id, answer) => self.on_answer(at(id), answer),
            Frame::GoAway { last } => self.on_goaway(conn, last),
            Frame::Settings(by) => self.on_settings(conn, by),
            Frame::SettingsAck => self.on_settings_ack(),
            Frame::JoinAck => self.on_joined(conn),
            Frame::Request => self.on_request(),
            Frame::Resume { id, attempt, point } => self.on_resume(at(id), attempt, point),
            Frame::Resumed(id, point) => self.on_resumed(at(id), point),
            Frame::Refused(id, refusal) => self.on_refused(at(id), refusal),
            Frame::Lost(lost) => self.on_lost(lost),
            Frame::Receipt(count) => self.on_receipt(conn, count),
        }
        self.finish_if_ended();
    }

    /// Returns whether nothing is buffered or outstanding, except for the stream itself.
    pub(crate) fn has_nothing_pending(&self) -> bool {
        self.open_migration.is_none()
            && self.deferred_migrate.is_none()
            && self.offer != OfferState::Open
            && self.unbound_carriers.is_empty()
            && !self.reset_owed
    }

    /// Returns whether no move is open, waiting or partly received, so that the windows can be
    /// compared.
    pub(crate) fn has_no_migration(&self) -> bool {
        self.open_migration.is_none()
            && self.deferred_migrate.is_none()
            && self.unbound_carriers.is_empty()
            && !self.is_resuming()
            && !self.view(self.addr.conn).has_ended
    }

    pub(crate) fn has_sent_goaway(&self, conn: Conn) -> bool {
        self.view(conn).goaway_sent.is_some()
    }

    /// Returns the window of the direction in which this side sends.
    pub(crate) fn send_window(&self) -> i8 {
        self.send.window
    }

    /// Returns the window of the direction in which this side receives.
    pub(crate) fn receive_window(&self) -> i8 {
        self.recv.window
    }

    /// Describes the state in one line, for a trace.
    pub(crate) fn summary(&self) -> String {
        let (send, recv) = (&self.send, &self.recv);
        format!(
            "{:?} on {}; sent {}/{}{}, window {}; got {}/{}{}, window {}, owes {}; migration {:?}, deferred {:?}, offer {:?}, unbound {:?}, fault {:?}, {:?}",
            self.state,
            self.addr,
            send.next_unit,
            send.total_units,
            EndStream::from_bool(send.has_ended),
            send.window,
            recv.next_unit,
            recv.total_units,
            EndStream::from_bool(recv.has_ended),
            recv.window,
            recv.owed_credit,
            self.open_migration,
            self.deferred_migrate,
            self.offer,
            self.unbound_carriers,
            self.fault,
            self.resumption
        )
    }

    fn omits(&self, omission: Omission) -> bool {
        self.omission == Some(omission)
    }

    fn queue_frame(&mut self, at: StreamAddr, frame: impl FnOnce(u8) -> Frame) {
        if !self.view(at.conn).has_ended {
            self.push_frame(at.conn, frame(at.id));
        }
    }

    fn push_frame(&mut self, conn: Conn, frame: Frame) {
        self.count_sent(conn);
        self.outbox.push((conn, frame));
    }

    fn view(&self, conn: Conn) -> &ConnView {
        &self.conns[conn.index()]
    }

    fn report_fault(&mut self, fault: ProtocolError) {
        self.fault.get_or_insert(fault);
    }

    /// Returns whether this endpoint's own open migration moves the stream to this address.
    fn is_destination(&self, at: StreamAddr) -> bool {
        self.open_migration.as_ref().is_some_and(|open| open.to == at)
    }

    /// Runs after every step: completes the stream if both directions have ended, and closes the ID
    /// of a finished stream.
    fn finish_if_ended(&mut self) {
        if self.state == StreamState::Running && self.send.has_ended && self.recv.has_ended {
            self.state = StreamState::Complete;
        }
        if matches!(self.state, StreamState::Idle | StreamState::Running) {
            return;
        }
        self.offer = OfferState::No;
        if self.state == StreamState::Complete
            && self.omits(Omission::ForgetAtEnd)
            && let Some(open) = self.open_migration.take()
        {
            self.closed_addrs.insert(open.to);
        }
        if self.open_migration.is_none() && self.deferred_migrate.is_none() && !self.is_asking() {
            self.closed_addrs.insert(self.addr);
        }
    }
}
