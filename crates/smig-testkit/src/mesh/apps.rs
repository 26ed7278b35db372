//! The applications at both ends: they send what the plan specifies and compare what they read with it.

use smig_proto::{EndStream, ReadResult};

use crate::mesh::link::Side;
use crate::mesh::plan::{Plan, content, first_mismatch};
use crate::mesh::world::{World, empty_chunk};

impl World {
    /// Sends the response head at the server.
    pub(crate) fn send_head(&mut self, at: usize) {
        let plan = self.exchanges[at].plan;
        let model = self.exchanges[at].side(Side::Server);
        if !model.is_alive() || model.head_sent {
            return;
        }
        for _ in 0..plan.informational {
            let hints = Plan::early_hints(at);
            let sent = self.on_stream(at, Side::Server, |s, key| s.send_informational(key, &hints));
            if let Some(Err(error)) = sent {
                self.expect_end_event(at, Side::Server, error.to_string());
            }
        }
        let is_head_only = plan.is_head_only(Side::Server);
        let end = if is_head_only { EndStream::Yes } else { EndStream::No };
        let head = plan.response(at);
        match self.on_stream(at, Side::Server, |s, key| s.send_response(key, &head, end)) {
            Some(Ok(())) => {
                let model = self.exchanges[at].side_mut(Side::Server);
                (model.head_sent, model.end_sent) = (true, is_head_only);
            }
            Some(Err(error)) => self.expect_end_event(at, Side::Server, error.to_string()),
            None => {}
        }
    }

    /// Sends up to `bytes` bytes of an application's body, and its end after the last byte. Returns
    /// 0 if there was nothing to do.
    pub(crate) fn write(&mut self, at: usize, side: Side, bytes: usize) -> usize {
        if side == Side::Server && !self.exchanges[at].side(side).head_sent {
            self.send_head(at);
        }
        let body = self.exchanges[at].plan.body_of(side);
        let model = self.exchanges[at].side(side);
        if !model.is_alive() || !model.head_sent || model.end_sent {
            return 0;
        }
        let (offset, remaining) = (model.queued, u64::from(body.length) - model.queued);
        let capacity = if remaining == 0 {
            1
        } else {
            self.on_stream(at, side, |session, key| session.send_capacity(key)).unwrap_or(0)
        };
        self.exchanges[at].side_mut(side).writable = capacity > 0;
        if capacity == 0 {
            return 0;
        }
        let bytes =
            bytes.min(capacity).min(usize::try_from(remaining).unwrap_or(usize::MAX)).min(60_000);
        let last = bytes as u64 == remaining;
        let data = content(at, side, offset, bytes);
        let end = if last && !body.trailers { EndStream::Yes } else { EndStream::No };
        let sent = self.on_stream(at, side, |session, key| {
            let data = if bytes == 0 { empty_chunk() } else { data };
            session.send_data(key, data, end)?;
            if last && body.trailers {
                session.send_trailers(key, Plan::trailers(at, side))?;
            }
            Ok::<(), smig_proto::SendError>(())
        });
        if let Some(Err(error)) = sent {
            let server = self.exchanges[at].side(Side::Server);
            if side == Side::Client && (server.released || server.upload_stopped) {
                // The response is complete and the server needs no more of the request.
                self.exchanges[at].side_mut(side).end_sent = true;
                self.add_case("complete response, rest of the request not needed");
            } else {
                self.expect_end_event(at, side, error.to_string());
            }
            return 1;
        }
        let model = self.exchanges[at].side_mut(side);
        model.queued += bytes as u64;
        model.end_sent = last;
        bytes + 1
    }

    /// Reads up to `max_chunks` times. Returns the number of reads that made progress.
    pub(crate) fn read(&mut self, at: usize, side: Side, max_chunks: usize) -> usize {
        let mut reads = 0;
        for _ in 0..max_chunks {
            let Some(read) = self.on_stream(at, side, |session, key| session.read(key)) else {
                break;
            };
            reads += 1;
            match read {
                ReadResult::Data(data) => self.on_data(at, side, &data),
                ReadResult::Trailers(trailers) => {
                    let expected = Plan::trailers(at, side.other());
                    let model = self.exchanges[at].side_mut(side);
                    if core::mem::replace(&mut model.trailers_received, true)
                        || trailers != expected
                    {
                        self.report_fault(format!("trailers of {at} at {side:?} twice or wrong"));
                    }
                }
                ReadResult::End => {
                    self.on_end(at, side);
                    break;
                }
                ReadResult::Pending => {
                    self.exchanges[at].side_mut(side).readable = false;
                    break;
                }
                ReadResult::Reset(error) => {
                    self.expect_end_event(at, side, error.to_string());
                    break;
                }
            }
            if !self.faults.is_empty() {
                break;
            }
        }
        reads
    }

    fn on_data(&mut self, at: usize, side: Side, data: &[u8]) {
        let model = self.exchanges[at].side_mut(side);
        let offset = model.received;
        model.received += data.len() as u64;
        if let Some(mismatch) = first_mismatch(at, side.other(), offset, data) {
            self.report_fault(format!("exchange {at}: byte {mismatch} is wrong at {side:?}"));
        }
        let sent = self.exchanges[at].side(side.other()).queued;
        let model = self.exchanges[at].side(side);
        if model.received > sent
            || model.end_received
            || model.trailers_received
            || !model.head_received
        {
            self.report_fault(format!("exchange {at}: bytes after the end, or before the head"));
        }
    }

    /// Handles the end of a body: the other application must have ended it there.
    fn on_end(&mut self, at: usize, side: Side) {
        let body = self.exchanges[at].plan.body_of(side.other());
        let peer = self.exchanges[at].side(side.other());
        let (queued, finished) = (peer.queued, peer.end_sent);
        let model = self.exchanges[at].side_mut(side);
        model.end_received = true;
        model.readable = false;
        let (received, trailers) = (model.received, model.trailers_received);
        if !finished || received != queued || trailers != body.trailers {
            self.report_fault(format!(
                "exchange {at} ends at {side:?} after {received} of {queued} bytes \
                 (finished: {finished}, trailers: {trailers})"
            ));
        }
    }
}
