//! The applications at both ends: they send what the plan specifies and compare what they read with it.

use smig_proto::{EndStream, Read};

use crate::mesh::link::Side;
use crate::mesh::plan::{Plan, content, first_wrong};
use crate::mesh::world::{World, nothing};

impl World {
    /// Sends the response head at the server.
    pub(crate) fn send_head(&mut self, at: usize) {
        let plan = self.talks[at].plan;
        let part = self.talks[at].part_at(Side::Server);
        if !part.is_alive() || part.head_sent {
            return;
        }
        for _ in 0..plan.informational {
            let hints = Plan::early_hints(at);
            let sent = self.on_stream(at, Side::Server, |s, key| s.send_informational(key, &hints));
            if let Some(Err(error)) = sent {
                self.doubt(at, Side::Server, error.to_string());
            }
        }
        let bare = plan.is_bare(Side::Server);
        let end = if bare { EndStream::Yes } else { EndStream::No };
        let head = plan.response(at);
        match self.on_stream(at, Side::Server, |s, key| s.send_response(key, &head, end)) {
            Some(Ok(())) => {
                let part = self.talks[at].part(Side::Server);
                (part.head_sent, part.finished) = (true, bare);
            }
            Some(Err(error)) => self.doubt(at, Side::Server, error.to_string()),
            None => {}
        }
    }

    /// Sends up to `bytes` bytes of an application's body, and the end after the last. Returns the amount of
    /// progress.
    pub(crate) fn write(&mut self, at: usize, side: Side, bytes: usize) -> usize {
        if side == Side::Server && !self.talks[at].part_at(side).head_sent {
            self.send_head(at);
        }
        let flow = self.talks[at].plan.flow_of(side);
        let part = self.talks[at].part_at(side);
        if !part.is_alive() || !part.head_sent || part.finished {
            return 0;
        }
        let (offset, left) = (part.queued, u64::from(flow.length) - part.queued);
        let room = if left == 0 {
            1
        } else {
            self.on_stream(at, side, |session, key| session.send_capacity(key)).unwrap_or(0)
        };
        self.talks[at].part(side).writable = room > 0;
        if room == 0 {
            return 0;
        }
        let bytes = bytes.min(room).min(usize::try_from(left).unwrap_or(usize::MAX)).min(60_000);
        let last = bytes as u64 == left;
        let data = content(at, side, offset, bytes);
        let end = if last && !flow.trailers { EndStream::Yes } else { EndStream::No };
        let sent = self.on_stream(at, side, |session, key| {
            let data = if bytes == 0 { nothing() } else { data };
            session.send_data(key, data, end)?;
            if last && flow.trailers {
                session.send_trailers(key, Plan::trailers(at, side))?;
            }
            Ok::<(), smig_proto::SendError>(())
        });
        if let Some(Err(error)) = sent {
            let server = self.talks[at].part_at(Side::Server);
            if side == Side::Client && (server.released || server.stopped) {
                // The response is complete and the server needs no more of the request.
                self.talks[at].part(side).finished = true;
                self.seen("whole response, rest of the request not wanted");
            } else {
                self.doubt(at, side, error.to_string());
            }
            return 1;
        }
        let part = self.talks[at].part(side);
        part.queued += bytes as u64;
        part.finished = last;
        bytes + 1
    }

    /// Reads up to `pieces` times. Returns the number of reads that made progress.
    pub(crate) fn read(&mut self, at: usize, side: Side, pieces: usize) -> usize {
        let mut got = 0;
        for _ in 0..pieces {
            let Some(read) = self.on_stream(at, side, |session, key| session.read(key)) else {
                break;
            };
            got += 1;
            match read {
                Read::Data(data) => self.on_data(at, side, &data),
                Read::Trailers(trailers) => {
                    let expected = Plan::trailers(at, side.other());
                    let part = self.talks[at].part(side);
                    if core::mem::replace(&mut part.trailers_got, true) || trailers != expected {
                        self.fault(format!("trailers of {at} at {side:?} twice or wrong"));
                    }
                }
                Read::End => {
                    self.on_end(at, side);
                    break;
                }
                Read::Pending => {
                    self.talks[at].part(side).readable = false;
                    break;
                }
                Read::Reset(error) => {
                    self.doubt(at, side, error.to_string());
                    break;
                }
            }
            if !self.faults.is_empty() {
                break;
            }
        }
        got
    }

    fn on_data(&mut self, at: usize, side: Side, data: &[u8]) {
        let part = self.talks[at].part(side);
        let offset = part.received;
        part.received += data.len() as u64;
        if let Some(wrong) = first_wrong(at, side.other(), offset, data) {
            self.fault(format!("exchange {at}: byte {wrong} is wrong at {side:?}"));
        }
        let sent = self.talks[at].part_at(side.other()).queued;
        let part = self.talks[at].part_at(side);
        if part.received > sent || part.ended || part.trailers_got || !part.head_got {
            self.fault(format!("exchange {at}: bytes behind the end, or before the head"));
        }
    }

    /// Handles the end of a body: the other application must have ended it there.
    fn on_end(&mut self, at: usize, side: Side) {
        let flow = self.talks[at].plan.flow_of(side.other());
        let peer = self.talks[at].part_at(side.other());
        let (queued, finished) = (peer.queued, peer.finished);
        let part = self.talks[at].part(side);
        part.ended = true;
        part.readable = false;
        let (received, trailers) = (part.received, part.trailers_got);
        if !finished || received != queued || trailers != flow.trailers {
            self.fault(format!(
                "exchange {at} ends at {side:?} after {received} of {queued} bytes \
                 (finished: {finished}, trailers: {trailers})"
            ));
        }
    }
}
