//! The outgoing body, from the application to the engine; polled only when the engine can take data.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http_body::Body;
use smig_proto::{EndStream, Session, StreamKey};

use super::length::BodyLength;
use crate::error::BoxError;

/// Result of [`send_body`].
#[derive(Debug)]
pub(crate) enum SendProgress {
    /// The body's waker or `Event::Writable` will wake the task.
    Pending,
    /// The direction is complete.
    Done,
    /// The engine takes no more data: the stream has ended.
    StreamEnded,
    /// The body failed, panicked or differed from its announced length.
    Failed(BoxError),
}

/// Sends what the body yields, as far as the engine takes it.
pub(crate) fn send_body<B>(
    session: &mut Session,
    key: StreamKey,
    mut body: Pin<&mut B>,
    length: &mut BodyLength,
    cx: &mut Context<'_>,
) -> SendProgress
where
    B: Body,
    B::Error: Into<BoxError>,
{
    while session.send_capacity(key) > 0 {
        let polled = catch_unwind(AssertUnwindSafe(|| body.as_mut().poll_frame(cx)));
        let frame = match polled {
            Err(_) => return SendProgress::Failed("the body panicked".into()),
            Ok(Poll::Pending) => return SendProgress::Pending,
            Ok(Poll::Ready(None)) => {
                return finish(session, key, *length);
            }
            Ok(Poll::Ready(Some(Err(error)))) => return SendProgress::Failed(error.into()),
            Ok(Poll::Ready(Some(Ok(frame)))) => frame,
        };
        let frame = match frame.into_data() {
            Ok(mut data) => {
                let data = data.copy_to_bytes(data.remaining());
                let is_last = body.is_end_stream();
                if let BodyLength::Unknown = length {
                    announce_min_body(session, key, &data, body.size_hint().lower());
                }
                match send_chunk(session, key, data, is_last, length) {
                    None => continue,
                    Some(end) => return end,
                }
            }
            Err(frame) => frame,
        };
        if let Ok(trailers) = frame.into_trailers() {
            if let BodyLength::Remaining(1..) = *length {
                return SendProgress::Failed(too_short_error(*length));
            }
            return match session.send_trailers(key, trailers) {
                Ok(()) => SendProgress::Done,
                Err(_) => SendProgress::StreamEnded,
            };
        }
    }
    SendProgress::Pending
}

/// Announces what certainly follows `data`, before it is queued: whether it is bulk is decided then.
fn announce_min_body(session: &mut Session, key: StreamKey, data: &Bytes, following_bytes: u64) {
    if following_bytes > 0 {
        session.announce_min_body(key, following_bytes.saturating_add(data.len() as u64));
    }
}

/// Sends one chunk. Returns `Some` if nothing more is to be sent: it was the last, or it failed.
fn send_chunk(
    session: &mut Session,
    key: StreamKey,
    data: Bytes,
    is_last: bool,
    length: &mut BodyLength,
) -> Option<SendProgress> {
    if let BodyLength::Remaining(remaining) = length {
        match remaining.checked_sub(data.len() as u64) {
            Some(rest) => *remaining = rest,
            None => return Some(SendProgress::Failed("the body is longer than announced".into())),
        }
    }
    if is_last && let BodyLength::Remaining(1..) = *length {
        return Some(SendProgress::Failed(too_short_error(*length)));
    }
    if data.is_empty() && !is_last {
        return None;
    }
    let end = if is_last { EndStream::Yes } else { EndStream::No };
    match session.send_data(key, data, end) {
        Err(_) => Some(SendProgress::StreamEnded),
        Ok(()) if is_last => Some(SendProgress::Done),
        Ok(()) => None,
    }
}

fn finish(session: &mut Session, key: StreamKey, length: BodyLength) -> SendProgress {
    if let BodyLength::Remaining(1..) = length {
        return SendProgress::Failed(too_short_error(length));
    }
    match session.send_data(key, Bytes::new(), EndStream::Yes) {
        Ok(()) => SendProgress::Done,
        Err(_) => SendProgress::StreamEnded,
    }
}

fn too_short_error(length: BodyLength) -> BoxError {
    match length {
        BodyLength::Remaining(remaining) => {
            format!("the body is {remaining} bytes shorter than announced").into()
        }
        BodyLength::Unknown => "the body is too short".into(),
    }
}
