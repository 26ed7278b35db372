//! Continues a long response on another connection by a range request, towards a server that does not support SMig.
//!
//! The first response runs on until the answer to the range request is verified, the rest's first bytes are here, and
//! its own bytes reach the range; then it is cancelled. Whatever else happens, it stays as it is.

use std::sync::Arc;
use std::time::Duration;

use smig_proto::policy::MigrationHint;
use smig_proto::{ErrorCode, Instant, RequestHead, ResponseHead, StreamKey};
use tokio::task::AbortHandle;

use super::{ClientSession, Command};
use crate::client::bulk::{BulkProgress, BulkWatch};
use crate::client::pool::OriginContext;
use crate::client::range_continuation::{
    ContinuableResponse, RangeContinuation, is_continuable_request,
};
use crate::client::request::{OpenRequest, QueuedRequest, RequestOptions};
use crate::driver::TurnCx;
use crate::error::{Error, ErrorKind};
use crate::mailbox::{Mailbox, Slot};
use crate::observer::ObserverEvent;
use crate::stream::{
    BodyLength, BodyRecvState, BodyRest, Head, Incoming, RequestBody, SharedStream, content_length,
};

/// A shorter response is not continued: what the server has in its socket already is sent twice.
const MIN_RESPONSE_BYTES: u64 = 1 << 20;
/// A response that ends within this time is not continued.
const MIN_REMAINING_TIME: Duration = Duration::from_secs(2);
/// A response is continued for streams that have been open for this time. Requests that come later avoid it anyway.
const MIN_COMPANY_AGE: Duration = Duration::from_secs(1);
/// The range begins this far ahead...
const MIN_LEAD_BYTES: u64 = 64 << 10;
/// ...and as far as the first response gets in these round trips: it fills the link while the other connection, which
/// is new, is in slow start.
const LEAD_ROUND_TRIPS: u32 = 6;

/// Whether a request's response can be continued, and how far that is.
#[derive(Debug)]
pub(crate) enum ContinuationState {
    /// It is not possible, or was tried.
    Impossible,
    /// The request allows it.
    Request(Box<RequestHead>),
    /// The response allows it, too.
    Response(Box<ContinuableResponse>),
    /// The range was requested.
    Requested { _task: AbortOnDrop },
    /// The answer fits, and its first bytes are here.
    Accepted(Box<ContinuationRest>),
}

/// The rest of a response, which a range request brings.
#[derive(Debug)]
pub(crate) struct ContinuationRest {
    body: Incoming,
    stream: Arc<SharedStream>,
    first_pos: u64,
    /// Length of the complete response in bytes.
    length: u64,
}

/// The result of a range request.
#[derive(Debug)]
pub(crate) struct RangeAnswer {
    /// The stream that is to be continued.
    pub(crate) key: StreamKey,
    pub(crate) result: Result<ContinuationRest, String>,
}

/// Aborts a task on drop: its stream has ended, or its result has arrived.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ContinuationState {
    /// Returns the state of a new request.
    pub(super) fn of_request(
        context: &OriginContext,
        head: RequestHead,
        body: &RequestBody,
        hint: MigrationHint,
    ) -> Self {
        let is_allowed = context.range_continuation == RangeContinuation::Verified
            && context.max_plain_connections > 1
            && hint != MigrationHint::Stay;
        if is_allowed && body.is_empty() && is_continuable_request(&head) {
            Self::Request(Box::new(head))
        } else {
            Self::Impossible
        }
    }

    /// Handles the response's head.
    pub(super) fn on_response(&mut self, head: &ResponseHead) {
        let Self::Request(request) = core::mem::replace(self, Self::Impossible) else { return };
        if content_length(&head.headers).is_none_or(|length| length < MIN_RESPONSE_BYTES) {
            return;
        }
        match ContinuableResponse::new(*request, head) {
            Ok(response) => *self = Self::Response(Box::new(response)),
            Err(why) => tracing::debug!(why, "a response cannot be continued"),
        }
    }
}

impl ClientSession {
    /// Requests the rest of a bulk response on another connection, if that is possible and helps the streams that share
    /// this connection.
    pub(super) fn consider_continuation(
        &mut self,
        turn: &mut TurnCx<'_>,
        slot: Slot,
        progress: BulkProgress,
    ) {
        let Some(request) = self.slots.get(slot) else { return };
        let ContinuationState::Response(_) = &request.continuation else { return };
        let must_leave = request.bulk_watch.as_ref().is_some_and(BulkWatch::must_leave);
        let is_long = progress.remaining_time >= MIN_REMAINING_TIME;
        let helps = must_leave || (is_long && self.has_company(turn.now, slot));
        if !helps {
            return;
        }
        let context = Arc::clone(&self.context);
        let Some(target) = context.find_apart_from(&self.mailbox) else { return };
        let Some(queue_permit) = context.queue_limit.try_acquire() else { return };
        let Some((request, _)) = self.slots.entry(slot) else { return };
        let Some(view) = turn.session.stream(request.key) else { return };
        if request.recv_state == BodyRecvState::Ended {
            return;
        }
        let state = core::mem::replace(&mut request.continuation, ContinuationState::Impossible);
        let ContinuationState::Response(response) = state else { return };
        let path = turn.conns.sample(view.connection);
        context.update_min_rtt(path.min_rtt);
        let lead_bytes = bytes_within(progress.bytes_per_s, path.rtt * LEAD_ROUND_TRIPS);
        let first_pos = view.received_bytes + lead_bytes.max(MIN_LEAD_BYTES);
        if first_pos >= response.length() {
            return;
        }
        let stream = SharedStream::without_slot(Arc::clone(target.notifier()));
        let queued_request = QueuedRequest {
            head: response.request_from(first_pos),
            body: RequestBody::default(),
            length: BodyLength::Unknown,
            options: RequestOptions::default(),
            queue_permit,
            shared: Arc::clone(&stream),
        };
        if target.send(Command::Request(Box::new(queued_request))).is_err() {
            // It closed in between. Another one may be found later.
            request.continuation = ContinuationState::Response(response);
            return;
        }
        tracing::debug!(key = ?request.key, first_pos, "the rest of a response is requested on another connection");
        let (key, mailbox) = (request.key, Arc::clone(&self.mailbox));
        // A task that is aborted before it first runs drops its arguments only: this one cancels the stream.
        let body = Incoming::stream(Arc::clone(&stream));
        let rest = ContinuationRest { body, stream, first_pos, length: response.length() };
        let task = tokio::spawn(await_answer(*response, rest, key, mailbox));
        request.continuation =
            ContinuationState::Requested { _task: AbortOnDrop(task.abort_handle()) };
    }

    /// Returns whether the stream's connection has others, not bulk, that have been open for some time.
    fn has_company(&self, now: Instant, slot: Slot) -> bool {
        (0..self.slots.capacity()).map(Slot).filter(|&other| other != slot).any(|other| {
            self.slots.get(other).is_some_and(|other: &OpenRequest| {
                other.recv_state == BodyRecvState::Open
                    && !other.bulk_watch.as_ref().is_some_and(BulkWatch::is_bulk)
                    && now.saturating_duration_since(other.record.opened_at) >= MIN_COMPANY_AGE
            })
        })
    }

    /// Handles the result of a range request.
    pub(super) fn on_range_answer(&mut self, turn: &mut TurnCx<'_>, answer: RangeAnswer) {
        let RangeAnswer { key, result } = answer;
        let Some(&slot) = self.by_key.get(&key) else { return };
        let Some((request, _)) = self.slots.entry(slot) else { return };
        match result {
            Ok(rest) => {
                request.continuation = ContinuationState::Accepted(Box::new(rest));
                self.continue_if_reached(turn, slot);
            }
            Err(why) => {
                request.continuation = ContinuationState::Impossible;
                tracing::info!(?key, %why, "a response stays on its connection");
                let stream = self.context.events.stream_ref(turn, &self.session_record, key);
                self.context.events.on_event(&ObserverEvent::ContinuationFailed { stream, why });
            }
        }
    }

    /// Cancels the first response when its bytes reach the accepted rest, which continues the body.
    pub(super) fn continue_if_reached(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((request, _)) = self.slots.entry(slot) else { return };
        let ContinuationState::Accepted(rest) = &request.continuation else { return };
        let received = request.shared.received_bytes();
        if received < rest.first_pos || request.recv_state == BodyRecvState::Ended {
            return;
        }
        let state = core::mem::replace(&mut request.continuation, ContinuationState::Impossible);
        let ContinuationState::Accepted(rest) = state else { return };
        let ContinuationRest { body, stream, first_pos, length } = *rest;
        let remaining = length.saturating_sub(received);
        if remaining < self.context.migration.policy.min_size {
            // The answer was slow: its own end is near.
            return;
        }
        let repeated = received - first_pos;
        let (key, shared) = (request.key, Arc::clone(&request.shared));
        tracing::debug!(?key, received, repeated, "a response continues on another connection");
        let events = &self.context.events;
        let continued = ObserverEvent::ResponseContinued {
            stream: events.stream_ref(turn, &self.session_record, key),
            offset: received,
            repeated,
        };
        events.on_event(&continued);
        turn.session.reset(key, ErrorCode::Cancel);
        let rest = Box::new(BodyRest::new(body, repeated, remaining));
        shared.continue_with(rest, stream, first_pos);
        self.release_stream(turn, slot);
    }
}

/// Returns the bytes that arrive within a time.
fn bytes_within(bytes_per_s: u64, time: Duration) -> u64 {
    let bytes = u128::from(bytes_per_s) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX / 2).min(u64::MAX / 2)
}

/// Waits for the answer to a range request and its first bytes, checks it, and sends the result to the session of the
/// first response.
async fn await_answer(
    response: ContinuableResponse,
    rest: ContinuationRest,
    key: StreamKey,
    mailbox: Arc<Mailbox<Command>>,
) {
    let head = std::future::poll_fn(|cx| rest.stream.poll_head(cx)).await;
    let checked = match head {
        Ok(Head::Stream(answer)) => response.check(rest.first_pos, &answer).map_err(str::to_owned),
        Ok(Head::Http1(_)) => Err(Error::new(ErrorKind::Closed).to_string()),
        Err(error) => Err(format!("the range request failed: {error}")),
    };
    // A head alone does not show that the rest will come.
    let result = match checked {
        Ok(()) if std::future::poll_fn(|cx| rest.stream.poll_has_data(cx)).await => Ok(rest),
        Ok(()) => Err("the rest ended before its first byte".to_owned()),
        Err(why) => Err(why),
    };
    // If the session has closed, the rest is dropped, and its stream cancelled.
    drop(mailbox.send(Command::RangeAnswer(Box::new(RangeAnswer { key, result }))));
}
