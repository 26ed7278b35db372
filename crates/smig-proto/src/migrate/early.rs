//! Frames that arrived before the barrier that precedes them (SMIG-5.15/kept-in-order): on unbound
//! carriers at the follower, and on the mover's carrier before the accepting answer.

use bytes::BytesMut;

use crate::body::{Chunk, MAX_COALESCED_BYTES, MIN_UNCOALESCED_BYTES};
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
enum SenderState {
    #[default]
    Open,
    /// END_STREAM was received: neither HEADERS nor DATA may follow (SMIG-5.31/ended-carrier).
    Ended,
    /// The sender moved the stream again: no frame of it may follow (SMIG-5.19/behind-barrier).
    Migrated,
    /// RST_STREAM(NO_ERROR) was received: no frame may follow.
    Stopped,
}

impl SenderState {
    /// Checks whether HEADERS and DATA are permitted.
    const fn check_headers_or_data(self) -> Result<(), Cause> {
        match self {
            Self::Open => Ok(()),
            Self::Ended => Err(Cause::HalfClosed),
            Self::Migrated | Self::Stopped => Err(Cause::StreamClosed),
        }
    }

    const fn may_send_last_frame(self) -> bool {
        matches!(self, Self::Open | Self::Ended)
    }
}

/// Maximum number of buffered field sections. Each is limited in size, so their number must be too.
/// A response has few 1xx.
const MAX_SECTIONS: usize = 16;

/// Maximum number of buffered items, in addition to two for each [`MIN_UNCOALESCED_BYTES`] of DATA.
/// A peer that obeys the other rules stays below it: short DATA is coalesced, so of two adjacent
/// DATA items at least one has that size.
const MAX_ITEMS_BESIDES_DATA: usize = 64;

/// Frames received on a carrier before its barrier. They are added only by the `push_*` functions,
/// which reject frames that are not permitted or exceed a limit. The state that these checks need
/// is updated on each push: scanning the items for each frame would give the peer quadratic work.
#[derive(Debug, Default)]
pub(crate) struct EarlyFrames {
    items: Vec<EarlyFrame>,
    section_count: usize,
    /// Whether a MIGRATE is among the items. There is at most one, because it is not answered
    /// before the barrier arrives (SMIG-5.8/one-open-move).
    has_migrate: bool,
    sender: SenderState,
    bytes: usize,
    /// Sum of the WINDOW_UPDATE increments.
    pub(crate) window_increments: u64,
}

impl EarlyFrames {
    /// Checks whether there is room for another item of any kind. The limit is proportional to the
    /// DATA, which the windows bound.
    fn check_room(&self) -> Result<(), Cause> {
        let max_items = MAX_ITEMS_BESIDES_DATA + 2 * self.bytes / MIN_UNCOALESCED_BYTES;
        if self.items.len() >= max_items { Err(Cause::TooManyCarrierFrames) } else { Ok(()) }
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
        let admitted = self.sender.check_headers_or_data().and_then(|()| {
            if fits { self.check_room() } else { Err(Cause::CarrierWindowExceeded) }
        });
        if let Err(cause) = admitted {
            return Err((cause, chunk.credit));
        }
        self.bytes = total;
        if end.is_end() {
            self.sender = SenderState::Ended;
        }
        if end.is_end() || chunk.data.len() >= MIN_UNCOALESCED_BYTES {
            self.items.push(EarlyFrame::Data(chunk, end));
            return Ok(());
        }
        match self.items.last_mut() {
            Some(EarlyFrame::Coalesced(buf, credit, padding))
                if buf.len() < MAX_COALESCED_BYTES =>
            {
                buf.extend_from_slice(&chunk.data);
                credit.merge(chunk.credit);
                *padding = padding.saturating_add(chunk.padding);
            }
            _ => {
                let Chunk { data, padding, credit, .. } = chunk;
                self.items.push(EarlyFrame::Coalesced(data.into_bytes_mut(), credit, padding));
            }
        }
        Ok(())
    }

    pub(crate) fn push_section(
        &mut self,
        section: FieldSection,
        end: EndStream,
    ) -> Result<(), Cause> {
        self.sender.check_headers_or_data()?;
        self.check_room()?;
        if self.section_count >= MAX_SECTIONS {
            return Err(Cause::TooManyCarrierSections);
        }
        self.section_count += 1;
        if end.is_end() {
            self.sender = SenderState::Ended;
        }
        self.items.push(EarlyFrame::Section(Box::new(section), end));
        Ok(())
    }

    pub(crate) fn push_migrate(&mut self, migrate: Migrate, end: EndStream) -> Result<(), Cause> {
        if self.has_migrate || !self.sender.may_send_last_frame() {
            return Err(Cause::BadMigrate);
        }
        self.check_room()?;
        self.has_migrate = true;
        if migrate.dst.is_some() {
            self.sender = SenderState::Migrated;
        }
        self.items.push(EarlyFrame::Migrate(migrate, end));
        Ok(())
    }

    /// Buffers RST_STREAM(NO_ERROR). Returns false if no frame may follow or there is no
    /// room; the frame is then an ordinary reset.
    pub(crate) fn push_stop(&mut self) -> bool {
        let is_accepted = self.sender.may_send_last_frame() && self.check_room().is_ok();
        if is_accepted {
            self.sender = SenderState::Stopped;
            self.items.push(EarlyFrame::Stop);
        }
        is_accepted
    }

    /// Returns the buffered frames, in order.
    pub(crate) fn into_items(self) -> Vec<EarlyFrame> {
        self.items
    }

    /// Returns whether RST_STREAM(NO_ERROR) was buffered.
    pub(crate) const fn is_stopped(&self) -> bool {
        matches!(self.sender, SenderState::Stopped)
    }

    /// Returns the bytes of the connection's receive window that the items occupy.
    pub(crate) fn window_bytes(&self) -> u64 {
        let occupied = |item: &EarlyFrame| match item {
            EarlyFrame::Data(chunk, _) => chunk.credit.bytes(),
            EarlyFrame::Coalesced(_, credit, _) => credit.bytes(),
            EarlyFrame::Section(..) | EarlyFrame::Migrate(..) | EarlyFrame::Stop => 0,
        };
        self.items.iter().map(|item| u64::from(occupied(item))).sum()
    }

    /// Drops the items, and returns their credit, which must be returned to the connection.
    pub(crate) fn into_credit(self) -> Credit {
        let mut credit = Credit::NONE;
        for item in self.items {
            match item {
                EarlyFrame::Data(chunk, _) => credit.merge(chunk.credit),
                EarlyFrame::Coalesced(_, coalesced, _) => credit.merge(coalesced),
                EarlyFrame::Section(..) | EarlyFrame::Migrate(..) | EarlyFrame::Stop => {}
            }
        }
        credit
    }
}

/// The unbound carriers of one connection.
#[derive(Debug, Default)]
pub(crate) struct UnboundCarriers {
    carriers: Vec<(StreamId, Instant, EarlyFrames)>,
}

impl UnboundCarriers {
    pub(crate) fn len(&self) -> usize {
        self.carriers.len()
    }

    pub(crate) fn find_mut(&mut self, id: StreamId) -> Option<&mut EarlyFrames> {
        self.carriers.iter_mut().find(|(other, ..)| *other == id).map(|(.., early)| early)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &EarlyFrames> {
        self.carriers.iter().map(|(.., early)| early)
    }

    pub(crate) fn insert(&mut self, id: StreamId, now: Instant) {
        self.carriers.push((id, now, EarlyFrames::default()));
    }

    pub(crate) fn remove(&mut self, id: StreamId) -> Option<EarlyFrames> {
        let index = self.carriers.iter().position(|(other, ..)| *other == id)?;
        Some(self.carriers.remove(index).2)
    }

    /// Removes and returns the carriers above `last`, which GOAWAY excludes.
    pub(crate) fn take_above(&mut self, last: StreamId) -> Vec<EarlyFrames> {
        let excluded = self.carriers.extract_if(.., |(id, ..)| *id > last);
        excluded.map(|(.., early)| early).collect()
    }

    /// Returns a carrier that became unbound at `cutoff` or earlier.
    pub(crate) fn find_expired(&self, cutoff: Instant) -> Option<StreamId> {
        self.carriers.iter().find(|(_, since, _)| *since <= cutoff).map(|&(id, ..)| id)
    }

    /// Drops all carriers together with their connection.
    pub(crate) fn forfeit(&mut self) {
        for (.., early) in self.carriers.drain(..) {
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

    fn push_data(
        early_frames: &mut EarlyFrames,
        length: usize,
        end: EndStream,
    ) -> Result<(), Cause> {
        early_frames.push_data(chunk(length), end, 1 << 30).map_err(|(cause, credit)| {
            credit.forfeit();
            cause
        })
    }

    fn push_section(early_frames: &mut EarlyFrames, end: EndStream) -> Result<(), Cause> {
        early_frames.push_section(FieldSection::default(), end)
    }

    fn onward_migrate() -> Migrate {
        let cid = Cid { app: AppId::new(1), number: 2 };
        Migrate { dst: Some((cid, StreamId::new(2))) }
    }

    #[test]
    fn no_headers_or_data_are_accepted_after_end_stream() {
        for by_data in [true, false] {
            let mut early_frames = EarlyFrames::default();
            assert_eq!(push_section(&mut early_frames, EndStream::No), Ok(()));
            let ended = if by_data {
                push_data(&mut early_frames, 0, EndStream::Yes)
            } else {
                push_section(&mut early_frames, EndStream::Yes)
            };
            assert_eq!(ended, Ok(()));
            for end in [EndStream::Yes, EndStream::No] {
                assert_eq!(push_data(&mut early_frames, 0, end), Err(Cause::HalfClosed));
                assert_eq!(push_section(&mut early_frames, end), Err(Cause::HalfClosed));
            }
            assert_eq!(early_frames.push_migrate(onward_migrate(), EndStream::Yes), Ok(()));
            assert_eq!(early_frames.into_items().len(), 3);
        }
    }

    #[test]
    fn nothing_is_accepted_after_the_barrier() {
        let offer = Migrate { dst: None };
        let mut migrated_frames = EarlyFrames::default();
        assert_eq!(migrated_frames.push_migrate(onward_migrate(), EndStream::No), Ok(()));
        let mut stopped_frames = EarlyFrames::default();
        // An offer is not a barrier.
        assert_eq!(stopped_frames.push_migrate(offer, EndStream::No), Ok(()));
        assert_eq!(
            stopped_frames.push_migrate(onward_migrate(), EndStream::No),
            Err(Cause::BadMigrate)
        );
        assert_eq!(push_data(&mut stopped_frames, 1, EndStream::No), Ok(()));
        assert!(stopped_frames.push_stop());
        assert!(stopped_frames.is_stopped() && !migrated_frames.is_stopped());
        for mut early in [migrated_frames, stopped_frames] {
            assert_eq!(push_data(&mut early, 0, EndStream::No), Err(Cause::StreamClosed));
            assert_eq!(push_section(&mut early, EndStream::Yes), Err(Cause::StreamClosed));
            assert_eq!(early.push_migrate(offer, EndStream::No), Err(Cause::BadMigrate));
            assert!(!early.push_stop());
        }
    }

    #[test]
    fn the_number_of_items_is_bounded() {
        let mut early_frames = EarlyFrames::default();
        early_frames.items.extend((0..MAX_ITEMS_BESIDES_DATA).map(|_| EarlyFrame::Stop));
        assert_eq!(
            push_data(&mut early_frames, 1, EndStream::No),
            Err(Cause::TooManyCarrierFrames)
        );
        assert_eq!(
            push_section(&mut early_frames, EndStream::No),
            Err(Cause::TooManyCarrierFrames)
        );
        let migrate = Migrate { dst: None };
        assert_eq!(
            early_frames.push_migrate(migrate, EndStream::No),
            Err(Cause::TooManyCarrierFrames)
        );
        assert!(!early_frames.push_stop());
        // The maximum for a peer that obeys the other rules.
        let mut early_frames = EarlyFrames::default();
        for _ in 0..MAX_SECTIONS {
            assert_eq!(push_data(&mut early_frames, 0, EndStream::No), Ok(()));
            assert_eq!(push_section(&mut early_frames, EndStream::No), Ok(()));
        }
        assert_eq!(
            push_section(&mut early_frames, EndStream::No),
            Err(Cause::TooManyCarrierSections)
        );
        for _ in 0..1000 {
            assert_eq!(push_data(&mut early_frames, 0, EndStream::No), Ok(()));
            assert_eq!(push_data(&mut early_frames, MIN_UNCOALESCED_BYTES, EndStream::No), Ok(()));
        }
        let offer = Migrate { dst: None };
        assert_eq!(early_frames.push_migrate(offer, EndStream::No), Ok(()));
        assert_eq!(push_data(&mut early_frames, 0, EndStream::No), Ok(()));
        assert_eq!(push_data(&mut early_frames, 0, EndStream::Yes), Ok(()));
        assert!(early_frames.push_stop());
    }
}
