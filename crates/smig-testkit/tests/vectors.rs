//! spec/vectors.md: the engine produces every byte on the page from the page's own inputs.
//!
//! Keys are derived here from TLS secrets with RFC 8446 only, so that the page does not depend on a
//! TLS library. A difference prints the correct line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method, Uri};
use sha2::{Digest, Sha256};
use smig_proto::{
    AppId, Config, ConnId, ConnectionSpec, EndStream, Event, Identity, Instant, JoinRefusal,
    KeyingRequest, MigrationTarget, OutputBuffer, RequestHead, ResponseHead, Security, Session,
    StreamKey, TransmitLimits,
};

const PAGE: &str = include_str!("../../../spec/vectors.md");
const NOW: Instant = Instant::from_nanos(0);
const MIGRATE: u8 = 0xf5;
const JOIN: u8 = 0xf6;

/// Returns the page's values: `NAME = hex` in its code blocks; hex may continue on the next lines.
fn page() -> BTreeMap<String, Vec<u8>> {
    let mut values = BTreeMap::<String, Vec<u8>>::new();
    let mut last_name = None;
    for line in PAGE.lines() {
        let (name, hex) = match line.split_once(" = ") {
            Some((name, hex)) if !line.starts_with('|') => (Some(name.trim().to_owned()), hex),
            _ if line.starts_with("    ") => (last_name.clone(), line),
            _ => (None, ""),
        };
        last_name.clone_from(&name);
        let Some(name) = name else { continue };
        let digits: String = hex.split_whitespace().collect();
        let bytes = (0..digits.len() / 2)
            .map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).expect("hex"));
        values.entry(name).or_default().extend(bytes);
    }
    values
}

/// Returns the page's value of `name`.
fn page_value<const N: usize>(name: &str) -> [u8; N] {
    let value = page().remove(name).unwrap_or_else(|| panic!("spec/vectors.md lacks {name}"));
    value.try_into().unwrap_or_else(|value| panic!("{name} has not {N} bytes: {value:?}"))
}

/// Checks that the page's value of `name` is what the engine produced.
#[track_caller]
fn check(name: &str, actual: &[u8]) {
    check_line(name, actual, &hex_words(actual));
}

/// The same for a frame: length, type, flags and stream, then the payload on separate lines.
#[track_caller]
fn check_frame(name: &str, actual: &[u8]) {
    let (head, payload) = actual.split_at(9);
    let head = [&head[..3], &head[3..4], &head[4..5], &head[5..]].map(hex_words);
    check_line(name, actual, &format!("{}\n    {}", head.join(" "), hex_words(payload)));
}

#[track_caller]
fn check_line(name: &str, actual: &[u8], correct_hex: &str) {
    let on_page = page().remove(name).unwrap_or_default();
    assert!(on_page == actual, "spec/vectors.md is wrong; it should say\n{name} = {correct_hex}\n");
}

/// Formats hex in words of four bytes, eight words per line.
fn hex_words(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (n, byte) in bytes.iter().enumerate() {
        if n > 0 && n % 4 == 0 {
            text.push_str(if n % 32 == 0 { "\n    " } else { " " });
        }
        write!(text, "{byte:02x}").expect("a string takes all");
    }
    text
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes any key");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// HKDF-Expand-Label with SHA-256 and 32 bytes of output (RFC 8446 section 7.1).
fn expand_label(secret: &[u8], label: &str, context: &[u8]) -> [u8; 32] {
    let label = format!("tls13 {label}");
    let lengths = [label.len(), context.len()].map(|length| u8::try_from(length).expect("short"));
    let parts: [&[u8]; 6] =
        [&[0, 32], &lengths[..1], label.as_bytes(), &lengths[1..], context, &[1]];
    hmac(secret, &parts)
}

/// The exporter of RFC 8446 section 7.5.
fn exporter(secret: &[u8], label: &str, context: &[u8]) -> [u8; 32] {
    let derived = expand_label(secret, label, &Sha256::digest([]));
    expand_label(&derived, "exporter", &Sha256::digest(context))
}

/// One engine's end of one connection.
struct EngineEnd<'a> {
    session: &'a mut Session,
    conn: ConnId,
}

impl EngineEnd<'_> {
    fn take_output(&mut self) -> Vec<u8> {
        let mut out = OutputBuffer::new();
        self.session.poll_transmit(NOW, self.conn, TransmitLimits::any(usize::MAX), &mut out);
        let mut slices = [IoSlice::new(&[]); 64];
        let used = out.chunks(&mut slices);
        slices[..used].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    fn handle_input(&mut self, bytes: &[u8]) {
        self.session.handle_input(NOW, self.conn, &mut BytesMut::from(bytes));
    }

    /// Answers every request for keying material; each must be `expected`.
    fn answer_keying_requests(
        &mut self,
        expected: &KeyingRequest,
        material: [u8; 32],
        nonce: [u8; 16],
    ) {
        let mut request_count = 0;
        while let Some(event) = self.session.poll_event() {
            if let Event::KeyingMaterialNeeded { conn, request } = event {
                assert_eq!((conn, &request), (self.conn, expected));
                self.session.handle_keying_material(conn, material, nonce);
                request_count += 1;
            }
        }
        assert_eq!(request_count, 1, "{expected:?}");
    }
}

/// Returns the only frame of this type in a connection's output.
#[track_caller]
fn only_frame_of_kind(mut output: &[u8], kind: u8) -> Vec<u8> {
    output = output.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(output);
    let mut matching_frame = None;
    while !output.is_empty() {
        let length = u32::from_be_bytes([0, output[0], output[1], output[2]]) as usize;
        let (frame, rest) = output.split_at(9 + length);
        if frame[3] == kind {
            assert!(
                matching_frame.replace(frame.to_vec()).is_none(),
                "two frames of type {kind:#x}"
            );
        }
        output = rest;
    }
    matching_frame.unwrap_or_else(|| panic!("no frame of type {kind:#x}"))
}

fn connection_spec(security: Security) -> ConnectionSpec {
    ConnectionSpec { security, identity: Identity([0; 32]) }
}

fn exporter_request(label: &'static str, context: &[u8]) -> KeyingRequest {
    KeyingRequest::Exporter { label, context: context.to_vec() }
}

/// A session over TLS with two connections, C1 and C2, and the frames that created it.
struct TwoConnections {
    client: Session,
    server: Session,
    /// The client's id and the server's id of each connection.
    conns: [(ConnId, ConnId); 2],
    settings: Vec<u8>,
    join: Vec<u8>,
    join_ack: Vec<u8>,
}

impl TwoConnections {
    fn client(&mut self, index: usize) -> EngineEnd<'_> {
        EngineEnd { session: &mut self.client, conn: self.conns[index].0 }
    }

    fn server(&mut self, index: usize) -> EngineEnd<'_> {
        EngineEnd { session: &mut self.server, conn: self.conns[index].1 }
    }

    fn client_to_server(&mut self, index: usize) -> Vec<u8> {
        let bytes = self.client(index).take_output();
        self.server(index).handle_input(&bytes);
        bytes
    }

    fn server_to_client(&mut self, index: usize) -> Vec<u8> {
        let bytes = self.server(index).take_output();
        self.client(index).handle_input(&bytes);
        bytes
    }

    fn new() -> Self {
        let app: [u8; 8] = page_value("AppID");
        let k = exporter(&page_value::<32>("secret of C1"), "EXPORTER-smig-session", &app);
        let cid: [u8; 12] = page_value("CID of C2");
        let e = exporter(&page_value::<32>("secret of C2"), "EXPORTER-smig-join", &cid);
        let app_id = AppId::new(u64::from_be_bytes(app));
        let mut client = Session::client(Config::client(), app_id, NOW);
        let mut server = Session::server(Config::server(), NOW);
        let first_ids = (
            client.add_connection(NOW, connection_spec(Security::Tls13)),
            server.add_connection(NOW, connection_spec(Security::Tls13)),
        );
        let mut connections = Self {
            client,
            server,
            conns: [first_ids; 2],
            settings: vec![],
            join: vec![],
            join_ack: vec![],
        };
        connections.client_to_server(0);
        connections.server(0).answer_keying_requests(
            &exporter_request("EXPORTER-smig-session", &app),
            k,
            [0; 16],
        );
        connections.server_to_client(0);
        connections.client(0).answer_keying_requests(
            &exporter_request("EXPORTER-smig-session", &app),
            k,
            [0; 16],
        );
        connections.client_to_server(0);
        connections.conns[1].0 =
            connections.client.add_connection(NOW, connection_spec(Security::Tls13));
        connections.client(1).answer_keying_requests(
            &exporter_request("EXPORTER-smig-join", &cid),
            e,
            page_value("nonce_c"),
        );
        let flight = connections.client(1).take_output();
        // C2 reaches a separate session, which hands it over.
        let mut arrival_session = Session::server(Config::server(), NOW);
        let conn = arrival_session.add_connection(NOW, connection_spec(Security::Tls13));
        EngineEnd { session: &mut arrival_session, conn }.handle_input(&flight);
        let detached = arrival_session.detach(conn).expect("its JOIN is undecided");
        assert_eq!(detached.exporter_request(), exporter_request("EXPORTER-smig-join", &cid));
        let proof = connections.server.verify_join(&detached, e).expect("the proof is right");
        connections.conns[1].1 =
            connections.server.attach(NOW, detached, &proof, page_value("nonce_s"));
        connections.settings = only_frame_of_kind(&flight, 4);
        connections.join = only_frame_of_kind(&flight, JOIN);
        connections.join_ack = only_frame_of_kind(&connections.server_to_client(1), JOIN);
        connections
    }

    /// Sends a request on C1, and the response head and one byte of its body.
    fn exchange(&mut self) -> (StreamKey, StreamKey) {
        let head = RequestHead {
            method: Method::GET,
            uri: Uri::from_static("https://a.example/"),
            protocol: None,
            headers: HeaderMap::new(),
        };
        let conn = Some(self.conns[0].0);
        let client_key =
            self.client.open(NOW, conn, &head, EndStream::Yes).expect("it takes streams");
        self.client_to_server(0);
        let mut server_key = None;
        while let Some(event) = self.server.poll_event() {
            if let Event::Request { stream, .. } = event {
                server_key = Some(stream);
            }
        }
        let server_key = server_key.expect("the request arrived");
        let ok = ResponseHead { status: http::StatusCode::OK, headers: HeaderMap::new() };
        self.server.send_response(server_key, &ok, EndStream::No).expect("nothing was sent");
        self.server.send_data(server_key, Bytes::from_static(b"x"), EndStream::No).expect("open");
        self.server_to_client(0);
        (client_key, server_key)
    }
}

#[test]
fn keys_are_exporters_of_both_connections() {
    // SMIG-3.7/session-key, SMIG-4.1/client-proof: K and E from TLS secrets, and the exporter
    // arguments that the engine requests.
    let app: [u8; 8] = page_value("AppID");
    check("K", &exporter(&page_value::<32>("secret of C1"), "EXPORTER-smig-session", &app));
    let cid: [u8; 12] = page_value("CID of C2");
    assert_eq!(cid[..8], app);
    check("E", &exporter(&page_value::<32>("secret of C2"), "EXPORTER-smig-join", &cid));
    TwoConnections::new();
}

#[test]
fn a_join_and_its_answers_match_the_page() {
    // SMIG-4.1/client-proof, SMIG-4.3/server-proof: the MACs, computed here and by the engine.
    let (k, e): ([u8; 32], [u8; 32]) = (page_value("K"), page_value("E"));
    let cid: [u8; 12] = page_value("CID of C2");
    let (client_nonce, server_nonce): ([u8; 16], [u8; 16]) =
        (page_value("nonce_c"), page_value("nonce_s"));
    let client_mac = hmac(&k, &[b"smig client", &cid, &client_nonce, &e]);
    let server_mac = hmac(&k, &[b"smig server", &cid, &client_nonce, &server_nonce, &e]);
    check("MAC of the client", &client_mac);
    check("MAC of the server", &server_mac);
    let connections = TwoConnections::new();
    let entries: [u8; 24] = page_value("entries of C2's SETTINGS");
    assert!(
        connections.settings.windows(24).any(|window| window == entries),
        "SMIG-3.1/client-settings"
    );
    check_frame("JOIN", &connections.join);
    check_frame("JOIN with ACK", &connections.join_ack);
    assert_eq!(connections.join[25..], client_mac);
    assert_eq!(connections.join_ack[25..], server_mac);
}

#[test]
fn a_refusal_matches_the_page() {
    // SMIG-4.6/refusal-reasons
    let mut connections = TwoConnections::new();
    connections.conns[1].0 =
        connections.client.add_connection(NOW, connection_spec(Security::Tls13));
    while let Some(event) = connections.client.poll_event() {
        if let Event::KeyingMaterialNeeded { conn, .. } = event {
            connections.client.handle_keying_material(conn, [7; 32], [7; 16]);
        }
    }
    let flight = connections.client(1).take_output();
    let mut arrival_session = Session::server(Config::server(), NOW);
    let conn = arrival_session.add_connection(NOW, connection_spec(Security::Tls13));
    EngineEnd { session: &mut arrival_session, conn }.handle_input(&flight);
    arrival_session.refuse_join(NOW, conn, JoinRefusal::DifferentIdentity);
    let output = EngineEnd { session: &mut arrival_session, conn }.take_output();
    check_frame("JOIN with REFUSED", &only_frame_of_kind(&output, JOIN));
}

#[test]
fn a_founding_join_on_cleartext_matches_the_page() {
    // SMIG-3.9/cleartext-key
    let app_id = AppId::new(u64::from_be_bytes(page_value("AppID")));
    let mut client = Session::client(Config::client(), app_id, NOW);
    let conn = client.add_connection(NOW, connection_spec(Security::TrustedCleartext));
    let mut end = EngineEnd { session: &mut client, conn };
    end.answer_keying_requests(&KeyingRequest::Random, page_value("K on cleartext"), [0; 16]);
    let flight = end.take_output();
    check_frame("founding JOIN", &only_frame_of_kind(&flight, JOIN));
    let mut server = Session::server(Config::server(), NOW);
    let conn = server.add_connection(NOW, connection_spec(Security::TrustedCleartext));
    let mut end = EngineEnd { session: &mut server, conn };
    end.handle_input(&flight);
    check_frame("its answer", &only_frame_of_kind(&end.take_output(), JOIN));
}

#[test]
fn a_migration_and_its_answers_match_the_page() {
    // SMIG-5.3/mover-barrier, SMIG-5.11/follower-barrier, SMIG-6.1/offer, SMIG-6.2/offer-answered
    let mut connections = TwoConnections::new();
    let (_, server_key) = connections.exchange();
    let to = connections.conns[1].1;
    connections
        .server
        .migrate(NOW, server_key, MigrationTarget::Connection(to))
        .expect("C2 is joined");
    check_frame(
        "MIGRATE of stream 1 to 2 on C2",
        &only_frame_of_kind(&connections.server_to_client(0), MIGRATE),
    );
    check_frame(
        "its accepting answer",
        &only_frame_of_kind(&connections.client_to_server(0), MIGRATE),
    );
    let (client_key, server_key) = connections.exchange();
    connections
        .server
        .migrate(NOW, server_key, MigrationTarget::Offer)
        .expect("it was not offered before");
    check_frame(
        "an offer of stream 3",
        &only_frame_of_kind(&connections.server_to_client(0), MIGRATE),
    );
    connections.client.decline_offer(client_key);
    check_frame("its decline", &only_frame_of_kind(&connections.client_to_server(0), MIGRATE));
}

#[test]
fn every_value_of_the_page_is_checked() {
    let names = page().into_keys();
    let source = include_str!("vectors.rs");
    for name in names {
        assert!(source.contains(&format!("\"{name}\"")), "spec/vectors.md: {name} is in no test");
    }
}
