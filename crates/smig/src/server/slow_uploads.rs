//! Time limit for slow request bodies: a handler that waits for one holds memory and a place among the open
//! streams.
//!
//! Applies only before the response begins: an exchange in both directions may idle. So may tunnels and gRPC
//! calls: the server answers a streaming client only at the end of its stream.

use http::{HeaderMap, Version};
use smig_proto::{ErrorCode, Instant};

use super::exchange::{RequestKind, Work};
use super::service::{HttpService, ResponseBody};
use super::session::ServerSession;
use crate::deadlines::{ProgressClock, TimeLimits};
use crate::driver::TurnCx;
use crate::grpc::is_grpc;
use crate::mailbox::Slot;
use crate::stream::BodyRecvState;

/// Returns the stall clock for a request's body, unless the body may idle.
pub(super) fn upload_clock(
    time_limits: &TimeLimits,
    kind: RequestKind,
    version: Version,
    headers: &HeaderMap,
    now: Instant,
) -> Option<ProgressClock> {
    // gRPC is not used over HTTP/1.1, whatever the head says: its trailers are not available there.
    let is_grpc_call = version == Version::HTTP_2 && is_grpc(headers);
    let may_idle = kind == RequestKind::Connect || is_grpc_call;
    (!may_idle).then(|| ProgressClock::new(time_limits.body, now))
}

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    /// Schedules the check for a request with a body.
    pub(super) fn schedule_upload_check(&mut self, now: Instant) {
        if self.next_upload_check.is_none() {
            self.next_upload_check = Some(now + self.worker.shared.time_limits.body.tick());
        }
    }

    /// Resets streams whose request body has made too little progress.
    pub(super) fn reset_slow_uploads(&mut self, turn: &mut TurnCx<'_>) {
        if self.next_upload_check.is_none_or(|at| turn.now < at) {
            return;
        }
        let tick = self.worker.shared.time_limits.body.tick();
        let (mut slow_streams, mut waiting_count) = (Vec::new(), 0);
        for slot in (0..self.slots.capacity()).map(Slot) {
            let Some((exchange, _)) = self.slots.entry(slot) else { continue };
            let is_unanswered =
                matches!(*exchange.work, Work::Waiting { .. } | Work::Handler { .. });
            let Some(progress) = &mut exchange.upload_clock else { continue };
            if exchange.recv_state != BodyRecvState::Open || !is_unanswered {
                continue;
            }
            waiting_count += 1;
            let received = turn.session.stream(exchange.key).map_or(0, |view| view.received_bytes);
            let is_read =
                exchange.shared.as_ref().is_some_and(|shared| shared.has_waiting_reader());
            if !is_read {
                progress.restart(turn.now, received);
            } else if progress.is_late(turn.now, received) {
                slow_streams.push((slot, exchange.conn));
            }
        }
        self.next_upload_check = (waiting_count > 0).then(|| turn.now + tick);
        for (slot, conn) in slow_streams {
            let peer = turn.conns.info(conn).map(|info| info.peer_addr());
            self.worker.shared.on_limit_hit("slow request body", peer);
            self.abort(turn, slot, ErrorCode::Cancel);
        }
    }
}
