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
    StreamKey,
};

const PAGE: &str = include_str!("../../../spec/vectors.md");
const NOW: Instant = Instant::from_nanos(0);
const MIGRATE: u8 = 0xf5;
const JOIN: u8 = 0xf6;

/// Returns the page's values: `NAME = hex` in its code blocks; hex may continue on the next lines.
fn page() -> BTreeMap<String, Vec<u8>> {
    let mut values = BTreeMap::<String, Vec<u8>>::new();
    let mut last = None;
    for line in PAGE.lines() {
        let (name, hex) = match line.split_once(" = ") {
            Some((name, hex)) if !line.starts_with('|') => (Some(name.trim().to_owned()), hex),
            _ if line.starts_with("    ") => (last.clone(), line),
            _ => (None, ""),
        };
        last.clone_from(&name);
        let Some(name) = name else { continue };
        let digits: String = hex.split_whitespace().collect();
        let bytes = (0..digits.len() / 2)
            .map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).expect("hex"));
        values.entry(name).or_default().extend(bytes);
    }
    values
}

/// Returns the page's value of `name`.
fn given<const N: usize>(name: &str) -> [u8; N] {
    let value = page().remove(name).unwrap_or_else(|| panic!("spec/vectors.md lacks {name}"));
    value.try_into().unwrap_or_else(|value| panic!("{name} has not {N} bytes: {value:?}"))
}

/// Checks that the page's value of `name` is what the engine produced.
#[track_caller]
fn check(name: &str, made: &[u8]) {
    check_line(name, made, &words(made));
}

/// The same for a frame: length, type, flags and stream, then the payload on separate lines.
#[track_caller]
fn check_frame(name: &str, made: &[u8]) {
    let (head, payload) = made.split_at(9);
    let head = [&head[..3], &head[3..4], &head[4..5], &head[5..]].map(words);
    check_line(name, made, &format!("{}\n    {}", head.join(" "), words(payload)));
}

#[track_caller]
fn check_line(name: &str, made: &[u8], right: &str) {
    let said = page().remove(name).unwrap_or_default();
    assert!(said == made, "spec/vectors.md is wrong; it should say\n{name} = {right}\n");
}

/// Formats hex in words of four bytes, eight words per line.
fn words(bytes: &[u8]) -> String {
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
struct End<'a> {
    session: &'a mut Session,
    conn: ConnId,
}

impl End<'_> {
    fn output(&mut self) -> Vec<u8> {
        let mut out = OutputBuffer::new();
        self.session.poll_transmit(NOW, self.conn, usize::MAX, &mut out);
        let mut slices = [IoSlice::new(&[]); 64];
        let used = out.chunks(&mut slices);
        slices[..used].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    fn input(&mut self, bytes: &[u8]) {
        self.session.handle_input(NOW, self.conn, &mut BytesMut::from(bytes));
    }

    /// Answers every request for keying material; each must be `expected`.
    fn key(&mut self, expected: &KeyingRequest, material: [u8; 32], nonce: [u8; 16]) {
        let mut asked = 0;
        while let Some(event) = self.session.poll_event() {
            if let Event::KeyingMaterialNeeded { conn, request } = event {
                assert_eq!((conn, &request), (self.conn, expected));
                self.session.handle_keying_material(conn, material, nonce);
                asked += 1;
            }
        }
        assert_eq!(asked, 1, "{expected:?}");
    }
}

/// Returns the only frame of this type in a connection's output.
#[track_caller]
fn frame(mut output: &[u8], kind: u8) -> Vec<u8> {
    output = output.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(output);
    let mut found = None;
    while !output.is_empty() {
        let length = u32::from_be_bytes([0, output[0], output[1], output[2]]) as usize;
        let (frame, rest) = output.split_at(9 + length);
        if frame[3] == kind {
            assert!(found.replace(frame.to_vec()).is_none(), "two frames of type {kind:#x}");
        }
        output = rest;
    }
    found.unwrap_or_else(|| panic!("no frame of type {kind:#x}"))
}

fn spec(security: Security) -> ConnectionSpec {
    ConnectionSpec { security, identity: Identity([0; 32]) }
}

fn request(label: &'static str, context: &[u8]) -> KeyingRequest {
    KeyingRequest::Exporter { label, context: context.to_vec() }
}

/// A session over TLS with two connections, C1 and C2, and the frames that created it.
struct Two {
    client: Session,
    server: Session,
    /// The client's id and the server's id of each connection.
    lines: [(ConnId, ConnId); 2],
    settings: Vec<u8>,
    join: Vec<u8>,
    joined: Vec<u8>,
}

impl Two {
    fn client(&mut self, line: usize) -> End<'_> {
        End { session: &mut self.client, conn: self.lines[line].0 }
    }

    fn server(&mut self, line: usize) -> End<'_> {
        End { session: &mut self.server, conn: self.lines[line].1 }
    }

    fn up(&mut self, line: usize) -> Vec<u8> {
        let bytes = self.client(line).output();
        self.server(line).input(&bytes);
        bytes
    }

    fn down(&mut self, line: usize) -> Vec<u8> {
        let bytes = self.server(line).output();
        self.client(line).input(&bytes);
        bytes
    }

    fn new() -> Self {
        let app: [u8; 8] = given("AppID");
        let k = exporter(&given::<32>("secret of C1"), "EXPORTER-smig-session", &app);
        let cid: [u8; 12] = given("CID of C2");
        let e = exporter(&given::<32>("secret of C2"), "EXPORTER-smig-join", &cid);
        let app_id = AppId::new(u64::from_be_bytes(app));
        let mut client = Session::client(Config::client(), app_id, NOW);
        let mut server = Session::server(Config::server(), NOW);
        let first = (
            client.add_connection(NOW, spec(Security::Tls13)),
            server.add_connection(NOW, spec(Security::Tls13)),
        );
        let mut two = Self {
            client,
            server,
            lines: [first; 2],
            settings: vec![],
            join: vec![],
            joined: vec![],
        };
        two.up(0);
        two.server(0).key(&request("EXPORTER-smig-session", &app), k, [0; 16]);
        two.down(0);
        two.client(0).key(&request("EXPORTER-smig-session", &app), k, [0; 16]);
        two.up(0);
        two.lines[1].0 = two.client.add_connection(NOW, spec(Security::Tls13));
        two.client(1).key(&request("EXPORTER-smig-join", &cid), e, given("nonce_c"));
        let flight = two.client(1).output();
        // C2 reaches a separate session, which hands it over.
        let mut other = Session::server(Config::server(), NOW);
        let conn = other.add_connection(NOW, spec(Security::Tls13));
        End { session: &mut other, conn }.input(&flight);
        let detached = other.detach(conn).expect("its JOIN is undecided");
        assert_eq!(detached.exporter_request(), request("EXPORTER-smig-join", &cid));
        let proof = two.server.verify_join(&detached, e).expect("the proof is right");
        two.lines[1].1 = two.server.attach(NOW, detached, &proof, given("nonce_s"));
        two.settings = frame(&flight, 4);
        two.join = frame(&flight, JOIN);
        two.joined = frame(&two.down(1), JOIN);
        two
    }

    /// Sends a request on C1 and its response head.
    fn exchange(&mut self) -> (StreamKey, StreamKey) {
        let head = RequestHead {
            method: Method::GET,
            uri: Uri::from_static("https://a.example/"),
            protocol: None,
            headers: HeaderMap::new(),
        };
        let conn = Some(self.lines[0].0);
        let asked = self.client.open(NOW, conn, &head, EndStream::Yes).expect("it takes streams");
        self.up(0);
        let mut taken = None;
        while let Some(event) = self.server.poll_event() {
            if let Event::Request { stream, .. } = event {
                taken = Some(stream);
            }
        }
        let taken = taken.expect("the request came");
        let ok = ResponseHead { status: http::StatusCode::OK, headers: HeaderMap::new() };
        self.server.send_response(taken, &ok, EndStream::No).expect("nothing was sent");
        self.server.send_data(taken, Bytes::from_static(b"x"), EndStream::No).expect("open");
        self.down(0);
        (asked, taken)
    }
}

#[test]
fn keys_are_exporters_of_both_connections() {
    // SMIG-3.7/session-key, SMIG-4.1/client-proof: K and E from TLS secrets, and the exporter
    // arguments that the engine requests.
    let app: [u8; 8] = given("AppID");
    check("K", &exporter(&given::<32>("secret of C1"), "EXPORTER-smig-session", &app));
    let cid: [u8; 12] = given("CID of C2");
    assert_eq!(cid[..8], app);
    check("E", &exporter(&given::<32>("secret of C2"), "EXPORTER-smig-join", &cid));
    Two::new();
}

#[test]
fn a_join_and_its_answers_are_these_bytes() {
    // SMIG-4.1/client-proof, SMIG-4.3/server-proof: the MACs, computed here and by the engine.
    let (k, e): ([u8; 32], [u8; 32]) = (given("K"), given("E"));
    let cid: [u8; 12] = given("CID of C2");
    let (ours, theirs): ([u8; 16], [u8; 16]) = (given("nonce_c"), given("nonce_s"));
    let client = hmac(&k, &[b"smig client", &cid, &ours, &e]);
    let server = hmac(&k, &[b"smig server", &cid, &ours, &theirs, &e]);
    check("MAC of the client", &client);
    check("MAC of the server", &server);
    let two = Two::new();
    let entries: [u8; 24] = given("entries of C2's SETTINGS");
    assert!(two.settings.windows(24).any(|window| window == entries), "SMIG-3.1/client-settings");
    check_frame("JOIN", &two.join);
    check_frame("JOIN with ACK", &two.joined);
    assert_eq!(two.join[25..], client);
    assert_eq!(two.joined[25..], server);
}

#[test]
fn a_refusal_is_these_bytes() {
    // SMIG-4.6/refusal-reasons
    let mut two = Two::new();
    two.lines[1].0 = two.client.add_connection(NOW, spec(Security::Tls13));
    while let Some(event) = two.client.poll_event() {
        if let Event::KeyingMaterialNeeded { conn, .. } = event {
            two.client.handle_keying_material(conn, [7; 32], [7; 16]);
        }
    }
    let flight = two.client(1).output();
    let mut other = Session::server(Config::server(), NOW);
    let conn = other.add_connection(NOW, spec(Security::Tls13));
    End { session: &mut other, conn }.input(&flight);
    other.refuse_join(NOW, conn, JoinRefusal::DifferentIdentity);
    let output = End { session: &mut other, conn }.output();
    check_frame("JOIN with REFUSED", &frame(&output, JOIN));
}

#[test]
fn a_founding_join_on_cleartext_is_these_bytes() {
    // SMIG-3.9/cleartext-key
    let app_id = AppId::new(u64::from_be_bytes(given("AppID")));
    let mut client = Session::client(Config::client(), app_id, NOW);
    let conn = client.add_connection(NOW, spec(Security::TrustedCleartext));
    let mut end = End { session: &mut client, conn };
    end.key(&KeyingRequest::Random, given("K on cleartext"), [0; 16]);
    let flight = end.output();
    check_frame("founding JOIN", &frame(&flight, JOIN));
    let mut server = Session::server(Config::server(), NOW);
    let conn = server.add_connection(NOW, spec(Security::TrustedCleartext));
    let mut end = End { session: &mut server, conn };
    end.input(&flight);
    check_frame("its answer", &frame(&end.output(), JOIN));
}

#[test]
fn a_move_and_its_answers_are_these_bytes() {
    // SMIG-5.3/mover-barrier, SMIG-5.11/follower-barrier, SMIG-6.1/offer, SMIG-6.2/offer-answered
    let mut two = Two::new();
    let (_, taken) = two.exchange();
    let to = two.lines[1].1;
    two.server.migrate(NOW, taken, MigrationTarget::Connection(to)).expect("C2 is joined");
    check_frame("MIGRATE of stream 1 to 2 on C2", &frame(&two.down(0), MIGRATE));
    check_frame("its accepting answer", &frame(&two.up(0), MIGRATE));
    let (asked, taken) = two.exchange();
    two.server.migrate(NOW, taken, MigrationTarget::Offer).expect("it was not offered before");
    check_frame("an offer of stream 3", &frame(&two.down(0), MIGRATE));
    two.client.decline_offer(asked);
    check_frame("its decline", &frame(&two.up(0), MIGRATE));
}

#[test]
fn the_page_says_nothing_that_is_not_checked() {
    let names = page().into_keys();
    let used = include_str!("vectors.rs");
    for name in names {
        assert!(used.contains(&format!("\"{name}\"")), "spec/vectors.md: {name} is in no test");
    }
}
