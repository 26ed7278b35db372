//! One end of the stream, as `spec/smig.md` specifies.
//!
//! An endpoint processes a frame, a choice of its application or the end of a connection, and puts
//! the frames that it sends into its outbox. It must never access its peer or the network.
//!
//! - `stream`: data, windows, SETTINGS_INITIAL_WINDOW_SIZE (sections 5 and 7)
//! - `mover`: the open migration, its answer, yielding (sections 5 and 6)
//! - `follower`: requests, unbound carriers, offers (sections 5 and 6)
//! - `ends`: resets, lost connections, GOAWAY (section 8)

mod ends;
mod follower;
mod mover;
mod stream;

use crate::frame::{Data, End, Frame, Request};
use crate::id::{Carrier, Carriers, Conn, MAX_CONNS, Side};
use crate::omission::Omission;
use crate::scenario::{EndAt, Scenario};

/// The stream's state for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    Running,
    Complete,
    Failed,
}

/// Errors that a correct peer never causes. Each violates a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A unit is missing or duplicated.
    OutOfOrder,
    /// END_STREAM arrived before the last unit.
    SilentCut,
    /// DATA arrived after END_STREAM.
    DataBehindEnd,
    /// DATA arrived without credit.
    WindowExceeded,
    /// A frame that RFC 9113 forbids on an idle ID.
    IdleId,
    /// A frame on S1 after its sender's barrier.
    BehindBarrier,
    /// An answer without a request, or to a different one.
    UnexpectedAnswer,
    /// GOAWAY excludes a carrier that the peer accepted.
    AcceptedButExcluded,
}

/// Whether a follower declines when it has the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Choice {
    Follow,
    Decline,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SendHalf {
    total: u8,
    next: u8,
    ended: bool,
    window: i8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReceiveHalf {
    total: u8,
    next: u8,
    ended: bool,
    window: i8,
    /// Delivered units for which no credit was sent yet.
    owed: u8,
}

/// An offer: unanswered or declined at the server, or to be answered by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Offer {
    No,
    Open,
    Refused,
}

/// The ID on which a stream was reset while the migration was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ResetOn {
    Origin,
    Carrier,
}

/// The mover's state from its MIGRATE to the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OpenMove {
    from: Carrier,
    to: Carrier,
    /// The sending half at the barrier.
    next_at_barrier: u8,
    ended_at_barrier: bool,
    /// Credit sent on the carrier.
    credit: u8,
    /// Changes of the initial window that were processed after the barrier.
    settings: i8,
    /// A frame was sent on the carrier.
    used: bool,
    reset: Option<ResetOn>,
    early: Vec<EarlyFrame>,
}

/// A frame that arrived on the carrier before the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EarlyFrame {
    Data(Data),
    Request(Request),
    Stop,
}

/// A MIGRATE that waits for the answer to a JOIN (SMIG-5.12/join-pending).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DeferredMigrate {
    to: Carrier,
    /// Acknowledged changes of the initial window, which a decline applies.
    settings: i8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unbound {
    at: Carrier,
    data: Vec<Data>,
    credit: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ConnView {
    joined: bool,
    ended: bool,
    goaway_sent: Option<u8>,
    goaway_read: Option<u8>,
}

/// One end of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    side: Side,
    omission: Option<Omission>,
    end_at: EndAt,
    initial_window: i8,
    send: SendHalf,
    recv: ReceiveHalf,
    fate: Fate,
    place: Carrier,
    open: Option<OpenMove>,
    kept: Option<DeferredMigrate>,
    offer: Offer,
    /// A reset was sent on a carrier that was then given up (SMIG-8.3/reset-remembered).
    reset_owed: bool,
    unbound: Vec<Unbound>,
    closed: Carriers,
    next_id: [u8; MAX_CONNS],
    conns: [ConnView; MAX_CONNS],
    settings_sent: Option<i8>,
    fault: Option<Fault>,
    outbox: Vec<(Conn, Frame)>,
}

impl Endpoint {
    pub(crate) fn new(side: Side, scenario: &Scenario) -> Self {
        let (out, inward) = match side {
            Side::Client => (scenario.up, scenario.down),
            Side::Server => (scenario.down, scenario.up),
        };
        let window = i8::try_from(scenario.window).unwrap_or(i8::MAX);
        let mut conns: [ConnView; MAX_CONNS] = Default::default();
        for conn in Conn::all(scenario.conns) {
            let waits = scenario.joining && side == Side::Client && conn == Conn(1);
            conns[conn.index()].joined = !waits;
        }
        let first_id = match side {
            Side::Client => 3,
            Side::Server => 2,
        };
        Self {
            side,
            omission: scenario.omission,
            end_at: scenario.end,
            initial_window: window,
            send: SendHalf { total: out, next: 0, ended: out == 0, window },
            recv: ReceiveHalf { total: inward, next: 0, ended: inward == 0, window, owed: 0 },
            fate: Fate::Running,
            place: Carrier::ORIGIN,
            open: None,
            kept: None,
            offer: Offer::No,
            reset_owed: false,
            unbound: Vec::new(),
            closed: Carriers::default(),
            next_id: [first_id; MAX_CONNS],
            conns,
            settings_sent: None,
            fault: None,
            outbox: Vec::new(),
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Empties the outbox; returns the frames to send, in order.
    pub(crate) fn drain(&mut self) -> Vec<(Conn, Frame)> {
        std::mem::take(&mut self.outbox)
    }

    /// Processes one frame. `choice` matters only for a MIGRATE that this end may decline.
    pub(crate) fn receive(&mut self, conn: Conn, frame: Frame, choice: Choice) {
        let at = |id| Carrier { conn, id };
        match frame {
            Frame::Data(id, data) => self.data_read(at(id), data),
            Frame::WindowUpdate(id, by) => self.credit_read(at(id), by),
            Frame::Reset(id) => self.reset_read(at(id)),
            Frame::Stop(id) => self.stop_read(at(id)),
            Frame::Migrate(id, request) => self.request_read(at(id), request, choice),
            Frame::Answer(id, answer) => self.answer_read(at(id), answer),
            Frame::GoAway { last } => self.goaway_read(conn, last),
            Frame::Settings(by) => self.settings_read(conn, by),
            Frame::SettingsAck => self.settings_ack_read(),
            Frame::Joined => self.joined(conn),
        }
        self.settle();
    }

    /// Returns whether nothing is buffered or outstanding, except for the stream itself.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.open.is_none()
            && self.kept.is_none()
            && self.offer != Offer::Open
            && self.unbound.is_empty()
            && !self.reset_owed
    }

    /// Returns whether no move is open, waiting or partly received, so that the windows can be
    /// compared.
    pub(crate) fn keeps_no_move(&self) -> bool {
        self.open.is_none() && self.kept.is_none() && self.unbound.is_empty()
    }

    /// Returns the window of the direction in which this end sends.
    pub(crate) fn send_window(&self) -> i8 {
        self.send.window
    }

    /// Returns the window of the direction in which this end receives.
    pub(crate) fn receive_window(&self) -> i8 {
        self.recv.window
    }

    /// Describes the state in one line, for a trace.
    pub(crate) fn summary(&self) -> String {
        let (send, recv) = (&self.send, &self.recv);
        format!(
            "{:?} on {}; sent {}/{}{}, window {}; got {}/{}{}, window {}, owes {}; move {:?}, kept {:?}, offer {:?}, unbound {:?}, fault {:?}",
            self.fate,
            self.place,
            send.next,
            send.total,
            End::when(send.ended),
            send.window,
            recv.next,
            recv.total,
            End::when(recv.ended),
            recv.window,
            recv.owed,
            self.open,
            self.kept,
            self.offer,
            self.unbound,
            self.fault
        )
    }

    fn omits(&self, omission: Omission) -> bool {
        self.omission == Some(omission)
    }

    fn push(&mut self, at: Carrier, frame: impl FnOnce(u8) -> Frame) {
        if !self.view(at.conn).ended {
            self.outbox.push((at.conn, frame(at.id)));
        }
    }

    fn view(&self, conn: Conn) -> &ConnView {
        &self.conns[conn.index()]
    }

    fn blame(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    fn is_destination(&self, at: Carrier) -> bool {
        self.open.as_ref().is_some_and(|open| open.to == at)
    }

    /// Runs after every step: completes the stream if both directions have ended, and closes the ID
    /// of a finished stream.
    fn settle(&mut self) {
        if self.fate == Fate::Running && self.send.ended && self.recv.ended {
            self.fate = Fate::Complete;
        }
        if self.fate == Fate::Running {
            return;
        }
        self.offer = Offer::No;
        if self.fate == Fate::Complete
            && self.omits(Omission::ForgetAtEnd)
            && let Some(open) = self.open.take()
        {
            self.closed.insert(open.to);
        }
        if self.open.is_none() && self.kept.is_none() {
            self.closed.insert(self.place);
        }
    }
}
