//! The rest of a response's body, from the answer to a range request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::{Body as _, Frame};

use super::incoming::Incoming;
use crate::error::Error;

/// Bytes of a body that another response carries: exactly those that are missing.
#[derive(Debug)]
pub(crate) struct BodyRest {
    body: Incoming,
    /// Bytes at its start that have arrived already.
    skip_bytes: u64,
    remaining_bytes: u64,
}

impl BodyRest {
    /// `body` repeats `skip_bytes` bytes, and has `remaining_bytes` more.
    pub(crate) const fn new(body: Incoming, skip_bytes: u64, remaining_bytes: u64) -> Self {
        Self { body, skip_bytes, remaining_bytes }
    }

    pub(super) const fn remaining_bytes(&self) -> u64 {
        self.remaining_bytes
    }

    pub(super) fn is_end(&self) -> bool {
        self.remaining_bytes == 0 && self.body.is_end_stream()
    }

    /// Polls for the next data. Trailers of the part are not passed on: they are not those of the whole.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None if self.remaining_bytes == 0 => return Poll::Ready(None),
                None => return self.fail(io::ErrorKind::UnexpectedEof, "the rest is too short"),
            };
            let Ok(mut data) = frame.into_data() else { continue };
            let repeated = self.skip_bytes.min(data.len() as u64);
            self.skip_bytes -= repeated;
            data.advance(repeated as usize);
            if data.len() as u64 > self.remaining_bytes {
                return self.fail(io::ErrorKind::InvalidData, "the rest is too long");
            }
            self.remaining_bytes -= data.len() as u64;
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }

    /// Fails the body, once.
    fn fail(
        &mut self,
        kind: io::ErrorKind,
        why: &'static str,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.body = Incoming::empty();
        self.remaining_bytes = 0;
        Poll::Ready(Some(Err(Error::io("range continuation", io::Error::new(kind, why)))))
    }
}
