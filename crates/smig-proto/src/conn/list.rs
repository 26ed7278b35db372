//! The connections of a session. There are few, so that a search costs less than an index.

use super::Connection;
use crate::ids::ConnId;
use crate::invariant::DebugExpect;

#[derive(Debug, Default)]
pub(crate) struct Connections(Vec<Connection>);

impl Connections {
    /// Returns a connection, unless its transport was lost, it was detached for another session, or the driver never added it.
    pub(crate) fn find(&self, id: ConnId) -> Option<&Connection> {
        self.0.iter().find(|conn| conn.id == id)
    }

    pub(crate) fn find_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.0.iter_mut().find(|conn| conn.id == id)
    }

    /// Returns a connection on which frames can be sent, unless it has ended or was removed.
    pub(crate) fn find_live_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.find_mut(id).filter(|conn| !conn.is_dead())
    }

    /// Returns the connection of the frame that is being handled, or one that the caller has found
    /// already: only the driver removes connections, between calls.
    #[track_caller]
    pub(crate) fn find_known(&self, id: ConnId) -> Option<&Connection> {
        self.find(id).debug_expect("the connection is in the session")
    }

    /// Like [`Self::find_known`].
    #[track_caller]
    pub(crate) fn find_known_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.find_mut(id).debug_expect("the connection is in the session")
    }

    pub(crate) fn push(&mut self, conn: Connection) {
        self.0.push(conn);
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Connection> {
        let index = self.0.iter().position(|conn| conn.id == id)?;
        Some(self.0.remove(index))
    }

    pub(crate) fn iter(&self) -> core::slice::Iter<'_, Connection> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> core::slice::IterMut<'_, Connection> {
        self.0.iter_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
