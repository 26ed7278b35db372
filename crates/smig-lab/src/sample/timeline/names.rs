//! One name for one connection, whoever saw it.
//!
//! An HTTP/2 client numbers its connections, the kernel has their ports. The bytes tell which is
//! which: no connection carries less than the bodies that came by it.

use super::{Column, ConnectionName, Subject, Timeline};

impl Timeline {
    /// Gives the connections that streams and spans name the kernel's names, where the bytes that
    /// `host` received leave no doubt: the heaviest first, each to the connection that received
    /// the least of those that received enough. Names that fit none stay.
    pub fn match_connections(&mut self, host: &str) {
        let mut kernel = self.received(host);
        let mut named = self.carried();
        named.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        kernel.sort_by_key(|(_, bytes)| *bytes);
        for (name, bytes) in named {
            if kernel.iter().any(|(known, _)| *known == name) {
                continue;
            }
            if let Some(at) = kernel.iter().position(|(_, received)| *received >= bytes) {
                let (to, _) = kernel.remove(at);
                self.rename(&name, &to);
            }
        }
    }

    /// What each TCP connection of the host received.
    fn received(&self, host: &str) -> Vec<(ConnectionName, u64)> {
        self.tracks
            .iter()
            .filter_map(|track| match &track.of {
                Subject::Connection { host: of, connection } if of == host => {
                    Some((connection.clone(), track.last(Column::ReceivedBytes)?))
                }
                _ => None,
            })
            .collect()
    }

    /// What each connection that a stream names brought.
    fn carried(&self) -> Vec<(ConnectionName, u64)> {
        let mut totals: Vec<(ConnectionName, u64)> = Vec::new();
        for track in &self.tracks {
            let Subject::Stream { connection, .. } = &track.of else { continue };
            let bytes = track.last(Column::CarriedBytes).unwrap_or(0);
            match totals.iter_mut().find(|(name, _)| name == connection) {
                Some((_, total)) => *total += bytes,
                None => totals.push((connection.clone(), bytes)),
            }
        }
        totals
    }

    fn rename(&mut self, from: &ConnectionName, to: &ConnectionName) {
        let tracks = self.tracks.iter_mut().filter_map(|track| match &mut track.of {
            Subject::Stream { connection, .. } => Some(connection),
            _ => None,
        });
        let marks = self.marks.iter_mut().filter_map(|mark| mark.connection.as_mut());
        let spans = self.spans.iter_mut().filter_map(|span| span.connection.as_mut());
        for name in tracks.chain(marks).chain(spans).filter(|name| *name == from) {
            name.clone_from(to);
        }
    }
}
