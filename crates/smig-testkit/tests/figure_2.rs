//! The exchanges of the paper's Figure 2 (SMig, CoNEXT 2016): server or client migrates, with or without a
//! spare; before HEADERS, in the middle of a body, during an upload, for both directions of a tunnel. Pushed
//! streams are in `section_9_push.rs`.

use http::Method;
use smig_proto::{Config, ConnectProtocol, EndStream, Event, Protocol, RequestHead, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, ConnHandle, Peer, Setup};

/// Progress of a response when it migrates.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Progress {
    BeforeHeaders,
    MidBody,
    /// In the middle of the body while the request's body is still being sent.
    MidUpload,
}

const ALL_PROGRESS: [Progress; 3] =
    [Progress::BeforeHeaders, Progress::MidBody, Progress::MidUpload];

/// A server engine that has received a request on stream 1 of C1, with the given progress.
fn responding_server(progress: Progress, connections: usize) -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_server(Config::server());
    for _ in 1..connections {
        peer.connect();
    }
    let is_upload = progress == Progress::MidUpload;
    let key = if is_upload { peer.post(C1, 1) } else { peer.get(C1, 1) };
    if progress != Progress::BeforeHeaders {
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, "one ", EndStream::No);
        peer.expect(C1, headers(1).status(200));
        peer.expect(C1, data(1, "one "));
    }
    if is_upload {
        peer.send(C1, data(1, "up "));
    }
    (peer, key)
}

/// Completes the exchange, with the stream at `id` of `handle` at both ends.
fn finish_response(
    peer: &mut Peer,
    key: StreamKey,
    progress: Progress,
    (handle, id): (ConnHandle, u32),
) {
    if progress == Progress::BeforeHeaders {
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, "one ", EndStream::No);
        peer.expect(handle, headers(id).status(200));
        peer.expect(handle, data(id, "one "));
    }
    if progress == Progress::MidUpload {
        peer.send(handle, data(id, "on").end());
        assert_eq!(&peer.read_to_end(key)[..], b"up on");
    }
    peer.send_body(key, "two", EndStream::Yes);
    peer.expect(handle, data(id, "two").end());
    peer.expect_silence();
}

/// A client engine whose request on stream 1 of C1 has the given progress.
fn requesting_client(progress: Progress, connections: usize) -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_client(Config::client());
    for _ in 1..connections {
        peer.connect();
    }
    let is_upload = progress == Progress::MidUpload;
    let (method, end) =
        if is_upload { (Method::POST, EndStream::No) } else { (Method::GET, EndStream::Yes) };
    let key = peer.open(C1, method, end);
    if is_upload {
        peer.send_body(key, "up ", EndStream::No);
        peer.expect(C1, data(1, "up "));
    }
    if progress != Progress::BeforeHeaders {
        peer.send(C1, headers(1).status(200));
        peer.send(C1, data(1, "one "));
        assert_eq!(peer.take_response(key), 200);
    }
    (peer, key)
}

fn finish_request(
    peer: &mut Peer,
    key: StreamKey,
    progress: Progress,
    (handle, id): (ConnHandle, u32),
) {
    if progress == Progress::MidUpload {
        peer.send_body(key, "on", EndStream::Yes);
        peer.expect(handle, data(id, "on").end());
    }
    if progress == Progress::BeforeHeaders {
        peer.send(handle, headers(id).status(200));
        peer.send(handle, data(id, "one "));
        assert_eq!(peer.take_response(key), 200);
    }
    peer.send(handle, data(id, "two").end());
    assert_eq!(&peer.read_to_end(key)[..], b"one two");
    peer.expect_not_failed(key);
    peer.expect_silence();
}

/// Adds END_STREAM to a MIGRATE or its answer if the client's direction has ended.
fn with_client_end_stream(frame: Frame, progress: Progress) -> Frame {
    if progress == Progress::MidUpload { frame } else { frame.end() }
}

#[test]
fn the_server_migrates_to_a_spare() {
    for progress in ALL_PROGRESS {
        // Server engine.
        let (mut peer, key) = responding_server(progress, 2);
        let cid = peer.cid(C2);
        peer.migrate_to_spare(key).unwrap();
        peer.expect(C1, migrate(1, cid, 2));
        peer.send(C1, with_client_end_stream(accept(1, cid, 2), progress));
        peer.take_migrated(key);
        finish_response(&mut peer, key, progress, (C2, 2));
        // Client engine.
        let (mut peer, key) = requesting_client(progress, 2);
        peer.send(C1, migrate(1, cid, 2));
        peer.expect(C1, with_client_end_stream(accept(1, cid, 2), progress));
        peer.take_migrated(key);
        finish_request(&mut peer, key, progress, (C2, 2));
    }
}

#[test]
fn the_server_offers_without_a_spare() {
    // SMIG-6.1/offer, SMIG-6.2/offer-answered: an offer; the client opens a connection and migrates.
    for progress in ALL_PROGRESS {
        let (mut peer, key) = responding_server(progress, 1);
        peer.offer(key).unwrap();
        peer.expect(C1, offer(1));
        peer.connect();
        let cid = peer.cid(C2);
        peer.send(C1, with_client_end_stream(migrate(1, cid, 1), progress));
        peer.expect(C1, accept(1, cid, 1));
        finish_response(&mut peer, key, progress, (C2, 1));

        let (mut peer, key) = requesting_client(progress, 1);
        peer.send(C1, offer(1));
        peer.connect();
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, with_client_end_stream(migrate(1, cid, 1), progress));
        peer.send(C1, accept(1, cid, 1));
        finish_request(&mut peer, key, progress, (C2, 1));
    }
}

#[test]
fn the_client_migrates_to_a_spare_or_a_new_connection() {
    for progress in ALL_PROGRESS {
        for opens_first in [false, true] {
            let connections = if opens_first { 1 } else { 2 };
            let (mut peer, key) = requesting_client(progress, connections);
            if opens_first {
                peer.connect();
            }
            let cid = peer.cid(C2);
            peer.migrate_to_spare(key).unwrap();
            peer.expect(C1, with_client_end_stream(migrate(1, cid, 1), progress));
            peer.send(C1, accept(1, cid, 1));
            peer.take_migrated(key);
            finish_request(&mut peer, key, progress, (C2, 1));

            let (mut peer, key) = responding_server(progress, connections);
            if opens_first {
                peer.connect();
            }
            peer.send(C1, with_client_end_stream(migrate(1, cid, 1), progress));
            peer.expect(C1, accept(1, cid, 1));
            finish_response(&mut peer, key, progress, (C2, 1));
        }
    }
}

#[test]
fn both_ends_migrate_at_once() {
    for progress in ALL_PROGRESS {
        let (mut peer, key) = responding_server(progress, 3);
        let (c2, c3) = (peer.cid(C2), peer.cid(C3));
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, c2, 2));
        peer.send(C1, with_client_end_stream(migrate(1, c3, 1), progress));
        peer.send(C1, with_client_end_stream(accept(1, c2, 2), progress));
        finish_response(&mut peer, key, progress, (C2, 2));

        let (mut peer, key) = requesting_client(progress, 3);
        peer.migrate(key, C3).unwrap();
        peer.expect(C1, with_client_end_stream(migrate(1, c3, 1), progress));
        peer.send(C1, migrate(1, c2, 2));
        peer.expect(C1, with_client_end_stream(accept(1, c2, 2), progress));
        finish_request(&mut peer, key, progress, (C2, 2));
    }
}

#[test]
fn a_declined_stream_continues_on_its_connection() {
    for progress in ALL_PROGRESS {
        let (mut peer, key) = responding_server(progress, 2);
        let cid = peer.cid(C2);
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, cid, 2));
        peer.send(C1, with_client_end_stream(decline(1), progress));
        finish_response(&mut peer, key, progress, (C1, 1));

        let (mut peer, key) = requesting_client(progress, 2);
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, with_client_end_stream(migrate(1, cid, 1), progress));
        peer.send(C1, decline(1));
        finish_request(&mut peer, key, progress, (C1, 1));
    }
}

#[test]
fn a_stream_migrates_twice_and_back() {
    // C1 to C2 by the server, to C3 by the client, to C1 by the server.
    for progress in ALL_PROGRESS {
        let (mut peer, key) = responding_server(progress, 3);
        let (c1, c2, c3) = (peer.cid(C1), peer.cid(C2), peer.cid(C3));
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, c2, 2));
        peer.send(C1, with_client_end_stream(accept(1, c2, 2), progress));
        peer.send(C2, with_client_end_stream(migrate(2, c3, 1), progress));
        peer.expect(C2, accept(2, c3, 1));
        peer.migrate(key, C1).unwrap();
        peer.expect(C3, migrate(1, c1, 2));
        peer.send(C3, with_client_end_stream(accept(1, c1, 2), progress));
        assert_eq!(peer.session().stream(key).unwrap().migrations, 3);
        finish_response(&mut peer, key, progress, (C1, 2));

        let (mut peer, key) = requesting_client(progress, 3);
        peer.send(C1, migrate(1, c2, 2));
        peer.expect(C1, with_client_end_stream(accept(1, c2, 2), progress));
        peer.migrate(key, C3).unwrap();
        peer.expect(C2, with_client_end_stream(migrate(2, c3, 1), progress));
        peer.send(C2, accept(2, c3, 1));
        peer.send(C3, migrate(1, c1, 2));
        peer.expect(C3, with_client_end_stream(accept(1, c1, 2), progress));
        finish_request(&mut peer, key, progress, (C1, 2));
    }
}

/// Exchanges data in both directions of a tunnel at a server engine.
fn exchange_data(peer: &mut Peer, key: StreamKey, handle: ConnHandle, id: u32) {
    peer.send(handle, data(id, "ping"));
    assert_eq!(&peer.read(key)[..], b"ping");
    peer.send_body(key, "pong", EndStream::No);
    peer.expect(handle, data(id, "pong"));
    peer.expect_silence();
}

#[test]
fn a_connect_tunnel_migrates_with_both_directions() {
    // A server engine; the tunnel is migrated by the server, then by the client.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let (c1, c2) = (peer.cid(C1), peer.cid(C2));
    peer.send(C1, headers(1).connect("example.com:443"));
    let key = peer.take_request();
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    exchange_data(&mut peer, key, C1, 1);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 2));
    peer.send_body(key, "first", EndStream::No);
    peer.expect(C2, data(2, "first"));
    peer.send(C1, data(1, "last on S1"));
    peer.send(C1, accept(1, c2, 2));
    assert_eq!(&peer.read(key)[..], b"last on S1");
    exchange_data(&mut peer, key, C2, 2);
    peer.send(C2, migrate(2, c1, 3));
    peer.expect(C2, accept(2, c1, 3));
    exchange_data(&mut peer, key, C1, 3);
    peer.send(C1, data(3, "").end());
    peer.send_body(key, "bye", EndStream::Yes);
    peer.expect(C1, data(3, "bye").end());
    assert_eq!(peer.read_to_end(key).len(), 0);
    peer.expect_silence();
}

#[test]
fn an_extended_connect_migrates_at_the_client() {
    // RFC 8441: a WebSocket, migrated by the server before the 200 and by the client after it.
    let mut setup = Setup::new(Config::client());
    setup.settings.push((setting::ENABLE_CONNECT_PROTOCOL, 1));
    let mut peer = Peer::for_client(setup);
    peer.connect();
    peer.connect();
    let (c1, c2) = (peer.cid(C1), peer.cid(C2));
    let head = RequestHead {
        method: Method::CONNECT,
        uri: http::Uri::from_static("https://example.com/chat"),
        protocol: Protocol::new("websocket"),
        headers: http::HeaderMap::new(),
    };
    let conn = peer.conn_id(C1);
    let opened =
        peer.with_session(|session, now| session.open(now, Some(conn), &head, EndStream::No));
    let key = opened.unwrap();
    let expected = headers(1).request("CONNECT", "/chat").field(":protocol", "websocket");
    peer.expect(C1, expected);
    peer.send(C1, migrate(1, c2, 2));
    peer.expect(C1, accept(1, c2, 2));
    peer.send(C2, headers(2).status(200));
    assert_eq!(peer.take_response(key), 200);
    peer.send_body(key, "hello", EndStream::No);
    peer.expect(C2, data(2, "hello"));
    peer.migrate(key, C1).unwrap();
    peer.expect(C2, migrate(2, c1, 3));
    peer.send_body(key, "held", EndStream::No);
    peer.send(C2, data(2, "still S2"));
    assert_eq!(&peer.read(key)[..], b"still S2");
    peer.expect_silence();
    peer.send(C2, accept(2, c1, 3));
    peer.expect(C1, data(3, "held"));
    peer.send(C1, data(3, "over").end());
    assert_eq!(&peer.read_to_end(key)[..], b"over");
    peer.send_body(key, "", EndStream::Yes);
    peer.expect(C1, data(3, "").end());
}

#[test]
fn a_server_without_extended_connect_refuses_it() {
    let config = Config { connect_protocol: ConnectProtocol::Disabled, ..Config::server() };
    let mut peer = Peer::connected_to_server(config);
    let head = headers(1).request("CONNECT", "/chat").field(":protocol", "websocket");
    peer.send(C1, head);
    peer.expect(C1, reset(1, smig_proto::ErrorCode::ProtocolError));
    let requested = |event: &Event| matches!(event, Event::Request { .. }).then_some(());
    assert_eq!(peer.try_take_event(requested), None);
}
