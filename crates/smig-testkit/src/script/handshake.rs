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
    pub fn of_server(config: Config) -> Self {
        let mut peer = Self::to_server(Setup::new(config));
        peer.connect();
        peer
    }

    /// Creates a server with one connection from a client engine.
    #[must_use]
    #[track_caller]
    pub fn of_client(config: Config) -> Self {
        let mut peer = Self::to_client(Setup::new(config));
        peer.connect();
        peer
    }

    /// Creates a client of a server engine, without connections.
    #[must_use]
    pub fn to_server(setup: Setup) -> Self {
        Self::bare(Side::Server, setup)
    }

    /// Creates a server of a client engine, without connections.
    #[must_use]
    pub fn to_client(setup: Setup) -> Self {
        Self::bare(Side::Client, setup)
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
        let line = self.open_line();
        match self.role {
            Side::Server => {
                self.greet(line);
                if line != C1 && self.speaks_smig() {
                    let join = self.proof(line);
                    self.send(line, join);
                }
                self.take_greeting(line);
                if line != C1 && self.speaks_smig() && self.setup.joins == JoinAnswers::AtOnce {
                    self.expect_joined(line);
                }
            }
            Side::Client => {
                self.take_greeting(line);
                self.greet(line);
                self.expect(line, settings_ack());
            }
        }
        self.expect_nothing(line);
        line
    }

    /// Opens a client's connection that creates another session.
    #[track_caller]
    pub fn connect_apart(&mut self) -> ConnHandle {
        let line = self.open_line();
        self.greet(line);
        self.take_greeting(line);
        line
    }

    fn speaks_smig(&self) -> bool {
        self.setup.config.smig.is_some()
            && self.setup.settings.iter().any(|&(id, value)| id == setting::SMIG && value > 0)
    }

    /// Opens a transport on which the peer has sent nothing.
    pub fn open_line(&mut self) -> ConnHandle {
        let session = if self.role == Side::Server && !self.links.is_empty() {
            self.sessions.push(Session::server(self.setup.config.clone(), self.now));
            self.sessions.len() - 1
        } else {
            0
        };
        let line = self.add_link(session);
        if self.role == Side::Server {
            let number = u32::try_from(line.0).expect("few lines") + 1;
            self.link_mut(line).cid = Some(Cid { app: self.setup.app, number });
        }
        self.pump();
        line
    }

    /// Sends the peer's first bytes: a client's preface, and SETTINGS. A server also acknowledges
    /// the client's SETTINGS, and answers its JOIN.
    #[track_caller]
    pub fn greet(&mut self, line: ConnHandle) {
        let mut entries = self.setup.settings.clone();
        if self.role == Side::Server {
            self.send_bytes(line, PREFACE);
            if self.speaks_smig() {
                entries.extend(cid_settings(self.cid(line)));
            }
        }
        self.send(line, Frame::Settings(entries));
        if self.role == Side::Client {
            self.send(line, settings_ack());
            if line != C1 && self.speaks_smig() && self.setup.joins == JoinAnswers::AtOnce {
                let answer = self.join_answer(line);
                self.send(line, answer);
            }
        }
    }

    /// Takes the engine's first frames: SETTINGS, a client's JOIN, the connection's window, and a
    /// server's acknowledgement, which the peer answers with its own. Returns the SETTINGS.
    #[track_caller]
    pub fn take_greeting(&mut self, line: ConnHandle) -> Vec<(u16, u32)> {
        let Frame::Settings(entries) = self.next(line) else {
            panic!("the engine's first frame is not SETTINGS");
        };
        if self.role == Side::Client {
            self.link_mut(line).cid = cid_in(&entries);
            if line != C1 && self.speaks_smig() {
                self.take_join(line);
            }
        }
        if matches!(self.link(line).seen.front(), Some(Frame::WindowUpdate { stream: 0, .. })) {
            self.next(line);
        }
        if self.role == Side::Server {
            self.expect(line, settings_ack());
            self.send(line, settings_ack());
        }
        entries
    }

    /// Takes the engine's JOIN and verifies its proof.
    #[track_caller]
    pub fn take_join(&mut self, line: ConnHandle) {
        let cid = self.cid(line);
        let Frame::Join { nonce, mac, ack: Ack::No } = self.next(line) else {
            panic!("{line:?}: JOIN is not the engine's next frame (SMIG-4.1/client-proof)");
        };
        let right = proof::client(self.key(), cid, nonce, self.join_exporter(line));
        assert_eq!(mac, right, "{line:?}: the client's proof is wrong (SMIG-4.1/client-proof)");
        self.link_mut(line).nonce = nonce;
    }

    /// Sends a JOIN constructed by the script, and stores its nonce.
    #[track_caller]
    pub fn send_as_join(&mut self, line: ConnHandle, join: Frame) {
        if let Frame::Join { nonce, .. } = join {
            self.note_nonce(line, nonce);
        }
        self.send(line, join);
    }

    /// Sets the ConnNo that the client chose for a connection.
    pub fn rename(&mut self, line: ConnHandle, number: u32) {
        self.link_mut(line).cid = Some(Cid { app: self.setup.app, number });
    }

    /// Sets the nonce of the engine's JOIN.
    pub fn note_nonce(&mut self, line: ConnHandle, nonce: [u8; 16]) {
        self.link_mut(line).nonce = nonce;
    }

    /// Sets the connection's CID from the engine's SETTINGS.
    pub fn adopt_cid(&mut self, line: ConnHandle, entries: &[(u16, u32)]) {
        self.link_mut(line).cid = cid_in(entries);
    }

    /// Returns K of the session.
    #[must_use]
    pub fn key(&self) -> [u8; 32] {
        self.key.unwrap_or_else(|| proof::session_key(C1, self.cid(C1)))
    }

    /// Sets K.
    pub const fn set_key(&mut self, key: [u8; 32]) {
        self.key = Some(key);
    }

    /// Sets K to that of a session created on `line`.
    #[track_caller]
    pub fn key_from(&mut self, line: ConnHandle) {
        self.key = Some(proof::session_key(line, self.cid(line)));
    }

    /// Returns a valid JOIN for a client's connection.
    #[track_caller]
    pub fn proof(&mut self, line: ConnHandle) -> Frame {
        let (nonce, cid) = (self.next_nonce(), self.cid(line));
        self.link_mut(line).nonce = nonce;
        let mac = proof::client(self.key(), cid, nonce, self.join_exporter(line));
        Frame::Join { nonce, mac, ack: Ack::No }
    }

    /// Returns a server's valid answer to the last JOIN.
    #[track_caller]
    pub fn join_answer(&mut self, line: ConnHandle) -> Frame {
        let (ours, cid, nonce) = (self.next_nonce(), self.cid(line), self.link(line).nonce);
        let mac = proof::server(self.key(), cid, (nonce, ours), self.join_exporter(line));
        Frame::Join { nonce: ours, mac, ack: Ack::Yes }
    }

    /// Asserts that the engine accepts the peer's JOIN, with a valid proof (SMIG-4.3/server-proof).
    #[track_caller]
    pub fn expect_joined(&mut self, line: ConnHandle) {
        let (cid, nonce) = (self.cid(line), self.link(line).nonce);
        let Frame::Join { nonce: theirs, mac, ack: Ack::Yes } = self.next(line) else {
            panic!("{line:?}: expected JOIN(ACK)");
        };
        let right = proof::server(self.key(), cid, (nonce, theirs), self.join_exporter(line));
        assert_eq!(mac, right, "{line:?}: the server's proof is wrong (SMIG-4.3/server-proof)");
    }

    /// Returns E of a join (SMIG-4.1/client-proof, SMIG-3.9/cleartext-key).
    fn join_exporter(&self, line: ConnHandle) -> [u8; 32] {
        match self.setup.security {
            Security::Tls13 => proof::join_exporter(line, self.cid(line)),
            Security::TrustedCleartext | Security::Ineligible => [0; 32],
        }
    }

    pub(super) fn next_nonce(&mut self) -> [u8; 16] {
        self.nonces += 1;
        let mut nonce = [0x0a; 16];
        nonce[8..].copy_from_slice(&self.nonces.to_be_bytes());
        nonce
    }

    pub(super) fn give_keying_material(
        &mut self,
        session: usize,
        conn: ConnId,
        request: &KeyingRequest,
    ) {
        let Some(line) = self.line_at(session, conn) else { return };
        let material = self.exported(line, request);
        let nonce = self.next_nonce();
        self.sessions[session].handle_keying_material(conn, material, nonce);
    }

    fn exported(&self, line: ConnHandle, request: &KeyingRequest) -> [u8; 32] {
        match request {
            KeyingRequest::Exporter { label, context } => proof::exporter(line, label, context),
            KeyingRequest::Random => [0x5a; 32],
            KeyingRequest::Zero => [0; 32],
        }
    }

    /// Verifies a JOIN as the driver: the session registered for its AppID decides.
    #[track_caller]
    pub fn decide_join(&mut self, line: ConnHandle) {
        let (session, conn) = (self.link(line).session, self.conn(line));
        let app = self.session_of(line).app_id().expect("a JOIN needs an AppID");
        match self.owner(app).filter(|&owner| owner != session) {
            None => {
                self.sessions[session].refuse_join(self.now, conn, JoinRefusal::UnknownSession);
            }
            Some(owner) => self.hand_over(line, owner),
        }
        self.feed(line);
        self.pump();
    }

    fn hand_over(&mut self, line: ConnHandle, owner: usize) {
        let (session, conn, now) = (self.link(line).session, self.conn(line), self.now);
        let detached = self.sessions[session].detach(conn).expect("a JOIN is undecided");
        let exporter = self.exported(line, &detached.exporter_request());
        let nonce = self.next_nonce();
        let (session, conn) = match self.sessions[owner].verify_join(&detached, exporter) {
            Ok(proof) => (owner, self.sessions[owner].attach(now, detached, &proof, nonce)),
            Err(reason) => {
                let config = self.setup.config.clone();
                let (session, conn) = Session::adopt(config, now, detached, reason);
                self.sessions.push(session);
                (self.sessions.len() - 1, conn)
            }
        };
        let link = self.link_mut(line);
        (link.session, link.conn) = (session, conn);
    }

    /// Refuses a JOIN as the driver.
    #[track_caller]
    pub fn refuse_join(&mut self, line: ConnHandle, reason: JoinRefusal) {
        let (session, conn) = (self.link(line).session, self.conn(line));
        self.sessions[session].refuse_join(self.now, conn, reason);
        self.feed(line);
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

fn cid_in(entries: &[(u16, u32)]) -> Option<Cid> {
    let find = |id| entries.iter().find(|(other, _)| *other == id).map(|&(_, value)| value);
    let app =
        u64::from(find(setting::SMIG_CID_HI)?) << 32 | u64::from(find(setting::SMIG_CID_MID)?);
    Some(Cid { app: smig_proto::AppId::new(app), number: find(setting::SMIG_CID_LO)? })
}
