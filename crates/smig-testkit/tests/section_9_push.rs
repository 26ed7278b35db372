//! spec/smig.md section 9: server push.

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Event, Push, PushError, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, Peer, Setup, request_head};

/// A client engine with push enabled, with a page on stream 1 and the promised stream 2 of C1.
fn client_with_promise() -> (Peer, StreamKey) {
    let config = Config { push: Push::Enabled, ..Config::client() };
    let mut peer = Peer::connected_to_client(config).with_spare();
    peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, push_promise(1, 2, headers(0).get("/style.css")));
    let key = peer.take_event(|event| match event {
        Event::Pushed { stream, .. } => Some(*stream),
        _ => None,
    });
    (peer, key)
}

/// A server engine that promised stream 2 on stream 1 of C1.
fn server_with_promise() -> (Peer, StreamKey) {
    let setup = Setup::new(Config::server()).with_setting(setting::ENABLE_PUSH, 1);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    peer.connect();
    let page = peer.get(C1, 1);
    let head = request_head(Method::GET);
    let key = peer.with_session(|session, now| session.push(now, page, &head)).unwrap();
    peer.expect(C1, push_promise(1, 2, headers(0).get("/")));
    (peer, key)
}

#[test]
fn a_promise_after_the_clients_goaway_is_ignored() {
    // RFC 9113 section 6.8, and SMIG-9.1/push: the GOAWAY informs the server that the promise is not
    // expected.
    let mut peer = Peer::connected_to_client(Config { push: Push::Enabled, ..Config::client() });
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let conn = peer.conn_id(C1);
    peer.with_session(|session, now| session.drain(now, conn));
    peer.expect(C1, goaway(0x7fff_ffff, ErrorCode::NoError));
    let Frame::Ping(opaque) = peer.next(C1) else { panic!("then PING") };
    peer.send(C1, pong(opaque));
    peer.expect(C1, goaway(0, ErrorCode::NoError));
    peer.send(C1, push_promise(1, 2, headers(0).get("/style.css")));
    peer.send(C1, headers(2).status(200).end());
    assert_eq!(peer.session().stream_count(), 1, "the promise is ignored");
    peer.send(C1, headers(1).status(204).end());
    assert_eq!(peer.take_response(key), 204);
    peer.expect_silence();
}

#[test]
fn a_client_turns_push_off_by_default() {
    // SMIG-9.1/push
    let mut peer = Peer::for_client(Setup::new(Config::client()));
    peer.open_transport();
    let entries = peer.take_preface(C1);
    assert!(entries.contains(&(setting::ENABLE_PUSH, 0)));
    peer.send_preface(C1);
    peer.expect(C1, settings_ack());
    peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, push_promise(1, 2, headers(0).get("/style.css")));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    // SMIG-9.1/push, a server: it does not push to such a client.
    let setup = Setup::new(Config::server()).with_setting(setting::ENABLE_PUSH, 0);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    let page = peer.get(C1, 1);
    let head = request_head(Method::GET);
    let refused = peer.with_session(|session, now| session.push(now, page, &head));
    assert_eq!(refused, Err(PushError::Refused));
    peer.expect_silence();
}

#[test]
fn invalid_promises_are_refused() {
    // RFC 9113 section 8.4: a new even id, on an open stream of the client.
    for (stream, promised) in [(1, 3), (1, 2), (2, 4), (9, 4)] {
        let (mut peer, _) = client_with_promise();
        peer.send(C1, push_promise(stream, promised, headers(0).get("/")));
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
    // Also on a carrier: its id is even, but its stream is the client's.
    let config = Config { push: Push::Enabled, ..Config::client() };
    let mut peer = Peer::connected_to_client(config).with_spare();
    peer.open(C1, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.send(C2, push_promise(2, 4, headers(0).get("/")));
    peer.take_event(|event| matches!(event, Event::Pushed { .. }).then_some(()));
    // Promises above the limit and of unsafe methods are refused one by one.
    let config = Config { push: Push::Enabled, max_concurrent_streams: 1, ..Config::client() };
    let mut peer = Peer::connected_to_client(config);
    peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, push_promise(1, 2, headers(0).post("/")));
    peer.expect(C1, reset(2, ErrorCode::ProtocolError));
    peer.send(C1, push_promise(1, 4, headers(0).get("/")));
    peer.send(C1, push_promise(1, 6, headers(0).get("/")));
    peer.expect(C1, reset(6, ErrorCode::RefusedStream));
    peer.send(C1, headers(6).status(200).end());
    peer.expect_silence();
}

#[test]
fn a_carriers_id_cannot_be_promised() {
    // SMIG-5.21/unbound-frames: a carrier's frames have arrived on the id, so it is not idle any more.
    for frame in [data(2, "x"), window_update(2, 1)] {
        let config = Config { push: Push::Enabled, ..Config::client() };
        let mut peer = Peer::connected_to_client(config).with_spare();
        peer.open(C2, Method::GET, EndStream::Yes);
        peer.send(C2, frame);
        peer.send(C2, push_promise(1, 2, headers(0).get("/style.css")));
        peer.expect_goaway(C2, ErrorCode::ProtocolError);
        assert_eq!(peer.session().check_invariants(), [""; 0]);
    }
}

#[test]
fn a_client_follows_the_migration_of_a_promised_stream() {
    // SMIG-9.1/push: before its HEADERS, and in the middle of its body (Figure 2 for a pushed stream).
    for before_head in [true, false] {
        let (mut peer, key) = client_with_promise();
        let cid = peer.cid(C2);
        if !before_head {
            peer.send(C1, headers(2).status(200));
            peer.send(C1, data(2, "body "));
        }
        peer.send(C1, migrate(2, cid, 2));
        peer.expect(C1, accept(2, cid, 2).end());
        assert_eq!(peer.location(key), (C2, 2));
        if before_head {
            peer.send(C2, headers(2).status(200));
            peer.send(C2, data(2, "body "));
        }
        peer.send(C2, data(2, "{}").end());
        assert_eq!(peer.take_response(key), 200);
        assert_eq!(&peer.read_to_end(key)[..], b"body {}");
        peer.expect_silence();
    }
}

#[test]
fn nothing_is_promised_on_a_promised_stream() {
    // RFC 9113 section 8.4
    let (mut peer, key) = server_with_promise();
    let head = request_head(Method::GET);
    let pushed = peer.with_session(|session, now| session.push(now, key, &head));
    assert_eq!(pushed, Err(PushError::UnsuitableParent));
    peer.expect_silence();
}

#[test]
fn a_promised_stream_may_be_migrated_by_either_end() {
    // SMIG-9.1/push
    let (mut peer, key) = server_with_promise();
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, "body", EndStream::Yes);
    peer.expect(C1, migrate(2, cid, 2));
    peer.expect(C2, headers(2).status(200));
    peer.expect(C2, data(2, "body").end());
    peer.send(C1, accept(2, cid, 2).end());
    peer.expect_silence();
    // SMIG-9.1/push: a client may migrate it as well.
    let (mut peer, key) = server_with_promise();
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(2).status(200));
    peer.send(C1, migrate(2, cid, 1).end());
    peer.expect(C1, accept(2, cid, 1));
    peer.send_body(key, "body", EndStream::Yes);
    peer.expect(C2, data(1, "body").end());
}

#[test]
fn a_client_may_refuse_a_promise_that_migrates() {
    // SMIG-9.1/push: with RST_STREAM on the promised stream, as usual.
    let (mut peer, key) = client_with_promise();
    let cid = peer.cid(C2);
    peer.with_session(|session, _| session.reset(key, ErrorCode::RefusedStream));
    peer.expect(C1, reset(2, ErrorCode::RefusedStream));
    peer.send(C2, headers(2).status(200));
    peer.send(C1, migrate(2, cid, 2));
    peer.expect(C1, decline(2).end());
    peer.expect_silence();
    // SMIG-9.1/push, the server: the refusal crosses its MIGRATE.
    let (mut peer, key) = server_with_promise();
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(2, cid, 2));
    peer.send(C1, reset(2, ErrorCode::RefusedStream));
    assert_eq!(peer.take_error(key).code, ErrorCode::RefusedStream);
    peer.send(C1, decline(2).end());
    peer.expect_silence();
}
