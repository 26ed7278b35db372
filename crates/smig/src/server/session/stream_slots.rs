//! The slots of a session's streams, by the engine's keys: a table, since the keys' numbers are small.

use smig_proto::StreamKey;

use crate::mailbox::Slot;

#[derive(Debug, Default)]
pub(super) struct StreamSlots(Vec<Option<(StreamKey, Slot)>>);

impl StreamSlots {
    pub(super) fn insert(&mut self, key: StreamKey, slot: Slot) {
        let index = key.index();
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        if let Some(place) = self.0.get_mut(index) {
            *place = Some((key, slot));
        }
    }

    /// Returns the slot of a stream, unless it was removed: a later stream may have its place.
    pub(super) fn get(&self, key: StreamKey) -> Option<Slot> {
        let (known_key, slot) = (*self.0.get(key.index())?)?;
        (known_key == key).then_some(slot)
    }

    pub(super) fn remove(&mut self, key: StreamKey) {
        if let Some(place) = self.0.get_mut(key.index())
            && place.is_some_and(|(known_key, _)| known_key == key)
        {
            *place = None;
        }
    }

    /// Releases memory beyond the first few places, if no stream is open.
    pub(super) fn shrink(&mut self) {
        if self.0.iter().all(Option::is_none) {
            self.0.truncate(4);
            self.0.shrink_to_fit();
        }
    }
}
