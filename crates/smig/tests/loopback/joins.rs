//! JOINs at servers whose connections the test serves, by connections that only the test reads and writes.

use std::io::{IoSlice, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use smig::{CleartextTrust, Server, ServerTls};
use smig_proto::{
    AppId, ConnId, ConnectionSpec, Event, Identity, Instant, JoinRefusal, KeyingRequest,
    OutputBuffer, Security, Session, TransmitLimits,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower::service_fn;

use crate::support::{answer, certificate, loopback, within};

/// Returns matching configurations of a server and a client.
fn tls() -> (ServerTls, Arc<ClientConfig>) {
    let made = certificate();
    let server = ServerTls::from_pem(made.certificate.as_bytes(), made.key.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap()).unwrap();
    let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    (server, Arc::new(client))
}

/// A client's connection.
struct ManualConn {
    id: ConnId,
    tcp: TcpStream,
    tls: Option<ClientConnection>,
    input: BytesMut,
}

impl ManualConn {
    const NOW: Instant = Instant::from_nanos(0);

    /// Connects in cleartext, and adds the connection to the session.
    async fn connect(session: &mut Session, addr: SocketAddr) -> Self {
        Self::open(session, addr, Security::TrustedCleartext, None).await
    }

    /// Connects for TLS, whose handshake [`Self::run`] makes, and adds the connection to the session.
    async fn connect_tls(
        session: &mut Session,
        addr: SocketAddr,
        config: &Arc<ClientConfig>,
    ) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        Self::open(session, addr, Security::Tls13, Some(tls)).await
    }

    async fn open(
        session: &mut Session,
        addr: SocketAddr,
        security: Security,
        tls: Option<ClientConnection>,
    ) -> Self {
        let tcp = TcpStream::connect(addr).await.unwrap();
        let spec = ConnectionSpec { security, identity: Identity([0; 32]) };
        let id = session.add_connection(Self::NOW, spec);
        Self { id, tcp, tls, input: BytesMut::new() }
    }

    /// Sends and receives until `is_done`, called with the session and the events of this call.
    async fn run(&mut self, session: &mut Session, is_done: impl Fn(&Session, &[Event]) -> bool) {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            let records = self.take_records();
            self.tcp.write_all(&records).await.unwrap();
            if self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                self.receive().await;
            }
        }
        let mut events = Vec::new();
        loop {
            while let Some(event) = session.poll_event() {
                if let Event::KeyingMaterialNeeded { conn, request } = &event {
                    let material = self.keying_material(request);
                    session.handle_keying_material(*conn, material, [2; 16]);
                }
                events.push(event);
            }
            if is_done(session, &events) {
                return;
            }
            let bytes = self.take_output(session);
            self.tcp.write_all(&bytes).await.unwrap();
            self.receive().await;
            session.handle_input(Self::NOW, self.id, &mut self.input);
        }
    }

    fn keying_material(&self, request: &KeyingRequest) -> [u8; 32] {
        match (request, &self.tls) {
            (KeyingRequest::Exporter { label, context }, Some(tls)) => {
                tls.export_keying_material([0; 32], label.as_bytes(), Some(context)).unwrap()
            }
            (KeyingRequest::Zero, _) => [0; 32],
            // It need not be random here.
            _ => [1; 32],
        }
    }

    /// Returns what the session sends on this connection, encrypted if it uses TLS.
    fn take_output(&mut self, session: &mut Session) -> Vec<u8> {
        let (mut output, mut plaintext) = (OutputBuffer::new(), Vec::new());
        session.poll_transmit(Self::NOW, self.id, TransmitLimits::any(usize::MAX), &mut output);
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); 1];
            output.chunks(&mut slices);
            plaintext.extend_from_slice(&slices[0]);
            let taken = slices[0].len();
            output.advance(taken);
        }
        let Some(tls) = &mut self.tls else { return plaintext };
        tls.writer().write_all(&plaintext).unwrap();
        self.take_records()
    }

    fn take_records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut records).unwrap();
            }
        }
        records
    }

    async fn receive(&mut self) {
        let mut received = Vec::new();
        let len = self.tcp.read_buf(&mut received).await.unwrap();
        assert_ne!(len, 0, "the server closed the connection");
        let Some(tls) = &mut self.tls else { return self.input.extend_from_slice(&received) };
        let mut unread = received.as_slice();
        while !unread.is_empty() {
            tls.read_tls(&mut unread).unwrap();
            let state = tls.process_new_packets().unwrap();
            let mut plaintext = vec![0; state.plaintext_bytes_to_read()];
            tls.reader().read_exact(&mut plaintext).unwrap();
            self.input.extend_from_slice(&plaintext);
        }
    }
}

fn begins_join(event: &Event) -> bool {
    matches!(event, Event::KeyingMaterialNeeded { .. })
}

fn is_unknown_session(event: &Event) -> bool {
    matches!(event, Event::JoinRefused { reason: JoinRefusal::UnknownSession, .. })
}

#[tokio::test]
async fn a_join_to_a_dropped_session_is_refused() {
    let server = Server::builder().connection_server(service_fn(answer)).unwrap();
    let trust = CleartextTrust::TrustedNetwork;
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut session = Session::client(smig::Config::client(), AppId::new(7), ManualConn::NOW);
    let mut first_conn = ManualConn::connect(&mut session, addr).await;
    let (tcp, _) = listener.accept().await.unwrap();
    let established = first_conn.run(&mut session, |session, _| session.can_join());
    tokio::select! {
        ended = server.serve_cleartext_connection(tcp, trust) => panic!("{ended:?}"),
        () = within("the session", established) => {}
    }
    // The client does not read the first connection, so it still regards the session as open.
    let mut second_conn = ManualConn::connect(&mut session, addr).await;
    let (tcp, _) = listener.accept().await.unwrap();
    let await_refusal = async {
        second_conn.run(&mut session, |_, events| events.iter().any(is_unknown_session)).await;
        drop(second_conn);
    };
    let served = server.serve_cleartext_connection(tcp, trust);
    let (served, ()) = within("the refusal", async { tokio::join!(served, await_refusal) }).await;
    served.unwrap();
    let stats = server.view().stats();
    assert_eq!((stats.connections_opened, stats.connections_closed), (2, 2));
    assert_eq!((stats.joins_refused, stats.connections_joined), (1, 0));
}

#[tokio::test]
async fn a_connection_whose_join_is_refused_stays_with_its_own_future() {
    let server = Server::builder().connection_server(service_fn(answer)).unwrap();
    let trust = CleartextTrust::TrustedNetwork;
    let (first_listener, second_listener) =
        (TcpListener::bind(loopback()).await, TcpListener::bind(loopback()).await);
    let (first_listener, second_listener) = (first_listener.unwrap(), second_listener.unwrap());
    let mut session = Session::client(smig::Config::client(), AppId::new(7), ManualConn::NOW);
    let mut first_conn =
        ManualConn::connect(&mut session, first_listener.local_addr().unwrap()).await;
    let (tcp, _) = first_listener.accept().await.unwrap();
    let mut first_future = Box::pin(server.serve_cleartext_connection(tcp, trust));
    let established = first_conn.run(&mut session, |session, _| session.can_join());
    tokio::select! {
        ended = &mut first_future => panic!("{ended:?}"),
        () = within("the session", established) => {}
    }
    let mut second_conn =
        ManualConn::connect(&mut session, second_listener.local_addr().unwrap()).await;
    let (tcp, _) = second_listener.accept().await.unwrap();
    let mut second_future = Box::pin(server.serve_cleartext_connection(tcp, trust));
    let is_refusal = |event: &Event| {
        let reason = JoinRefusal::DifferentIdentity;
        matches!(event, Event::JoinRefused { reason: given, .. } if *given == reason)
    };
    let refused = second_conn.run(&mut session, |_, events| events.iter().any(is_refusal));
    tokio::select! {
        ended = &mut first_future => panic!("{ended:?}"),
        ended = &mut second_future => panic!("the refused connection is closed: {ended:?}"),
        () = within("the refusal", refused) => {}
    }
    assert_eq!(server.view().stats().joins_refused, 1);
    drop(first_future);
    assert_eq!(server.view().stats().connections_closed, 1);
    drop(second_conn);
    within("the end of the second connection", second_future).await.unwrap();
    assert_eq!(server.view().stats().connections_closed, 2);
}

#[tokio::test]
async fn a_join_that_waits_for_a_session_is_refused_when_the_session_is_dropped() {
    let server = Server::builder().connection_server(service_fn(answer)).unwrap();
    let trust = CleartextTrust::TrustedNetwork;
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut session = Session::client(smig::Config::client(), AppId::new(7), ManualConn::NOW);
    let mut first_conn = ManualConn::connect(&mut session, addr).await;
    let (tcp, _) = listener.accept().await.unwrap();
    let mut first_future = Box::pin(server.serve_cleartext_connection(tcp, trust));
    let established = first_conn.run(&mut session, |session, _| session.can_join());
    tokio::select! {
        ended = &mut first_future => panic!("{ended:?}"),
        () = within("the session", established) => {}
    }
    // From here on the first connection's future is not polled.
    let mut second_conn = ManualConn::connect(&mut session, addr).await;
    let (tcp, _) = listener.accept().await.unwrap();
    let mut second_future = Box::pin(server.serve_cleartext_connection(tcp, trust));
    let began = second_conn.run(&mut session, |_, events| events.iter().any(begins_join));
    tokio::select! {
        ended = &mut second_future => panic!("{ended:?}"),
        () = within("the JOIN", began) => {}
    }
    let refusal = second_conn.run(&mut session, |_, events| events.iter().any(is_unknown_session));
    let mut refusal = Box::pin(within("the refusal", refusal));
    let view = server.view();
    let sent_to_session = async {
        // The session of the second connection has none once it has passed the connection on.
        let has_connection = |shown: &smig::SessionSnapshot| !shown.connections.is_empty();
        while view.sessions().await.sessions.iter().any(has_connection) {}
    };
    tokio::select! {
        ended = &mut second_future => panic!("{ended:?}"),
        () = &mut refusal => panic!("refused by a session that is not polled"),
        () = within("the transfer to the session", sent_to_session) => {}
    }
    drop(first_future);
    tokio::select! {
        ended = &mut second_future => panic!("{ended:?}"),
        () = refusal => {}
    }
    assert_eq!(server.view().stats().joins_refused, 1);
}

#[tokio::test]
async fn over_tls_a_join_to_a_dropped_session_is_refused() {
    let (tls, client_config) = tls();
    let server = Server::builder().connection_server(service_fn(answer)).unwrap();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut session = Session::client(smig::Config::client(), AppId::new(7), ManualConn::NOW);
    let mut first_conn = ManualConn::connect_tls(&mut session, addr, &client_config).await;
    let (tcp, _) = listener.accept().await.unwrap();
    let mut first_future = Box::pin(server.serve_connection(tcp, &tls));
    let established = first_conn.run(&mut session, |session, _| session.can_join());
    tokio::select! {
        ended = &mut first_future => panic!("{ended:?}"),
        () = within("the session", established) => {}
    }
    drop(first_future);
    let mut conn = ManualConn::connect_tls(&mut session, addr, &client_config).await;
    let (tcp, _) = listener.accept().await.unwrap();
    let mut future = Box::pin(server.serve_connection(tcp, &tls));
    let refused = conn.run(&mut session, |_, events| events.iter().any(is_unknown_session));
    tokio::select! {
        ended = &mut future => panic!("{ended:?}"),
        () = within("the refusal", refused) => {}
    }
    let stats = server.view().stats();
    assert_eq!((stats.joins_refused, stats.connections_joined), (1, 0));
}

#[tokio::test]
async fn connections_to_two_addresses_of_one_listener_join() {
    // SMIG-4.5/same-identity: both connections have the same listener.
    let server = Server::builder().connection_server(service_fn(answer)).unwrap();
    let trust = CleartextTrust::TrustedNetwork;
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve_next = async || {
        let (tcp, _) = listener.accept().await.unwrap();
        server.serve_cleartext_connection(tcp, trust).await
    };
    let join_both = async {
        let mut session = Session::client(smig::Config::client(), AppId::new(7), ManualConn::NOW);
        let mut first_conn = ManualConn::connect(&mut session, ([127, 0, 0, 1], port).into()).await;
        first_conn.run(&mut session, |session, _| session.can_join()).await;
        let mut second_conn =
            ManualConn::connect(&mut session, ([127, 0, 0, 2], port).into()).await;
        let answered = |event: &Event| match event {
            Event::Joined { .. } => true,
            Event::JoinRefused { reason, .. } => panic!("refused: {reason:?}"),
            _ => false,
        };
        second_conn.run(&mut session, |_, events| events.iter().any(answered)).await;
    };
    let all = async { tokio::join!(serve_next(), serve_next(), join_both) };
    let (first, second, ()) = within("the join", all).await;
    first.unwrap();
    second.unwrap();
}
