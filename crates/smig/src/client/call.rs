//! One request of a client, before and while it is on its way.

use std::sync::Arc;

use smig_proto::policy::{Hint, Transfer};
use smig_proto::{ErrorCode, Instant, RequestHead, StreamKey};

use super::body::RequestBody;
use super::interim::OnInterim;
use super::limits::QueuePlace;
use crate::error::Error;
use crate::moves::Tracked;
use crate::snapshot::Record;
use crate::stream::{Feed, Length, Shared};

/// A request that is not sent yet.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) head: RequestHead,
    pub(crate) body: RequestBody,
    pub(crate) length: Length,
    pub(crate) asides: Asides,
    /// In the queue: given back when the request is on its way.
    pub(crate) place: QueuePlace,
    /// Since when it waits for a stream.
    pub(crate) since: Option<Instant>,
    pub(crate) shared: Arc<Shared>,
}

/// What is left of a request that was not sent.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) body: RequestBody,
    /// The request waits on, and keeps it.
    pub(crate) place: Option<QueuePlace>,
}

/// A request that no session has yet, without its body.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) head: RequestHead,
    pub(super) length: Length,
    pub(super) asides: Asides,
    pub(super) place: QueuePlace,
}

/// What an application says of a request beside its head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asides {
    pub(crate) hint: Hint,
    pub(crate) on_interim: Option<OnInterim>,
}

/// A request that is on its way.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) key: StreamKey,
    pub(super) shared: Arc<Shared>,
    pub(super) body: RequestBody,
    pub(super) length: Length,
    /// Whether the body was polled: then it cannot be sent again.
    pub(super) touched: bool,
    pub(super) inbound: Feed,
    pub(super) outbound: Outbound,
    pub(super) rest: Rest,
    pub(super) tracked: Option<Tracked>,
    pub(super) on_interim: Option<OnInterim>,
    pub(super) record: Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outbound {
    Open,
    /// The engine has all of it.
    Ended,
    /// The body failed behind the whole response: there is no more of it, and no end.
    Broken(ErrorCode),
    /// The transport has all of it, or nothing more is to be sent.
    Sent,
}

/// What becomes of a request that goes on behind its whole response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It is sent.
    Wanted,
    /// It is given up.
    Unwanted,
    /// The response is whole, and the stream is among the leftovers.
    Left,
}

impl Outgoing {
    /// Gives it back to who asked, with its place in the queue.
    pub(crate) fn give_back(self, error: Error) {
        let Self { body, place, shared, .. } = self;
        shared.give_back(Unsent { body, place: Some(place) }, error);
    }

    /// What the rules for moves make of it. A download's length is known later.
    pub(super) fn transfer(&self) -> Transfer {
        match self.length {
            _ if self.head.method == http::Method::CONNECT => Transfer::Tunnel,
            Length::Left(octets) => Transfer::Sized(octets),
            Length::Unknown if self.body.is_empty() => Transfer::Sized(0),
            Length::Unknown => Transfer::Unsized,
        }
    }
}

impl Call {
    /// Whether nothing more happens on the stream.
    pub(super) fn is_over(&self) -> bool {
        // What is queued is watched to the end: the rules may move it, and where the server takes no more
        // of it, it may be given up.
        self.inbound == Feed::Ended && self.outbound == Outbound::Sent
    }

    /// Nothing more of the request is wanted than until the response is whole.
    pub(super) fn give_up(&mut self) {
        if self.rest == Rest::Wanted {
            self.rest = Rest::Unwanted;
        }
    }

    /// What its stream is reset by when it is given up.
    pub(super) const fn code(&self) -> ErrorCode {
        match self.outbound {
            Outbound::Broken(code) => code,
            Outbound::Open | Outbound::Ended | Outbound::Sent => ErrorCode::Cancel,
        }
    }

    /// Whether the response is whole, and what is left of the request is to be given up.
    pub(super) fn is_leftover(&self) -> bool {
        self.inbound == Feed::Ended
            && self.outbound != Outbound::Sent
            && self.rest == Rest::Unwanted
    }
}
