//! The frames that are relevant to a migration.
//!
//! One unit of DATA represents any bytes or field block. Must never make decisions.

use std::fmt;

use crate::id::{Conn, StreamAddr};

/// DATA, or HEADERS with END_STREAM: one numbered unit, or none if there is only the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Data {
    /// Position of the unit in its direction, from 0.
    pub(crate) unit: Option<u8>,
    pub(crate) end: EndStream,
}

/// The END_STREAM flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EndStream {
    Yes,
    No,
}

impl EndStream {
    pub(crate) fn from_bool(ended: bool) -> Self {
        if ended { Self::Yes } else { Self::No }
    }

    pub(crate) fn is_set(self) -> bool {
        self == Self::Yes
    }
}

/// The content of a MIGRATE without ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MigrateKind {
    Move { to: StreamAddr, end: EndStream },
    Offer,
}

/// The content of a MIGRATE with ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Answer {
    /// The repeated destination; `None` is a decline.
    pub(crate) to: Option<StreamAddr>,
    pub(crate) end: EndStream,
}

/// Where a stream goes on: the content of RESUME, apart from its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ResumePoint {
    /// The first unit that the sender of this frame has not received.
    pub(crate) next_unit: u8,
    /// Credit behind that unit, in units.
    pub(crate) window: i8,
    /// WHOLE: the peer's direction was received up to its end.
    pub(crate) whole: EndStream,
}

/// Why a RESUME is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// The request was not processed, and never will be.
    NeverProcessed,
    /// What the client lacks is no longer kept.
    Gone,
    /// The server has reset the stream.
    WasReset,
    /// A later attempt is in force.
    OlderAttempt,
}

/// A frame with its stream ID; its connection is that of its queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Frame {
    Data(u8, Data),
    WindowUpdate(u8, u8),
    Reset(u8),
    /// RST_STREAM(NO_ERROR): the response is complete, and the rest of the request is not needed.
    Stop(u8),
    Migrate(u8, MigrateKind),
    Answer(u8, Answer),
    GoAway {
        last: u8,
    },
    /// SETTINGS that change SETTINGS_INITIAL_WINDOW_SIZE by this amount.
    Settings(i8),
    SettingsAck,
    /// The server's accepting answer to JOIN.
    JoinAck,
    /// The HEADERS of the request, on its original ID.
    Request,
    Resume {
        id: u8,
        attempt: u8,
        point: ResumePoint,
    },
    Resumed(u8, ResumePoint),
    Refused(u8, Refusal),
    /// The client has given this connection up, and what it has not resumed there.
    Lost(Conn),
    /// The number of frames that were read on this connection.
    Receipt(u8),
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            Some(unit) => write!(f, "DATA {unit}{}", self.end),
            None => write!(f, "DATA (empty){}", self.end),
        }
    }
}

impl fmt::Display for ResumePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.whole.is_set() { ", whole" } else { "" };
        write!(f, "from {}{whole}, window {}", self.next_unit, self.window)
    }
}

impl fmt::Display for EndStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set() { " END_STREAM" } else { "" })
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(id, data) => write!(f, "[{id}] {data}"),
            Self::WindowUpdate(id, by) => write!(f, "[{id}] WINDOW_UPDATE +{by}"),
            Self::Reset(id) => write!(f, "[{id}] RST_STREAM"),
            Self::Stop(id) => write!(f, "[{id}] RST_STREAM(NO_ERROR)"),
            Self::Migrate(id, MigrateKind::Move { to, end }) => {
                write!(f, "[{id}] MIGRATE({to}){end}")
            }
            Self::Migrate(id, MigrateKind::Offer) => write!(f, "[{id}] MIGRATE(0): offer"),
            Self::Answer(id, Answer { to: Some(to), end }) => {
                write!(f, "[{id}] MIGRATE(ACK, {to}){end}")
            }
            Self::Answer(id, Answer { to: None, end }) => {
                write!(f, "[{id}] MIGRATE(ACK, 0){end}: decline")
            }
            Self::GoAway { last } => write!(f, "GOAWAY(last {last})"),
            Self::Settings(by) => write!(f, "SETTINGS(INITIAL_WINDOW_SIZE {by:+})"),
            Self::SettingsAck => f.write_str("SETTINGS(ACK)"),
            Self::JoinAck => f.write_str("JOIN(ACK)"),
            Self::Request => f.write_str("HEADERS: the request"),
            Self::Resume { id, attempt, point } => {
                write!(f, "[{id}] RESUME(attempt {attempt}, {point})")
            }
            Self::Resumed(id, point) => write!(f, "[{id}] RESUME(ACK, {point})"),
            Self::Refused(id, refusal) => write!(f, "[{id}] RESUME(REFUSED, {refusal:?})"),
            Self::Lost(conn) => write!(f, "LOST({conn})"),
            Self::Receipt(count) => write!(f, "RECEIPT({count} frames)"),
        }
    }
}
