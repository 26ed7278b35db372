//! spec/smig.md section 8: resets, completion, the end of a connection, GOAWAY.

use core::time::Duration;

use http::header::EXPIRES;
use http::{HeaderMap, HeaderValue, Method};
use smig_proto::{Config, EndStream, ErrorCode, Event, Initiator, Processed, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, ConnHandle, Peer, Setup};

/// A server engine that responds on stream 1 of C1 while the upload continues.
fn server() -> (Peer, StreamKey) {
    let mut peer = Peer::of_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    (peer, key)
}

/// The same with an open migration to stream 2 of C2.
fn moving() -> (Peer, StreamKey) {
    let (mut peer, key) = server();
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    (peer, key)
}

/// A client engine with a download on stream 1 of C1, whose head has arrived.
fn client() -> (Peer, StreamKey) {
    let mut peer = Peer::of_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(200));
    peer.take_response(key);
    (peer, key)
}

fn cancel(peer: &mut Peer, key: StreamKey) {
    peer.app(|session, _| session.reset(key, ErrorCode::Cancel));
}

// The table of resets, in the order of its rows.

#[test]
fn before_any_migrate_a_reset_goes_to_s1() {
    let (mut peer, key) = server();
    cancel(&mut peer, key);
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    peer.expect_silence();
}

#[test]
fn a_mover_resets_on_the_carrier() {
    // SMIG-8.2/reset-on-s2, row "mover, before the answer"; SMIG-8.3/reset-remembered: after an accepting
    // answer nothing follows.
    let (mut peer, key) = moving();
    cancel(&mut peer, key);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    let cid = peer.cid(C2);
    peer.send(C1, accept(1, cid, 2));
    peer.send(C1, decline(1));
    peer.expect_silence();
    // SMIG-8.3/reset-remembered: after a decline, a reset with the same code follows on S1.
    let (mut peer, key) = moving();
    peer.app(|session, _| session.reset(key, ErrorCode::ConnectError));
    peer.expect(C2, reset(2, ErrorCode::ConnectError));
    peer.send(C1, data(1, "late"));
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::ConnectError));
    peer.send(C1, data(1, "later"));
    peer.expect_silence();
    // SMIG-2.7/stray-answer: an answer that names another carrier closes the connection, and the migration
    // does not count as open any more.
    let (mut peer, key) = moving();
    cancel(&mut peer, key);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.send(C1, accept(1, cid, 4));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    assert_eq!(peer.session().check_invariants(), [""; 0]);
    // SMIG-8.2/reset-on-s2 with C2 closed: no reset, then one on S1 after the decline.
    let (mut peer, key) = moving();
    peer.lose(C2);
    cancel(&mut peer, key);
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
}

#[test]
fn a_reset_that_the_movers_peer_sends_on_the_carrier_is_remembered() {
    // SMIG-8.3/reset-remembered: "by either end".
    let (mut peer, key) = moving();
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
    let (mut peer, key) = moving();
    peer.body(key, "x", EndStream::No);
    peer.expect(C2, data(2, "x"));
    peer.send(C1, reset(1, ErrorCode::Cancel));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    let error = peer.take_error(key);
    assert_eq!((error.code, error.initiator), (ErrorCode::Cancel, Initiator::Peer));
    peer.send(C1, decline(1).end());
    peer.expect_silence();
    // SMIG-8.1/reset-crosses with SMIG-6.11/close-abandoned: no frame was sent there, so that none is needed
    // to close it.
    let (mut peer, _) = moving();
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
    let mut peer = Peer::of_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let other = peer.open(C2, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    cancel(&mut peer, key);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.expect_unharmed(other);
    peer.expect_silence();
}

#[test]
fn after_the_answer_both_reset_where_the_stream_is() {
    // Rows "either, after a decline" and "either, after the accepting answer".
    let (mut peer, key) = moving();
    peer.send(C1, decline(1));
    cancel(&mut peer, key);
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    let (mut peer, key) = moving();
    let cid = peer.cid(C2);
    peer.send(C1, accept(1, cid, 2));
    cancel(&mut peer, key);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
}

#[test]
fn a_client_that_gives_up_a_move_brings_its_reset_along() {
    // SMIG-8.3/reset-remembered: the client accepts the server's migration and resets there, without
    // END_STREAM: the direction was cut off, not completed.
    let mut peer = Peer::of_client(Config::client()).with_spare().with_spare();
    let key = peer.open(C1, Method::POST, EndStream::No);
    let (c1, c2, c3) = (peer.cid(C1), peer.cid(C2), peer.cid(C3));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 1));
    peer.app(|session, _| session.reset(key, ErrorCode::ConnectError));
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
    peer.app(|session, _| session.reset(key, ErrorCode::ConnectError));
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
    let conn = peer.conn(C2);
    peer.app(|session, _| session.release(key));
    let abandoned = peer.event(|event| match event {
        Event::AbortTransport { conn } => Some(*conn),
        _ => None,
    });
    assert_eq!(abandoned, conn);
    assert_eq!(peer.session().cancelled(), 0, "the server sees no reset of a stream");
    // SMIG-8.4/cancel-by-close: the session continues.
    peer.open(C1, Method::GET, EndStream::Yes);
    peer.connect();
    // SMIG-8.4/cancel-by-close, the peer: C2 ends as in SMIG-8.10/c2-ends-late; other streams are not
    // affected.
    let (mut peer, key) = moving();
    peer.send(C1, accept(1, cid, 2));
    let other = peer.get(C1, 3);
    peer.lose(C2);
    assert_eq!(peer.take_error(key).initiator, Initiator::Transport);
    peer.expect_unharmed(other);
    peer.expect_silence();
}

fn is_abandoned(peer: &mut Peer) -> bool {
    peer.find_event(|event| matches!(event, Event::AbortTransport { .. }).then_some(())).is_some()
}

#[test]
fn a_stream_that_is_over_takes_nobodys_connection_along() {
    // SMIG-8.4/cancel-by-close: the cancelled stream has ended already, and another one is alone on C2.
    for end in [data(2, "x").end(), reset(2, ErrorCode::InternalError)] {
        let (mut peer, key) = client();
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 2));
        peer.expect(C1, accept(1, cid, 2).end());
        let other = peer.open(C2, Method::GET, EndStream::Yes);
        peer.send(C2, end);
        cancel(&mut peer, key);
        assert!(!is_abandoned(&mut peer));
        peer.expect_unharmed(other);
        peer.expect_silence();
        // Data received completely can still be read.
        if peer.session().stream(key).is_some_and(|view| view.received > 0) {
            assert_eq!(&peer.read_to_end(key)[..], b"x");
        }
    }
}

#[test]
fn a_connection_with_an_answer_under_way_is_not_closed_to_cancel() {
    // SMIG-8.4/cancel-by-close: without the answer, the server would fail the stream that has migrated on
    // (SMIG-8.8/c1-ends-at-mover), even if it is complete here.
    for whole in [false, true] {
        let (mut peer, key) = client();
        peer.connect();
        let other = peer.open(C1, Method::GET, EndStream::Yes);
        let (c2, c3) = (peer.cid(C2), peer.cid(C3));
        for (from, to) in [(1, 2), (3, 4)] {
            peer.send(C1, migrate(from, c2, to));
            peer.expect(C1, accept(from, c2, to).end());
        }
        peer.pause(C2);
        peer.send(C2, migrate(2, c3, 2));
        if whole {
            peer.send(C3, data(2, "whole").end());
        }
        cancel(&mut peer, other);
        assert!(!is_abandoned(&mut peer));
        peer.resume(C2);
        peer.expect(C2, accept(2, c3, 2).end());
        peer.expect(C2, reset(4, ErrorCode::Cancel));
        peer.expect_unharmed(key);
        peer.expect_silence();
    }
}

#[test]
fn a_connection_with_the_end_of_an_upload_under_way_is_not_closed_to_cancel() {
    // SMIG-8.4/cancel-by-close: a stream that is complete here may not be complete at the peer, also if its
    // end is an empty DATA frame or trailers.
    for (body, trailers) in [("tail", false), ("", false), ("", true)] {
        let mut peer = Peer::of_client(Config::client()).with_spare();
        let upload = peer.open(C1, Method::POST, EndStream::No);
        let other = peer.open(C1, Method::GET, EndStream::Yes);
        let c2 = peer.cid(C2);
        peer.send(C1, migrate(1, c2, 2));
        peer.expect(C1, accept(1, c2, 2));
        peer.send(C1, migrate(3, c2, 4));
        peer.expect(C1, accept(3, c2, 4).end());
        peer.send(C2, headers(2).status(200).end());
        peer.take_response(upload);
        if trailers {
            let fields = HeaderMap::from_iter([(EXPIRES, HeaderValue::from_static("0"))]);
            peer.app(|session, _| session.send_trailers(upload, fields)).unwrap();
            peer.expect(C2, headers(2).field("expires", "0").end());
        } else {
            peer.body(upload, body, EndStream::Yes);
            peer.expect(C2, data(2, body).end());
        }
        cancel(&mut peer, other);
        assert!(!is_abandoned(&mut peer), "{body:?}, trailers: {trailers}");
        peer.expect(C2, reset(4, ErrorCode::Cancel));
        peer.expect_silence();
    }
}

// Completion.

#[test]
fn a_complete_stream_still_waits_for_the_answer() {
    // SMIG-8.5/ended-before-answer: an accepting answer is dropped; for the application the stream was
    // complete before.
    let (mut peer, key) = moving();
    peer.send(C1, data(1, "up").end());
    peer.body(key, "down", EndStream::Yes);
    peer.expect(C2, data(2, "down").end());
    assert_eq!(&peer.read_to_end(key)[..], b"up");
    peer.app(|session, _| session.release(key));
    assert_eq!(peer.session().stream_count(), 1);
    let cid = peer.cid(C2);
    peer.send(C1, accept(1, cid, 2).end());
    assert_eq!(peer.session().stream_count(), 0);
    peer.expect_silence();
    // SMIG-8.5/ended-before-answer: after a decline, everything is sent again (section_5_mover.rs: HEADERS
    // and trailers too).
    let (mut peer, key) = moving();
    peer.send(C1, data(1, "up").end());
    peer.body(key, "down", EndStream::Yes);
    peer.expect(C2, data(2, "down").end());
    peer.app(|session, _| session.release(key));
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
fn c1_ends_behind_the_followers_answer() {
    // SMIG-8.7/c1-ends-accepted
    let (mut peer, key) = client();
    let cid = peer.cid(C2);
    peer.send(C1, data(1, "one "));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.lose(C1);
    peer.send(C2, data(2, "two").end());
    assert_eq!(&peer.read_to_end(key)[..], b"one two");
    peer.expect_unharmed(key);
}

#[test]
fn c1_ends_before_the_mover_has_read_the_answer() {
    // SMIG-8.8/c1-ends-at-mover: the stream fails, and its carrier is reset, whether it was used or not.
    for used in [false, true] {
        let (mut peer, key) = moving();
        if used {
            peer.body(key, "x", EndStream::No);
            peer.expect(C2, data(2, "x"));
        }
        peer.lose(C1);
        peer.expect(C2, reset(2, ErrorCode::Cancel));
        assert_eq!(peer.take_error(key).initiator, Initiator::Transport);
        peer.expect_silence();
    }
    // SMIG-8.8/c1-ends-at-mover: END_STREAM was sent, but the peer's was not read: it fails as well.
    let (mut peer, key) = moving();
    peer.body(key, "x", EndStream::Yes);
    peer.expect(C2, data(2, "x").end());
    peer.lose(C1);
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.take_error(key);
    // SMIG-8.8/c1-ends-at-mover: with both ended the stream is complete, and the carrier is not reset.
    let (mut peer, key) = moving();
    peer.body(key, "x", EndStream::Yes);
    peer.expect(C2, data(2, "x").end());
    peer.send(C1, data(1, "up").end());
    peer.lose(C1);
    assert_eq!(&peer.read_to_end(key)[..], b"up");
    peer.expect_unharmed(key);
    peer.expect_silence();
    // SMIG-8.8/c1-ends-at-mover: after the accepting answer the stream continues on C2.
    let (mut peer, key) = moving();
    let cid = peer.cid(C2);
    peer.send(C1, accept(1, cid, 2));
    peer.lose(C1);
    peer.body(key, "on", EndStream::Yes);
    peer.expect(C2, data(2, "on").end());
    peer.expect_unharmed(key);
}

#[test]
fn c2_ends_before_the_answer() {
    // SMIG-8.9/c2-ends-early, the mover: it waits on C1; after a decline, it continues there.
    let (mut peer, key) = moving();
    peer.body(key, "one", EndStream::No);
    peer.expect(C2, data(2, "one"));
    peer.lose(C2);
    peer.body(key, "two", EndStream::Yes);
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.expect(C1, data(1, "onetwo").end());
    peer.expect_silence();
    // SMIG-8.9/c2-ends-early: after an accepting answer (the follower had read the MIGRATE before), the rest
    // is as in SMIG-8.10/c2-ends-late.
    let (mut peer, key) = moving();
    let cid = peer.cid(C2);
    peer.body(key, "one", EndStream::No);
    peer.lose(C2);
    peer.send(C1, accept(1, cid, 2));
    assert_eq!(peer.take_error(key).initiator, Initiator::Transport);
    peer.expect_nothing(C1);
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
fn what_was_read_on_c2_before_it_ended_is_kept() {
    // SMIG-8.9/c2-ends-early and SMIG-8.10/c2-ends-late: the client's end arrived on S2, and the complete
    // response was sent there.
    let (mut peer, key) = moving();
    let cid = peer.cid(C2);
    peer.body(key, "down", EndStream::Yes);
    peer.expect(C2, data(2, "down").end());
    peer.send(C2, data(2, "up").end());
    peer.lose(C2);
    assert_eq!(peer.read(key).len(), 0, "the answer is missing");
    peer.send(C1, accept(1, cid, 2));
    assert_eq!(&peer.read_to_end(key)[..], b"up");
    peer.expect_unharmed(key);
    peer.expect_silence();
}

#[test]
fn c2_ends_behind_the_answer() {
    // SMIG-8.10/c2-ends-late: the stream fails at each end where it is not complete.
    let (mut peer, key) = moving();
    let cid = peer.cid(C2);
    let other = peer.get(C1, 3);
    peer.send(C1, accept(1, cid, 2));
    peer.lose(C2);
    let error = peer.take_error(key);
    assert_eq!((error.initiator, error.code), (Initiator::Transport, ErrorCode::Cancel));
    peer.expect_unharmed(other);
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
    peer.expect_unharmed(key);
}

#[test]
fn carriers_go_with_their_connection() {
    // SMIG-8.11/ids-go-along: unbound carriers hold no data and do not count any more.
    let smig = smig_proto::SmigConfig { max_open_migrations: 1, ..Default::default() };
    let mut peer = Peer::of_client(Config { smig: Some(smig), ..Config::client() }).with_spare();
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

fn drain(peer: &mut Peer, line: ConnHandle) {
    let conn = peer.conn(line);
    peer.app(|session, now| session.drain(now, conn));
    let Frame::GoAway { last: 0x7fff_ffff, code: ErrorCode::NoError, .. } = peer.next(line) else {
        panic!("a warning comes first");
    };
    let Frame::Ping(opaque) = peer.next(line) else { panic!("then PING") };
    peer.send(line, pong(opaque));
    let Frame::GoAway { code: ErrorCode::NoError, .. } = peer.next(line) else {
        panic!("then the last id");
    };
}

#[test]
fn no_orderly_close_while_a_migrate_is_not_answered() {
    // SMIG-8.12/no-close-unanswered: one that this side sent, for an open stream and for one that was reset.
    for reset_first in [false, true] {
        let (mut peer, key) = moving();
        drain(&mut peer, C1);
        if reset_first {
            cancel(&mut peer, key);
            peer.app(|session, _| session.release(key));
        }
        assert!(!peer.should_close(C1));
        let cid = peer.cid(C2);
        peer.send(C1, accept(1, cid, 2));
        assert!(peer.should_close(C1));
    }
    // SMIG-8.12/no-close-unanswered: one that this side read and keeps (SMIG-5.12/join-pending), although the
    // stream has ended.
    let mut peer = Peer::to_client(Setup::new(Config::client()).joins_by_script());
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
fn a_mover_does_not_wait_for_ever() {
    // SMIG-8.13/answer-timeout: after 30 seconds a reset as in SMIG-8.2/reset-on-s2, and an event.
    let (mut peer, key) = moving();
    peer.advance(Duration::from_secs(29));
    peer.expect_silence();
    peer.advance(Duration::from_secs(2));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    assert_eq!(peer.limit(), "migration answer time");
    assert_eq!(peer.take_error(key).initiator, Initiator::Local);
    // A late decline is still followed by the reset (SMIG-8.3/reset-remembered).
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
}

// GOAWAY.

#[test]
fn a_connection_is_drained_without_killing_its_downloads() {
    // SMIG-8.14/drain-by-moving: after a received GOAWAY, a server's stream can still migrate.
    let (mut peer, key) = server();
    let cid = peer.cid(C2);
    peer.send(C1, goaway(0, ErrorCode::NoError));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, accept(1, cid, 2));
    peer.body(key, "on", EndStream::Yes);
    peer.expect(C2, data(2, "on").end());
    // SMIG-8.14/drain-by-moving: a GOAWAY sent by the engine, and the follower's side.
    let (mut peer, key) = server();
    drain(&mut peer, C1);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    assert!(peer.should_close(C1));
    // SMIG-8.14/drain-by-moving: a stream that has left is not affected by C1's GOAWAY.
    let conn = peer.conn(C1);
    peer.app(|session, now| session.close(now, conn, ErrorCode::NoError, "drained"));
    peer.body(key, "on", EndStream::Yes);
    peer.expect(C2, data(1, "on").end());
    let (mut peer, key) = client();
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.send(C1, goaway(0, ErrorCode::NoError));
    peer.send(C2, data(2, "whole").end());
    assert_eq!(&peer.read_to_end(key)[..], b"whole");
    peer.expect_unharmed(key);
}

#[test]
fn a_stream_that_goaway_excludes_fails_also_while_it_moves() {
    // SMIG-8.15/goaway-excludes-s1: safe to repeat unless a part of the response arrived; the carrier is
    // closed if it was used.
    for used in [false, true] {
        let mut peer = Peer::of_client(Config::client()).with_spare();
        let first = peer.open(C1, Method::GET, EndStream::Yes);
        let key = peer.open(C1, Method::POST, EndStream::No);
        let cid = peer.cid(C2);
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(3, cid, 1));
        if used {
            peer.send(C1, headers(3).status(200));
            for _ in 0..263 {
                peer.send(C1, data(3, vec![0; 16_000]));
            }
            peer.read(key);
            peer.expect(C2, window_update(1, 4_208_000));
        }
        peer.send(C1, goaway(1, ErrorCode::NoError));
        let error = peer.take_error(key);
        let processed = if used { Processed::Maybe } else { Processed::No };
        assert_eq!((error.code, error.processed), (ErrorCode::RefusedStream, processed));
        peer.expect_unharmed(first);
        if used {
            peer.expect(C2, reset(1, ErrorCode::Cancel));
        }
        peer.expect_silence();
    }
    // SMIG-8.15/goaway-excludes-s1 without a migration, as in RFC 9113.
    let mut peer = Peer::of_client(Config::client());
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
    assert_eq!(peer.session().connection(peer.conn(C2)).unwrap().unbound, 0);
    peer.send(C1, migrate(1, cid, 9));
    peer.expect(C1, decline(1));
}

#[test]
fn a_mover_whose_carrier_is_excluded_waits_for_the_answer() {
    // SMIG-8.17/goaway-excludes-s2
    let (mut peer, key) = moving();
    peer.body(key, "one", EndStream::No);
    peer.expect(C2, data(2, "one"));
    peer.send(C2, goaway(0, ErrorCode::NoError));
    peer.body(key, "two", EndStream::Yes);
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.expect(C1, data(1, "onetwo").end());
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    // SMIG-8.17/goaway-excludes-s2: a GOAWAY that does not exclude it changes nothing.
    let (mut peer, key) = moving();
    peer.send(C2, goaway(2, ErrorCode::NoError));
    peer.body(key, "on", EndStream::Yes);
    peer.expect(C2, data(2, "on").end());
}

// Invariants.

#[test]
fn a_stream_is_never_cut_in_silence() {
    // SMIG-8.18/same-bytes: whatever connection is lost at whatever step of a migration, the reader gets the
    // complete body, or a prefix and then an error.
    for lost in [C1, C2] {
        for step in 0..5 {
            let (mut peer, key) = client();
            let cid = peer.cid(C2);
            let script: [(ConnHandle, Frame); 4] = [
                (C1, data(1, "one ")),
                (C2, data(2, "two ")),
                (C1, migrate(1, cid, 2)),
                (C2, data(2, "three").end()),
            ];
            for (line, frame) in &script[..step] {
                peer.send(*line, frame.clone());
            }
            peer.lose(lost);
            for (line, frame) in &script[step..] {
                if *line != lost {
                    peer.send(*line, frame.clone());
                }
            }
            let body = peer.read(key);
            let whole = b"one two three";
            assert!(whole.starts_with(&body), "{body:?} with {lost:?} lost at {step}");
            let failed = peer.find_event(|event| match event {
                Event::Reset { stream, error } if *stream == key => Some(error.clone()),
                _ => None,
            });
            let stuck = failed.is_none() && body.len() < whole.len();
            // The client declined the MIGRATE, and the script does not send the rest on C1.
            let declined = lost == C2 && step < 3;
            assert_eq!(stuck, declined, "{body:?} with {lost:?} lost at {step}");
            if let Some(error) = failed {
                assert_eq!(error.initiator, Initiator::Transport);
            }
        }
    }
}
