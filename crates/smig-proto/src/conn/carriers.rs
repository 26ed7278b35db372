//! Frames that overtook the barrier which they stand behind (SMIG-5.15/kept-in-order): carriers
//! that the follower cannot name yet, and the mover's frames from behind the ACK.

use bytes::BytesMut;

use crate::flow::Credit;
use crate::message::Section;
use crate::stream::{Chunk, GATHERED, SMALL};
use crate::time::Instant;
use crate::wire::{EndStream, Migrate, StreamId};

/// One frame, kept in order. Header blocks were decoded on arrival.
#[derive(Debug)]
pub(crate) enum EarlyItem {
    Section(Box<Section>, EndStream),
    Data(Chunk, EndStream),
    /// Short DATA, copied together, with the sum of its padding: a peer that sends an octet a frame neither pins a receive buffer
    /// nor costs an item with each (CVE-2019-9511).
    Gathered(BytesMut, Credit, u32),
    /// The follower moves the stream on, or offers it (SMIG-5.16/next-move-kept).
    Migrate(Migrate, EndStream),
    /// RST_STREAM(NO_ERROR): the response is whole, and the request's rest not wanted.
    Stop,
}

/// What a carrier received before its barrier.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) items: Vec<EarlyItem>,
    pub(crate) octets: usize,
    /// Sum of WINDOW_UPDATE.
    pub(crate) credit: u64,
}

impl Early {
    /// Whether it would hold more than a window of this size with one more chunk.
    pub(crate) fn would_exceed(&self, window: i64, chunk: &Chunk) -> bool {
        let total = self.octets + chunk.data.len() + chunk.padding as usize;
        i64::try_from(total).is_ok_and(|total| total > window.max(0))
    }

    pub(crate) fn push_data(&mut self, chunk: Chunk, end: EndStream) {
        self.octets += chunk.data.len() + chunk.padding as usize;
        if end.is_end() || chunk.data.len() >= SMALL {
            self.items.push(EarlyItem::Data(chunk, end));
            return;
        }
        match self.items.last_mut() {
            Some(EarlyItem::Gathered(buf, credit, padding)) if buf.len() < GATHERED => {
                buf.extend_from_slice(&chunk.data);
                credit.join(chunk.credit);
                *padding = padding.saturating_add(chunk.padding);
            }
            _ => {
                let Chunk { data, padding, credit, .. } = chunk;
                self.items.push(EarlyItem::Gathered(data.into_gathered(), credit, padding));
            }
        }
    }

    /// Whether a MIGRATE is kept: there is at most one, for nobody answers it before
    /// (SMIG-5.8/one-open-move).
    pub(crate) fn has_migrate(&self) -> bool {
        self.items.iter().any(|item| matches!(item, EarlyItem::Migrate(..)))
    }

    /// Whether it holds its sender's last frame here: nothing of the stream may follow
    /// (SMIG-5.19/behind-barrier).
    pub(crate) fn has_barrier(&self) -> bool {
        self.items.iter().any(|item| match item {
            EarlyItem::Migrate(migrate, _) => migrate.dst.is_some(),
            EarlyItem::Stop => true,
            EarlyItem::Section(..) | EarlyItem::Data(..) | EarlyItem::Gathered(..) => false,
        })
    }

    /// Whether its sender wants no more of what this side sends.
    pub(crate) fn is_stopped(&self) -> bool {
        self.items.iter().any(|item| matches!(item, EarlyItem::Stop))
    }

    /// How many header sections it holds.
    pub(crate) fn sections(&self) -> usize {
        self.items.iter().filter(|item| matches!(item, EarlyItem::Section(..))).count()
    }

    /// Octets of the connection's receive window that it holds.
    pub(crate) fn held(&self) -> u64 {
        let held = |item: &EarlyItem| match item {
            EarlyItem::Data(chunk, _) => chunk.credit.octets(),
            EarlyItem::Gathered(_, credit, _) => credit.octets(),
            EarlyItem::Section(..) | EarlyItem::Migrate(..) | EarlyItem::Stop => 0,
        };
        self.items.iter().map(|item| u64::from(held(item))).sum()
    }

    /// Ends it unread; the connection's credit is to be given back.
    pub(crate) fn into_credit(self) -> Credit {
        let mut credit = Credit::NONE;
        for item in self.items {
            match item {
                EarlyItem::Data(chunk, _) => credit.join(chunk.credit),
                EarlyItem::Gathered(_, gathered, _) => credit.join(gathered),
                EarlyItem::Section(..) | EarlyItem::Migrate(..) | EarlyItem::Stop => {}
            }
        }
        credit
    }
}

/// The unbound carriers of one connection.
#[derive(Debug, Default)]
pub(crate) struct Carriers {
    unbound: Vec<(StreamId, Instant, Early)>,
}

impl Carriers {
    pub(crate) fn len(&self) -> usize {
        self.unbound.len()
    }

    pub(crate) fn find(&mut self, id: StreamId) -> Option<&mut Early> {
        self.unbound.iter_mut().find(|(other, ..)| *other == id).map(|(.., early)| early)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Early> {
        self.unbound.iter().map(|(.., early)| early)
    }

    pub(crate) fn open(&mut self, id: StreamId, now: Instant) {
        self.unbound.push((id, now, Early::default()));
    }

    pub(crate) fn take(&mut self, id: StreamId) -> Option<Early> {
        let index = self.unbound.iter().position(|(other, ..)| *other == id)?;
        Some(self.unbound.remove(index).2)
    }

    /// Takes the carriers above `last`, which GOAWAY excludes.
    pub(crate) fn take_above(&mut self, last: StreamId) -> Vec<Early> {
        let excluded = self.unbound.extract_if(.., |(id, ..)| *id > last);
        excluded.map(|(.., early)| early).collect()
    }

    /// A carrier that has been unbound since `before` or longer.
    pub(crate) fn expired(&self, before: Instant) -> Option<StreamId> {
        self.unbound.iter().find(|(_, since, _)| *since <= before).map(|&(id, ..)| id)
    }

    /// Ends all of them with their connection.
    pub(crate) fn forfeit(&mut self) {
        for (.., early) in self.unbound.drain(..) {
            early.into_credit().forfeit();
        }
    }
}
