//! spec/smig.md section 8: resets, completion, the end of a connection, GOAWAY.

use core::time::Duration;

use http::header::EXPIRES;
use http::{HeaderMap, HeaderValue, Method};
use smig_proto::{Cause, Config, EndStream, ErrorCode, Event, Initiator, Processed, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, ConnHandle, Peer, Setup};

/// A server engine that responds on stream 1 of C1 while the upload continues.
fn server() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    (peer, key)
}

/// The same with an open migration to stream 2 of C2.
fn server_with_open_migration() -> (Peer, StreamKey) {
    let (mut peer, key) = server();
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    (peer, key)
}

/// A client engine with a download on stream 1 of C1, whose head has arrived.
fn client() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(200));
    peer.take_response(key);
    (peer, key)
}

fn cancel(peer: &mut Peer, key: StreamKey) {
    peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
}

// The table of resets, in the order of its rows.

#[test]
fn before_any_migrate_a_reset_is_sent_on_s1() {
    let (mut peer, key) = server();
    cancel(&mut peer, key);
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    peer.expect_silence();
}

#[test]
fn a_mover_resets_on_the_carrier() {
    // SMIG-8.2/reset-on-s2, row "mover, before the answer"; SMIG-8.3/reset-remembered: after an accepting
    // answer nothing follows.
    let (mut peer, key) = server_with_open_migration();
    cancel(&mut peer, key);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    let cid = peer.cid(C2);
    peer.send(C1, accept(1, cid, 2));
    peer.send(C1, decline(1));
    peer.expect_silence();
    // SMIG-8.3/reset-remembered: after a decline, a reset with the same code follows on S1.
    let (mut peer, key) = server_with_open_migration();
    peer.with_session(|session, _| session.reset(key, ErrorCode::ConnectError));
    peer.expect(C2, reset(2, ErrorCode::ConnectError));
    peer.send(C1, data(1, "late"));
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::ConnectError));
    peer.send(C1, data(1, "later"));
    peer.expect_silence();
    // SMIG-2.7/stray-answer: an answer that names another carrier closes the connection, and the migration
    // does not count as open any more.
    let (mut peer, key) = server_with_open_migration();
    cancel(&mut peer, key);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.send(C1, accept(1, cid, 4));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    assert_eq!(peer.session().check_invariants(), [""; 0]);
    // SMIG-8.2/reset-on-s2 with C2 closed: no reset, then one on S1 after the decline.
    let (mut peer, key) = server_with_open_migration();
    peer.lose(C2);
    cancel(&mut peer, key);
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
}

#[test]
fn a_reset_by_the_follower_on_the_carrier_is_remembered() {
    // SMIG-8.3/reset-remembered: "by either end".
    let (mut peer, key) = server_with_open_migration();
    peer.send(C2, reset(2, ErrorCode::InternalError));
    assert_eq!(peer.take_error(key).code, ErrorCode::InternalError);
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::InternalError));
    peer.expect_silence();
}

#[test]
fn a_reset_on_s1_that_crosses_the_migrate_stops_the_mover() {
    // SMIG-8.1/reset-crosses: the mover closes S2 if it has sent frames there; the decline is read and
    // dropped.
    let (mut peer, key) = server_with_open_migration();
    peer.send_body(key, "x", EndStream::No);
    peer.expect(C2, data(2, "x"));
    peer.send(C1, reset(1, ErrorCode::Cancel));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    let error = peer.take_error(key);
    assert_eq!((error.code, error.initiator), (ErrorCode::Cancel, Initiator::Peer));
    peer.send(C1, decline(1).end());
    peer.expect_silence();
    // SMIG-8.1/reset-crosses with SMIG-6.11/close-abandoned: no frame was sent there, so that none is needed
    // to close it.
    let (mut peer, _) = server_with_open_migration();
    peer.send(C1, reset(1, ErrorCode::Cancel));
    peer.send(C1, decline(1).end());
    peer.expect_silence();
    // SMIG-8.1/reset-crosses, the resetter: it declines the MIGRATE that it then reads.
    let (mut peer, key) = client();
    let cid = peer.cid(C2);
    cancel(&mut peer, key);
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    peer.send(C2, data(2, "x"));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    peer.send(C2, data(2, "y"));
    peer.send(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
}

#[test]
fn a_follower_resets_on_the_carrier_once_it_has_accepted() {
    // Row "follower, after an accepting answer".
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let other_key = peer.open(C2, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    cancel(&mut peer, key);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.expect_not_failed(other_key);
    peer.expect_silence();
}

#[test]
fn after_the_answer_resets_use_the_streams_current_id() {
    // Rows "either, after a decline" and "either, after the accepting answer".
    let (mut peer, key) = server_with_open_migration();
    peer.send(C1, decline(1));
    cancel(&mut peer, key);
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    let (mut peer, key) = server_with_open_migration();
    let cid = peer.cid(C2);
    peer.send(C1, accept(1, cid, 2));
    cancel(&mut peer, key);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
}

#[test]
fn a_client_that_yields_repeats_its_reset() {
    // SMIG-8.3/reset-remembered: the client accepts the server's migration and resets there, without
    // END_STREAM: the direction was cut off, not completed.
    let mut peer = Peer::connected_to_client(Config::client()).with_spare().with_spare();
    let key = peer.open(C1, Method::POST, EndStream::No);
    let (c1, c2, c3) = (peer.cid(C1), peer.cid(C2), peer.cid(C3));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 1));
    peer.with_session(|session, _| session.reset(key, ErrorCode::ConnectError));
    peer.expect(C2, reset(1, ErrorCode::ConnectError));
    peer.send(C3, data(2, "early"));
    peer.send(C1, migrate(1, c3, 2));
    peer.expect(C1, accept(1, c3, 2));
    peer.expect(C3, reset(2, ErrorCode::ConnectError));
    peer.send(C3, data(2, "late"));
    peer.expect_silence();
    // SMIG-8.3/reset-remembered: if it cannot accept, it declines and resets on S1.
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(3, c2, 3));
    peer.with_session(|session, _| session.reset(key, ErrorCode::ConnectError));
    peer.expect(C2, reset(3, ErrorCode::ConnectError));
    peer.send(C1, migrate(3, c1, 4));
    peer.expect(C1, reset(3, ErrorCode::ConnectError));
    peer.expect(C1, decline(3).end());
    peer.expect_silence();
}

#[test]
fn a_cancelled_stream_that_is_alone_closes_its_connection() {
    // SMIG-8.4/cancel-by-close: the engine requests a TCP reset instead of RST_STREAM.
    let (mut peer, key) = client();
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    let conn = peer.conn_id(C2);
    peer.with_session(|session, _| session.release(key));
    let aborted = peer.take_event(|event| match event {
        Event::AbortTransport { conn } => Some(*conn),
        _ => None,
    });
    assert_eq!(aborted, conn);
    assert_eq!(peer.session().local_resets(), 0, "the server sees no reset of a stream");
    // SMIG-8.4/cancel-by-close: the session continues.
    peer.open(C1, Method::GET, EndStream::Yes);
    peer.connect();
    // SMIG-8.4/cancel-by-close, the peer: C2 ends as in SMIG-8.10/c2-ends-late; other streams are not
    // affected.
    let (mut peer, key) = server_with_open_migration();
    peer.send(C1, accept(1, cid, 2));
    let other_key = peer.get(C1, 3);
    peer.lose(C2);
    assert_eq!(peer.take_error(key).initiator, Initiator::Transport);
    peer.expect_not_failed(other_key);
    peer.expect_silence();
}

fn try_take_abort(peer: &mut Peer) -> bool {
    peer.try_take_event(|event| matches!(event, Event::AbortTransport { .. }).then_some(()))
        .is_some()
}

#[test]
fn cancelling_an_ended_stream_closes_no_connection() {
    // SMIG-8.4/cancel-by-close: the cancelled stream has ended already, and another one is alone on C2.
    for end in [data(2, "x").end(), reset(2, ErrorCode::InternalError)] {
        let (mut peer, key) = client();
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 2));
        peer.expect(C1, accept(1, cid, 2).end());
        let other_key = peer.open(C2, Method::GET, EndStream::Yes);
        peer.send(C2, end);
        cancel(&mut peer, key);
        assert!(!try_take_abort(&mut peer));
        peer.expect_not_failed(other_key);
        peer.expect_silence();
        // Data received completely can still be read.
        if peer.session().stream(key).is_some_and(|view| view.received_bytes > 0) {
            assert_eq!(&peer.read_to_end(key)[..], b"x");
        }
    }
}

#[test]
fn a_connection_with_an_answer_in_flight_is_not_closed_to_cancel() {
    // SMIG-8.4/cancel-by-close: without the answer, the server would fail the stream that has migrated on
    // (SMIG-8.8/c1-ends-at-mover), even if it is complete here.
    for is_complete in [false, true] {
        let (mut peer, key) = client();
        peer.connect();
        let other_key = peer.open(C1, Method::GET, EndStream::Yes);
        let (c2, c3) = (peer.cid(C2), peer.cid(C3));
        for (from, to) in [(1, 2), (3, 4)] {
            peer.send(C1, migrate(from, c2, to));
            peer.expect(C1, accept(from, c2, to).end());
        }
        peer.pause(C2);
        peer.send(C2, migrate(2, c3, 2));
        if is_complete {
            peer.send(C3, data(2, "whole").end());
        }
        cancel(&mut peer, other_key);
        assert!(!try_take_abort(&mut peer));
        peer.resume(C2);
        peer.expect(C2, accept(2, c3, 2).end());
        peer.expect(C2, reset(4, ErrorCode::Cancel));
        peer.expect_not_failed(key);
        peer.expect_silence();
    }
}

#[test]
fn a_connection_with_an_end_of_upload_in_flight_is_not_closed_to_cancel() {
    // SMIG-8.4/cancel-by-close: a stream that is complete here may not be complete at the peer, also if its
    // end is an empty DATA frame or trailers.
    for (body, has_trailers) in [("tail", false), ("", false), ("", true)] {
        let mut peer = Peer::connected_to_client(Config::client()).with_spare();
        let upload = peer.open(C1, Method::POST, EndStream::No);
        let other_key = peer.open(C1, Method::GET, EndStream::Yes);
        let c2 = peer.cid(C2);
        peer.send(C1, migrate(1, c2, 2));
        peer.expect(C1, accept(1, c2, 2));
        peer.send(C1, migrate(3, c2, 4));
        peer.expect(C1, accept(3, c2, 4).end());
        peer.send(C2, headers(2).status(200).end());
        peer.take_response(upload);
        if has_trailers {
            let fields = HeaderMap::from_iter([(EXPIRES, HeaderValue::from_static("0"))]);
            peer.with_session(|session, _| session.send_trailers(upload, fields)).unwrap();
            peer.expect(C2, headers(2).field("expires", "0").end());
        } else {
            peer.send_body(upload, body, EndStream::Yes);
            peer.expect(C2, data(2, body).end());
        }
        cancel(&mut peer, other_key);
        assert!(!try_take_abort(&mut peer), "{body:?}, trailers: {has_trailers}");
        peer.expect(C2, reset(4, ErrorCode::Cancel));
        peer.expect_silence();
    }
}

// Completion.

#[test]
fn a_complete_stream_still_waits_for_the_answer() {
    // SMIG-8.5/ended-before-answer: an accepting answer is dropped; for the application the stream was
    // complete before.
    let (mut peer, key) = server_with_open_migration();
    peer.send(C1, data(1, "up").end());
    peer.send_body(key, "down", EndStream::Yes);
    peer.expect(C2, data(2, "down").end());
    assert_eq!(&peer.read_to_end(key)[..], b"up");
    peer.with_session(|session, _| session.release(key));
    assert_eq!(peer.session().stream_count(), 1);
    let cid = peer.cid(C2);
    peer.send(C1, accept(1, cid, 2).end());
    assert_eq!(peer.session().stream_count(), 0);
    peer.expect_silence();
    // SMIG-8.5/ended-before-answer: after a decline, everything is sent again (section_5_mover.rs: HEADERS
    // and trailers too).
    let (mut peer, key) = server_with_open_migration();
    peer.send(C1, data(1, "up").end());
    peer.send_body(key, "down", EndStream::Yes);
    peer.expect(C2, data(2, "down").end());
    peer.with_session(|session, _| session.release(key));
    peer.send(C1, decline(1).end());
    peer.expect(C1, data(1, "down").end());
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    assert_eq!(peer.session().stream_count(), 0);
    peer.expect_silence();
}

// The end of a connection.

#[test]
fn c1_ends_before_the_follower_has_read_the_migrate() {
    // SMIG-8.6/c1-ends-unanswered: the stream fails there; frames that wait for it on C2 are dropped after
    // the timeout.
    let (mut peer, key) = client();
    peer.send(C2, data(2, "never named"));
    peer.lose(C1);
    let error = peer.take_error(key);
    assert_eq!((error.initiator, error.processed), (Initiator::Transport, Processed::Maybe));
    peer.advance(Duration::from_secs(11));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    // SMIG-8.6/c1-ends-unanswered: the same after a decline.
    let (mut peer, key) = client();
    let c1 = peer.cid(C1);
    peer.send(C1, migrate(1, c1, 2));
    peer.expect(C1, decline(1).end());
    peer.lose(C1);
    peer.take_error(key);
    peer.expect_silence();
}

#[test]
fn c1_ends_after_the_followers_answer() {
    // SMIG-8.7/c1-ends-accepted
    let (mut peer, key) = client();
    let cid = peer.cid(C2);
    peer.send(C1, data(1, "one "));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.lose(C1);
    peer.send(C2, data(2, "two").end());
    assert_eq!(&peer.read_to_end(key)[..], b"one two");
    peer.expect_not_failed(key);
}

#[test]
fn c1_ends_before_the_mover_has_read_the_answer() {
    // SMIG-8.8/c1-ends-at-mover: the stream fails, and its carrier is reset, whether it was used or not.
    for is_carrier_used in [false, true] {
        let (mut peer, key) = server_with_open_migration();
        if is_carrier_used {
            peer.send_body(key, "x", EndStream::No);
            peer.expect(C2, data(2, "x"));
        }
        peer.lose(C1);
        peer.expect(C2, reset(2, ErrorCode::Cancel));
        assert_eq!(peer.take_error(key).initiator, Initiator::Transport);
        peer.expect_silence();
    }
    // SMIG-8.8/c1-ends-at-mover: END_STREAM was sent, but the peer's was not read: it fails as well.
    let (mut peer, key) = server_with_open_migration();
    peer.send_body(key, "x", EndStream::Yes);
    peer.expect(C2, data(2, "x").end());
    peer.lose(C1);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.take_error(key);
    // SMIG-8.8/c1-ends-at-mover: with both ended the stream is complete, and the carrier is not reset.
    let (mut peer, key) = server_with_open_migration();
    peer.send_body(key, "x", EndStream::Yes);
    peer.expect(C2, data(2, "x").end());
    peer.send(C1, data(1, "up").end());
    peer.lose(C1);
    assert_eq!(&peer.read_to_end(key)[..], b"up");
    peer.expect_not_failed(key);
    peer.expect_silence();
    // SMIG-8.8/c1-ends-at-mover: after the accepting answer the stream continues on C2.
    let (mut peer, key) = server_with_open_migration();
    let cid = peer.cid(C2);
    peer.send(C1, accept(1, cid, 2));
    peer.lose(C1);
    peer.send_body(key, "on", EndStream::Yes);
    peer.expect(C2, data(2, "on").end());
    peer.expect_not_failed(key);
}

#[test]
fn c2_ends_before_the_answer() {
    // SMIG-8.9/c2-ends-early, the mover: it waits on C1; after a decline, it continues there.
    let (mut peer, key) = server_with_open_migration();
    peer.send_body(key, "one", EndStream::No);
    peer.expect(C2, data(2, "one"));
    peer.lose(C2);
    peer.send_body(key, "two", EndStream::Yes);
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.expect(C1, data(1, "onetwo").end());
    peer.expect_silence();
    // SMIG-8.9/c2-ends-early: after an accepting answer (the follower had read the MIGRATE before), the rest
    // is as in SMIG-8.10/c2-ends-late.
    let (mut peer, key) = server_with_open_migration();
    let cid = peer.cid(C2);
    peer.send_body(key, "one", EndStream::No);
    peer.lose(C2);
    peer.send(C1, accept(1, cid, 2));
    assert_eq!(peer.take_error(key).initiator, Initiator::Transport);
    peer.expect_silence_on(C1);
    // SMIG-8.9/c2-ends-early, the follower: it declines.
    let (mut peer, key) = client();
    peer.send(C2, data(2, "lost"));
    peer.lose(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    peer.send(C1, data(1, "here").end());
    assert_eq!(&peer.read_to_end(key)[..], b"here");
}

#[test]
fn data_received_on_c2_before_it_ended_is_kept() {
    // SMIG-8.9/c2-ends-early and SMIG-8.10/c2-ends-late: the client's end arrived on S2, and the complete
    // response was sent there.
    let (mut peer, key) = server_with_open_migration();
    let cid = peer.cid(C2);
    peer.send_body(key, "down", EndStream::Yes);
    peer.expect(C2, data(2, "down").end());
    peer.send(C2, data(2, "up").end());
    peer.lose(C2);
    assert_eq!(peer.read(key).len(), 0, "the answer is missing");
    peer.send(C1, accept(1, cid, 2));
    assert_eq!(&peer.read_to_end(key)[..], b"up");
    peer.expect_not_failed(key);
    peer.expect_silence();
}

#[test]
fn c2_ends_after_the_answer() {
    // SMIG-8.10/c2-ends-late: the stream fails at each end where it is not complete.
    let (mut peer, key) = server_with_open_migration();
    let cid = peer.cid(C2);
    let other_key = peer.get(C1, 3);
    peer.send(C1, accept(1, cid, 2));
    peer.lose(C2);
    let error = peer.take_error(key);
    assert_eq!((error.initiator, error.code), (Initiator::Transport, ErrorCode::Cancel));
    peer.expect_not_failed(other_key);
    let (mut peer, key) = client();
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.close(C2);
    peer.take_error(key);
    peer.expect_silence();
    // SMIG-8.10/c2-ends-late: a complete one does not fail.
    let (mut peer, key) = client();
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.send(C2, data(2, "whole").end());
    peer.lose(C2);
    assert_eq!(&peer.read_to_end(key)[..], b"whole");
    peer.expect_not_failed(key);
}

#[test]
fn unbound_carriers_end_with_their_connection() {
    // SMIG-8.11/ids-go-along: unbound carriers hold no data and do not count any more.
    let smig = smig_proto::SmigConfig { max_open_migrations: 1, ..Default::default() };
    let mut peer =
        Peer::connected_to_client(Config { smig: Some(smig), ..Config::client() }).with_spare();
    peer.connect();
    peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C2, data(2, "x"));
    peer.lose(C2);
    peer.send(C3, data(2, "y"));
    peer.expect_silence();
    assert!(peer.session().has_obligations());
    peer.send(C3, reset(2, ErrorCode::Cancel));
    assert!(!peer.session().has_obligations());
}

fn drain(peer: &mut Peer, handle: ConnHandle) {
    let conn = peer.conn_id(handle);
    peer.with_session(|session, now| session.drain(now, conn));
    let Frame::GoAway { last_stream_id: 0x7fff_ffff, code: ErrorCode::NoError, .. } =
        peer.next(handle)
    else {
        panic!("a warning comes first");
    };
    let Frame::Ping(opaque) = peer.next(handle) else { panic!("then PING") };
    peer.send(handle, pong(opaque));
    let Frame::GoAway { code: ErrorCode::NoError, .. } = peer.next(handle) else {
        panic!("then the last id");
    };
}

#[test]
fn no_graceful_close_while_a_migrate_is_unanswered() {
    // SMIG-8.12/no-close-unanswered: one that this side sent, for an open stream and for one that was reset.
    for reset_first in [false, true] {
        let (mut peer, key) = server_with_open_migration();
        drain(&mut peer, C1);
        if reset_first {
            cancel(&mut peer, key);
            peer.with_session(|session, _| session.release(key));
        }
        assert!(!peer.should_close(C1));
        let cid = peer.cid(C2);
        peer.send(C1, accept(1, cid, 2));
        assert!(peer.should_close(C1));
    }
    // SMIG-8.12/no-close-unanswered: one that this side read and keeps (SMIG-5.12/join-pending), although the
    // stream has ended.
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C1, goaway(1, ErrorCode::NoError));
    peer.send(C1, migrate(1, cid, 2));
    cancel(&mut peer, key);
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    assert!(!peer.should_close(C1));
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    peer.expect(C1, decline(1).end());
    assert!(peer.should_close(C1));
}

#[test]
fn an_unanswered_migrate_times_out() {
    // SMIG-8.13/answer-timeout: after 30 seconds a reset as in SMIG-8.2/reset-on-s2, and an event.
    let (mut peer, key) = server_with_open_migration();
    peer.advance(Duration::from_secs(29));
    peer.expect_silence();
    peer.advance(Duration::from_secs(2));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    assert_eq!(peer.take_limit_hit(), "migration answer time");
    let error = peer.take_error(key);
    assert_eq!((error.initiator, error.cause), (Initiator::Local, Some(Cause::AnswerTimeout)));
    // A late decline is still followed by the reset (SMIG-8.3/reset-remembered).
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
}

// GOAWAY.

#[test]
fn streams_migrate_from_a_draining_connection() {
    // SMIG-8.14/drain-by-moving: after a received GOAWAY, a server's stream can still migrate.
    let (mut peer, key) = server();
    let cid = peer.cid(C2);
    peer.send(C1, goaway(0, ErrorCode::NoError));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, accept(1, cid, 2));
    peer.send_body(key, "on", EndStream::Yes);
    peer.expect(C2, data(2, "on").end());
    // SMIG-8.14/drain-by-moving: a GOAWAY sent by the engine, and the follower's side.
    let (mut peer, key) = server();
    drain(&mut peer, C1);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    assert!(peer.should_close(C1));
    // SMIG-8.14/drain-by-moving: a stream that has left is not affected by C1's GOAWAY.
    let conn = peer.conn_id(C1);
    peer.with_session(|session, now| session.close(now, conn, ErrorCode::NoError, "drained"));
    peer.send_body(key, "on", EndStream::Yes);
    peer.expect(C2, data(1, "on").end());
    let (mut peer, key) = client();
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.send(C1, goaway(0, ErrorCode::NoError));
    peer.send(C2, data(2, "whole").end());
    assert_eq!(&peer.read_to_end(key)[..], b"whole");
    peer.expect_not_failed(key);
}

#[test]
fn a_migrating_stream_that_goaway_excludes_fails() {
    // SMIG-8.15/goaway-excludes-s1: safe to repeat unless a part of the response arrived; the carrier is
    // closed if it was used.
    for is_carrier_used in [false, true] {
        let mut peer = Peer::connected_to_client(Config::client()).with_spare();
        let first_key = peer.open(C1, Method::GET, EndStream::Yes);
        let key = peer.open(C1, Method::POST, EndStream::No);
        let cid = peer.cid(C2);
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(3, cid, 1));
        if is_carrier_used {
            peer.send(C1, headers(3).status(200));
            for _ in 0..263 {
                peer.send(C1, data(3, vec![0; 16_000]));
            }
            peer.read(key);
            peer.expect(C2, window_update(1, 4_208_000));
        }
        peer.send(C1, goaway(1, ErrorCode::NoError));
        let error = peer.take_error(key);
        let processed = if is_carrier_used { Processed::Maybe } else { Processed::No };
        assert_eq!((error.code, error.processed), (ErrorCode::RefusedStream, processed));
        peer.expect_not_failed(first_key);
        if is_carrier_used {
            peer.expect(C2, reset(1, ErrorCode::Cancel));
        }
        peer.expect_silence();
    }
    // SMIG-8.15/goaway-excludes-s1 without a migration, as in RFC 9113.
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, goaway(0, ErrorCode::NoError));
    assert_eq!(peer.take_error(key).processed, Processed::No);
}

#[test]
fn a_bound_carrier_counts_as_processed() {
    // SMIG-8.16/bound-is-processed: the GOAWAY on C2 names at least the accepted 5; the unbound 9 is not
    // included.
    let (mut peer, _) = server();
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 5));
    peer.expect(C1, accept(1, cid, 5));
    peer.send(C2, window_update(9, 1));
    peer.send(C2, raw(kind::PING, 0, 0, [0; 3]));
    assert_eq!(peer.expect_goaway(C2, ErrorCode::FrameSizeError), 5);
    // SMIG-8.16/bound-is-processed: unbound carriers above it end with the GOAWAY; a MIGRATE to them is
    // declined.
    let (mut peer, _) = server();
    peer.send(C2, window_update(9, 1));
    drain(&mut peer, C2);
    assert_eq!(peer.session().connection(peer.conn_id(C2)).unwrap().unbound_carrier_count, 0);
    peer.send(C1, migrate(1, cid, 9));
    peer.expect(C1, decline(1));
}

#[test]
fn a_mover_whose_carrier_goaway_excludes_waits_for_the_answer() {
    // SMIG-8.17/goaway-excludes-s2
    let (mut peer, key) = server_with_open_migration();
    peer.send_body(key, "one", EndStream::No);
    peer.expect(C2, data(2, "one"));
    peer.send(C2, goaway(0, ErrorCode::NoError));
    peer.send_body(key, "two", EndStream::Yes);
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.expect(C1, data(1, "onetwo").end());
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    // SMIG-8.17/goaway-excludes-s2: a GOAWAY that does not exclude it changes nothing.
    let (mut peer, key) = server_with_open_migration();
    peer.send(C2, goaway(2, ErrorCode::NoError));
    peer.send_body(key, "on", EndStream::Yes);
    peer.expect(C2, data(2, "on").end());
}

// Invariants.

#[test]
fn a_body_is_never_truncated_silently() {
    // SMIG-8.18/same-bytes: whatever connection is lost at whatever step of a migration, the reader gets the
    // complete body, or a prefix and then an error.
    for lost_handle in [C1, C2] {
        for step in 0..5 {
            let (mut peer, key) = client();
            let cid = peer.cid(C2);
            let script: [(ConnHandle, Frame); 4] = [
                (C1, data(1, "one ")),
                (C2, data(2, "two ")),
                (C1, migrate(1, cid, 2)),
                (C2, data(2, "three").end()),
            ];
            for (handle, frame) in &script[..step] {
                peer.send(*handle, frame.clone());
            }
            peer.lose(lost_handle);
            for (handle, frame) in &script[step..] {
                if *handle != lost_handle {
                    peer.send(*handle, frame.clone());
                }
            }
            let body = peer.read(key);
            let complete_body = b"one two three";
            assert!(
                complete_body.starts_with(&body),
                "{body:?} with {lost_handle:?} lost at {step}"
            );
            let stream_error = peer.try_take_event(|event| match event {
                Event::Failed { stream, error } if *stream == key => Some(error.clone()),
                _ => None,
            });
            let is_stuck = stream_error.is_none() && body.len() < complete_body.len();
            // The client declined the MIGRATE, and the script does not send the rest on C1.
            let is_declined = lost_handle == C2 && step < 3;
            assert_eq!(is_stuck, is_declined, "{body:?} with {lost_handle:?} lost at {step}");
            if let Some(error) = stream_error {
                assert_eq!(error.initiator, Initiator::Transport);
            }
        }
    }
}
