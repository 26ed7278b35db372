//! The application's actions on streams.

use http::{HeaderMap, Method, StatusCode};
use smig_proto::{
    EndStream, Event, MigrateError, MigrationTarget, RequestHead, ResponseHead, StreamKey,
};

use super::frame::headers;
use super::peer::{ConnHandle, Peer};

impl Peer {
    /// Migrates a stream to another connection, as the engine's application.
    ///
    /// # Errors
    ///
    /// The engine's.
    pub fn migrate(&mut self, key: StreamKey, to: ConnHandle) -> Result<(), MigrateError> {
        let to = MigrationTarget::Connection(self.conn_id(to));
        self.with_session(|session, now| session.migrate(now, key, to))
    }

    /// Migrates a stream to a spare that the engine selects.
    ///
    /// # Errors
    ///
    /// The engine's.
    pub fn migrate_to_spare(&mut self, key: StreamKey) -> Result<(), MigrateError> {
        self.with_session(|session, now| session.migrate(now, key, MigrationTarget::Spare))
    }

    /// Offers a stream, as the engine's application.
    ///
    /// # Errors
    ///
    /// The engine's.
    pub fn offer(&mut self, key: StreamKey) -> Result<(), MigrateError> {
        self.with_session(|session, now| session.migrate(now, key, MigrationTarget::Offer))
    }

    /// Returns a stream's connection and id in the engine.
    #[must_use]
    #[track_caller]
    pub fn location(&self, key: StreamKey) -> (ConnHandle, u32) {
        let view = self.session().stream(key).expect("the stream is known");
        (self.handle_of(0, view.connection).expect("a connection"), view.id.value())
    }

    /// Server engine: sends a GET on `stream`. Returns its key.
    #[track_caller]
    pub fn get(&mut self, handle: ConnHandle, stream: u32) -> StreamKey {
        self.send(handle, headers(stream).get("/").end());
        self.take_request()
    }

    /// Server engine: starts an upload on `stream`. Returns its key.
    #[track_caller]
    pub fn post(&mut self, handle: ConnHandle, stream: u32) -> StreamKey {
        self.send(handle, headers(stream).post("/"));
        self.take_request()
    }

    /// Server engine: takes the next request. Returns its key.
    #[track_caller]
    pub fn take_request(&mut self) -> StreamKey {
        self.take_event(|event| match event {
            Event::Request { stream, .. } => Some(*stream),
            _ => None,
        })
    }

    /// Server engine: sends a response head.
    #[track_caller]
    pub fn respond(&mut self, key: StreamKey, status: u16, end: EndStream) {
        let status = StatusCode::from_u16(status).expect("a status code");
        let head = ResponseHead { status, headers: HeaderMap::new() };
        self.with_session(|session, _| session.send_response(key, &head, end))
            .expect("it can be answered");
    }

    /// Client engine: opens a stream on `handle`; the peer takes its HEADERS.
    #[track_caller]
    pub fn open(&mut self, handle: ConnHandle, method: Method, end: EndStream) -> StreamKey {
        let conn = self.conn_id(handle);
        let head = request_head(method);
        let opened = self.with_session(|session, now| session.open(now, Some(conn), &head, end));
        let key = opened.expect("the stream can be opened");
        let id = self.session().stream(key).expect("the stream is open").id.value();
        let expected = headers(id).request(head.method.as_str(), "/");
        self.expect(handle, if end.is_end() { expected.end() } else { expected });
        key
    }

    /// Client engine: takes the response for `key`. Returns its status.
    #[track_caller]
    pub fn take_response(&mut self, key: StreamKey) -> u16 {
        self.take_event(|event| match event {
            Event::Response { stream, head, .. } if *stream == key => Some(head.status.as_u16()),
            _ => None,
        })
    }

    /// Takes the error with which a stream ended.
    #[track_caller]
    pub fn take_error(&mut self, key: StreamKey) -> smig_proto::StreamError {
        self.take_event(|event| match event {
            Event::Failed { stream, error } if *stream == key => Some(error.clone()),
            _ => None,
        })
    }

    /// Asserts that the stream has not failed.
    #[track_caller]
    pub fn expect_not_failed(&mut self, key: StreamKey) {
        let error = self.try_take_event(|event| match event {
            Event::Failed { stream, error } if *stream == key => Some(error.clone()),
            _ => None,
        });
        assert_eq!(error, None, "the stream failed");
        assert!(self.session().stream(key).is_some(), "the stream is forgotten");
    }

    /// Takes the event of a migration. Returns the offset from which the new connection carries the
    /// body.
    #[track_caller]
    pub fn take_migrated(&mut self, key: StreamKey) -> u64 {
        self.take_event(|event| match event {
            Event::Migrated { stream, recv_offset: received, .. } if *stream == key => {
                Some(*received)
            }
            _ => None,
        })
    }
}

/// Returns a request head for `https://example.com/`.
#[must_use]
pub fn request_head(method: Method) -> RequestHead {
    let uri = http::Uri::from_static("https://example.com/");
    RequestHead { method, uri, protocol: None, headers: HeaderMap::new() }
}
