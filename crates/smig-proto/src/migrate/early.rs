//! Frames that arrived before the barrier that precedes them (SMIG-5.15/kept-in-order): on unbound
//! carriers at the follower, and on the mover's carrier before the accepting answer.

use bytes::BytesMut;

use crate::body::{Chunk, GATHERED, SMALL};
use crate::error::Cause;
use crate::flow::Credit;
use crate::ids::StreamId;
use crate::message::FieldSection;
use crate::time::Instant;
use crate::wire::{EndStream, Migrate};

/// One buffered frame. Field blocks were decoded on arrival.
#[derive(Debug)]
pub(crate) enum EarlyFrame {
    Section(Box<FieldSection>, EndStream),
    Data(Chunk, EndStream),
    /// Short DATA, coalesced, with the sum of its padding: a peer that sends one byte per frame
    /// neither pins a receive buffer nor adds an item with each frame (CVE-2019-9511).
    Coalesced(BytesMut, Credit, u32),
    /// The follower moves the stream again, or offers it (SMIG-5.16/next-move-kept).
    Migrate(Migrate, EndStream),
    /// RST_STREAM(NO_ERROR): the response is complete, and the server does not need the rest of the
    /// request.
    Stop,
}

/// The frames that the sender of early frames may still send here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sender {
    #[default]
    Open,
    /// END_STREAM was received: neither HEADERS nor DATA may follow (SMIG-5.31/ended-carrier).
    Ended,
    /// The sender moved the stream again: no frame of it may follow (SMIG-5.19/behind-barrier).
    Left,
    /// The sender does not need the rest of this side's data, and sends nothing more itself.
    Stopped,
}

impl Sender {
    /// Checks whether HEADERS and DATA are permitted.
    const fn may_send(self) -> Result<(), Cause> {
        match self {
            Self::Open => Ok(()),
            Self::Ended => Err(Cause::HalfClosed),
            Self::Left | Self::Stopped => Err(Cause::StreamClosed),
        }
    }

    const fn may_leave(self) -> bool {
        matches!(self, Self::Open | Self::Ended)
    }
}

/// Maximum number of buffered field sections. Each is limited in size, so their number must be too. A
/// response has few 1xx.
const SECTIONS: usize = 16;

/// Limit of buffered items, in addition to two for each [`SMALL`] bytes of DATA. A peer that obeys
/// the other rules stays below it: short DATA is coalesced, so of two adjacent DATA items at least
/// one has [`SMALL`] bytes.
const ITEMS: usize = 64;

/// Frames received on a carrier before its barrier. They are added only by the `push_*` functions,
/// which reject frames that are not permitted or exceed a limit. The state that these checks need
/// is updated on each push: scanning the items for each frame would give the peer quadratic work.
#[derive(Debug, Default)]
pub(crate) struct EarlyFrames {
    items: Vec<EarlyFrame>,
    sections: usize,
    /// Whether a MIGRATE is among the items. There is at most one, because it is not answered
    /// before the barrier arrives (SMIG-5.8/one-open-move).
    migrate: bool,
    sender: Sender,
    bytes: usize,
    /// Sum of the WINDOW_UPDATE increments.
    pub(crate) credit: u64,
}

impl EarlyFrames {
    /// Checks whether there is room for another item of any kind. The limit is proportional to the
    /// DATA, which the windows bound.
    fn has_room(&self) -> Result<(), Cause> {
        let most = ITEMS + 2 * self.bytes / SMALL;
        if self.items.len() >= most { Err(Cause::CarrierItems) } else { Ok(()) }
    }

    /// Buffers DATA, unless the carrier's total would exceed `window`.
    pub(crate) fn push_data(
        &mut self,
        chunk: Chunk,
        end: EndStream,
        window: i64,
    ) -> Result<(), (Cause, Credit)> {
        let total = self.bytes + chunk.data.len() + chunk.padding as usize;
        let fits = i64::try_from(total).is_ok_and(|total| total <= window.max(0));
        let admitted = self
            .sender
            .may_send()
            .and_then(|()| if fits { self.has_room() } else { Err(Cause::CarrierWindow) });
        if let Err(cause) = admitted {
            return Err((cause, chunk.credit));
        }
        self.bytes = total;
        if end.is_end() {
            self.sender = Sender::Ended;
        }
        if end.is_end() || chunk.data.len() >= SMALL {
            self.items.push(EarlyFrame::Data(chunk, end));
            return Ok(());
        }
        match self.items.last_mut() {
            Some(EarlyFrame::Coalesced(buf, credit, padding)) if buf.len() < GATHERED => {
                buf.extend_from_slice(&chunk.data);
                credit.join(chunk.credit);
                *padding = padding.saturating_add(chunk.padding);
            }
            _ => {
                let Chunk { data, padding, credit, .. } = chunk;
                self.items.push(EarlyFrame::Coalesced(data.into_gathered(), credit, padding));
            }
        }
        Ok(())
    }

    pub(crate) fn push_section(
        &mut self,
        section: FieldSection,
        end: EndStream,
    ) -> Result<(), Cause> {
        self.sender.may_send()?;
        self.has_room()?;
        if self.sections >= SECTIONS {
            return Err(Cause::CarrierSections);
        }
        self.sections += 1;
        if end.is_end() {
            self.sender = Sender::Ended;
        }
        self.items.push(EarlyFrame::Section(Box::new(section), end));
        Ok(())
    }

    pub(crate) fn push_migrate(&mut self, migrate: Migrate, end: EndStream) -> Result<(), Cause> {
        if self.migrate || !self.sender.may_leave() {
            return Err(Cause::BadMigrate);
        }
        self.has_room()?;
        self.migrate = true;
        if migrate.dst.is_some() {
            self.sender = Sender::Left;
        }
        self.items.push(EarlyFrame::Migrate(migrate, end));
        Ok(())
    }

    /// Buffers RST_STREAM(NO_ERROR). Returns false if the sender has already left or there is no
    /// room; the frame is then an ordinary reset.
    pub(crate) fn push_stop(&mut self) -> bool {
        let may = self.sender.may_leave() && self.has_room().is_ok();
        if may {
            self.sender = Sender::Stopped;
            self.items.push(EarlyFrame::Stop);
        }
        may
    }

    /// Returns the buffered frames, in order.
    pub(crate) fn into_items(self) -> Vec<EarlyFrame> {
        self.items
    }

    /// Returns whether RST_STREAM(NO_ERROR) was buffered.
    pub(crate) const fn is_stopped(&self) -> bool {
        matches!(self.sender, Sender::Stopped)
    }

    /// Returns the bytes of the connection's receive window that the items occupy.
    pub(crate) fn held(&self) -> u64 {
        let held = |item: &EarlyFrame| match item {
            EarlyFrame::Data(chunk, _) => chunk.credit.bytes(),
            EarlyFrame::Coalesced(_, credit, _) => credit.bytes(),
            EarlyFrame::Section(..) | EarlyFrame::Migrate(..) | EarlyFrame::Stop => 0,
        };
        self.items.iter().map(|item| u64::from(held(item))).sum()
    }

    /// Drops the items, and returns their credit, which must be returned to the connection.
    pub(crate) fn into_credit(self) -> Credit {
        let mut credit = Credit::NONE;
        for item in self.items {
            match item {
                EarlyFrame::Data(chunk, _) => credit.join(chunk.credit),
                EarlyFrame::Coalesced(_, gathered, _) => credit.join(gathered),
                EarlyFrame::Section(..) | EarlyFrame::Migrate(..) | EarlyFrame::Stop => {}
            }
        }
        credit
    }
}

/// The unbound carriers of one connection.
#[derive(Debug, Default)]
pub(crate) struct UnboundCarriers {
    unbound: Vec<(StreamId, Instant, EarlyFrames)>,
}

impl UnboundCarriers {
    pub(crate) fn len(&self) -> usize {
        self.unbound.len()
    }

    pub(crate) fn find(&mut self, id: StreamId) -> Option<&mut EarlyFrames> {
        self.unbound.iter_mut().find(|(other, ..)| *other == id).map(|(.., early)| early)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &EarlyFrames> {
        self.unbound.iter().map(|(.., early)| early)
    }

    pub(crate) fn open(&mut self, id: StreamId, now: Instant) {
        self.unbound.push((id, now, EarlyFrames::default()));
    }

    pub(crate) fn take(&mut self, id: StreamId) -> Option<EarlyFrames> {
        let index = self.unbound.iter().position(|(other, ..)| *other == id)?;
        Some(self.unbound.remove(index).2)
    }

    /// Removes and returns the carriers above `last`, which GOAWAY excludes.
    pub(crate) fn take_above(&mut self, last: StreamId) -> Vec<EarlyFrames> {
        let excluded = self.unbound.extract_if(.., |(id, ..)| *id > last);
        excluded.map(|(.., early)| early).collect()
    }

    /// Returns a carrier that became unbound at `before` or earlier.
    pub(crate) fn expired(&self, before: Instant) -> Option<StreamId> {
        self.unbound.iter().find(|(_, since, _)| *since <= before).map(|&(id, ..)| id)
    }

    /// Drops all carriers together with their connection.
    pub(crate) fn forfeit(&mut self) {
        for (.., early) in self.unbound.drain(..) {
            early.into_credit().forfeit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AppId, Cid, ConnId};

    fn chunk(length: usize) -> Chunk {
        let data = BytesMut::zeroed(length).into();
        Chunk { data, padding: 0, conn: ConnId(0), credit: Credit::NONE }
    }

    fn data(early: &mut EarlyFrames, length: usize, end: EndStream) -> Result<(), Cause> {
        early.push_data(chunk(length), end, 1 << 30).map_err(|(cause, credit)| {
            credit.forfeit();
            cause
        })
    }

    fn section(early: &mut EarlyFrames, end: EndStream) -> Result<(), Cause> {
        early.push_section(FieldSection::default(), end)
    }

    fn moves_on() -> Migrate {
        let cid = Cid { app: AppId::new(1), number: 2 };
        Migrate { dst: Some((cid, StreamId::new(2))) }
    }

    #[test]
    fn behind_the_end_come_no_headers_and_no_data() {
        for by_data in [true, false] {
            let mut early = EarlyFrames::default();
            assert_eq!(section(&mut early, EndStream::No), Ok(()));
            let ended = if by_data {
                data(&mut early, 0, EndStream::Yes)
            } else {
                section(&mut early, EndStream::Yes)
            };
            assert_eq!(ended, Ok(()));
            for end in [EndStream::Yes, EndStream::No] {
                assert_eq!(data(&mut early, 0, end), Err(Cause::HalfClosed));
                assert_eq!(section(&mut early, end), Err(Cause::HalfClosed));
            }
            assert_eq!(early.push_migrate(moves_on(), EndStream::Yes), Ok(()));
            assert_eq!(early.into_items().len(), 3);
        }
    }

    #[test]
    fn behind_the_barrier_comes_nothing() {
        let offer = Migrate { dst: None };
        let mut moved = EarlyFrames::default();
        assert_eq!(moved.push_migrate(moves_on(), EndStream::No), Ok(()));
        let mut stopped = EarlyFrames::default();
        // An offer is not a barrier.
        assert_eq!(stopped.push_migrate(offer, EndStream::No), Ok(()));
        assert_eq!(stopped.push_migrate(moves_on(), EndStream::No), Err(Cause::BadMigrate));
        assert_eq!(data(&mut stopped, 1, EndStream::No), Ok(()));
        assert!(stopped.push_stop());
        assert!(stopped.is_stopped() && !moved.is_stopped());
        for mut early in [moved, stopped] {
            assert_eq!(data(&mut early, 0, EndStream::No), Err(Cause::StreamClosed));
            assert_eq!(section(&mut early, EndStream::Yes), Err(Cause::StreamClosed));
            assert_eq!(early.push_migrate(offer, EndStream::No), Err(Cause::BadMigrate));
            assert!(!early.push_stop());
        }
    }

    #[test]
    fn items_are_bounded_whatever_they_are() {
        let mut early = EarlyFrames::default();
        early.items.extend((0..ITEMS).map(|_| EarlyFrame::Stop));
        assert_eq!(data(&mut early, 1, EndStream::No), Err(Cause::CarrierItems));
        assert_eq!(section(&mut early, EndStream::No), Err(Cause::CarrierItems));
        let migrate = Migrate { dst: None };
        assert_eq!(early.push_migrate(migrate, EndStream::No), Err(Cause::CarrierItems));
        assert!(!early.push_stop());
        // The maximum for a peer that obeys the other rules.
        let mut early = EarlyFrames::default();
        for _ in 0..SECTIONS {
            assert_eq!(data(&mut early, 0, EndStream::No), Ok(()));
            assert_eq!(section(&mut early, EndStream::No), Ok(()));
        }
        assert_eq!(section(&mut early, EndStream::No), Err(Cause::CarrierSections));
        for _ in 0..1000 {
            assert_eq!(data(&mut early, 0, EndStream::No), Ok(()));
            assert_eq!(data(&mut early, SMALL, EndStream::No), Ok(()));
        }
        let offer = Migrate { dst: None };
        assert_eq!(early.push_migrate(offer, EndStream::No), Ok(()));
        assert_eq!(data(&mut early, 0, EndStream::No), Ok(()));
        assert_eq!(data(&mut early, 0, EndStream::Yes), Ok(()));
        assert!(early.push_stop());
    }
}
