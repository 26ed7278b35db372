//! The outgoing body, from the application to the engine; polled only when the engine can take
//! data.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http_body::Body;
use smig_proto::{EndStream, Session, StreamKey};

use crate::error::BoxError;

/// The announced length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Number of bytes still to be sent.
    Left(u64),
    Unknown,
}

/// Result of a call of [`pump`].
#[derive(Debug)]
pub(crate) enum Pumped {
    /// The body's waker or `Event::Writable` will wake the task.
    Pending,
    /// The direction is complete.
    Done,
    /// The engine takes no more data: the stream has ended.
    Over,
    /// The body failed, panicked or differed from its announced length.
    Failed(BoxError),
}

/// Sends what the body yields, as far as the engine takes it.
pub(crate) fn pump<B>(
    session: &mut Session,
    key: StreamKey,
    mut body: Pin<&mut B>,
    length: &mut Length,
    cx: &mut Context<'_>,
) -> Pumped
where
    B: Body,
    B::Error: Into<BoxError>,
{
    while session.send_capacity(key) > 0 {
        let polled = catch_unwind(AssertUnwindSafe(|| body.as_mut().poll_frame(cx)));
        let frame = match polled {
            Err(_) => return Pumped::Failed("the body panicked".into()),
            Ok(Poll::Pending) => return Pumped::Pending,
            Ok(Poll::Ready(None)) => {
                return finish(session, key, *length);
            }
            Ok(Poll::Ready(Some(Err(error)))) => return Pumped::Failed(error.into()),
            Ok(Poll::Ready(Some(Ok(frame)))) => frame,
        };
        let frame = match frame.into_data() {
            Ok(mut data) => {
                let data = data.copy_to_bytes(data.remaining());
                let ends = body.is_end_stream();
                match send(session, key, data, ends, length) {
                    None => continue,
                    Some(end) => return end,
                }
            }
            Err(frame) => frame,
        };
        if let Ok(trailers) = frame.into_trailers() {
            if let Length::Left(1..) = *length {
                return Pumped::Failed(short(*length));
            }
            return match session.send_trailers(key, trailers) {
                Ok(()) => Pumped::Done,
                Err(_) => Pumped::Over,
            };
        }
    }
    Pumped::Pending
}

/// Sends one chunk. Returns `Some` if it was the last.
fn send(
    session: &mut Session,
    key: StreamKey,
    data: Bytes,
    ends: bool,
    length: &mut Length,
) -> Option<Pumped> {
    if let Length::Left(left) = length {
        match left.checked_sub(data.len() as u64) {
            Some(rest) => *left = rest,
            None => return Some(Pumped::Failed("the body is longer than announced".into())),
        }
    }
    if ends && let Length::Left(1..) = *length {
        return Some(Pumped::Failed(short(*length)));
    }
    if data.is_empty() && !ends {
        return None;
    }
    let end = if ends { EndStream::Yes } else { EndStream::No };
    match session.send_data(key, data, end) {
        Err(_) => Some(Pumped::Over),
        Ok(()) if ends => Some(Pumped::Done),
        Ok(()) => None,
    }
}

fn finish(session: &mut Session, key: StreamKey, length: Length) -> Pumped {
    if let Length::Left(1..) = length {
        return Pumped::Failed(short(length));
    }
    match session.send_data(key, Bytes::new(), EndStream::Yes) {
        Ok(()) => Pumped::Done,
        Err(_) => Pumped::Over,
    }
}

fn short(length: Length) -> BoxError {
    match length {
        Length::Left(left) => format!("the body is {left} bytes shorter than announced").into(),
        Length::Unknown => "the body is too short".into(),
    }
}
