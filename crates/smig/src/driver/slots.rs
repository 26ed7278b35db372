//! Slots for streams, each with a waker that lives as long as the slot: a stream that is ready at once costs
//! no allocation.

use std::sync::Arc;
use std::task::Waker;

use crate::mailbox::{Notifier, Slot, SlotWaker};

/// Slots that an idle session keeps for its next streams.
const MAX_IDLE_SLOTS: usize = 4;

/// Streams by the number of their slot.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    notifier: Arc<Notifier>,
    entries: Vec<SlotEntry<T>>,
    free: Vec<Slot>,
}

#[derive(Debug)]
struct SlotEntry<T> {
    value: Option<T>,
    slot_waker: Arc<SlotWaker>,
    waker: Waker,
}

impl<T> Slots<T> {
    pub(crate) const fn new(notifier: Arc<Notifier>) -> Self {
        Self { notifier, entries: Vec::new(), free: Vec::new() }
    }

    /// Returns the number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns the number of slots: slot numbers are below it.
    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    pub(crate) const fn notifier(&self) -> &Arc<Notifier> {
        &self.notifier
    }

    pub(crate) fn insert(&mut self, value: T) -> Slot {
        if let Some(slot) = self.free.pop()
            && let Some(entry) = self.entries.get_mut(slot.0 as usize)
        {
            entry.value = Some(value);
            return slot;
        }
        let slot = Slot(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        let slot_waker = Arc::new(SlotWaker::new(Arc::clone(&self.notifier), slot));
        let waker = Waker::from(Arc::clone(&slot_waker));
        self.entries.push(SlotEntry { value: Some(value), slot_waker, waker });
        slot
    }

    /// Returns a stream and its waker.
    pub(crate) fn entry(&mut self, slot: Slot) -> Option<(&mut T, &Waker)> {
        let entry = self.entries.get_mut(slot.0 as usize)?;
        Some((entry.value.as_mut()?, &entry.waker))
    }

    /// Returns a woken stream and its waker, and resets the waker.
    pub(crate) fn take_woken(&mut self, slot: Slot) -> Option<(&mut T, &Waker)> {
        self.entries.get(slot.0 as usize)?.slot_waker.reset();
        self.entry(slot)
    }

    /// Removes a stream. Inlined, so that a caller that takes it apart does not move all of it.
    #[inline]
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.entries.get_mut(slot.0 as usize)?.value.take()?;
        self.free.push(slot);
        Some(value)
    }

    /// Releases memory if all slots are free. For sessions that have been idle for a while: after each burst
    /// it would only cause new allocations in the next.
    pub(crate) fn shrink(&mut self) {
        if self.free.len() == self.entries.len() && self.entries.len() > MAX_IDLE_SLOTS {
            self.entries.truncate(MAX_IDLE_SLOTS);
            self.entries.shrink_to_fit();
            self.free.clear();
            self.free.shrink_to(MAX_IDLE_SLOTS);
            self.free.extend((0..MAX_IDLE_SLOTS as u32).map(Slot));
        }
    }

    /// Returns a stream.
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.entries.get(slot.0 as usize)?.value.as_ref()
    }

    /// Removes all streams and returns them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        core::mem::take(&mut self.entries).into_iter().filter_map(|entry| entry.value)
    }
}
