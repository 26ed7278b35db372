//! Assertions on the engine's frames and events.

use bytes::{Bytes, BytesMut};
use smig_proto::{EndStream, ErrorCode, Event, ReadResult, StreamKey};

use super::frame::Frame;
use super::peer::{ConnHandle, Peer};

impl Peer {
    /// Takes the engine's next frame.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[track_caller]
    pub fn next(&mut self, handle: ConnHandle) -> Frame {
        match self.connection_mut(handle).frames.pop_front() {
            Some(frame) => frame,
            None => panic!("{handle:?}: expected a frame, but the engine sent none"),
        }
    }

    /// Takes the engine's next frame, if there is one.
    pub fn next_if_any(&mut self, handle: ConnHandle) -> Option<Frame> {
        self.connection_mut(handle).frames.pop_front()
    }

    /// Drops the engine's next frame if it is DATA. Returns whether it was.
    pub fn skip_data(&mut self, handle: ConnHandle) -> bool {
        let frames = &mut self.connection_mut(handle).frames;
        let is_data = matches!(frames.front(), Some(Frame::Data { .. }));
        is_data && frames.pop_front().is_some()
    }

    /// Takes the engine's next frame if it is WINDOW_UPDATE. Returns its stream and increment.
    pub fn skip_window_update(&mut self, handle: ConnHandle) -> Option<(u32, u32)> {
        match self.connection(handle).frames.front() {
            Some(&Frame::WindowUpdate { stream, increment }) => {
                self.next(handle);
                Some((stream, increment))
            }
            _ => None,
        }
    }

    /// Asserts that the engine's next frame is `expected`.
    ///
    /// # Panics
    ///
    /// If it is not.
    #[track_caller]
    pub fn expect(&mut self, handle: ConnHandle, expected: impl Into<Frame>) {
        let expected = expected.into();
        let Some(frame) = self.connection_mut(handle).frames.pop_front() else {
            panic!("{handle:?}: expected {expected:?}, but the engine sent nothing");
        };
        let rest = &self.connection(handle).frames;
        assert!(
            frame == expected,
            "{handle:?}:\nexpected {expected:?}\n     got {frame:?}\n    then {rest:?}"
        );
    }

    /// Asserts that the engine sent nothing more on this connection.
    ///
    /// # Panics
    ///
    /// If it did.
    #[track_caller]
    pub fn expect_silence_on(&mut self, handle: ConnHandle) {
        let connection = self.connection(handle);
        assert!(
            connection.frames.is_empty(),
            "{handle:?}: expected nothing more, got {:?}",
            connection.frames
        );
        assert!(
            connection.output.is_empty(),
            "{handle:?}: a partial frame is left: {:?}",
            connection.output
        );
    }

    /// Asserts that the engine sent nothing more on any connection.
    ///
    /// # Panics
    ///
    /// If it did.
    #[track_caller]
    pub fn expect_silence(&mut self) {
        for handle in (0..self.connections.len()).map(ConnHandle) {
            self.expect_silence_on(handle);
        }
    }

    /// Asserts that the engine's next frame is GOAWAY with `code`, and that the connection is
    /// closed. Returns the last stream id.
    ///
    /// # Panics
    ///
    /// If not.
    #[track_caller]
    pub fn expect_goaway(&mut self, handle: ConnHandle, code: ErrorCode) -> u32 {
        let last_stream_id = match self.next(handle) {
            Frame::GoAway { last_stream_id: last, code: got, .. } if got == code => last,
            other => panic!("{handle:?}: expected GOAWAY({code}), got {other:?}"),
        };
        assert!(
            self.is_closed(handle),
            "{handle:?}: the connection stays open after GOAWAY({code})"
        );
        self.expect_silence_on(handle);
        last_stream_id
    }

    /// Takes the first event of the session under test for which `pick` returns a value; others
    /// stay queued.
    pub fn try_take_event<T>(&mut self, pick: impl FnMut(&Event) -> Option<T>) -> Option<T> {
        self.try_take_event_of(0, pick)
    }

    /// Like [`Self::try_take_event`], for the session that has `handle`.
    pub fn try_take_event_on<T>(
        &mut self,
        handle: ConnHandle,
        pick: impl FnMut(&Event) -> Option<T>,
    ) -> Option<T> {
        self.try_take_event_of(self.connection(handle).session, pick)
    }

    fn try_take_event_of<T>(
        &mut self,
        session: usize,
        mut pick: impl FnMut(&Event) -> Option<T>,
    ) -> Option<T> {
        let first_match = self.events.iter().enumerate().find_map(|(at, (owner, event))| {
            (*owner == session).then(|| pick(event)).flatten().map(|found| (at, found))
        });
        let (at, value) = first_match?;
        self.events.remove(at);
        Some(value)
    }

    /// Like [`Self::try_take_event`].
    ///
    /// # Panics
    ///
    /// If there is no such event.
    #[track_caller]
    pub fn take_event<T>(&mut self, pick: impl FnMut(&Event) -> Option<T>) -> T {
        match self.try_take_event(pick) {
            Some(found) => found,
            None => panic!("no such event among {:?}", self.events),
        }
    }

    /// Drops the events so far.
    pub fn clear_events(&mut self) {
        self.events.clear();
    }

    /// Takes the first [`Event::LimitHit`] and returns its limit.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[track_caller]
    pub fn take_limit_hit(&mut self) -> &'static str {
        self.take_event(|event| match event {
            Event::LimitHit { limit, .. } => Some(*limit),
            _ => None,
        })
    }

    /// Reads the available part of a body. Trailers that follow it are discarded.
    pub fn read(&mut self, key: StreamKey) -> Bytes {
        let mut body = BytesMut::new();
        self.with_session(|session, _| {
            while let ReadResult::Data(data) = session.read(key) {
                body.extend_from_slice(&data);
            }
        });
        body.freeze()
    }

    /// Reads a body to its end.
    ///
    /// # Panics
    ///
    /// If it has not ended yet, or was reset.
    #[track_caller]
    pub fn read_to_end(&mut self, key: StreamKey) -> Bytes {
        let body = self.read(key);
        let end = self.with_session(|session, _| session.read(key));
        assert!(
            matches!(end, ReadResult::End),
            "expected the body's end after {body:?}, got {end:?}"
        );
        body
    }

    /// Sends body data from the engine.
    ///
    /// # Panics
    ///
    /// If the engine does not accept it.
    #[track_caller]
    pub fn send_body(&mut self, key: StreamKey, body: impl AsRef<[u8]>, end: EndStream) {
        let body = Bytes::copy_from_slice(body.as_ref());
        self.with_session(|session, _| session.send_data(key, body, end))
            .expect("the body is accepted");
    }
}
