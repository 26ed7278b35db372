//! The payloads of MIGRATE and JOIN (spec/smig.md section 2).

use core::fmt;

use crate::ids::{Cid, StreamId};

/// The 16 bytes of MIGRATE. `dst` is `None` in an offer and in a decline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Migrate {
    pub(crate) dst: Option<(Cid, StreamId)>,
}

impl Migrate {
    pub(crate) const PAYLOAD_BYTES: u32 = 16;

    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let (cid, rest) = payload.split_first_chunk::<12>()?;
        let (sid, rest) = rest.split_first_chunk::<4>()?;
        if !rest.is_empty() {
            return None;
        }
        let sid = StreamId::from_wire(*sid);
        Some(Self { dst: Cid::from_bytes(*cid).map(|cid| (cid, sid)) })
    }

    pub(crate) fn to_bytes(self) -> ([u8; 12], [u8; 4]) {
        match self.dst {
            Some((cid, sid)) => (cid.to_bytes(), sid.value().to_be_bytes()),
            None => ([0; 12], [0; 4]),
        }
    }
}

/// The reason why a server refuses a JOIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefusal {
    /// 1: no session has this AppID; the connection founds a new one.
    UnknownSession,
    /// 2: the proof is wrong, or the ConnNo was used before.
    BadProof,
    /// 3: listener, SNI, client certificate or tenant differ from the session's.
    DifferentIdentity,
    /// 4: the connection would exceed a limit, such as the session's number of connections.
    Limit,
    /// 5: the session exists, but on a server or worker to which this connection cannot be handed
    /// over.
    NotHere,
}

impl JoinRefusal {
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::UnknownSession => 1,
            Self::BadProof => 2,
            Self::DifferentIdentity => 3,
            Self::Limit => 4,
            Self::NotHere => 5,
        }
    }

    /// Converts a reason code. Unknown reasons count as "not here" (SMIG-10.1/unknown-reason).
    pub(crate) const fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::UnknownSession,
            2 => Self::BadProof,
            3 => Self::DifferentIdentity,
            4 => Self::Limit,
            _ => Self::NotHere,
        }
    }
}

impl JoinRefusal {
    /// Returns the reason in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownSession => "unknown session",
            Self::BadProof => "bad proof",
            Self::DifferentIdentity => "not the same identity",
            Self::Limit => "limit reached",
            Self::NotHere => "the session cannot be reached from this server or worker",
        }
    }
}

impl fmt::Display for JoinRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The payload of JOIN, by its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Proof { nonce: [u8; 16], mac: [u8; 32] },
    Ack { nonce: [u8; 16], mac: [u8; 32] },
    Refused(JoinRefusal),
}

impl Join {
    pub(crate) fn parse(flags: u8, payload: &[u8]) -> Option<Self> {
        if flags & super::flag::JOIN_REFUSED != 0 {
            let &[reason] = payload else { return None };
            return Some(Self::Refused(JoinRefusal::from_byte(reason)));
        }
        let (&nonce, rest) = payload.split_first_chunk::<16>()?;
        let (&mac, rest) = rest.split_first_chunk::<32>()?;
        if !rest.is_empty() {
            return None;
        }
        Some(if flags & super::flag::SMIG_ACK == 0 {
            Self::Proof { nonce, mac }
        } else {
            Self::Ack { nonce, mac }
        })
    }
}
