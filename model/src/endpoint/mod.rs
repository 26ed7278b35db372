//! One end of the stream, by the rules of `spec/smig.md`.
//!
//! An endpoint takes a frame, a choice of its application or the end of a connection, and leaves the
//! frames that it sends in its outbox. It must never look at its peer or at the network.
//!
//! - `stream`: data, windows, SETTINGS_INITIAL_WINDOW_SIZE (sections 5 and 7)
//! - `mover`: the open migration, its answer, giving up (sections 5 and 6)
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

/// What the application knows about the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    Running,
    Complete,
    Failed,
}

/// What a correct peer never causes. Any of these breaks a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A unit is missing or comes twice.
    OutOfOrder,
    /// END_STREAM came before the last unit.
    SilentCut,
    /// DATA came behind END_STREAM.
    DataBehindEnd,
    /// DATA came without credit.
    WindowExceeded,
    /// A frame that RFC 9113 forbids on an idle id.
    IdleId,
    /// A frame on S1 behind its sender's barrier.
    BehindBarrier,
    /// An answer to nothing, or not to what was asked.
    UnexpectedAnswer,
    /// GOAWAY excludes a carrier that the peer accepted.
    AcceptedButExcluded,
}

/// Whether a follower that may decline does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Choice {
    Willing,
    Unwilling,
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
    /// Units handed on for which no credit was given yet.
    owed: u8,
}

/// An offer: the server's view (open until answered), or the client's duty to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Offer {
    No,
    Open,
    Refused,
}

/// On which id a stream was reset while the migration was open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ResetOn {
    Origin,
    Carrier,
}

/// The mover's record, from its MIGRATE to the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OpenMove {
    from: Carrier,
    to: Carrier,
    /// The sending half as the barrier found it.
    next_at_barrier: u8,
    ended_at_barrier: bool,
    /// Credit sent on the carrier.
    credit: u8,
    /// Changes of the initial window processed behind the barrier.
    settings: i8,
    /// A frame was sent on the carrier.
    used: bool,
    reset: Option<ResetOn>,
    early: Vec<Early>,
}

/// What arrived on the carrier before the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Early {
    Data(Data),
    Request(Request),
    Stop,
}

/// A MIGRATE that waits for the answer to JOIN (SMIG-5.12/join-pending).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kept {
    to: Carrier,
    /// Acknowledged changes of the initial window, for the case of a decline.
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
    kept: Option<Kept>,
    offer: Offer,
    /// A reset that was sent on a carrier which was then given up (SMIG-8.3/reset-remembered).
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

    /// The frames to send, in order; empties the outbox.
    pub(crate) fn drain(&mut self) -> Vec<(Conn, Frame)> {
        std::mem::take(&mut self.outbox)
    }

    /// Takes one frame. The choice matters only for a MIGRATE that this end may decline.
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

    /// Nothing is held, awaited or owed (the stream itself aside).
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.open.is_none()
            && self.kept.is_none()
            && self.offer != Offer::Open
            && self.unbound.is_empty()
            && !self.reset_owed
    }

    /// No move is open, kept or half arrived: the windows can be compared.
    pub(crate) fn keeps_no_move(&self) -> bool {
        self.open.is_none() && self.kept.is_none() && self.unbound.is_empty()
    }

    /// The account of the direction in which this end sends.
    pub(crate) fn send_window(&self) -> i8 {
        self.send.window
    }

    /// The account of the direction in which this end receives.
    pub(crate) fn receive_window(&self) -> i8 {
        self.recv.window
    }

    /// One line for a trace.
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

    /// After every step: both directions may have ended, and a finished stream frees its id.
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
