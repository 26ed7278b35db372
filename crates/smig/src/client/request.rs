//! A client's request, before and while it is sent.

use std::sync::Arc;

use smig_proto::policy::{MigrationHint, Transfer};
use smig_proto::{ErrorCode, RequestHead, StreamKey};

use super::bulk::BulkWatch;
use super::informational::OnInformational;
use super::session::ContinuationState;
use crate::error::Error;
use crate::limits::QueuePermit;
use crate::migration::Candidate;
use crate::snapshot::StreamRecord;
use crate::stream::{BodyLength, BodyRecvState, RequestBody, SharedStream, UnsentRequest};

/// A request that was not sent yet.
#[derive(Debug)]
pub(crate) struct QueuedRequest {
    pub(crate) head: RequestHead,
    pub(crate) body: RequestBody,
    pub(crate) length: BodyLength,
    pub(crate) options: RequestOptions,
    /// The queue permit, released when the request is sent.
    pub(crate) queue_permit: QueuePermit,
    pub(crate) shared: Arc<SharedStream>,
}

/// A request that was not submitted to a session yet, without its body.
#[derive(Debug)]
pub(super) struct RequestDraft {
    pub(super) head: RequestHead,
    pub(super) length: BodyLength,
    pub(super) options: RequestOptions,
    pub(super) queue_permit: QueuePermit,
}

/// The request's extensions that are not part of its head.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestOptions {
    pub(crate) hint: MigrationHint,
    pub(crate) on_informational: Option<OnInformational>,
}

/// A request with an open stream.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) key: StreamKey,
    pub(super) shared: Arc<SharedStream>,
    pub(super) body: RequestBody,
    pub(super) length: BodyLength,
    /// Whether the body was polled. If so, the request cannot be repeated.
    pub(super) body_polled: bool,
    pub(super) recv_state: BodyRecvState,
    pub(super) send_state: BodySendState,
    pub(super) after_response: AfterResponse,
    pub(super) candidate: Option<Candidate>,
    /// `None` if the client neither opens a second connection nor paces what it receives.
    pub(super) bulk_watch: Option<BulkWatch>,
    pub(super) continuation: ContinuationState,
    pub(super) on_informational: Option<OnInformational>,
    pub(super) record: StreamRecord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodySendState {
    Open,
    /// The engine has all of the body.
    Ended,
    /// The body failed after the response was complete: no more data follows, and no END_STREAM.
    Failed(ErrorCode),
    /// The transport has all of the body, or nothing more is to be sent.
    Sent,
}

/// What happens to a request that is still being sent when its response is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterResponse {
    /// It is sent to its end.
    KeepSending,
    /// It is abandoned.
    Abandon,
    /// The response is complete, and the stream is among the unfinished uploads.
    ResetScheduled,
}

impl QueuedRequest {
    /// Returns the request unsent, with its queue permit, to the caller that waits for it.
    pub(crate) fn return_unsent(self, error: Error) {
        let Self { body, queue_permit, shared, .. } = self;
        shared.return_unsent(UnsentRequest { body, permit: Some(queue_permit) }, error);
    }

    /// Returns the transfer's size for the migration rules. A download's length is known later.
    pub(super) fn transfer(&self) -> Transfer {
        match self.length {
            _ if self.head.method == http::Method::CONNECT => Transfer::Tunnel,
            BodyLength::Remaining(bytes) => Transfer::Sized(bytes),
            BodyLength::Unknown if self.body.is_empty() => Transfer::Sized(0),
            BodyLength::Unknown => Transfer::Unsized,
        }
    }
}

impl OpenRequest {
    /// Returns whether both directions are complete.
    pub(super) fn is_complete(&self) -> bool {
        // The stream is tracked until its queued data is sent: it may still migrate, and it may be
        // abandoned if the server accepts no more data.
        self.recv_state == BodyRecvState::Ended && self.send_state == BodySendState::Sent
    }

    /// Abandons the rest of the request once the response is complete.
    pub(super) fn abandon_upload(&mut self) {
        if self.after_response == AfterResponse::KeepSending {
            self.after_response = AfterResponse::Abandon;
        }
    }

    /// Returns the error code for the RST_STREAM that abandons the stream.
    pub(super) const fn reset_code(&self) -> ErrorCode {
        match self.send_state {
            BodySendState::Failed(code) => code,
            BodySendState::Open | BodySendState::Ended | BodySendState::Sent => ErrorCode::Cancel,
        }
    }

    /// Returns whether the response is complete and the rest of the request is to be abandoned.
    pub(super) fn has_abandoned_upload(&self) -> bool {
        self.recv_state == BodyRecvState::Ended
            && self.send_state != BodySendState::Sent
            && self.after_response == AfterResponse::Abandon
    }
}
