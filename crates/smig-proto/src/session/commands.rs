//! Commands of the application for streams.

use core::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::bulk::BulkHint;
use crate::conn::{ConnState, Connection};
use crate::error::Cause;
use crate::head::{RequestHead, ResponseHead, SharedHead};
use crate::hpack::{Headers, OutgoingSection};
use crate::ids::{ConnId, SentAt, Side, StreamAddr};
use crate::message::{content_length, encode_request, encode_section};
use crate::priority::Priority;
use crate::role::ConnectionRole;
use crate::session::Session;
use crate::stream::{
    ExchangeKind, KeptHead, Opener, RecvHalf, RecvState, SendEnd, SendHalf, SendState, Stream,
    StreamKey,
};
use crate::time::Instant;
use crate::wire::{self, EndStream};

/// The reason why no stream was opened. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The limit of the peer's SETTINGS_MAX_CONCURRENT_STREAMS is reached: wait for
    /// [`crate::Event::StreamsAvailable`].
    Blocked,
    /// No connection accepts new streams: open one.
    NoConnection,
    /// Extended CONNECT: the SETTINGS by which the server announces its support have not been
    /// received (RFC 8441 section 3).
    AwaitsSettings,
    /// The head cannot be sent over HTTP/2, for the contained reason.
    Invalid(&'static str),
    /// Only a client opens streams.
    NotClient,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocked => "the peer's limit of concurrent streams is reached",
            Self::NoConnection => "no connection accepts new streams",
            Self::AwaitsSettings => "the server has not sent its SETTINGS yet",
            Self::Invalid(why) => why,
            Self::NotClient => "only a client opens streams",
        })
    }
}

impl std::error::Error for OpenError {}

/// The reason why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The stream has ended, or this side's direction of it.
    Ended,
    /// The head was sent already, or was not sent yet.
    OutOfOrder,
    /// The body's length differs from its content-length. The stream was reset, so that the peer
    /// does not take the body for a complete one.
    WrongLength,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the stream has ended",
            Self::OutOfOrder => "head and body out of order",
            Self::WrongLength => "the body's length differs from its content-length",
        })
    }
}

impl std::error::Error for SendError {}

/// The reason why nothing was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// The client has disabled push, its limit of concurrent pushes is reached, or the connection
    /// accepts no new streams.
    Refused,
    /// No promise can be sent on the parent stream: this is a client, or the response has ended, or the
    /// stream was promised itself, or a move of it is unanswered.
    UnsuitableParent,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the client accepts no more pushes",
            Self::UnsuitableParent => "the parent stream has ended, or cannot promise",
        })
    }
}

impl std::error::Error for PushError {}

impl Session {
    /// Client: opens a stream with a request, on `conn` or on the connection that is selected for
    /// new streams.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`]; nothing was sent.
    pub fn open(
        &mut self,
        now: Instant,
        conn: Option<ConnId>,
        head: &RequestHead,
        end: EndStream,
    ) -> Result<StreamKey, OpenError> {
        if self.side != Side::Client {
            return Err(OpenError::NotClient);
        }
        let length = content_length(&head.headers).map_err(|_| {
            OpenError::Invalid("the content-length is not a single number below 2^63")
        })?;
        if head.method == Method::CONNECT && head.uri.authority().is_none() {
            return Err(OpenError::Invalid("CONNECT needs host:port"));
        }
        let conn_id =
            conn.or_else(|| self.connection_for_new_stream()).ok_or(OpenError::NoConnection)?;
        let (open_streams, window) = (self.open_local_streams, self.config.stream_window);
        let conn = self.conns.find_mut(conn_id).ok_or(OpenError::NoConnection)?;
        if !conn.accepts_streams() {
            return Err(OpenError::NoConnection);
        }
        if head.protocol.is_some() && !conn.peer_settings.enable_connect_protocol {
            if matches!(conn.state, ConnState::Settings) {
                return Err(OpenError::AwaitsSettings);
            }
            return Err(OpenError::Invalid("the server does not support extended CONNECT"));
        }
        if open_streams >= conn.peer_settings.max_concurrent_streams {
            self.open_blocked = true;
            return Err(OpenError::Blocked);
        }
        let stream_id = conn.local_ids.allocate(1).ok_or(OpenError::NoConnection)?;
        conn.opens_streams = true;
        let max = conn.peer_max_frame_size();
        let encoder = &mut conn.encoder;
        conn.control_queue.push_request(|out| {
            wire::write_headers(out, stream_id, end, max, |out| encode_request(encoder, head, out));
        });
        let mut send = SendHalf::new(conn.peer_settings.initial_window, SendState::Head);
        send.on_head(end, length);
        let window =
            if conn.settings_acked { window } else { window.max(crate::flow::INITIAL_WINDOW) };
        let priority = Priority::from_headers(&head.headers);
        let halves = (send, RecvHalf::new(window, RecvState::Head));
        let addr = StreamAddr { conn: conn_id, id: stream_id };
        let key = self.admit(
            now,
            Opener::Local,
            ExchangeKind::from_request(head),
            addr,
            halves,
            priority,
        );
        self.make_resumable(key);
        self.arm_tick(now);
        Ok(key)
    }

    /// Selects the connection for a new stream: an interactive one, otherwise any that accepts
    /// streams.
    fn connection_for_new_stream(&self) -> Option<ConnId> {
        let accepts = |conn: &&Connection| conn.accepts_streams();
        let interactive =
            |conn: &&Connection| accepts(conn) && conn.role == ConnectionRole::Interactive;
        let first = self.conns.iter().find(interactive);
        first.or_else(|| self.conns.iter().find(accepts)).map(|conn| conn.id)
    }

    /// Server: sends the final response's head.
    ///
    /// # Errors
    ///
    /// Returns a [`SendError`] if the stream has ended or the head was already sent.
    pub fn send_response(
        &mut self,
        key: StreamKey,
        head: &ResponseHead,
        end: EndStream,
    ) -> Result<(), SendError> {
        self.send_dated_response(key, head, None, end)
    }

    /// Like [`Self::send_response`], with a date field in addition to those of the head: so a server
    /// need not copy the fields of a prepared response to add one.
    ///
    /// # Errors
    ///
    /// Returns a [`SendError`] if the stream has ended or the head was already sent.
    pub fn send_dated_response(
        &mut self,
        key: StreamKey,
        head: &ResponseHead,
        date: Option<&HeaderValue>,
        end: EndStream,
    ) -> Result<(), SendError> {
        let stream = self.find_running(key)?;
        if self.side == Side::Client || stream.send.state() != SendState::Head {
            return Err(SendError::OutOfOrder);
        }
        self.write_response(key, head, date, end);
        if end.is_end() {
            self.after_send_end(key);
        }
        Ok(())
    }

    /// Like [`Self::send_dated_response`], with fields that other responses have, too.
    ///
    /// # Errors
    ///
    /// Returns a [`SendError`] if the stream has ended or the head was already sent.
    pub fn send_shared_response(
        &mut self,
        key: StreamKey,
        head: &SharedHead,
        date: Option<&HeaderValue>,
        end: EndStream,
    ) -> Result<(), SendError> {
        debug_assert!(
            content_length(&head.headers).is_ok_and(|l| l.is_none() || l == head.content_length),
            "{head:?}"
        );
        let side = self.side;
        let stream = self.find_running_mut(key)?;
        let is_ordinary = stream.exchange_kind == ExchangeKind::Ordinary;
        if !is_ordinary || head.status != StatusCode::OK {
            // What its content-length means depends on the method or the status.
            let head = ResponseHead { status: head.status, headers: (*head.headers).clone() };
            return self.send_dated_response(key, &head, date, end);
        }
        if side == Side::Client || stream.send.state() != SendState::Head {
            return Err(SendError::OutOfOrder);
        }
        stream.send.on_head(end, head.content_length);
        let headers = Headers::Shared(&head.headers);
        let section = OutgoingSection { status: Some(head.status), headers, date };
        let kept = || KeptHead::Shared(head.clone(), date.cloned(), end);
        self.frame_response(key, section, end, kept);
        if end.is_end() {
            self.after_send_end(key);
        }
        Ok(())
    }

    /// Server: sends a 1xx response.
    ///
    /// # Errors
    ///
    /// Returns a [`SendError`] if the stream has ended or the final head was already sent.
    pub fn send_informational(
        &mut self,
        key: StreamKey,
        head: &ResponseHead,
    ) -> Result<(), SendError> {
        let stream = self.find_running(key)?;
        let before_final = stream.send.state() == SendState::Head && head.status.is_informational();
        if self.side == Side::Client || !before_final || head.status.as_u16() == 101 {
            return Err(SendError::OutOfOrder);
        }
        self.write_response(key, head, None, EndStream::No);
        Ok(())
    }

    /// Frames a response head on the stream's address, and buffers it if a decline may require it
    /// to be sent again.
    pub(crate) fn write_response(
        &mut self,
        key: StreamKey,
        head: &ResponseHead,
        date: Option<&HeaderValue>,
        end: EndStream,
    ) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        if !head.status.is_informational() {
            let status = head.status.as_u16();
            if stream.exchange_kind == ExchangeKind::Tunnel && !head.status.is_success() {
                // The server refused CONNECT: the response is an ordinary one (RFC 9110 section
                // 9.3.6).
                stream.exchange_kind = ExchangeKind::Ordinary;
            }
            let bodiless =
                stream.exchange_kind != ExchangeKind::Ordinary || matches!(status, 204 | 304);
            let length = if bodiless { None } else { content_length(&head.headers).ok().flatten() };
            stream.send.on_head(end, length);
        }
        let headers = Headers::Own(&head.headers);
        let section = OutgoingSection { status: Some(head.status), headers, date };
        let kept = || KeptHead::Own(head.clone(), date.cloned(), end);
        self.frame_response(key, section, end, kept);
    }

    /// Frames the head of a response again, where the stream is now, and keeps it.
    pub(crate) fn frame_kept_head(&mut self, key: StreamKey, head: &KeptHead) {
        let (status, headers, date) = match head {
            KeptHead::Own(head, date, _) => (head.status, Headers::Own(&head.headers), date),
            KeptHead::Shared(head, date, _) => (head.status, Headers::Shared(&head.headers), date),
        };
        let section = OutgoingSection { status: Some(status), headers, date: date.as_ref() };
        self.frame_response(key, section, head.end(), || head.clone());
    }

    /// Frames a response head where the stream's frames are sent, and keeps it if it may have to be sent again. Sends nothing
    /// if that is a carrier whose connection was lost, because the answer decides, or nowhere, because the stream has to be
    /// resumed.
    fn frame_response(
        &mut self,
        key: StreamKey,
        section: OutgoingSection<'_>,
        end: EndStream,
        kept: impl FnOnce() -> KeptHead,
    ) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let addr = stream.binding.send_addr();
        let is_adrift = stream.binding.is_adrift();
        let conn = self.conns.find_live_mut(addr.conn).filter(|_| !is_adrift);
        let sent_at = conn.map_or(SentAt::NOWHERE, |conn| {
            let max = conn.peer_max_frame_size();
            let (encoder, out) = (&mut conn.encoder, &mut conn.control_queue.frames);
            wire::write_headers(out, addr.id, end, max, |out| {
                encode_section(encoder, section, out);
            });
            conn.last_framed()
        });
        let kept_memory = stream.send.record_head(sent_at, kept);
        self.count_kept(kept_memory);
    }

    fn find_running(&self, key: StreamKey) -> Result<&Stream, SendError> {
        self.streams.find(key).filter(|stream| !stream.has_failed()).ok_or(SendError::Ended)
    }

    fn find_running_mut(&mut self, key: StreamKey) -> Result<&mut Stream, SendError> {
        self.streams.find_mut(key).filter(|stream| !stream.has_failed()).ok_or(SendError::Ended)
    }

    /// Returns how many bytes of body the stream's buffer accepts now. After 0, wait for
    /// [`crate::Event::Writable`].
    pub fn send_capacity(&mut self, key: StreamKey) -> usize {
        let buffer_size = self.config.send_buffer;
        let Some(stream) = self.streams.find_mut(key) else { return 0 };
        let room = buffer_size.saturating_sub(stream.send.queued_bytes());
        stream.send.awaits_capacity = room == 0;
        room
    }

    /// Queues body. Accepts more than [`Self::send_capacity`], but then the caller must bound the
    /// memory.
    ///
    /// # Errors
    ///
    /// Resets the stream on [`SendError::WrongLength`].
    pub fn send_data(
        &mut self,
        key: StreamKey,
        data: Bytes,
        end: EndStream,
    ) -> Result<(), SendError> {
        let stream = self.find_running_mut(key)?;
        if !stream.send.is_open() {
            return Err(SendError::Ended);
        }
        if stream.send.state() != SendState::Body {
            return Err(SendError::OutOfOrder);
        }
        let mut length_matches = stream.send.queue(data);
        if length_matches && end.is_end() {
            length_matches = stream.send.finish(SendEnd::Data);
        }
        self.after_queueing(key, length_matches)
    }

    /// Queues trailers, which end this side's direction.
    ///
    /// # Errors
    ///
    /// Resets the stream on [`SendError::WrongLength`].
    pub fn send_trailers(&mut self, key: StreamKey, trailers: HeaderMap) -> Result<(), SendError> {
        let stream = self.find_running_mut(key)?;
        if !stream.send.is_open() {
            return Err(SendError::Ended);
        }
        if stream.send.state() != SendState::Body {
            return Err(SendError::OutOfOrder);
        }
        let length_matches = stream.send.finish(SendEnd::Trailers(trailers));
        self.after_queueing(key, length_matches)
    }

    fn after_queueing(&mut self, key: StreamKey, length_matches: bool) -> Result<(), SendError> {
        if !length_matches {
            self.fail_by_application(key, Cause::BodyLengthMismatch);
            return Err(SendError::WrongLength);
        }
        self.schedule(key);
        Ok(())
    }

    /// Changes a stream's priority: a client notifies the server (RFC 9218 section 7.1), a server
    /// schedules the stream accordingly.
    pub fn reprioritize(&mut self, key: StreamKey, priority: Priority) {
        let Some(stream) = self.streams.find(key) else { return };
        if stream.has_failed() {
            return;
        }
        let is_adrift = stream.binding.is_adrift();
        // Until the answer, the peer may not know the carrier (SMIG-7.7/priority-moves).
        let addr = stream.binding.recv_addr();
        if self.side == Side::Client
            && !is_adrift
            && let Some(conn) = self.conns.find_live_mut(addr.conn)
        {
            wire::write_priority_update(&mut conn.control_queue.frames, addr.id, priority);
        }
        self.set_priority(key, priority);
    }

    /// Overrides the policy that decides whether what this side sends on a stream is bulk. Applies to
    /// what is framed from now on.
    pub fn set_bulk_hint(&mut self, key: StreamKey, hint: BulkHint) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        stream.send.set_bulk_hint(hint);
        let (scheduled_conn_id, priority) = (stream.binding.scheduled_on(), stream.priority);
        // A stream that waits for the connection's window is classified when it is scheduled again.
        if let Some(conn) = scheduled_conn_id.and_then(|id| self.conns.find_known_mut(id))
            && conn.scheduler.remove(key, priority)
        {
            stream.binding.take_scheduled();
            self.schedule(key);
        }
    }

    /// Announces that at least `bytes` bytes of body will be queued from now on, on a stream whose body has no
    /// content-length: such a body is bulk before it has sent much. Nothing is sent, and nothing fails if it is less.
    pub fn announce_min_body(&mut self, key: StreamKey, bytes: u64) {
        if let Some(stream) = self.streams.find_mut(key) {
            stream.send.announce_min(bytes);
        }
    }

    /// Server: promises the response to `head` on the stream `parent` (RFC 9113 section 8.4). The
    /// promised stream is answered like any other.
    ///
    /// # Errors
    ///
    /// Returns a [`PushError`]; nothing was sent.
    pub fn push(
        &mut self,
        now: Instant,
        parent: StreamKey,
        head: &RequestHead,
    ) -> Result<StreamKey, PushError> {
        let stream = self.find_running(parent).map_err(|_| PushError::UnsuitableParent)?;
        let has_open_migration = stream.binding.open_migration().is_some() || stream.is_resuming();
        // A promise is sent only on a stream that the client opened (RFC 9113 section 8.4).
        let is_promised = stream.opener == Opener::Local;
        if self.side == Side::Client || has_open_migration || is_promised || !stream.send.is_open()
        {
            return Err(PushError::UnsuitableParent);
        }
        let addr = stream.binding.send_addr();
        let open_streams = self.open_local_streams;
        let conn = self.conns.find_mut(addr.conn).ok_or(PushError::UnsuitableParent)?;
        if !conn.peer_settings.enable_push
            || open_streams >= conn.peer_settings.max_concurrent_streams
            || !conn.accepts_streams()
        {
            return Err(PushError::Refused);
        }
        let promised = conn.local_ids.allocate(2).ok_or(PushError::Refused)?;
        let (window, max) = (conn.peer_settings.initial_window, conn.peer_max_frame_size());
        let (encoder, out) = (&mut conn.encoder, &mut conn.control_queue.frames);
        wire::write_push_promise(out, addr.id, promised, max, |out| {
            encode_request(encoder, head, out)
        });
        let halves = (SendHalf::new(window, SendState::Head), RecvHalf::new(0, RecvState::Ended));
        let addr = StreamAddr { conn: addr.conn, id: promised };
        let key = self.admit(
            now,
            Opener::Local,
            ExchangeKind::from_request(head),
            addr,
            halves,
            Priority::default(),
        );
        Ok(key)
    }
}
