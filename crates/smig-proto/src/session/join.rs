//! Joins connections to a session, with a proof (spec/smig.md sections 3 and 4).
//!
//! Owns the session key. Only [`Session::verify_join`] creates a [`JoinProof`], and
//! [`Session::attach`] requires one. Never sends the key over TLS.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::config::{Config, MAX_CONNECTIONS};
use crate::conn::{
    ConnState, Connection, Identity, JoinPermission, Membership, Security, UndecidedJoin,
};
use crate::error::{Cause, InputError};
use crate::ids::{AppId, Cid, ConnId, Side, StreamId};
use crate::invariant::DebugExpect;
use crate::session::{Event, Session};
use crate::time::Instant;
use crate::wire::{self, Join, JoinRefusal};

/// The session key K (SMIG-3.7/session-key). `Debug` does not print it.
#[derive(Clone)]
pub(crate) struct SessionKey([u8; 32]);

impl core::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

/// Keying material that the driver must supply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyingRequest {
    /// Output of the TLS exporter with this label and context, 32 bytes (RFC 8446 section 7.5).
    Exporter {
        /// The label.
        label: &'static str,
        /// The context.
        context: Vec<u8>,
    },
    /// 32 fresh random bytes (trusted cleartext, client; SMIG-3.9/cleartext-key).
    Random,
    /// 32 zero bytes (joins on trusted cleartext).
    Zero,
}

impl KeyingRequest {
    pub(crate) fn session(app: AppId) -> Self {
        Self::Exporter { label: "EXPORTER-smig-session", context: app.to_bytes().to_vec() }
    }

    pub(crate) fn join(cid: Cid, security: Security) -> Self {
        match security {
            Security::Tls13 => {
                Self::Exporter { label: "EXPORTER-smig-join", context: cid.to_bytes().to_vec() }
            }
            Security::TrustedCleartext | Security::Ineligible => Self::Zero,
        }
    }
}

/// Proof that a connection may join this session. Only [`Session::verify_join`] creates it.
#[derive(Debug)]
pub struct JoinProof {
    cid: Cid,
    nonce: [u8; 16],
    exporter: [u8; 32],
}

/// A connection that was removed from one session, to be joined to another.
#[derive(Debug)]
pub struct DetachedConnection {
    conn: Box<Connection>,
    cid: Cid,
    join: Box<UndecidedJoin>,
}

impl DetachedConnection {
    /// Returns the CID that the connection claims.
    #[must_use]
    pub const fn cid(&self) -> Cid {
        self.cid
    }

    /// Returns what the driver must export from the connection's TLS for [`Session::verify_join`].
    #[must_use]
    pub fn exporter_request(&self) -> KeyingRequest {
        KeyingRequest::join(self.cid, self.conn.spec.security)
    }

    /// Returns the connection's identity.
    #[must_use]
    pub const fn identity(&self) -> Identity {
        self.conn.spec.identity
    }
}

fn hmac_with_key(key: &SessionKey) -> Hmac<Sha256> {
    // HMAC accepts keys of any length, so this does not fail.
    match Hmac::<Sha256>::new_from_slice(&key.0) {
        Ok(mac) => mac,
        Err(_) => Hmac::<Sha256>::new(&[0; 64].into()),
    }
}

fn client_mac(key: &SessionKey, cid: Cid, nonce: [u8; 16], exporter: [u8; 32]) -> [u8; 32] {
    let mac = hmac_with_key(key).chain_update(b"smig client").chain_update(cid.to_bytes());
    mac.chain_update(nonce).chain_update(exporter).finalize().into_bytes().into()
}

fn server_mac(
    key: &SessionKey,
    cid: Cid,
    nonces: ([u8; 16], [u8; 16]),
    exporter: [u8; 32],
) -> [u8; 32] {
    let mac = hmac_with_key(key).chain_update(b"smig server").chain_update(cid.to_bytes());
    let mac = mac.chain_update(nonces.0).chain_update(nonces.1);
    mac.chain_update(exporter).finalize().into_bytes().into()
}

impl Session {
    /// Supplies the material that [`Event::KeyingMaterialNeeded`] requested. `nonce` is 16 fresh
    /// random bytes.
    pub fn handle_keying_material(&mut self, conn_id: ConnId, material: [u8; 32], nonce: [u8; 16]) {
        let code_points =
            self.config.smig.as_ref().map(|smig| smig.code_points).unwrap_or_default();
        let (side, key, window) =
            (self.side, self.session_key.clone(), self.config.connection_window);
        let Some(conn) = self.conns.find_live_mut(conn_id) else { return };
        let Some(cid) = conn.cid else { return };
        match conn.membership {
            Membership::KeyingFounder => {
                if conn.spec.security == Security::TrustedCleartext && side == Side::Client {
                    let (first, rest) = material.split_at(16);
                    let mut join = ([0; 16], [0; 32]);
                    join.0.copy_from_slice(first);
                    join.1[..16].copy_from_slice(rest);
                    let proof = Join::Proof { nonce: join.0, mac: join.1 };
                    wire::write_join(&mut conn.control_queue.frames, &code_points, proof);
                    conn.membership = Membership::Joining { nonce: join.0, exporter: [0; 32] };
                    conn.announce_window(window);
                    self.session_key = Some(SessionKey(material));
                    return;
                }
                conn.membership = Membership::Joined;
                self.session_key = Some(SessionKey(material));
                self.record_conn_number(cid);
                self.events.push_back(Event::SessionEstablished { conn: conn_id, app: cid.app });
            }
            Membership::KeyingJoin => {
                let Some(key) = key.debug_expect("a join starts only when the key is known") else {
                    return;
                };
                let mac = client_mac(&key, cid, nonce, material);
                wire::write_join(
                    &mut conn.control_queue.frames,
                    &code_points,
                    Join::Proof { nonce, mac },
                );
                conn.membership = Membership::Joining { nonce, exporter: material };
                conn.announce_window(window);
            }
            Membership::NotMember
            | Membership::Joining { .. }
            | Membership::Joined
            | Membership::Former
            | Membership::JoiningFormer => {}
        }
    }

    /// Server: marks a ConnNo as used (SMIG-4.6/refusal-reasons).
    fn record_conn_number(&mut self, cid: Cid) {
        if self.side == Side::Server {
            self.conn_numbers.record_joined(cid.number);
        }
    }

    pub(crate) fn on_join(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        join: Join,
    ) -> Result<(), InputError> {
        match (join, self.side) {
            (Join::Proof { nonce, mac }, Side::Server) => self.on_join_proof(conn_id, nonce, mac),
            (Join::Ack { nonce, mac }, Side::Client) => self.on_join_ack(now, conn_id, nonce, mac),
            (Join::Refused(reason), Side::Client) => self.on_join_refused(now, conn_id, reason),
            (Join::Proof { .. }, Side::Client)
            | (Join::Ack { .. } | Join::Refused(_), Side::Server) => {
                Err(Cause::UnexpectedJoin.into())
            }
        }
    }

    fn on_join_proof(
        &mut self,
        conn_id: ConnId,
        nonce: [u8; 16],
        mac: [u8; 32],
    ) -> Result<(), InputError> {
        self.count_reply(conn_id)?;
        let is_only_connection = self.conns.len() == 1;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        let Some(cid) = conn.cid else { return Err(Cause::BadCid.into()) };
        // JOIN must precede every stream (SMIG-4.2/join-first), and a connection that others have
        // joined cannot join.
        let is_late =
            conn.peer_ids.highest_used() > StreamId::CONNECTION || conn.unbound_carriers.len() > 0;
        if is_late || !is_only_connection || conn.join_permission == JoinPermission::Forbidden {
            return Err(Cause::UnexpectedJoin.into());
        }
        let (_, unused) = mac.split_at(16);
        if conn.spec.security == Security::TrustedCleartext && unused.iter().all(|&b| b == 0) {
            return self.establish_on_cleartext(conn_id, cid, nonce, mac);
        }
        conn.state = ConnState::JoinPending(Box::new(UndecidedJoin { nonce, mac }));
        self.events.push_back(Event::JoinRequested { conn: conn_id, cid });
        Ok(())
    }

    /// Handles the JOIN that transmits K on the first cleartext connection
    /// (SMIG-3.9/cleartext-key).
    fn establish_on_cleartext(
        &mut self,
        conn_id: ConnId,
        cid: Cid,
        nonce: [u8; 16],
        mac: [u8; 32],
    ) -> Result<(), InputError> {
        let mut key = [0; 32];
        let (first, rest) = key.split_at_mut(16);
        first.copy_from_slice(&nonce);
        rest.copy_from_slice(mac.split_at(16).0);
        let key = SessionKey(key);
        let code_points =
            self.config.smig.as_ref().map(|smig| smig.code_points).unwrap_or_default();
        let server_nonce = derive_nonce(nonce);
        let ack_mac = server_mac(&key, cid, (nonce, server_nonce), [0; 32]);
        if let Some(conn) = self.conns.find_known_mut(conn_id) {
            wire::write_join(
                &mut conn.control_queue.frames,
                &code_points,
                Join::Ack { nonce: server_nonce, mac: ack_mac },
            );
            conn.membership = Membership::Joined;
            conn.join_permission = JoinPermission::Forbidden;
        }
        self.session_key = Some(key);
        self.record_conn_number(cid);
        self.events.push_back(Event::SessionEstablished { conn: conn_id, app: cid.app });
        Ok(())
    }

    fn on_join_ack(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        server_nonce: [u8; 16],
        mac: [u8; 32],
    ) -> Result<(), InputError> {
        let key = self.session_key.clone();
        let founded = self.conns.iter().any(|conn| conn.is_joined());
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        if conn.membership == Membership::JoiningFormer {
            conn.membership = Membership::Former;
            // The server keeps what it sends there.
            let is_kept = conn.peer_settings.linger_seconds > 0;
            if let Some(receipts) = &mut conn.receipts {
                receipts.is_on = is_kept;
            }
            return Ok(());
        }
        let (Membership::Joining { nonce, exporter }, Some(key), Some(cid)) =
            (conn.membership, key, conn.cid)
        else {
            return Err(Cause::UnexpectedJoin.into());
        };
        let expected = server_mac(&key, cid, (nonce, server_nonce), exporter);
        if !bool::from(expected.ct_eq(&mac)) {
            return Err(Cause::BadServerProof.into());
        }
        conn.membership = Membership::Joined;
        let event = if founded {
            Event::Joined { conn: conn_id }
        } else {
            Event::SessionEstablished { conn: conn_id, app: cid.app }
        };
        self.events.push_back(event);
        self.process_deferred_migrates(now, conn_id);
        self.on_joined(conn_id);
        Ok(())
    }

    fn on_join_refused(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        reason: JoinRefusal,
    ) -> Result<(), InputError> {
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        if !matches!(conn.membership, Membership::Joining { .. } | Membership::JoiningFormer) {
            return Err(Cause::UnexpectedJoin.into());
        }
        conn.membership = Membership::NotMember;
        // The JOIN of a cleartext founder must precede every stream (SMIG-4.8/new-session).
        let is_late = conn.spec.security == Security::TrustedCleartext
            && conn.local_ids.highest_used() > StreamId::CONNECTION;
        let cid = conn.cid.filter(|_| !is_late);
        self.make_unresumable(conn_id);
        self.events.push_back(Event::JoinRefused { conn: conn_id, reason });
        self.process_deferred_migrates(now, conn_id);
        if let (JoinRefusal::UnknownSession, Some(cid)) = (reason, cid) {
            // The server has forgotten the session: this connection founds a new one, and streams
            // cannot move from or to the old connections (SMIG-4.8/new-session).
            self.restart_resumption();
            for conn in self.conns.iter_mut().filter(|conn| conn.id != conn_id) {
                conn.membership = match conn.membership {
                    Membership::Joined | Membership::Former => Membership::Former,
                    Membership::Joining { .. } | Membership::JoiningFormer => {
                        Membership::JoiningFormer
                    }
                    Membership::NotMember | Membership::KeyingFounder | Membership::KeyingJoin => {
                        Membership::NotMember
                    }
                };
            }
            let conn_ids: Vec<_> = self.conns.iter().map(|conn| conn.id).collect();
            for conn_id in conn_ids {
                self.process_deferred_migrates(now, conn_id);
            }
            self.negotiate_resumption(conn_id);
            self.begin_founding(conn_id, cid);
            self.arm_tick(now);
        }
        Ok(())
    }

    /// Server: refuses a JOIN. After [`JoinRefusal::UnknownSession`] the connection founds its own
    /// session; otherwise it is an ordinary HTTP/2 connection.
    ///
    /// Returns false if no JOIN is undecided there, as after the end of the connection: then
    /// nothing is answered.
    pub fn refuse_join(&mut self, now: Instant, conn_id: ConnId, reason: JoinRefusal) -> bool {
        let code_points =
            self.config.smig.as_ref().map(|smig| smig.code_points).unwrap_or_default();
        let Some(conn) = self.conns.find_mut(conn_id) else { return false };
        if !matches!(conn.state, ConnState::JoinPending(_)) {
            return false;
        }
        conn.state = ConnState::Open;
        wire::write_join(&mut conn.control_queue.frames, &code_points, Join::Refused(reason));
        conn.abuse.refused_joins += 1;
        if conn.abuse.refused_joins >= 3 {
            self.fail_connection(now, conn_id, Cause::TooManyJoins);
            return true;
        }
        if reason != JoinRefusal::UnknownSession {
            conn.membership = Membership::NotMember;
            self.session_key = None;
            self.make_unresumable(conn_id);
        } else if conn.spec.security == Security::Tls13 {
            // In cleartext, another JOIN transmits the key.
            conn.join_permission = JoinPermission::Forbidden;
        }
        true
    }

    /// Server: removes a connection with an undecided JOIN from the session, so that the driver can
    /// pass it, with its transport, to the session that it requests to join. Returns `None` if no
    /// JOIN is undecided there.
    pub fn detach(&mut self, conn_id: ConnId) -> Option<DetachedConnection> {
        let conn = self.conns.find(conn_id)?;
        let ConnState::JoinPending(join) = &conn.state else { return None };
        let (cid, join) = (conn.cid?, join.clone());
        let conn = Box::new(self.conns.remove(conn_id)?);
        Some(DetachedConnection { conn, cid, join })
    }

    /// Server: verifies the JOIN of a connection that requests to join this session
    /// (SMIG-4.5/same-identity, SMIG-4.6/refusal-reasons). `exporter` is the material for
    /// [`DetachedConnection::exporter_request`].
    ///
    /// # Errors
    ///
    /// Returns the reason for the refusal, for [`Session::adopt`].
    pub fn verify_join(
        &self,
        detached: &DetachedConnection,
        exporter: [u8; 32],
    ) -> Result<JoinProof, JoinRefusal> {
        let cid = detached.cid;
        let (Some(key), Some(smig)) = (&self.session_key, &self.config.smig) else {
            return Err(JoinRefusal::UnknownSession);
        };
        if self.app_id != Some(cid.app) {
            return Err(JoinRefusal::UnknownSession);
        }
        let members = self.conns.iter().filter(|conn| conn.is_joined());
        let member = members.clone().next().map(|member| member.spec);
        let Some(member) = member.or_else(|| self.former_spec()) else {
            return Err(JoinRefusal::UnknownSession);
        };
        let used = self.conns.iter().any(|conn| conn.cid == Some(cid));
        let expected = client_mac(key, cid, detached.join.nonce, exporter);
        let proved = bool::from(expected.ct_eq(&detached.join.mac));
        if !proved || used || !self.conn_numbers.may_join(cid.number) {
            return Err(JoinRefusal::BadProof);
        }
        let spec = &detached.conn.spec;
        if spec.identity != member.identity || spec.security != member.security {
            return Err(JoinRefusal::DifferentIdentity);
        }
        if members.count() >= smig.max_connections.min(MAX_CONNECTIONS) {
            return Err(JoinRefusal::Limit);
        }
        Ok(JoinProof { cid, nonce: detached.join.nonce, exporter })
    }

    /// Server: joins a connection to this session, which has just verified it: `proof` is that of
    /// [`Self::verify_join`]. `nonce` is 16 fresh random bytes.
    /// Input that the driver has read after the JOIN must be passed to [`Session::handle_input`]
    /// next.
    pub fn attach(
        &mut self,
        now: Instant,
        detached: DetachedConnection,
        proof: &JoinProof,
        nonce: [u8; 16],
    ) -> ConnId {
        let conn_id = self.new_conn_id();
        let code_points =
            self.config.smig.as_ref().map(|smig| smig.code_points).unwrap_or_default();
        let mut conn = *detached.conn;
        conn.id = conn_id;
        conn.state = ConnState::Open;
        conn.membership = Membership::Joined;
        if let Some(key) = self.session_key.as_ref().debug_expect("the proof was verified with it")
        {
            let mac = server_mac(key, proof.cid, (proof.nonce, nonce), proof.exporter);
            wire::write_join(
                &mut conn.control_queue.frames,
                &code_points,
                Join::Ack { nonce, mac },
            );
        }
        self.record_conn_number(proof.cid);
        self.conns.push(conn);
        for member in self.conns.iter_mut() {
            member.join_permission = JoinPermission::Forbidden;
        }
        self.arm_tick(now);
        self.events.push_back(Event::Joined { conn: conn_id });
        if self.is_closing {
            // The JOIN was in flight when the session was shut down.
            self.drain(now, conn_id);
        }
        if self.is_forbidden_connection(proof.cid.number) {
            // Its client has resumed its streams elsewhere, or given it up (SMIG-13.9/never-processed).
            self.fail_connection(now, conn_id, Cause::ConnectionForbidden);
        }
        self.on_joined(conn_id);
        conn_id
    }

    /// Server: creates a session from a connection that another session refused.
    #[must_use]
    pub fn adopt(
        config: impl Into<Arc<Config>>,
        now: Instant,
        detached: DetachedConnection,
        reason: JoinRefusal,
    ) -> (Self, ConnId) {
        let mut session = Self::server(config, now);
        let conn_id = session.new_conn_id();
        let DetachedConnection { conn, cid, join } = detached;
        let mut conn = *conn;
        conn.id = conn_id;
        conn.state = ConnState::JoinPending(join);
        session.app_id = Some(cid.app);
        session.conns.push(conn);
        if reason == JoinRefusal::UnknownSession {
            session.negotiate_resumption(conn_id);
            session.begin_founding(conn_id, cid);
        }
        session.refuse_join(now, conn_id, reason);
        session.arm_tick(now);
        (session, conn_id)
    }

    /// Client: returns whether another connection may be opened and added to the session: both ends
    /// know its key (SMIG-3.6/founding), and the limit is not reached.
    #[must_use]
    pub fn can_join(&self) -> bool {
        let Some(smig) = &self.config.smig else { return false };
        let live = self.conns.iter().filter(|conn| !conn.is_dead());
        let founded = live.clone().any(|conn| conn.is_joined() && conn.settings_acked);
        // SMIG-13.13/linger: the session waits for a connection. One whose JOIN was refused is of no use.
        let may_join = |conn: &Connection| conn.is_joined() || conn.awaits_join();
        let awaits_one = self.can_resume() && !live.clone().any(may_join);
        self.side == Side::Client
            && (!self.is_closing || self.lingers())
            && self.session_key.is_some()
            && (founded || awaits_one)
            && live.count() < smig.max_connections.min(MAX_CONNECTIONS)
    }
}

/// Derives the nonce of the answer to a cleartext founder. It need not be random, because the
/// answer proves nothing.
fn derive_nonce(nonce: [u8; 16]) -> [u8; 16] {
    nonce.map(|byte| !byte)
}
