//! Field blocks: requests, responses, trailers, promises.

use http::HeaderMap;

use crate::config::ConnectProtocol;
use crate::conn::{BlockKind, Connection, IdState, RepeatableBlock};
use crate::error::{Cause, InputError};
use crate::flow::INITIAL_WINDOW;
use crate::head::RequestHead;
use crate::ids::{ConnId, Side, StreamAddr, StreamId};
use crate::invariant::DebugExpect;
use crate::message::{FieldPresence, FieldSection, ResponseKind, SectionLimits, content_length};
use crate::priority::Priority;
use crate::session::{Event, Session};
use crate::stream::{ExchangeKind, Opener, RecvHalf, RecvState, SendHalf, SendState, StreamKey};
use crate::time::Instant;
use crate::wire::EndStream;

impl Session {
    /// Handles a complete field block. Decodes it even if it is then ignored: the HPACK dynamic
    /// table must stay in sync (RFC 9113 section 4.3).
    pub(crate) fn on_field_block(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        kind: BlockKind,
        block: &[u8],
    ) -> Result<(), InputError> {
        let limits = SectionLimits {
            max_bytes: self.config.limits.max_header_list,
            max_fields: self.config.limits.max_fields,
        };
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        conn.abuse.reset_runs();
        if let BlockKind::Headers(end) = kind
            && conn.repeated_request.find(&conn.decoder, block).is_some()
            && self.opens_stream(conn_id, stream_id)
        {
            // To decode it again would not change the table.
            return self.on_request(now, conn_id, stream_id, RequestFields::Repeated, end);
        }
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        let version = conn.decoder.version();
        let mut section = FieldSection::default();
        if conn.decoder.decode(block, |field| section.push(field, limits)).is_err() {
            return Err(Cause::Compression.into());
        }
        let block = RepeatableBlock::new(&conn.decoder, version, &section, block);
        section.seal();
        match kind {
            BlockKind::Headers(end) => {
                self.on_section(now, conn_id, stream_id, (section, block), end)
            }
            BlockKind::Promise(promised) => {
                self.on_promise(now, conn_id, stream_id, promised, section)
            }
        }
    }

    fn on_section(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        (section, block): (FieldSection, Option<RepeatableBlock<'_>>),
        end: EndStream,
    ) -> Result<(), InputError> {
        if let Some(key) = self.key_at(conn_id, stream_id) {
            if let Some(early) = self.early_frames_at(key, conn_id, stream_id) {
                let buffered = early.push_section(section, end);
                return buffered.map_err(|cause| InputError::Stream(stream_id, cause));
            }
            self.check_barrier(StreamAddr { conn: conn_id, id: stream_id })?;
            return self
                .apply_section(now, key, section, end)
                .map_err(|cause| InputError::Stream(stream_id, cause));
        }
        if self.vacated_key(StreamAddr { conn: conn_id, id: stream_id }).is_some() {
            return Err(InputError::Stream(stream_id, Cause::StreamClosed));
        }
        if !self.is_peer_id(stream_id) && self.side == Side::Server {
            return match self.id_state(conn_id, stream_id) {
                IdState::Idle | IdState::Skipped => Err(Cause::WrongStreamParity.into()),
                IdState::Ignored => Ok(()),
                IdState::Closed => Err(Cause::StreamClosed.into()),
            };
        }
        match (self.id_state(conn_id, stream_id), self.side) {
            (IdState::Ignored, _) => Ok(()),
            (IdState::Closed, _) => Err(Cause::StreamClosed.into()),
            (IdState::Idle, Side::Server) => {
                let fields = RequestFields::Decoded(section, block);
                self.on_request(now, conn_id, stream_id, fields, end)
            }
            (IdState::Skipped, Side::Server) => {
                if !self.conns.find(conn_id).is_some_and(|conn| conn.peer_ids.may_open(stream_id)) {
                    return Err(Cause::StreamIdNotIncreasing.into());
                }
                let fields = RequestFields::Decoded(section, block);
                self.on_request(now, conn_id, stream_id, fields, end)
            }
            (IdState::Idle | IdState::Skipped, Side::Client) => {
                if !self.may_be_carrier(conn_id, stream_id) {
                    return Err(Cause::IdleStream.into());
                }
                let Some(early) = self.find_or_create_unbound_carrier(now, conn_id, stream_id)?
                else {
                    return Ok(());
                };
                match early.push_section(section, end) {
                    Ok(()) => Ok(()),
                    Err(cause) => self
                        .refuse_unbound_carrier(StreamAddr { conn: conn_id, id: stream_id }, cause),
                }
            }
        }
    }

    /// Server: returns whether HEADERS on this ID open a stream, and no other stream has or had a higher one.
    fn opens_stream(&self, conn_id: ConnId, stream_id: StreamId) -> bool {
        self.side == Side::Server
            && self.is_peer_id(stream_id)
            && self.conns.find(conn_id).is_some_and(|conn| {
                let is_idle = conn.peer_ids.state(stream_id) == IdState::Idle;
                debug_assert!(
                    !is_idle
                        || !conn.streams.contains_key(&stream_id)
                            && !conn.vacated_streams.contains_key(&stream_id),
                    "an idle ID has no stream"
                );
                is_idle && conn.goaway.sent_last_id.is_none_or(|last| stream_id <= last)
            })
    }

    /// Server: handles a request on a stream that it opens.
    fn on_request(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        fields: RequestFields<'_>,
        end: EndStream,
    ) -> Result<(), InputError> {
        let (max, window) = (self.config.max_concurrent_streams, self.config.stream_window);
        let is_full = self.open_peer_streams >= max;
        let at = StreamAddr { conn: conn_id, id: stream_id };
        let is_refused = self.is_refused_request(at);
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        if conn.unbound_carriers.find_mut(stream_id).is_some() {
            return Err(Cause::CarrierMisuse.into());
        }
        if is_refused {
            // RESUME came first, and the answer was that this is never processed: it does not count as read
            // (SMIG-13.9/never-processed).
            conn.peer_ids.mark_used(stream_id);
            return Err(InputError::Stream(stream_id, Cause::NeverProcessed));
        }
        conn.peer_ids.mark_opened(stream_id);
        if is_full {
            self.remember_refused(at);
            return Err(InputError::Stream(stream_id, Cause::TooManyStreams));
        }
        let window = if conn.settings_acked { window } else { window.max(INITIAL_WINDOW) };
        let send_window = conn.peer_settings.initial_window;
        let (head, presence) = match fields.into_request(conn) {
            Ok(request) => request,
            Err(cause @ (Cause::HeadersTooLarge | Cause::TooManyFields)) => {
                return self.refuse_large_request(now, conn_id, stream_id, cause);
            }
            Err(cause) => return Err(InputError::Stream(stream_id, cause)),
        };
        let accepts_protocol = self.config.connect_protocol == ConnectProtocol::Enabled;
        if head.protocol.is_some() && !accepts_protocol {
            // The client must not use it before the server has announced it (RFC 8441 section 3).
            return Err(InputError::Stream(stream_id, Cause::ConnectProtocolDisabled));
        }
        let length = if presence.content_length {
            content_length(&head.headers).map_err(|cause| InputError::Stream(stream_id, cause))?
        } else {
            None
        };
        let headers = presence.priority.then_some(&head.headers);
        let priority = self.initial_priority(conn_id, stream_id, headers);
        let mut recv = RecvHalf::new(window, RecvState::Head);
        recv.on_head(end, length).map_err(|cause| InputError::Stream(stream_id, cause))?;
        let halves = (SendHalf::new(send_window, SendState::Head), recv);
        let addr = StreamAddr { conn: conn_id, id: stream_id };
        let key = self.admit(
            now,
            Opener::Peer,
            ExchangeKind::from_request(&head),
            addr,
            halves,
            priority,
        );
        if let Some(conn) = self.conns.find_mut(conn_id) {
            conn.opens_streams = true;
        }
        self.make_resumable(key);
        self.arm_tick(now);
        self.events.push_back(Event::Request { conn: conn_id, stream: key, head, end });
        Ok(())
    }

    /// Returns the priority of the last PRIORITY_UPDATE that arrived before the request; otherwise
    /// that of the request's priority field (RFC 9218), if `headers` is given.
    fn initial_priority(
        &mut self,
        conn_id: ConnId,
        stream_id: StreamId,
        headers: Option<&HeaderMap>,
    ) -> Priority {
        let updated = self.conns.find_known_mut(conn_id).and_then(|conn| {
            let index = conn.idle_priorities.iter().position(|&(other, _)| other == stream_id)?;
            Some(conn.idle_priorities.swap_remove(index).1)
        });
        let signalled = updated.or_else(|| headers.map(Priority::from_headers));
        signalled.unwrap_or(Priority::UNSIGNALLED)
    }

    /// Applies a field section in stream order.
    pub(crate) fn apply_section(
        &mut self,
        now: Instant,
        key: StreamKey,
        section: FieldSection,
        end: EndStream,
    ) -> Result<(), Cause> {
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        if stream.is_resuming() {
            return Err(Cause::BadResume);
        }
        stream.stall.restart(now, stream.send.sent_bytes());
        match stream.recv.state() {
            RecvState::Ended => Err(Cause::HalfClosed),
            RecvState::Body => {
                if !end.is_end() {
                    return Err(Cause::TrailersWithoutEnd);
                }
                stream.recv.on_trailers(section.into_trailers()?)?;
                self.signal_readable(key);
                self.finish_if_complete(key);
                Ok(())
            }
            RecvState::Head => self.apply_response(key, section, end),
        }
    }

    fn apply_response(
        &mut self,
        key: StreamKey,
        section: FieldSection,
        end: EndStream,
    ) -> Result<(), Cause> {
        if !section.has_status() {
            return Err(section.malformed.unwrap_or(Cause::BadPseudo));
        }
        let (head, kind) = section.into_response()?;
        let max = self.config.limits.max_informational;
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        match kind {
            ResponseKind::Informational if end.is_end() => Err(Cause::InformationalWithEnd),
            ResponseKind::Informational if stream.recv.informational_count >= max => {
                Err(Cause::TooManyInformational)
            }
            ResponseKind::Informational => {
                stream.recv.informational_count += 1;
                self.events.push_back(Event::Informational { stream: key, head });
                Ok(())
            }
            ResponseKind::Final => {
                let status = head.status.as_u16();
                if stream.exchange_kind == ExchangeKind::Tunnel && !head.status.is_success() {
                    // The server refused CONNECT: the response is an ordinary one (RFC 9110 section
                    // 9.3.6).
                    stream.exchange_kind = ExchangeKind::Ordinary;
                }
                let announced_length = content_length(&head.headers)?;
                let length = match (stream.exchange_kind, status) {
                    // These responses have no content, whatever their content-length (RFC 9110
                    // section 6.4.1).
                    (ExchangeKind::Head, _) | (ExchangeKind::Ordinary, 204 | 304) => Some(0),
                    (ExchangeKind::Ordinary, _) => announced_length,
                    (ExchangeKind::Tunnel, _) => None,
                };
                stream.recv.on_head(end, length)?;
                self.events.push_back(Event::Response { stream: key, head, end });
                self.finish_if_complete(key);
                Ok(())
            }
        }
    }

    /// Checks whether PUSH_PROMISE is permitted on `stream_id` (RFC 9113 section 8.4).
    pub(crate) fn check_promise(
        &self,
        conn_id: ConnId,
        stream_id: StreamId,
    ) -> Result<(), InputError> {
        if self.side == Side::Server || self.config.push == crate::config::Push::Disabled {
            return Err(Cause::PushDisabled.into());
        }
        match self.key_at(conn_id, stream_id) {
            // Check the opener, not the parity of the ID: the mover chose the ID of a carrier.
            Some(key) if !self.has_recv_ended(key) && self.is_locally_opened(key) => Ok(()),
            Some(_) => Err(Cause::BadPush.into()),
            None if self.id_state(conn_id, stream_id) == IdState::Ignored => Ok(()),
            None => Err(Cause::BadPush.into()),
        }
    }

    fn is_locally_opened(&self, key: StreamKey) -> bool {
        self.streams.find(key).is_some_and(|stream| stream.opener == Opener::Local)
    }

    fn on_promise(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        parent_id: StreamId,
        promised_id: StreamId,
        section: FieldSection,
    ) -> Result<(), InputError> {
        let (max, window) = (self.config.max_concurrent_streams, self.config.stream_window);
        let parent = self.key_at(conn_id, parent_id);
        let may_open =
            self.conns.find_known(conn_id).is_some_and(|conn| conn.peer_ids.may_open(promised_id));
        if !self.is_peer_id(promised_id) || !may_open {
            return Err(Cause::BadPush.into());
        }
        let is_full = self.open_peer_streams >= max;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        if conn.goaway.sent_last_id.is_some_and(|last| promised_id > last) {
            // This side's GOAWAY excludes the stream (RFC 9113 section 6.8).
            return Ok(());
        }
        if conn.unbound_carriers.find_mut(promised_id).is_some() {
            return Err(Cause::CarrierMisuse.into());
        }
        conn.peer_ids.mark_opened(promised_id);
        let send_window = conn.peer_settings.initial_window;
        let stream_error = |cause| InputError::Stream(promised_id, cause);
        let parent = parent.ok_or_else(|| stream_error(Cause::ParentEnded))?;
        if is_full {
            return Err(stream_error(Cause::TooManyStreams));
        }
        let head = section.into_request(&mut conn.authority).map_err(stream_error)?;
        if !head.method.is_safe()
            || content_length(&head.headers).map_err(stream_error)?.unwrap_or(0) > 0
        {
            return Err(InputError::Stream(promised_id, Cause::BadPush));
        }
        let halves =
            (SendHalf::new(send_window, SendState::Ended), RecvHalf::new(window, RecvState::Head));
        let addr = StreamAddr { conn: conn_id, id: promised_id };
        let key = self.admit(
            now,
            Opener::Peer,
            ExchangeKind::from_request(&head),
            addr,
            halves,
            Priority::default(),
        );
        self.events.push_back(Event::Pushed { parent, stream: key, head: Box::new(head) });
        Ok(())
    }
}

/// The fields of a request.
#[expect(clippy::large_enum_variant, reason = "it is an argument of one call")]
enum RequestFields<'a> {
    /// With the block from which they were decoded, if it may be kept.
    Decoded(FieldSection, Option<RepeatableBlock<'a>>),
    /// The block is that of the connection's known request.
    Repeated,
}

impl RequestFields<'_> {
    fn into_request(
        self,
        conn: &mut Connection,
    ) -> Result<(Box<RequestHead>, FieldPresence), Cause> {
        match self {
            Self::Repeated => {
                let known = conn.repeated_request.known();
                let known = known.debug_expect("the block of a known request was found");
                let known = known.ok_or(Cause::BadPseudo)?;
                Ok((known.head.clone(), known.presence))
            }
            Self::Decoded(section, block) => {
                let presence = section.presence;
                let head = Box::new(section.into_request(&mut conn.authority)?);
                if let Some(block) = block {
                    conn.repeated_request.note(block, &head, presence);
                }
                Ok((head, presence))
            }
        }
    }
}

impl ExchangeKind {
    pub(crate) fn from_request(head: &RequestHead) -> Self {
        match head.method {
            http::Method::HEAD => Self::Head,
            http::Method::CONNECT => Self::Tunnel,
            _ => Self::Ordinary,
        }
    }
}
