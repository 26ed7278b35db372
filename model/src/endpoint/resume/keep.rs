//! What was sent and may have to be sent again: `spec/resumption.md`, "What is kept".

use crate::id::{Conn, MAX_CONNS};
use crate::omission::Omission;

/// Something of the stream that the peer has to receive, in the order in which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::endpoint) enum Item {
    Unit(u8),
    /// END_STREAM alone.
    End,
    /// The accepting answer to the peer's MIGRATE or RESUME: it binds the ID that carries what follows.
    Answer,
    /// This side's MIGRATE, which its answer acknowledges (SMIG-5.7/replay).
    Migrate,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    item: Item,
    conn: Conn,
    /// The frame's number on its connection, from 0.
    frame: u8,
    is_acknowledged: bool,
}

/// What one direction keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::endpoint) struct Keep {
    /// The first unit that is kept.
    pub(super) first_unit: u8,
    sent: Vec<Sent>,
    /// What was sent on earlier IDs, where an omission has receipts cover it still.
    earlier: Vec<Sent>,
}

impl Keep {
    pub(super) fn record(&mut self, item: Item, conn: Conn, frame: u8) {
        self.sent.push(Sent { item, conn, frame, is_acknowledged: false });
    }

    /// Lets go of what the peer has read, without gap (SMIG-13.5/no-gap).
    pub(super) fn on_receipt(&mut self, conn: Conn, count: u8, omission: Option<Omission>) {
        for sent in &mut self.sent {
            let is_read = sent.conn == conn && sent.frame < count;
            sent.is_acknowledged |= is_read && sent.item != Item::Migrate;
        }
        let covers = |sent: &Sent| sent.conn == conn && sent.frame < count;
        for earlier in self.earlier.iter().filter(|sent| covers(sent)) {
            for sent in self.sent.iter_mut().filter(|sent| sent.item == earlier.item) {
                sent.is_acknowledged = true;
            }
        }
        match omission {
            Some(Omission::FreedAcrossGap) => {
                let last = self.sent.iter().rposition(|sent| sent.is_acknowledged);
                self.sent.iter_mut().take(last.map_or(0, |last| last + 1)).for_each(|sent| {
                    sent.is_acknowledged |= sent.item != Item::Migrate;
                });
            }
            Some(Omission::FreedBehindAnswer) => {
                for sent in &mut self.sent {
                    sent.is_acknowledged |= sent.item == Item::Answer;
                }
            }
            _ => {}
        }
        self.release();
    }

    /// The peer has answered this side's MIGRATE.
    pub(super) fn on_accepted(&mut self) {
        for sent in &mut self.sent {
            sent.is_acknowledged |= sent.item == Item::Migrate;
        }
        self.release();
    }

    /// Forgets that this side's MIGRATE, and anything behind it, was sent.
    pub(super) fn undo_move(&mut self) {
        if let Some(index) = self.sent.iter().position(|sent| sent.item == Item::Migrate) {
            self.sent.truncate(index);
        }
    }

    /// Forgets what was sent on earlier IDs: it is sent again from this unit on, and no receipt
    /// for it counts any more (SMIG-13.15/copies).
    pub(super) fn restart(&mut self, unit: u8, omission: Option<Omission>) {
        self.first_unit = unit;
        if omission == Some(Omission::EarlierCopyCovered) {
            self.earlier.append(&mut self.sent);
        }
        self.sent.clear();
    }

    /// Returns whether everything that was sent has been acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Returns whether an accepting answer on one of these connections is not acknowledged.
    pub(super) fn lacks_answer_on(&self, has_ended: [bool; MAX_CONNS]) -> bool {
        self.sent.iter().any(|sent| {
            sent.item == Item::Answer && !sent.is_acknowledged && has_ended[sent.conn.index()]
        })
    }

    fn release(&mut self) {
        let read_count = self.sent.iter().take_while(|sent| sent.is_acknowledged).count();
        for sent in self.sent.drain(..read_count) {
            if let Item::Unit(unit) = sent.item {
                self.first_unit = unit + 1;
            }
        }
    }
}
