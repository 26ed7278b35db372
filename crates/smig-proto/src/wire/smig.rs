//! The payloads of MIGRATE and JOIN (spec/smig.md section 2).

use core::fmt;

use super::{Cid, StreamId};

/// MIGRATE's 16 octets. `dst` is `None` for an offer, or for a refusal in an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Migrate {
    pub(crate) dst: Option<(Cid, StreamId)>,
}

impl Migrate {
    pub(crate) const LENGTH: u32 = 16;

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

/// Why a server refuses a JOIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefusal {
    /// 1: no session has this AppID; the connection founds a new one.
    UnknownSession,
    /// 2: the proof is wrong.
    BadProof,
    /// 3: listener, SNI, client certificate or tenant differ from the session's.
    DifferentIdentity,
    /// 4: the session has as many connections as it may have.
    Limit,
    /// 5: the session lives where this connection cannot be handed to.
    NotHere,
}

impl JoinRefusal {
    pub(crate) const fn octet(self) -> u8 {
        match self {
            Self::UnknownSession => 1,
            Self::BadProof => 2,
            Self::DifferentIdentity => 3,
            Self::Limit => 4,
            Self::NotHere => 5,
        }
    }

    /// An octet that this version does not know counts as "not here" (SMIG-10.1/unknown-reason).
    pub(crate) const fn from_octet(octet: u8) -> Self {
        match octet {
            1 => Self::UnknownSession,
            2 => Self::BadProof,
            3 => Self::DifferentIdentity,
            4 => Self::Limit,
            _ => Self::NotHere,
        }
    }
}

impl fmt::Display for JoinRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownSession => "unknown session",
            Self::BadProof => "bad proof",
            Self::DifferentIdentity => "not the same identity",
            Self::Limit => "limit reached",
            Self::NotHere => "the session is on another server",
        })
    }
}

/// JOIN's payload by its flags.
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
            return Some(Self::Refused(JoinRefusal::from_octet(reason)));
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
