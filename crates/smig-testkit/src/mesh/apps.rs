//! The applications at both ends: they send what the plan specifies and compare what they read with it.

use smig_proto::{EndStream, ReadResult};

use crate::mesh::link::Side;
use crate::mesh::plan::{Plan, content, first_mismatch};
use crate::mesh::world::{World, empty_chunk};

impl World {
    /// Sends the response head at the server.
    pub(crate) fn send_head(&mut self, number: usize) {
        let plan = self.exchanges[number].plan;
        let model = self.exchanges[number].side(Side::Server);
        if !model.is_alive() || model.head_sent {
            return;
        }
        for _ in 0..plan.informational_count {
            let hints = Plan::early_hints(number);
            let result =
                self.with_stream(number, Side::Server, |s, key| s.send_informational(key, &hints));
            if let Some(Err(error)) = result {
                self.expect_end_event(number, Side::Server, error.to_string());
            }
        }
        let is_head_only = plan.is_head_only(Side::Server);
        let end = if is_head_only { EndStream::Yes } else { EndStream::No };
        let head = plan.response(number);
        match self.with_stream(number, Side::Server, |s, key| s.send_response(key, &head, end)) {
            Some(Ok(())) => {
                let model = self.exchanges[number].side_mut(Side::Server);
                (model.head_sent, model.end_sent) = (true, is_head_only);
            }
            Some(Err(error)) => self.expect_end_event(number, Side::Server, error.to_string()),
            None => {}
        }
    }

    /// Sends up to `bytes` bytes of an application's body, and its end after the last byte. Returns
    /// 0 if there was nothing to do.
    pub(crate) fn write(&mut self, number: usize, side: Side, bytes: usize) -> usize {
        if side == Side::Server && !self.exchanges[number].side(side).head_sent {
            self.send_head(number);
        }
        let body = self.exchanges[number].plan.body_of(side);
        let model = self.exchanges[number].side(side);
        if !model.is_alive() || !model.head_sent || model.end_sent {
            return 0;
        }
        let (offset, remaining) = (model.sent_bytes, u64::from(body.length) - model.sent_bytes);
        let capacity = if remaining == 0 {
            1
        } else {
            self.with_stream(number, side, |session, key| session.send_capacity(key)).unwrap_or(0)
        };
        self.exchanges[number].side_mut(side).is_writable = capacity > 0;
        if capacity == 0 {
            return 0;
        }
        let bytes =
            bytes.min(capacity).min(usize::try_from(remaining).unwrap_or(usize::MAX)).min(60_000);
        let is_last = bytes as u64 == remaining;
        let data = content(number, side, offset, bytes);
        let end = if is_last && !body.has_trailers { EndStream::Yes } else { EndStream::No };
        let result = self.with_stream(number, side, |session, key| {
            let data = if bytes == 0 { empty_chunk() } else { data };
            session.send_data(key, data, end)?;
            if is_last && body.has_trailers {
                session.send_trailers(key, Plan::trailers(number, side))?;
            }
            Ok::<(), smig_proto::SendError>(())
        });
        if let Some(Err(error)) = result {
            let server = self.exchanges[number].side(Side::Server);
            if side == Side::Client && (server.is_released || server.upload_stopped) {
                // The response is complete and the server needs no more of the request.
                self.exchanges[number].side_mut(side).end_sent = true;
                self.add_case("complete response, rest of the request not needed");
            } else {
                self.expect_end_event(number, side, error.to_string());
            }
            return 1;
        }
        let model = self.exchanges[number].side_mut(side);
        model.sent_bytes += bytes as u64;
        model.end_sent = is_last;
        bytes + 1
    }

    /// Reads up to `max_chunks` times. Returns the number of reads, including one
    /// that found nothing.
    pub(crate) fn read(&mut self, number: usize, side: Side, max_chunks: usize) -> usize {
        let mut reads = 0;
        for _ in 0..max_chunks {
            let Some(result) = self.with_stream(number, side, |session, key| session.read(key))
            else {
                break;
            };
            reads += 1;
            match result {
                ReadResult::Data(data) => self.on_data(number, side, &data),
                ReadResult::Trailers(trailers) => {
                    let expected = Plan::trailers(number, side.other());
                    let model = self.exchanges[number].side_mut(side);
                    if core::mem::replace(&mut model.trailers_received, true)
                        || trailers != expected
                    {
                        self.report_violation(format!(
                            "trailers of {number} at {side:?} twice or wrong"
                        ));
                    }
                }
                ReadResult::End => {
                    self.on_end(number, side);
                    break;
                }
                ReadResult::Pending => {
                    self.exchanges[number].side_mut(side).is_readable = false;
                    break;
                }
                ReadResult::Failed(error) => {
                    self.expect_end_event(number, side, error.to_string());
                    break;
                }
            }
            if !self.violations.is_empty() {
                break;
            }
        }
        reads
    }

    fn on_data(&mut self, number: usize, side: Side, data: &[u8]) {
        let model = self.exchanges[number].side_mut(side);
        let offset = model.received_bytes;
        model.received_bytes += data.len() as u64;
        if let Some(mismatch) = first_mismatch(number, side.other(), offset, data) {
            self.report_violation(format!(
                "exchange {number}: byte {mismatch} is wrong at {side:?}"
            ));
        }
        let sent_bytes = self.exchanges[number].side(side.other()).sent_bytes;
        let model = self.exchanges[number].side(side);
        if model.received_bytes > sent_bytes
            || model.end_received
            || model.trailers_received
            || !model.head_received
        {
            self.report_violation(format!(
                "exchange {number}: bytes after the end, or before the head"
            ));
        }
    }

    /// Handles the end of a body: the other application must have ended it there.
    fn on_end(&mut self, number: usize, side: Side) {
        let body = self.exchanges[number].plan.body_of(side.other());
        let peer = self.exchanges[number].side(side.other());
        let (sent_bytes, peer_end_sent) = (peer.sent_bytes, peer.end_sent);
        let model = self.exchanges[number].side_mut(side);
        model.end_received = true;
        model.is_readable = false;
        let (received, trailers_received) = (model.received_bytes, model.trailers_received);
        if !peer_end_sent || received != sent_bytes || trailers_received != body.has_trailers {
            self.report_violation(format!(
                "exchange {number} ends at {side:?} after {received} of {sent_bytes} bytes \
                 (finished: {peer_end_sent}, trailers: {trailers_received})"
            ));
        }
    }
}
