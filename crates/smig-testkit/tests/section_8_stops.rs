//! spec/smig.md section 8: a complete response whose upload is stopped by RST_STREAM(NO_ERROR) while it
//! migrates (RFC 9113 section 8.1).

use core::time::Duration;

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, ConnHandle, Peer};

/// A server engine whose response on stream 1 of C1 migrates to stream 2 of C2, while the upload continues.
fn server_with_open_migration() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    (peer, key)
}

/// A client engine with an open MIGRATE of its upload to C2.
fn client_with_open_migration() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::POST, EndStream::No);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1));
    (peer, key)
}

fn send_complete_response(peer: &mut Peer, handle: ConnHandle, stream: u32) {
    peer.send(handle, headers(stream).status(413));
    peer.send(handle, data(stream, "too large").end());
}

fn expect_complete_response(peer: &mut Peer, key: StreamKey) {
    assert_eq!(peer.take_response(key), 413);
    assert_eq!(&peer.read_to_end(key)[..], b"too large");
    peer.expect_not_failed(key);
    peer.with_session(|session, _| session.release(key));
    assert_eq!(peer.session().stream_count(), 0);
    assert!(!peer.session().has_obligations());
    assert_eq!(peer.session().check_invariants(), [""; 0]);
}

#[test]
fn a_complete_response_survives_an_open_migration_of_its_upload() {
    // SMIG-8.20/stop-crosses: the server responded before it read the MIGRATE, and declines.
    let (mut peer, key) = client_with_open_migration();
    send_complete_response(&mut peer, C1, 1);
    peer.send(C1, reset(1, ErrorCode::NoError));
    peer.send(C1, decline(1).end());
    expect_complete_response(&mut peer, key);
    peer.expect_silence();
    // SMIG-6.11/close-abandoned: the carrier on which credit was given is closed.
    let (mut peer, key) = client_with_open_migration();
    peer.send(C1, headers(1).status(200));
    for _ in 0..300 {
        peer.send(C1, data(1, vec![0; 16_000]));
    }
    while !peer.read(key).is_empty() {}
    peer.skip_window_update(C1);
    assert!(peer.skip_window_update(C2).is_some_and(|(stream, _)| stream == 1));
    peer.send(C1, data(1, "end").end());
    peer.send(C1, reset(1, ErrorCode::NoError));
    peer.expect(C2, reset(1, ErrorCode::Cancel));
    assert_eq!(&peer.read_to_end(key)[..], b"end");
    // SMIG-8.8/c1-ends-at-mover: the same without the answer.
    peer.lose(C1);
    peer.expect_not_failed(key);
    assert!(!peer.session().has_obligations());
    // An incomplete response still fails.
    let (mut peer, key) = client_with_open_migration();
    peer.send(C1, headers(1).status(200));
    peer.send(C1, reset(1, ErrorCode::NoError));
    assert_eq!(peer.take_error(key).code, ErrorCode::NoError);
}

#[test]
fn a_complete_response_survives_an_overtaken_answer() {
    // SMIG-5.30/stop-kept: the server accepted, responded and stops the upload; C2 is faster than C1.
    let (mut peer, key) = client_with_open_migration();
    let cid = peer.cid(C2);
    peer.send(C2, data(1, "large").end());
    peer.send(C2, reset(1, ErrorCode::NoError));
    peer.expect_not_failed(key);
    peer.send(C1, headers(1).status(413));
    peer.send(C1, data(1, "too "));
    peer.send(C1, accept(1, cid, 1));
    expect_complete_response(&mut peer, key);
    peer.expect_silence();
    // SMIG-5.30/stop-kept: the response's end arrived before the barrier, and the answer has END_STREAM.
    let (mut peer, key) = client_with_open_migration();
    peer.send(C2, reset(1, ErrorCode::NoError));
    peer.expect_not_failed(key);
    send_complete_response(&mut peer, C1, 1);
    peer.send(C1, accept(1, cid, 1).end());
    expect_complete_response(&mut peer, key);
    peer.expect_silence();
    // SMIG-5.30/stop-kept: a response that is incomplete when the answer arrives has failed.
    let (mut peer, key) = client_with_open_migration();
    peer.send(C2, reset(1, ErrorCode::NoError));
    peer.send(C1, headers(1).status(200));
    peer.send(C1, accept(1, cid, 1));
    assert_eq!(peer.take_error(key).code, ErrorCode::NoError);
    peer.expect_silence();
    // SMIG-5.30/stop-kept: nothing may follow it.
    let (mut peer, key) = client_with_open_migration();
    peer.send(C2, reset(1, ErrorCode::NoError));
    peer.send(C2, data(1, "more"));
    assert_eq!(peer.take_error(key).code, ErrorCode::StreamClosed);
}

#[test]
fn an_upload_is_not_stopped_before_the_answer() {
    // SMIG-8.19/stop-after-answer: after a decline, the response must be sent again.
    for is_accepted in [true, false] {
        let (mut peer, key) = server_with_open_migration();
        let cid = peer.cid(C2);
        peer.send_body(key, "whole", EndStream::Yes);
        peer.expect(C2, data(2, "whole").end());
        peer.with_session(|session, _| session.release(key));
        for _ in 0..5 {
            peer.send(C1, data(1, vec![0; 16_000]));
        }
        peer.advance(Duration::from_secs(5));
        peer.expect_silence();
        if is_accepted {
            peer.send(C1, accept(1, cid, 2));
            peer.expect(C2, reset(2, ErrorCode::NoError));
        } else {
            peer.send(C1, decline(1));
            peer.expect(C1, data(1, "whole").end());
            peer.expect(C2, reset(2, ErrorCode::Cancel));
            peer.advance(Duration::from_secs(5));
            peer.expect(C1, reset(1, ErrorCode::NoError));
        }
        peer.expect_silence();
        assert_eq!(peer.session().stream_count(), 0, "accepted: {is_accepted}");
    }
    // SMIG-8.19/stop-after-answer: the same for a reset by the application.
    let (mut peer, key) = server_with_open_migration();
    let cid = peer.cid(C2);
    peer.send_body(key, "whole", EndStream::Yes);
    peer.expect(C2, data(2, "whole").end());
    peer.with_session(|session, _| session.reset(key, ErrorCode::NoError));
    peer.expect_silence();
    peer.send(C1, accept(1, cid, 2));
    peer.expect(C2, reset(2, ErrorCode::NoError));
    // An incomplete response is cut off as by any reset.
    let (mut peer, key) = server_with_open_migration();
    peer.with_session(|session, _| session.reset(key, ErrorCode::NoError));
    peer.expect(C2, reset(2, ErrorCode::NoError));
}

#[test]
fn an_upload_is_stopped_after_a_decline_without_a_replay() {
    // SMIG-8.19/stop-after-answer: the complete response was sent before the barrier, so the decline is
    // enough to send the reset.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::Yes);
    peer.expect(C1, headers(1).status(200).end());
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2).end());
    peer.with_session(|session, _| session.reset(key, ErrorCode::NoError));
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::NoError));
    peer.expect_silence();
}

#[test]
fn a_stop_on_a_declined_carrier_is_repeated_on_the_stream() {
    // SMIG-8.3/reset-remembered: on S1, with the same code.
    let (mut peer, key) = client_with_open_migration();
    peer.send(C2, reset(1, ErrorCode::NoError));
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::NoError));
    assert_eq!(peer.take_error(key).code, ErrorCode::NoError);
    peer.expect_silence();
}

#[test]
fn frames_on_the_carrier_of_a_stopped_upload_are_dropped() {
    // SMIG-8.20/stop-crosses and SMIG-5.27/abandoned-dropped
    let (mut peer, key) = client_with_open_migration();
    send_complete_response(&mut peer, C1, 1);
    peer.send(C1, reset(1, ErrorCode::NoError));
    peer.send(C2, data(1, "late"));
    peer.send(C1, decline(1).end());
    expect_complete_response(&mut peer, key);
    peer.expect_silence();
}
