//! spec/smig.md section 5: the follower and the order of frames.

use http::Method;
use smig_proto::{
    Config, ConnectionRole, EndStream, ErrorCode, Event, OfferState, SmigConfig, StreamKey,
};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, Peer, Setup};

/// A client engine that has received the response head on stream 1 of C1.
fn client_with_download(config: Config) -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_client(config).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(200));
    assert_eq!(peer.take_response(key), 200);
    (peer, key)
}

/// A server engine that receives an upload on stream 1 of C1.
fn server_with_upload() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    (peer, key)
}

#[test]
fn every_migrate_is_answered_once_on_its_connection() {
    // SMIG-5.10/always-answer: an open stream.
    let (mut peer, key) = client_with_download(Config::client());
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.take_migrated(key);
    peer.expect_silence();
    // SMIG-5.10/always-answer: a stream that the follower reset, and one that is complete.
    for is_complete in [false, true] {
        let (mut peer, key) = server_with_upload();
        let cid = peer.cid(C2);
        if is_complete {
            peer.respond(key, 204, EndStream::Yes);
            peer.expect(C1, headers(1).status(204).end());
            peer.send(C1, data(1, "").end());
        } else {
            peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
            peer.expect(C1, reset(1, ErrorCode::Cancel));
        }
        peer.send(C1, migrate(1, cid, 1));
        peer.expect(C1, decline(1).end());
        peer.expect_silence();
        // The carrier is closed from then on.
        peer.send(C2, window_update(1, 10));
        peer.expect_silence();
    }
}

#[test]
fn the_answer_is_the_followers_barrier() {
    // SMIG-5.11/follower-barrier: the response continues on S2 at once; none of it follows on S1.
    let (mut peer, key) = server_with_upload();
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, "one", EndStream::No);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1));
    peer.send_body(key, "two", EndStream::Yes);
    peer.expect(C1, headers(1).status(200));
    peer.expect(C1, data(1, "one"));
    peer.expect(C1, accept(1, cid, 1));
    peer.expect(C2, data(1, "two").end());
    peer.expect_silence();
}

#[test]
fn the_event_reports_the_offset_of_the_carriers_data() {
    // SMIG-5.15/kept-in-order: the carrier's bytes arrived first and are read after those of the old
    // connection.
    let (mut peer, key) = client_with_download(Config::client());
    let cid = peer.cid(C2);
    peer.send(C1, data(1, "old"));
    peer.send(C2, data(2, "behind the barrier"));
    peer.send(C1, data(1, "older"));
    peer.send(C1, migrate(1, cid, 2));
    assert_eq!(peer.take_migrated(key), 8);
    assert_eq!(peer.read(key), "oldolderbehind the barrier");
}

#[test]
fn queued_data_is_sent_on_the_new_connection() {
    // SMIG-5.11/follower-barrier, and the purpose of migration: DATA that is not framed yet is sent on the
    // new connection.
    let (mut peer, key) = server_with_upload();
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.pause(C1);
    peer.send_body(key, vec![b'x'; 30_000], EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C2, data(1, vec![b'x'; 16_384]));
    peer.expect(C2, data(1, vec![b'x'; 30_000 - 16_384]).end());
    peer.resume(C1);
    peer.expect(C1, accept(1, cid, 1));
    peer.expect_silence();
}

#[test]
fn a_connection_for_requests_is_none_for_bulk_when_a_stream_returns() {
    let (mut peer, _) = client_with_download(Config::client());
    let (c1, c2) = (peer.cid(C1), peer.cid(C2));
    peer.send(C1, migrate(1, c2, 2));
    peer.expect(C1, accept(1, c2, 2).end());
    peer.send(C2, migrate(2, c1, 2));
    peer.expect(C2, accept(2, c1, 2).end());
    let conns = [peer.conn_id(C1), peer.conn_id(C2)];
    let roles =
        peer.with_session(|session, _| conns.map(|id| session.connection(id).unwrap().role));
    assert_eq!(roles, [ConnectionRole::Interactive, ConnectionRole::Bulk]);
}

#[test]
fn a_servers_connection_for_requests_is_none_for_bulk_when_a_stream_returns() {
    let (mut peer, key) = server_with_upload();
    let (c1, c2) = (peer.cid(C1), peer.cid(C2));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 2));
    peer.send(C1, accept(1, c2, 2).end());
    peer.migrate(key, C1).unwrap();
    peer.expect(C2, migrate(2, c1, 2));
    let conns = [peer.conn_id(C1), peer.conn_id(C2)];
    let roles =
        peer.with_session(|session, _| conns.map(|id| session.connection(id).unwrap().role));
    assert_eq!(roles, [ConnectionRole::Interactive, ConnectionRole::Bulk]);
}

#[test]
fn what_migrates_to_an_interactive_connection_is_not_bulk_for_that() {
    let (mut peer, key) = server_with_upload();
    peer.with_session(|session, _| session.set_carrier_role(ConnectionRole::Interactive));
    let (cid, conn) = (peer.cid(C2), peer.conn_id(C2));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    let role =
        |peer: &mut Peer| peer.with_session(|session, _| session.connection(conn).unwrap().role);
    assert_eq!(role(&mut peer), ConnectionRole::Interactive);
    let key = peer.post(C1, 3);
    peer.with_session(|session, _| session.set_carrier_role(ConnectionRole::Bulk));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(3, cid, 4));
    assert_eq!(role(&mut peer), ConnectionRole::Bulk);
}

#[test]
fn what_was_offered_keeps_its_role_when_the_client_migrates_it_later() {
    let (mut peer, key) = server_with_upload();
    let set_role = |peer: &mut Peer, role| {
        peer.with_session(|session, _| session.set_carrier_role(role));
    };
    let (cid, conn) = (peer.cid(C2), peer.conn_id(C2));
    let role =
        |peer: &mut Peer| peer.with_session(|session, _| session.connection(conn).unwrap().role);
    let offers = |peer: &mut Peer| {
        let view = peer.with_session(|session, _| session.stream(key).unwrap());
        view.offer
    };
    assert_eq!(offers(&mut peer), OfferState::Available);
    set_role(&mut peer, ConnectionRole::Interactive);
    peer.offer(key).unwrap();
    peer.expect(C1, offer(1));
    assert_eq!(offers(&mut peer), OfferState::Unanswered);
    set_role(&mut peer, ConnectionRole::Bulk);
    // Others do not get it for that.
    let other = peer.post(C1, 3);
    peer.migrate(other, C2).unwrap();
    peer.expect(C1, migrate(3, cid, 2));
    assert_eq!(role(&mut peer), ConnectionRole::Bulk);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    assert_eq!(role(&mut peer), ConnectionRole::Interactive);
    assert_eq!(offers(&mut peer), OfferState::Available);
}

#[test]
fn an_offer_that_is_declined_leaves_no_role_behind() {
    let (mut peer, key) = server_with_upload();
    let (cid, conn) = (peer.cid(C2), peer.conn_id(C2));
    peer.with_session(|session, _| session.set_carrier_role(ConnectionRole::Interactive));
    peer.offer(key).unwrap();
    peer.expect(C1, offer(1));
    peer.send(C1, decline(1));
    let offer = peer.with_session(|session, _| session.stream(key).unwrap().offer);
    assert_eq!(offer, OfferState::Spent);
    peer.with_session(|session, _| session.set_carrier_role(ConnectionRole::Bulk));
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    let role = peer.with_session(|session, _| session.connection(conn).unwrap().role);
    assert_eq!(role, ConnectionRole::Bulk);
}

/// A client engine whose JOIN on C2 is unanswered, with an upload on C1.
fn client_with_pending_join() -> (Peer, StreamKey) {
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    let key = peer.open(C1, Method::POST, EndStream::No);
    (peer, key)
}

#[test]
fn a_migrate_to_a_connection_that_is_joining_waits_for_the_answer() {
    // SMIG-5.12/join-pending: it is kept, and the client's direction continues on S1.
    let (mut peer, key) = client_with_pending_join();
    let cid = peer.cid(C2);
    peer.send(C1, headers(1).status(200));
    peer.send(C1, migrate(1, cid, 2));
    peer.send_body(key, "up", EndStream::No);
    peer.expect(C1, data(1, "up"));
    peer.expect_silence();
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    peer.expect(C1, accept(1, cid, 2));
    peer.send_body(key, "on", EndStream::Yes);
    peer.expect(C2, data(2, "on").end());
    peer.send(C2, data(2, "down").end());
    assert_eq!(&peer.read_to_end(key)[..], b"down");
}

#[test]
fn a_deferred_migrate_is_declined_when_the_join_fails() {
    // SMIG-5.12/join-pending: the JOIN is refused, or its connection ends.
    for is_c2_lost in [false, true] {
        let (mut peer, key) = client_with_pending_join();
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 2));
        peer.expect_silence();
        if is_c2_lost {
            peer.lose(C2)
        } else {
            peer.send(C2, join_refused(5))
        }
        peer.expect(C1, decline(1));
        peer.send_body(key, "here", EndStream::Yes);
        peer.expect(C1, data(1, "here").end());
        peer.expect_silence();
    }
}

#[test]
fn a_deferred_migrate_is_declined_when_the_session_is_left() {
    // SMIG-5.12/join-pending and SMIG-4.8/new-session: the server that C3 reached does not know the session,
    // so the client leaves it while C2 is still joining. The outcome of that JOIN does not matter.
    for join_outcome in ["accepted", "refused", "lost"] {
        let (mut peer, key) = client_with_pending_join();
        peer.connect();
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 2));
        peer.expect_silence();
        let answer = peer.join_answer(C2);
        peer.send(C3, join_refused(1));
        peer.expect(C1, decline(1));
        match join_outcome {
            "accepted" => peer.send(C2, answer),
            "refused" => peer.send(C2, join_refused(5)),
            _ => peer.lose(C2),
        }
        peer.send_body(key, "here", EndStream::Yes);
        peer.expect(C1, data(1, "here").end());
        peer.expect_silence();
    }
}

#[test]
fn a_deferred_migrate_is_declined_when_the_client_closes_its_target() {
    // SMIG-5.12/join-pending: the client closes the connection; its transport may remain open for a while.
    let (mut peer, key) = client_with_pending_join();
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect_silence();
    let c2 = peer.conn_id(C2);
    peer.with_session(|session, now| session.close(now, c2, ErrorCode::NoError, "not needed"));
    peer.expect(C1, decline(1));
    peer.send_body(key, "here", EndStream::Yes);
    peer.expect(C1, data(1, "here").end());
}

#[test]
fn a_connection_with_a_deferred_migrate_is_not_closed_to_cancel() {
    // SMIG-8.4/cancel-by-close and SMIG-5.12/join-pending: the stream is the only one on C2, and its MIGRATE
    // to C3 is unanswered.
    let (mut peer, key) = client_with_pending_join();
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    peer.connect();
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.send(C1, migrate(1, c2, 2));
    peer.expect(C1, accept(1, c2, 2));
    peer.send(C2, migrate(2, c3, 2));
    peer.expect_silence();
    peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    let answer = peer.join_answer(C3);
    peer.send(C3, answer);
    peer.expect(C2, decline(2).end());
    peer.expect_silence();
}

#[test]
fn a_deferred_migrate_of_an_ended_stream_is_declined() {
    // SMIG-5.12/join-pending and SMIG-5.10/always-answer
    let (mut peer, key) = client_with_pending_join();
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    peer.expect(C1, decline(1).end());
    peer.expect_silence();
    // The carrier is abandoned: frames of the server there are dropped.
    peer.send(C2, data(2, "late"));
    peer.expect_silence();
}

#[test]
fn a_follower_declines_what_it_cannot_follow() {
    // SMIG-5.13/must-decline: C1 itself; an unknown CID; a connection that ended.
    let (mut peer, key) = server_with_upload();
    let (c1, c2) = (peer.cid(C1), peer.cid(C2));
    peer.send(C1, migrate(1, c1, 3));
    peer.expect(C1, decline(1));
    let unknown = smig_proto::Cid { number: 99, ..c1 };
    peer.send(C1, migrate(1, unknown, 1));
    peer.expect(C1, decline(1));
    peer.lose(C2);
    peer.send(C1, migrate(1, c2, 1));
    peer.expect(C1, decline(1));
    // SMIG-5.13/must-decline: a connection of another session.
    peer.setup_mut().app_id = smig_proto::AppId::new(5);
    peer.connect_new_session();
    let foreign = peer.cid(C3);
    peer.send(C1, migrate(1, foreign, 1));
    peer.expect(C1, decline(1));
    // The stream is not affected.
    peer.send(C1, data(1, "whole").end());
    assert_eq!(&peer.read_to_end(key)[..], b"whole");
    peer.expect_silence();
}

#[test]
fn a_follower_declines_a_closed_carrier() {
    // SMIG-5.13/must-decline: an id that a request used, and one that was reset. section_5_carriers.rs has one
    // that was forgotten.
    let (mut peer, _) = server_with_upload();
    let cid = peer.cid(C2);
    let other_key = peer.get(C2, 1);
    peer.respond(other_key, 204, EndStream::Yes);
    peer.expect(C2, headers(1).status(204).end());
    peer.send(C2, reset(3, ErrorCode::Cancel));
    for id in [1, 3] {
        peer.send(C1, migrate(1, cid, id));
        peer.expect(C1, decline(1));
    }
    peer.expect_silence();
}

#[test]
fn a_follower_declines_what_its_goaway_excludes() {
    // SMIG-5.13/must-decline: the GOAWAY on C2 names 0 as the last stream, after the drain's PING was
    // answered.
    let (mut peer, key) = server_with_upload();
    let cid = peer.cid(C2);
    let conn = peer.conn_id(C2);
    peer.with_session(|session, now| session.drain(now, conn));
    let Frame::GoAway { last_stream_id: 0x7fff_ffff, .. } = peer.next(C2) else {
        panic!("a warning first")
    };
    let Frame::Ping(opaque) = peer.next(C2) else { panic!("then PING") };
    peer.send(C2, pong(opaque));
    let Frame::GoAway { last_stream_id: 0, .. } = peer.next(C2) else { panic!("then the last id") };
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, decline(1));
    peer.send(C1, data(1, "").end());
    peer.read_to_end(key);
    peer.expect_silence();
}

#[test]
fn migrations_per_stream_are_bounded() {
    // SMIG-5.13/must-decline: max_migrations_per_stream, alternating between two connections.
    let smig = SmigConfig { max_migrations_per_stream: 2, ..SmigConfig::default() };
    let mut peer =
        Peer::connected_to_server(Config { smig: Some(smig), ..Config::server() }).with_spare();
    let key = peer.post(C1, 1);
    let (c1, c2) = (peer.cid(C1), peer.cid(C2));
    peer.send(C1, migrate(1, c2, 1));
    peer.expect(C1, accept(1, c2, 1));
    peer.send(C2, migrate(1, c1, 3));
    peer.expect(C2, accept(1, c1, 3));
    peer.send(C1, migrate(3, c2, 3));
    peer.expect(C1, decline(3));
    assert_eq!(peer.take_limit_hit(), "migrations");
    assert!(peer.migrate(key, C2).is_err());
    peer.send(C1, data(3, "here").end());
    assert_eq!(&peer.read_to_end(key)[..], b"here");
}

#[test]
fn migrations_per_second_are_bounded() {
    // SMIG-5.13/must-decline: here 1 per second in the long run; a burst of four times as many is allowed.
    let smig = SmigConfig { migrations_per_second: 1, ..SmigConfig::default() };
    let mut peer =
        Peer::connected_to_server(Config { smig: Some(smig), ..Config::server() }).with_spare();
    let cid = peer.cid(C2);
    for n in 0..4 {
        peer.get(C1, 2 * n + 1);
        peer.send(C1, migrate(2 * n + 1, cid, 2 * n + 1).end());
        peer.expect(C1, accept(2 * n + 1, cid, 2 * n + 1));
    }
    peer.get(C1, 9);
    peer.send(C1, migrate(9, cid, 9).end());
    peer.expect(C1, decline(9));
    assert_eq!(peer.take_limit_hit(), "migrations");
    peer.advance(core::time::Duration::from_secs(1));
    peer.send(C1, migrate(9, cid, 11).end());
    peer.expect(C1, accept(9, cid, 11));
}

#[test]
fn the_carrier_carries_the_stream_after_the_answer() {
    // SMIG-5.14/moved: frames of the mover on S2 belong to the stream, including a reset.
    let (mut peer, key) = server_with_upload();
    let cid = peer.cid(C2);
    peer.send(C1, data(1, "one "));
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    assert_eq!(peer.location(key), (C2, 1));
    peer.send(C2, data(1, "two"));
    peer.send(C2, headers(1).field("x", "y").end());
    assert_eq!(&peer.read(key)[..], b"one two");
    let view = peer.session().connection(peer.conn_id(C1)).unwrap();
    assert_eq!(view.stream_count, 0, "S1 is closed");
    peer.with_session(|session, _| session.reset(key, ErrorCode::InternalError));
    peer.expect(C2, reset(1, ErrorCode::InternalError));
    peer.expect_silence();
}

#[test]
fn frames_that_overtake_their_barrier_wait_for_it() {
    // SMIG-5.15/kept-in-order, a follower: order is kept on each connection, not between them.
    let (mut peer, key) = client_with_download(Config::client());
    let cid = peer.cid(C2);
    peer.send(C2, data(2, "three "));
    peer.send(C2, data(2, "four "));
    peer.send(C1, data(1, "one "));
    peer.send(C2, headers(2).field("x-sum", "4").end());
    peer.send(C1, data(1, "two "));
    assert_eq!(&peer.read(key)[..], b"one two ");
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    assert_eq!(&peer.read(key)[..], b"three four ");
    let read_result = peer.with_session(|session, _| session.read(key));
    assert!(
        matches!(read_result, smig_proto::ReadResult::End),
        "`Peer::read` consumed the trailers"
    );
    peer.expect_silence();
}

#[test]
fn the_followers_frames_wait_for_the_answer_at_the_mover() {
    // SMIG-5.15/kept-in-order, a mover: the client's DATA on S2 follows its answer on C1.
    let (mut peer, key) = server_with_upload();
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C2, data(2, "three").end());
    peer.send(C1, data(1, "one "));
    peer.send(C1, data(1, "two "));
    assert_eq!(&peer.read(key)[..], b"one two ");
    peer.send(C1, accept(1, cid, 2));
    assert_eq!(&peer.read_to_end(key)[..], b"three");
    peer.expect_silence();
}

#[test]
fn a_stream_may_migrate_again_before_the_answer_is_read() {
    // SMIG-5.16/next-move-kept: the client accepts on C1 and migrates to C3 at once; C2 is faster.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare().with_spare();
    let key = peer.post(C1, 1);
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 2));
    peer.send(C2, data(2, "two "));
    peer.send(C2, migrate(2, c3, 1));
    peer.expect_silence();
    peer.send(C1, data(1, "one "));
    peer.send(C1, accept(1, c2, 2));
    peer.expect(C2, accept(2, c3, 1));
    assert_eq!(peer.location(key), (C3, 1));
    peer.send(C3, data(1, "three").end());
    assert_eq!(&peer.read_to_end(key)[..], b"one two three");
    peer.expect_silence();
    // SMIG-5.16/next-move-kept: the server offers on S2 before the client has read the answer.
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 1).end());
    peer.send(C2, offer(1));
    let offer_event = |event: &Event| matches!(event, Event::MigrationOffered { .. }).then_some(());
    assert_eq!(peer.try_take_event(offer_event), None);
    peer.send(C1, accept(1, c2, 1));
    peer.take_event(offer_event);
    peer.with_session(|session, _| session.decline_offer(key));
    peer.expect(C2, decline(1).end());
    // SMIG-5.16/next-move-kept: when the answer is a decline, frames kept after it are dropped with the
    // carrier.
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 1).end());
    peer.send(C2, offer(1));
    peer.expect_silence();
    peer.send(C1, decline(1));
    peer.send(C1, headers(1).status(204).end());
    assert_eq!(peer.take_response(key), 204);
    assert_eq!(peer.try_take_event(offer_event), None);
    peer.expect_silence();
}

#[test]
fn one_migrate_is_deferred_and_a_second_is_an_error() {
    // SMIG-5.16/next-move-kept with SMIG-5.8/one-open-move: a follower that migrates twice without an answer.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare().with_spare();
    let key = peer.post(C1, 1);
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 2));
    peer.send(C2, migrate(2, c3, 1));
    peer.send(C2, migrate(2, c3, 3));
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
}

/// A header block: `prefix`, then `x-note: kept` as a literal that enters the dynamic table.
fn note_block(prefix: &[u8]) -> Vec<u8> {
    let mut block = prefix.to_vec();
    block.extend(b"\x40\x06x-note\x04kept");
    block
}

/// `:status: 200` and the newest entry of the dynamic table.
const NOTE_REFERENCE: [u8; 2] = [0x88, 0xbe];

#[test]
fn header_blocks_are_decoded_where_and_when_they_arrive() {
    // SMIG-5.17/hpack-stays: a block on an unbound carrier enters C2's table before another stream's block
    // refers to it, and does not enter C1's table.
    let (mut peer, key) = client_with_download(Config::client());
    let cid = peer.cid(C2);
    peer.send(C2, data(2, "body"));
    peer.send(C2, raw(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 2, note_block(&[])));
    let other_key = peer.open(C2, Method::GET, EndStream::Yes);
    peer.send(C2, raw(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, NOTE_REFERENCE));
    let note = peer.take_event(|event| match event {
        Event::Response { stream, head, .. } if *stream == other_key => {
            Some(head.headers["x-note"].clone())
        }
        _ => None,
    });
    assert_eq!(note, "kept");
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    assert_eq!(&peer.read_to_end(key)[..], b"body");
    // SMIG-5.17/hpack-stays: dropped blocks are decoded too: on an abandoned carrier.
    let (mut peer, _) = client_with_download(Config::client());
    peer.send(C2, reset(2, ErrorCode::Cancel));
    peer.send(C2, raw(kind::HEADERS, flag::END_HEADERS, 2, note_block(&[0x88])));
    let other_key = peer.open(C2, Method::GET, EndStream::Yes);
    peer.send(C2, raw(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, NOTE_REFERENCE));
    assert_eq!(peer.take_response(other_key), 200);
    peer.expect_silence();
}

#[test]
fn data_is_charged_to_the_connection_on_which_it_arrives() {
    // SMIG-5.18/connection-window: at once, although the stream gets it later; it is credited there when it
    // is read.
    let config = Config { connection_window: 65_535, ..Config::client() };
    let (mut peer, key) = client_with_download(config.clone());
    let cid = peer.cid(C2);
    let window =
        |peer: &Peer, handle| peer.session().connection(peer.conn_id(handle)).unwrap().recv_window;
    peer.send(C2, data(2, vec![0; 16_000]));
    assert_eq!((window(&peer, C1), window(&peer, C2)), (65_535, 49_535));
    peer.send(C1, data(1, vec![0; 10_000]));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    assert_eq!((window(&peer, C1), window(&peer, C2)), (55_535, 49_535));
    for _ in 0..2 {
        peer.send(C2, data(2, vec![0; 16_000]));
    }
    peer.read(key);
    peer.expect(C2, window_update(0, 48_000));
    peer.expect_silence();
    // SMIG-5.18/connection-window: beyond it the connection is closed, whatever the stream's window.
    let (mut peer, _) = client_with_download(config);
    for _ in 0..4 {
        peer.send(C2, data(2, vec![0; 16_000]));
    }
    peer.send(C2, data(2, vec![0; 1_536]));
    peer.expect_goaway(C2, ErrorCode::FlowControlError);
    peer.expect_silence_on(C1);
}

#[test]
fn frames_after_the_barrier_on_the_old_id_reset_the_stream() {
    // SMIG-5.19/behind-barrier: each type of frame, at a follower; RST_STREAM is sent on the current id of
    // the stream.
    let frames: [Frame; 5] = [
        data(1, "stray"),
        headers(1).field("x", "y").end().into(),
        window_update(1, 7),
        reset(1, ErrorCode::Cancel),
        migrate(1, smig_proto::Cid { app: smig_proto::AppId::new(1), number: 1 }, 9),
    ];
    for frame in &frames {
        let (mut peer, key) = server_with_upload();
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 1));
        peer.expect(C1, accept(1, cid, 1));
        peer.send(C1, frame.clone());
        peer.expect(C2, reset(1, ErrorCode::StreamClosed));
        assert_eq!(peer.take_error(key).code, ErrorCode::StreamClosed);
        peer.expect_silence();
    }
    // SMIG-5.19/behind-barrier at a mover, after the answer.
    for frame in &frames[..4] {
        let (mut peer, key) = server_with_upload();
        let cid = peer.cid(C2);
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, cid, 2));
        peer.send(C1, accept(1, cid, 2));
        peer.send(C1, frame.clone());
        peer.expect(C2, reset(2, ErrorCode::StreamClosed));
        assert_eq!(peer.take_error(key).code, ErrorCode::StreamClosed);
        peer.expect_silence();
    }
    // SMIG-5.19/behind-barrier at a client that keeps a MIGRATE until a JOIN is answered: it has read the
    // barrier.
    for frame in &frames[..3] {
        let (mut peer, key) = client_with_pending_join();
        let cid = peer.cid(C2);
        peer.send(C1, headers(1).status(200));
        peer.send(C1, migrate(1, cid, 2));
        peer.send(C1, frame.clone());
        peer.expect(C1, reset(1, ErrorCode::StreamClosed));
        assert_eq!(peer.take_error(key).code, ErrorCode::StreamClosed);
    }
}

#[test]
fn stray_data_counts_for_the_connection_and_stray_headers_for_hpack() {
    // SMIG-5.19/behind-barrier
    let config = Config { connection_window: 65_535, ..Config::server() };
    let mut peer = Peer::connected_to_server(config).with_spare();
    peer.post(C1, 1);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    peer.send(C1, data(1, vec![0; 16_000]));
    peer.expect(C2, reset(1, ErrorCode::StreamClosed));
    let view = peer.session().connection(peer.conn_id(C1)).unwrap();
    assert_eq!((view.recv_window, view.unread_bytes), (49_535, 0), "charged, and free again");
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    peer.post(C1, 1);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    peer.send(C1, raw(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, note_block(&[])));
    peer.expect(C2, reset(1, ErrorCode::StreamClosed));
    // GET / https, :authority example.com, and the entry.
    let block = b"\x82\x84\x87\x01\x0bexample.com\xbe";
    peer.send(C1, raw(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 3, block));
    let note = peer.take_event(|event| match event {
        Event::Request { head, .. } => head.headers.get("x-note").cloned(),
        _ => None,
    });
    assert_eq!(note, "kept");
}

#[test]
fn a_reset_on_a_bound_carrier_takes_effect_at_once() {
    // SMIG-5.20/reset-at-once, a mover that waits for the answer.
    let (mut peer, key) = server_with_upload();
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C2, reset(2, ErrorCode::Cancel));
    assert_eq!(peer.take_error(key).code, ErrorCode::Cancel);
    peer.send(C1, data(1, "late, still before the barrier"));
    peer.send(C1, accept(1, cid, 2));
    peer.expect_silence();
    // SMIG-5.20/reset-at-once, a follower.
    let (mut peer, key) = server_with_upload();
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    peer.send(C2, reset(1, ErrorCode::Cancel));
    assert_eq!(peer.take_error(key).code, ErrorCode::Cancel);
    peer.expect_silence();
}
