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

/// What a carrier received before its barrier. What each further frame asks of the items is counted as
/// they come: a peer must not have them searched with every frame.
#[derive(Debug, Default)]
pub(crate) struct Early {
    items: Vec<EarlyItem>,
    sections: usize,
    /// A MIGRATE is among them.
    migrate: bool,
    /// Their sender's last frame here is among them.
    barrier: bool,
    stopped: bool,
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

    pub(crate) fn push_section(&mut self, section: Section, end: EndStream) {
        self.sections += 1;
        self.items.push(EarlyItem::Section(Box::new(section), end));
    }

    pub(crate) fn push_migrate(&mut self, migrate: Migrate, end: EndStream) {
        self.migrate = true;
        self.barrier |= migrate.dst.is_some();
        self.items.push(EarlyItem::Migrate(migrate, end));
    }

    pub(crate) fn push_stop(&mut self) {
        (self.barrier, self.stopped) = (true, true);
        self.items.push(EarlyItem::Stop);
    }

    /// What came, in order.
    pub(crate) fn into_items(self) -> Vec<EarlyItem> {
        self.items
    }

    /// Whether a MIGRATE is kept: there is at most one, for nobody answers it before
    /// (SMIG-5.8/one-open-move).
    pub(crate) const fn has_migrate(&self) -> bool {
        self.migrate
    }

    /// Whether it holds its sender's last frame here: nothing of the stream may follow
    /// (SMIG-5.19/behind-barrier).
    pub(crate) const fn has_barrier(&self) -> bool {
        self.barrier
    }

    /// Whether its sender wants no more of what this side sends.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// How many header sections it holds.
    pub(crate) const fn sections(&self) -> usize {
        self.sections
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{AppId, Cid};

    #[test]
    fn what_a_frame_asks_is_known_without_a_search() {
        let mut early = Early::default();
        assert!(!early.has_migrate() && !early.has_barrier() && !early.is_stopped());
        early.push_section(Section::default(), EndStream::No);
        early.push_section(Section::default(), EndStream::No);
        assert_eq!(early.sections(), 2);
        // An offer is no barrier.
        early.push_migrate(Migrate { dst: None }, EndStream::No);
        assert!(early.has_migrate() && !early.has_barrier());
        let cid = Cid { app: AppId::new(1), number: 2 };
        let mut early = Early::default();
        early.push_migrate(Migrate { dst: Some((cid, StreamId::new(2))) }, EndStream::No);
        assert!(early.has_migrate() && early.has_barrier() && !early.is_stopped());
        let mut early = Early::default();
        early.push_stop();
        assert!(!early.has_migrate() && early.has_barrier() && early.is_stopped());
        assert_eq!(early.into_items().len(), 1);
    }
}
