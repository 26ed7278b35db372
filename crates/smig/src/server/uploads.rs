//! Request bodies that come too slowly: a handler that waits for one holds memory and a place among
//! the open streams.
//!
//! Counts only while no response has begun: an exchange in both directions may rest as long as it
//! likes. So may tunnels, and gRPC's calls: a client that streams is not answered before its end.

use http::{HeaderMap, Request, Response, Version};
use http_body::Body;
use smig_proto::{ErrorCode, Instant};
use tower_service::Service;

use super::exchange::{RequestKind, Work};
use super::session::ServerSession;
use crate::deadlines::{Deadlines, Pace};
use crate::driver::{Slot, Turn};
use crate::error::BoxError;
use crate::grpc::is_grpc;
use crate::stream::{Feed, Incoming};

/// The pace that a request's body is held to, if it is.
pub(super) fn pace(
    deadlines: &Deadlines,
    kind: RequestKind,
    version: Version,
    headers: &HeaderMap,
    now: Instant,
) -> Option<Pace> {
    // There are no calls by HTTP/1.1, whatever a head says: its trailers are not theirs.
    let is_call = version == Version::HTTP_2 && is_grpc(headers);
    let is_free = kind == RequestKind::Connect || is_call;
    (!is_free).then(|| Pace::new(deadlines.body, now))
}

impl<S, B> ServerSession<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// A request with a body came.
    pub(super) fn expect_upload(&mut self, now: Instant) {
        if self.look_at_uploads.is_none() {
            self.look_at_uploads = Some(now + self.worker.shared.deadlines.body.tick());
        }
    }

    /// Resets uploads that have made no progress for too long.
    pub(super) fn check_uploads(&mut self, turn: &mut Turn<'_>) {
        if self.look_at_uploads.is_none_or(|at| turn.now < at) {
            return;
        }
        let tick = self.worker.shared.deadlines.body.tick();
        let (mut slow, mut waiting) = (Vec::new(), 0);
        for slot in (0..self.slots.places()).map(Slot) {
            let Some((exchange, _)) = self.slots.entry(slot) else { continue };
            let unanswered = matches!(*exchange.work, Work::Waiting { .. } | Work::Handler { .. });
            let Some(pace) = &mut exchange.pace else { continue };
            if exchange.inbound != Feed::Open || !unanswered {
                continue;
            }
            waiting += 1;
            let received = turn.session.stream(exchange.key).map_or(0, |view| view.received);
            let reads = exchange.shared.as_ref().is_some_and(|shared| shared.is_read());
            if !reads {
                pace.rest(turn.now, received);
            } else if pace.is_late(turn.now, received) {
                slow.push((slot, exchange.conn));
            }
        }
        self.look_at_uploads = (waiting > 0).then(|| turn.now + tick);
        for (slot, conn) in slow {
            let peer = turn.links.info(conn).map(|info| info.peer_addr());
            self.worker.shared.on_limit("slow request body", peer);
            self.abort(turn, slot, ErrorCode::Cancel);
        }
    }
}
