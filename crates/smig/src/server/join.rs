//! A connection that names an existing session: looked up in the registry, passed to the session's worker
//! with its socket and TLS state, verified there (spec/smig.md section 4).
//!
//! A refused connection returns to the session that it comes from, which waits for it: it is served
//! where it was accepted.

use std::sync::Arc;

use smig_proto::{Cid, ConnId, DetachedConnection, JoinRefusal, OutputBuffer, Session};

use super::service::{HttpService, ResponseBody};
use super::session::{Command, ServerSession};
use super::worker;
use crate::connection::ConnectionInfo;
use crate::driver::{DetachedConn, TurnCx};
use crate::entropy;
use crate::mailbox::Mailbox;
use crate::observer::ObserverEvent;
use crate::throttled;
use crate::transport::DetachedTransport;

/// A connection in transit to another session, possibly on another thread, or back.
#[derive(Debug)]
pub(crate) struct JoinHandover {
    detached: DetachedConnection,
    transport: DetachedTransport,
    info: Arc<ConnectionInfo>,
    output: OutputBuffer,
    origin: JoinOrigin,
}

/// The session that a connection comes from; notified on drop that the JOIN is decided.
#[derive(Debug)]
struct JoinOrigin(Arc<Mailbox<Command>>);

impl Drop for JoinOrigin {
    fn drop(&mut self) {
        // A closed mailbox belongs to a session that was dropped.
        drop(self.0.send(Command::JoinDecided));
    }
}

impl JoinHandover {
    /// Returns a refused connection to its session. If that was dropped, the connection is closed.
    pub(super) fn return_to_origin(self: Box<Self>, refusal: JoinRefusal) {
        let origin = Arc::clone(&self.origin.0);
        drop(origin.send(Command::JoinRefused(self, refusal)));
    }
}

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    /// Handles a JOIN of this session's connection to another session.
    pub(super) fn on_join_requested(&mut self, turn: &mut TurnCx<'_>, conn: ConnId, cid: Cid) {
        let owner = self.worker.shared.registry.find(cid.app).filter(|owner| !owner.is_closed());
        // If the AppID is that of this connection's own session, no other session can be meant.
        let Some(owner) = owner.filter(|owner| !Arc::ptr_eq(owner, &self.mailbox)) else {
            return self.refuse_join(turn, conn, JoinRefusal::UnknownSession);
        };
        // The same input may have closed the connection: then nobody waits for an answer.
        let Some(detached) = turn.session.detach(conn) else { return };
        let Some(conn) = turn.conns.remove(conn) else { return };
        let DetachedConn { transport, info, output } = conn;
        let transport = match transport.detach() {
            Ok(transport) => transport,
            Err(error) => {
                return throttled!(warn, "join", %error, "joining connection lost");
            }
        };
        self.undecided_joins += 1;
        let origin = JoinOrigin(Arc::clone(&self.mailbox));
        let handover = Box::new(JoinHandover { detached, transport, info, output, origin });
        if let Err(Command::Join(handover)) = owner.send(Command::Join(handover)) {
            // The session ended in between.
            self.adopt_refused(turn, *handover, JoinRefusal::UnknownSession);
        }
    }

    /// Refuses the JOIN of a connection that stays in this session.
    fn refuse_join(&self, turn: &mut TurnCx<'_>, conn: ConnId, refusal: JoinRefusal) {
        if turn.session.refuse_join(turn.now, conn, refusal) {
            self.note_join_refused(turn.conns.info(conn), refusal);
        }
    }

    fn note_join_refused(&self, info: Option<&Arc<ConnectionInfo>>, refusal: JoinRefusal) {
        let peer = info.map(|info| info.peer_addr());
        throttled!(info, refusal.as_str(), %refusal, ?peer, "JOIN refused");
        let events = &self.worker.shared.events;
        let addrs = info.and_then(|info| events.addrs(|| Some(info.addrs())));
        events.on_event(&ObserverEvent::JoinRefused { addrs });
    }

    /// Handles a connection that requests to join this session.
    pub(super) fn on_join(&mut self, turn: &mut TurnCx<'_>, handover: JoinHandover) {
        let JoinHandover { detached, transport, info, output, origin } = handover;
        let transport = match transport.attach() {
            Ok(transport) => transport,
            Err(error) => {
                return throttled!(warn, "join", %error, "joining connection lost");
            }
        };
        let material = match transport.keying_material(&detached.exporter_request()) {
            Ok(exporter) => exporter,
            Err(error) => {
                return throttled!(warn, "join", %error, "joining connection has no TLS exporter");
            }
        };
        match turn.session.verify_join(&detached, material) {
            Ok(proof) => {
                let id = turn.session.attach(turn.now, detached, &proof, entropy::nonce());
                let events = &self.worker.shared.events;
                let addrs = events.addrs(|| Some(info.addrs()));
                turn.conns.insert(id, DetachedConn { transport, info, output });
                events.on_event(&ObserverEvent::Joined { conn: id, addrs });
                tracing::debug!(conn = %id, "connection joined");
            }
            Err(refusal) => match transport.detach() {
                Ok(transport) => {
                    let refused = JoinHandover { detached, transport, info, output, origin };
                    Box::new(refused).return_to_origin(refusal);
                }
                Err(error) => throttled!(warn, "join", %error, "joining connection lost"),
            },
        }
    }

    /// Starts a new session with a connection that the other session refused.
    pub(super) fn adopt_refused(
        &self,
        turn: &TurnCx<'_>,
        handover: JoinHandover,
        refusal: JoinRefusal,
    ) {
        let JoinHandover { detached, transport, info, output, origin: _ } = handover;
        let transport = match transport.attach() {
            Ok(transport) => transport,
            Err(error) => {
                return throttled!(warn, "join", %error, "joining connection lost");
            }
        };
        self.note_join_refused(Some(&info), refusal);
        let engine_config = Arc::clone(&self.worker.shared.engine_config);
        let (session, id) = Session::adopt(engine_config, turn.now, detached, refusal);
        worker::spawn_session(&self.worker, session, |_, conns| {
            conns.insert(id, DetachedConn { transport, info, output });
        });
    }
}
