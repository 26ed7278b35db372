//! Connection setup: prefaces, SETTINGS, keys and JOINs, as single steps and combined.

use smig_proto::{Cid, Config, ConnId, JoinRefusal, KeyingRequest, Security, Session, Side};

use super::frame::{Ack, Frame, setting, settings_ack};
use super::peer::{C1, ConnHandle, Peer};
use super::proof;
use super::setup::{JoinAnswers, Setup};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl Peer {
    /// Creates a client with one connection to a server engine.
    #[must_use]
    #[track_caller]
    pub fn connected_to_server(config: Config) -> Self {
        let mut peer = Self::for_server(Setup::new(config));
        peer.connect();
        peer
    }

    /// Creates a server with one connection from a client engine.
    #[must_use]
    #[track_caller]
    pub fn connected_to_client(config: Config) -> Self {
        let mut peer = Self::for_client(Setup::new(config));
        peer.connect();
        peer
    }

    /// Creates a client of a server engine, without connections.
    #[must_use]
    pub fn for_server(setup: Setup) -> Self {
        Self::new(Side::Server, setup)
    }

    /// Creates a server of a client engine, without connections.
    #[must_use]
    pub fn for_client(setup: Setup) -> Self {
        Self::new(Side::Client, setup)
    }

    /// Adds a joined connection.
    #[must_use]
    #[track_caller]
    pub fn with_spare(mut self) -> Self {
        self.connect();
        self
    }

    /// Returns the parameters; changes apply to later steps.
    pub const fn setup_mut(&mut self) -> &mut Setup {
        &mut self.setup
    }

    /// Opens a connection with the complete handshake: the first creates the session, others join
    /// it.
    #[track_caller]
    pub fn connect(&mut self) -> ConnHandle {
        let handle = self.open_transport();
        match self.engine_side {
            Side::Server => {
                self.send_preface(handle);
                if handle != C1 && self.is_smig_enabled() {
                    let join = self.join_request(handle);
                    self.send(handle, join);
                }
                self.take_preface(handle);
                if handle != C1
                    && self.is_smig_enabled()
                    && self.setup.join_answers == JoinAnswers::Automatic
                {
                    self.expect_joined(handle);
                }
            }
            Side::Client => {
                self.take_preface(handle);
                self.send_preface(handle);
                self.expect(handle, settings_ack());
            }
        }
        self.expect_silence_on(handle);
        handle
    }

    /// Opens a client's connection that creates another session.
    #[track_caller]
    pub fn connect_new_session(&mut self) -> ConnHandle {
        let handle = self.open_transport();
        self.send_preface(handle);
        self.take_preface(handle);
        handle
    }

    fn is_smig_enabled(&self) -> bool {
        self.setup.config.smig.is_some()
            && self.setup.settings.iter().any(|&(id, value)| id == setting::SMIG && value > 0)
    }

    /// Opens a transport on which the peer has sent nothing.
    pub fn open_transport(&mut self) -> ConnHandle {
        let session = if self.engine_side == Side::Server && !self.connections.is_empty() {
            self.sessions.push(Session::server(self.setup.config.clone(), self.now));
            self.sessions.len() - 1
        } else {
            0
        };
        let handle = self.add_connection(session);
        if self.engine_side == Side::Server {
            let number = u32::try_from(handle.0).expect("few connections") + 1;
            self.connection_mut(handle).cid = Some(Cid { app: self.setup.app_id, number });
        }
        self.pump();
        handle
    }

    /// Sends the peer's first bytes: a client's preface, and SETTINGS. A server also acknowledges
    /// the client's SETTINGS, and answers its JOIN.
    #[track_caller]
    pub fn send_preface(&mut self, handle: ConnHandle) {
        let mut entries = self.setup.settings.clone();
        if self.engine_side == Side::Server {
            self.send_bytes(handle, PREFACE);
            if self.is_smig_enabled() {
                entries.extend(cid_settings(self.cid(handle)));
            }
        }
        self.send(handle, Frame::Settings(entries));
        if self.engine_side == Side::Client {
            self.send(handle, settings_ack());
            if handle != C1
                && self.is_smig_enabled()
                && self.setup.join_answers == JoinAnswers::Automatic
            {
                let answer = self.join_answer(handle);
                self.send(handle, answer);
            }
        }
    }

    /// Takes the engine's first frames: SETTINGS, a client's JOIN, the connection's window, and a
    /// server's acknowledgement, which the peer answers with its own. Returns the SETTINGS.
    #[track_caller]
    pub fn take_preface(&mut self, handle: ConnHandle) -> Vec<(u16, u32)> {
        let Frame::Settings(entries) = self.next(handle) else {
            panic!("the engine's first frame is not SETTINGS");
        };
        if self.engine_side == Side::Client {
            self.connection_mut(handle).cid = cid_from_settings(&entries);
            if handle != C1 && self.is_smig_enabled() {
                self.take_join(handle);
            }
        }
        if matches!(
            self.connection(handle).frames.front(),
            Some(Frame::WindowUpdate { stream: 0, .. })
        ) {
            self.next(handle);
        }
        if self.engine_side == Side::Server {
            self.expect(handle, settings_ack());
            self.send(handle, settings_ack());
        }
        entries
    }

    /// Takes the engine's JOIN and verifies its proof.
    #[track_caller]
    pub fn take_join(&mut self, handle: ConnHandle) {
        let cid = self.cid(handle);
        let Frame::Join { nonce, mac, ack: Ack::No } = self.next(handle) else {
            panic!("{handle:?}: JOIN is not the engine's next frame (SMIG-4.1/client-proof)");
        };
        let expected_mac =
            proof::client_proof(self.session_key(), cid, nonce, self.join_exporter(handle));
        assert_eq!(
            mac, expected_mac,
            "{handle:?}: the client's proof is wrong (SMIG-4.1/client-proof)"
        );
        self.connection_mut(handle).nonce = nonce;
    }

    /// Sends a JOIN constructed by the script, and stores its nonce.
    #[track_caller]
    pub fn send_join(&mut self, handle: ConnHandle, join: Frame) {
        if let Frame::Join { nonce, .. } = join {
            self.set_join_nonce(handle, nonce);
        }
        self.send(handle, join);
    }

    /// Sets the ConnNo that the client chose for a connection.
    pub fn set_conn_no(&mut self, handle: ConnHandle, number: u32) {
        self.connection_mut(handle).cid = Some(Cid { app: self.setup.app_id, number });
    }

    /// Sets the nonce of the engine's JOIN.
    pub fn set_join_nonce(&mut self, handle: ConnHandle, nonce: [u8; 16]) {
        self.connection_mut(handle).nonce = nonce;
    }

    /// Sets the connection's CID from the engine's SETTINGS.
    pub fn set_cid_from_settings(&mut self, handle: ConnHandle, entries: &[(u16, u32)]) {
        self.connection_mut(handle).cid = cid_from_settings(entries);
    }

    /// Returns K of the session.
    #[must_use]
    pub fn session_key(&self) -> [u8; 32] {
        self.session_key.unwrap_or_else(|| proof::session_key(C1, self.cid(C1)))
    }

    /// Sets K.
    pub const fn set_session_key(&mut self, key: [u8; 32]) {
        self.session_key = Some(key);
    }

    /// Sets K to that of a session created on `handle`.
    #[track_caller]
    pub fn set_session_key_from(&mut self, handle: ConnHandle) {
        self.session_key = Some(proof::session_key(handle, self.cid(handle)));
    }

    /// Returns a valid JOIN for a client's connection.
    #[track_caller]
    pub fn join_request(&mut self, handle: ConnHandle) -> Frame {
        let (nonce, cid) = (self.next_nonce(), self.cid(handle));
        self.connection_mut(handle).nonce = nonce;
        let mac = proof::client_proof(self.session_key(), cid, nonce, self.join_exporter(handle));
        Frame::Join { nonce, mac, ack: Ack::No }
    }

    /// Returns a server's valid answer to the last JOIN.
    #[track_caller]
    pub fn join_answer(&mut self, handle: ConnHandle) -> Frame {
        let (server_nonce, cid, nonce) =
            (self.next_nonce(), self.cid(handle), self.connection(handle).nonce);
        let mac = proof::server_proof(
            self.session_key(),
            cid,
            (nonce, server_nonce),
            self.join_exporter(handle),
        );
        Frame::Join { nonce: server_nonce, mac, ack: Ack::Yes }
    }

    /// Asserts that the engine accepts the peer's JOIN, with a valid proof (SMIG-4.3/server-proof).
    #[track_caller]
    pub fn expect_joined(&mut self, handle: ConnHandle) {
        let (cid, nonce) = (self.cid(handle), self.connection(handle).nonce);
        let Frame::Join { nonce: server_nonce, mac, ack: Ack::Yes } = self.next(handle) else {
            panic!("{handle:?}: expected JOIN(ACK)");
        };
        let expected_mac = proof::server_proof(
            self.session_key(),
            cid,
            (nonce, server_nonce),
            self.join_exporter(handle),
        );
        assert_eq!(
            mac, expected_mac,
            "{handle:?}: the server's proof is wrong (SMIG-4.3/server-proof)"
        );
    }

    /// Returns E of a join (SMIG-4.1/client-proof, SMIG-3.9/cleartext-key).
    fn join_exporter(&self, handle: ConnHandle) -> [u8; 32] {
        match self.setup.security {
            Security::Tls13 => proof::join_exporter(handle, self.cid(handle)),
            Security::TrustedCleartext | Security::Ineligible => [0; 32],
        }
    }

    pub(super) fn next_nonce(&mut self) -> [u8; 16] {
        self.nonce_count += 1;
        let mut nonce = [0x0a; 16];
        nonce[8..].copy_from_slice(&self.nonce_count.to_be_bytes());
        nonce
    }

    pub(super) fn provide_keying_material(
        &mut self,
        session: usize,
        conn: ConnId,
        request: &KeyingRequest,
    ) {
        let Some(handle) = self.handle_of(session, conn) else { return };
        let material = self.keying_material(handle, request);
        let nonce = self.next_nonce();
        self.sessions[session].handle_keying_material(conn, material, nonce);
    }

    fn keying_material(&self, handle: ConnHandle, request: &KeyingRequest) -> [u8; 32] {
        match request {
            KeyingRequest::Exporter { label, context } => proof::exporter(handle, label, context),
            KeyingRequest::Random => [0x5a; 32],
            KeyingRequest::Zero => [0; 32],
        }
    }

    /// Verifies a JOIN as the driver: the session registered for its AppID decides.
    #[track_caller]
    pub fn decide_join(&mut self, handle: ConnHandle) {
        let (session, conn) = (self.connection(handle).session, self.conn_id(handle));
        let app = self.session_of(handle).app_id().expect("a JOIN needs an AppID");
        match self.owner(app).filter(|&owner| owner != session) {
            None => {
                self.sessions[session].refuse_join(self.now, conn, JoinRefusal::UnknownSession);
            }
            Some(owner) => self.hand_over(handle, owner),
        }
        self.feed(handle);
        self.pump();
    }

    fn hand_over(&mut self, handle: ConnHandle, owner: usize) {
        let (session, conn, now) =
            (self.connection(handle).session, self.conn_id(handle), self.now);
        let detached_conn = self.sessions[session].detach(conn).expect("a JOIN is undecided");
        let exporter = self.keying_material(handle, &detached_conn.exporter_request());
        let nonce = self.next_nonce();
        let (session, conn) = match self.sessions[owner].verify_join(&detached_conn, exporter) {
            Ok(proof) => (owner, self.sessions[owner].attach(now, detached_conn, &proof, nonce)),
            Err(reason) => {
                let config = self.setup.config.clone();
                let (new_session, conn) = Session::adopt(config, now, detached_conn, reason);
                self.sessions.push(new_session);
                (self.sessions.len() - 1, conn)
            }
        };
        let connection = self.connection_mut(handle);
        (connection.session, connection.conn) = (session, conn);
    }

    /// Refuses a JOIN as the driver.
    #[track_caller]
    pub fn refuse_join(&mut self, handle: ConnHandle, reason: JoinRefusal) {
        let (session, conn) = (self.connection(handle).session, self.conn_id(handle));
        assert!(self.sessions[session].refuse_join(self.now, conn, reason), "no JOIN is undecided");
        self.feed(handle);
        self.pump();
    }
}

/// Returns a client's three CID settings.
#[must_use]
pub fn cid_settings(cid: Cid) -> [(u16, u32); 3] {
    let app = u64::from_be_bytes(cid.app.to_bytes());
    [
        (setting::SMIG_CID_HI, (app >> 32) as u32),
        (setting::SMIG_CID_MID, app as u32),
        (setting::SMIG_CID_LO, cid.number),
    ]
}

fn cid_from_settings(entries: &[(u16, u32)]) -> Option<Cid> {
    let find = |id| entries.iter().find(|(other, _)| *other == id).map(|&(_, value)| value);
    let app =
        u64::from(find(setting::SMIG_CID_HI)?) << 32 | u64::from(find(setting::SMIG_CID_MID)?);
    Some(Cid { app: smig_proto::AppId::new(app), number: find(setting::SMIG_CID_LO)? })
}
