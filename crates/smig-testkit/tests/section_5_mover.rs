//! spec/smig.md section 5: the mover, and which streams can migrate.

use http::Method;
use smig_proto::{
    Config, EndStream, ErrorCode, Event, MigrateError, MigrationTarget, Priority, SmigConfig,
    StreamKey,
};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, ConnHandle, Peer, Setup};

/// A server engine that responds on stream 1 of C1, with `spares` more connections.
fn server_with_response(config: Config, spares: usize) -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_server(config);
    for _ in 0..spares {
        peer.connect();
    }
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    (peer, key)
}

/// A client engine that uploads on stream 1 of C1.
fn client_with_upload() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::POST, EndStream::No);
    (peer, key)
}

#[test]
fn the_target_is_another_joined_connection() {
    // SMIG-5.1/choice-of-c2: not C1 itself, not one that was closed, not one that has not joined.
    let (mut peer, key) = server_with_response(Config::server(), 0);
    assert_eq!(peer.migrate(key, C1), Err(MigrateError::NoTarget));
    assert_eq!(peer.migrate_to_spare(key), Err(MigrateError::NoTarget));
    peer.connect();
    peer.lose(C2);
    assert_eq!(peer.migrate(key, C2), Err(MigrateError::NoTarget));
    peer.expect_silence();
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    assert_eq!(peer.migrate(key, C2), Err(MigrateError::NoTarget), "C2's JOIN is not answered");
    peer.expect_silence();
}

#[test]
fn no_stream_migrates_to_a_connection_that_is_going_away() {
    // SMIG-5.1/choice-of-c2: GOAWAY received, GOAWAY sent.
    let (mut peer, key) = server_with_response(Config::server(), 2);
    peer.send(C2, goaway(0, ErrorCode::NoError));
    assert_eq!(peer.migrate(key, C2), Err(MigrateError::NoTarget));
    let conn = peer.conn_id(C3);
    peer.with_session(|session, now| session.drain(now, conn));
    assert_eq!(peer.migrate(key, C3), Err(MigrateError::NoTarget));
    assert_eq!(peer.migrate_to_spare(key), Err(MigrateError::NoTarget));
    peer.expect_silence_on(C1);
}

#[test]
fn the_spare_with_the_smallest_cid_is_taken() {
    // SMIG-5.1/choice-of-c2: C3 has the smallest CID. In the second migration, C4's CID is smaller than C2's,
    // but C4 has a stream and so is no spare.
    let mut peer = Peer::connected_to_server(Config::server());
    for number in [7, 3, 5] {
        let handle = peer.open_transport();
        peer.set_conn_no(handle, number);
        peer.send_preface(handle);
        let join = peer.join_request(handle);
        peer.send(handle, join);
        peer.take_preface(handle);
        peer.expect_joined(handle);
    }
    let (first_key, second_key) = (peer.get(C1, 1), peer.get(C1, 3));
    peer.migrate_to_spare(first_key).unwrap();
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.expect(C1, migrate(1, c3, 2));
    peer.get(smig_testkit::script::C4, 1);
    peer.migrate_to_spare(second_key).unwrap();
    peer.expect(C1, migrate(3, c2, 2));
}

#[test]
fn carrier_ids_have_the_movers_parity_and_increase() {
    // SMIG-5.2/choice-of-s2, a server: even ids, each once.
    let (mut peer, first_key) = server_with_response(Config::server(), 1);
    let second_key = peer.get(C1, 3);
    let cid = peer.cid(C2);
    peer.migrate(first_key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, decline(1).end());
    peer.migrate(second_key, C2).unwrap();
    peer.expect(C1, migrate(3, cid, 4));
    // SMIG-5.2/choice-of-s2, a client: odd ids, above those of its requests there.
    let (mut peer, key) = client_with_upload();
    let cid = peer.cid(C2);
    peer.open(C2, Method::GET, EndStream::Yes);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 3));
    peer.open(C2, Method::GET, EndStream::Yes);
    assert_eq!(peer.session().connection(peer.conn_id(C2)).unwrap().stream_count, 3);
}

#[test]
fn nothing_follows_the_barrier_on_the_old_id() {
    // SMIG-5.3/mover-barrier, a server: the body continues on S2, as do credit and a reset.
    let (mut peer, key) = {
        let mut peer = Peer::connected_to_server(Config::server()).with_spare();
        let key = peer.post(C1, 1);
        peer.respond(key, 200, EndStream::No);
        peer.expect(C1, headers(1).status(200));
        (peer, key)
    };
    peer.send_body(key, "one", EndStream::No);
    peer.expect(C1, data(1, "one"));
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send_body(key, "two", EndStream::No);
    for _ in 0..33 {
        peer.send(C1, data(1, vec![0; 16_000]));
    }
    peer.read(key);
    peer.expect(C2, data(2, "two"));
    peer.expect(C2, window_update(2, 528_000));
    peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
}

#[test]
fn what_was_framed_before_the_barrier_stays_before_it() {
    // SMIG-5.3/mover-barrier: a peer that reads slowly receives DATA, then the barrier, and the rest on C2.
    let (mut peer, key) = server_with_response(Config::server(), 1);
    peer.pause(C1);
    peer.pause(C2);
    peer.send_body(key, vec![b'x'; 60_000], EndStream::Yes);
    peer.take_output(C1, 16_384);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.resume(C1);
    peer.expect(C1, data(1, vec![b'x'; 16_384]));
    peer.expect(C1, migrate(1, cid, 2));
    peer.expect_silence_on(C1);
    peer.resume(C2);
    peer.expect(C2, data(2, vec![b'x'; 16_384]));
    peer.expect(C2, data(2, vec![b'x'; 16_384]));
    peer.expect(C2, data(2, vec![b'x'; 60_000 - 3 * 16_384]).end());
}

#[test]
fn priority_updates_name_the_old_id_until_the_answer() {
    // SMIG-5.3/mover-barrier and SMIG-7.7/priority-moves
    let (mut peer, key) = client_with_upload();
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1));
    peer.with_session(|session, _| session.reprioritize(key, Priority::sequential(1)));
    peer.expect(C1, priority_update(1, "u=1"));
    peer.send(C1, accept(1, cid, 1));
    peer.with_session(|session, _| session.reprioritize(key, Priority::sequential(2)));
    peer.expect(C2, priority_update(1, "u=2"));
    peer.expect_silence();
}

#[test]
fn a_closed_direction_sets_end_stream_on_every_migrate() {
    // SMIG-5.4/end-stream: MIGRATE of a GET by its client.
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1).end());
    // SMIG-5.4/end-stream: MIGRATE of a response whose end has been sent, while the upload continues.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::Yes);
    peer.expect(C1, headers(1).status(200).end());
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2).end());
    // After it the server sends only credit on S2.
    for _ in 0..33 {
        peer.send(C1, data(1, vec![0; 16_000]));
    }
    peer.read(key);
    peer.expect(C2, window_update(2, 528_000));
    peer.expect_silence_on(C2);
}

#[test]
fn end_stream_on_a_migrate_ends_its_senders_direction() {
    // SMIG-5.4/end-stream: on an accepted MIGRATE, and on a declined one.
    for to in [C2, C1] {
        let mut peer = Peer::connected_to_server(Config::server()).with_spare();
        let key = peer.post(C1, 1);
        peer.send(C1, data(1, "all"));
        let cid = peer.cid(to);
        peer.send(C1, migrate(1, cid, 3).end());
        let answer = if to == C2 { accept(1, cid, 3) } else { decline(1) };
        peer.expect(C1, answer);
        assert_eq!(&peer.read_to_end(key)[..], b"all");
        peer.expect_silence();
    }
    // SMIG-5.4/end-stream: on either kind of answer.
    for is_accepted in [true, false] {
        let mut peer = Peer::connected_to_server(Config::server()).with_spare();
        let key = peer.post(C1, 1);
        peer.send(C1, data(1, "all"));
        let cid = peer.cid(C2);
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, cid, 2));
        let answer = if is_accepted { accept(1, cid, 2) } else { decline(1) };
        peer.send(C1, answer.end());
        assert_eq!(&peer.read_to_end(key)[..], b"all");
    }
    // SMIG-5.4/end-stream: DATA after it is an error, as after any END_STREAM.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1).end());
    peer.expect(C1, accept(1, cid, 1));
    peer.send(C2, data(1, "more"));
    peer.expect(C2, reset(1, ErrorCode::StreamClosed));
    assert_eq!(peer.take_error(key).code, ErrorCode::StreamClosed);
}

#[test]
fn content_length_is_checked_at_end_stream_on_a_migrate() {
    // SMIG-5.4/end-stream: it ends a body as DATA would, so that a short one is malformed.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    peer.send(C1, headers(1).post("/").field("content-length", "10"));
    let key = peer.take_request();
    peer.send(C1, data(1, "short"));
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1).end());
    peer.expect(C1, accept(1, cid, 1));
    peer.expect(C2, reset(1, ErrorCode::ProtocolError));
    assert_eq!(peer.take_error(key).code, ErrorCode::ProtocolError);
}

#[test]
fn a_migrating_server_continues_at_once() {
    // SMIG-5.5/server-at-once
    let (mut peer, key) = server_with_response(Config::server(), 1);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.send_body(key, "no round trip lost", EndStream::Yes);
    peer.expect(C1, migrate(1, cid, 2));
    peer.expect(C2, data(2, "no round trip lost").end());
}

#[test]
fn a_migrating_client_holds_its_direction() {
    // SMIG-5.6/client-holds: DATA and trailers wait for the accepting answer; credit does not.
    let (mut peer, key) = client_with_upload();
    peer.send_body(key, "one", EndStream::No);
    peer.expect(C1, data(1, "one"));
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1));
    peer.send_body(key, "two", EndStream::No);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", "6".parse().unwrap());
    peer.with_session(|session, _| session.send_trailers(key, trailers)).unwrap();
    peer.expect_silence();
    peer.send(C1, headers(1).status(200));
    for _ in 0..263 {
        peer.send(C1, data(1, vec![0; 16_000]));
        peer.read(key);
    }
    peer.expect(C2, window_update(1, 4_208_000));
    peer.expect_silence();
    peer.send(C1, accept(1, cid, 1));
    peer.expect(C2, data(1, "two"));
    peer.expect(C2, headers(1).field("x-sum", "6").end());
}

#[test]
fn a_declined_server_replays_what_it_sent_on_the_carrier() {
    // SMIG-5.7/replay and SMIG-6.8/resume: HEADERS, DATA and trailers, even if both directions have ended and
    // the application has released the stream.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.get(C1, 1);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, "whole", EndStream::No);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", "5".parse().unwrap());
    peer.with_session(|session, _| session.send_trailers(key, trailers)).unwrap();
    peer.with_session(|session, _| session.release(key));
    peer.expect(C1, migrate(1, cid, 2));
    let message = |id| -> [Frame; 3] {
        [
            headers(id).status(200).into(),
            data(id, "whole"),
            headers(id).field("x-sum", "5").end().into(),
        ]
    };
    for frame in message(2) {
        peer.expect(C2, frame);
    }
    peer.send(C1, decline(1).end());
    for frame in message(1) {
        peer.expect(C1, frame);
    }
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
    assert_eq!(peer.session().stream_count(), 0, "then it is complete");
}

#[test]
fn the_data_kept_for_replay_is_bounded() {
    // SMIG-5.7/replay: the mover pauses after the frame that reaches the configured limit, and continues when
    // the answer arrives.
    let smig = SmigConfig { replay_limit: 20_000, ..SmigConfig::default() };
    let (mut peer, key) = server_with_response(Config { smig: Some(smig), ..Config::server() }, 1);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send_body(key, vec![1; 60_000], EndStream::Yes);
    peer.expect(C2, data(2, vec![1; 16_384]));
    peer.expect(C2, data(2, vec![1; 16_384]));
    peer.expect_silence_on(C2);
    peer.send(C1, accept(1, cid, 2).end());
    peer.expect(C2, data(2, vec![1; 16_384]));
    peer.expect(C2, data(2, vec![1; 60_000 - 3 * 16_384]).end());
}

#[test]
fn a_stream_has_one_open_migration_of_its_mover() {
    // SMIG-5.8/one-open-move
    let (mut peer, key) = server_with_response(Config::server(), 2);
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 2));
    assert_eq!(peer.migrate(key, C3), Err(MigrateError::InProgress));
    assert_eq!(peer.offer(key), Err(MigrateError::InProgress));
    peer.send(C1, accept(1, c2, 2).end());
    peer.migrate(key, C3).unwrap();
    peer.expect(C2, migrate(2, c3, 2));
    // SMIG-5.8/one-open-move: an offer counts as a migration.
    let (mut peer, key) = server_with_response(Config::server(), 1);
    peer.offer(key).unwrap();
    peer.expect(C1, offer(1));
    assert_eq!(peer.migrate(key, C2), Err(MigrateError::InProgress));
    assert_eq!(peer.offer(key), Err(MigrateError::InProgress));
    peer.expect_silence();
}

#[test]
fn a_migration_whose_carrier_is_lost_is_open_until_the_answer() {
    // SMIG-5.8/one-open-move and SMIG-8.9/c2-ends-early: the stream has not ended, since the answer decides.
    let (mut peer, key) = server_with_response(Config::server(), 2);
    let c2 = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 2));
    peer.lose(C2);
    assert_eq!(peer.migrate(key, C3), Err(MigrateError::InProgress));
    assert_eq!(peer.offer(key), Err(MigrateError::InProgress));
    peer.expect_silence();
    peer.send(C1, decline(1).end());
    let c3 = peer.cid(C3);
    peer.migrate(key, C3).unwrap();
    peer.expect(C1, migrate(1, c3, 2));
}

/// A server engine whose client tolerates `max_open_migrations`, with streams 1, 3, 5 on C1 and 1 on C2.
fn server_with_tolerant_peer(max_open_migrations: u32) -> (Peer, [StreamKey; 4]) {
    let mut peer = Peer::for_server(
        Setup::new(Config::server()).with_setting(setting::SMIG, max_open_migrations),
    );
    peer.connect();
    peer.connect();
    peer.connect();
    let keys = [(C1, 1), (C1, 3), (C1, 5), (C2, 1)].map(|(handle, id)| peer.get(handle, id));
    (peer, keys)
}

#[test]
fn no_more_migrations_are_open_than_the_peer_tolerates() {
    // SMIG-5.9/open-limit: in the whole session, offers included.
    let (mut peer, [a, b, c, d]) = server_with_tolerant_peer(2);
    let c3 = peer.cid(C3);
    peer.migrate(a, C3).unwrap();
    peer.offer(b).unwrap();
    assert_eq!(peer.migrate(c, C3), Err(MigrateError::TooManyOpen));
    assert_eq!(peer.migrate(d, C3), Err(MigrateError::TooManyOpen));
    peer.expect(C1, migrate(1, c3, 2));
    peer.expect(C1, offer(3));
    peer.expect_silence();
    peer.send(C1, accept(1, c3, 2).end());
    peer.migrate(d, C3).unwrap();
    peer.expect(C2, migrate(1, c3, 4));
    peer.send(C1, decline(3).end());
    peer.migrate(c, C3).unwrap();
    peer.expect(C1, migrate(5, c3, 6));
    // SMIG-5.9/open-limit: a stream that was reset before the answer counts until the answer arrives.
    let (mut peer, [a, b, ..]) = server_with_tolerant_peer(1);
    let c3 = peer.cid(C3);
    peer.migrate(a, C3).unwrap();
    peer.with_session(|session, _| session.reset(a, ErrorCode::Cancel));
    assert_eq!(peer.migrate(b, C3), Err(MigrateError::TooManyOpen));
    peer.expect(C1, migrate(1, c3, 2));
    peer.send(C1, decline(1).end());
    peer.migrate(b, C3).unwrap();
    // SMIG-5.9/open-limit: the end of the connection counts as an answer.
    let (mut peer, [a, _, _, d]) = server_with_tolerant_peer(1);
    peer.migrate(a, C3).unwrap();
    peer.lose(C1);
    peer.migrate(d, C3).unwrap();
}

#[test]
fn a_response_may_migrate_before_its_head() {
    // SMIG-5.28/before-headers: 1xx and final HEADERS are sent on S2.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.get(C1, 1);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    let early_hints = smig_proto::ResponseHead {
        status: http::StatusCode::from_u16(103).unwrap(),
        headers: http::HeaderMap::new(),
    };
    peer.with_session(|session, _| session.send_informational(key, &early_hints)).unwrap();
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, "body", EndStream::Yes);
    peer.expect(C2, headers(2).status(103));
    peer.expect(C2, headers(2).status(200));
    peer.expect(C2, data(2, "body").end());
    peer.expect_silence_on(C1);
    // SMIG-5.28/before-headers at the client: they may arrive before the barrier.
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C2, headers(2).status(103));
    peer.send(C2, headers(2).status(200));
    peer.send(C2, data(2, "body").end());
    let informational_event =
        |event: &Event| matches!(event, Event::Informational { .. }).then_some(());
    assert_eq!(peer.try_take_event(informational_event), None);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.take_event(informational_event);
    assert_eq!(peer.take_response(key), 200);
    assert_eq!(&peer.read_to_end(key)[..], b"body");
}

#[test]
fn a_replayed_body_counts_once_against_content_length() {
    // SMIG-5.28/before-headers and SMIG-6.8/resume: the body is counted once against content-length, not
    // twice.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.get(C1, 1);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    let mut fields = http::HeaderMap::new();
    fields.insert("content-length", "8".parse().unwrap());
    let head = smig_proto::ResponseHead { status: http::StatusCode::OK, headers: fields };
    peer.with_session(|session, _| session.send_response(key, &head, EndStream::No)).unwrap();
    peer.send_body(key, "four", EndStream::No);
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, decline(1).end());
    peer.send_body(key, "more", EndStream::Yes);
    peer.expect(C1, headers(1).status(200).field("content-length", "8"));
    let mut body = Vec::new();
    loop {
        let Frame::Data { stream: 1, data, end } = peer.next(C1) else { panic!("DATA follows") };
        body.extend_from_slice(&data);
        if end.is_end() {
            break;
        }
    }
    assert_eq!(body, b"fourmore");
}

#[test]
fn an_ended_stream_does_not_migrate() {
    // SMIG-5.29/only-requested: every stream of an engine was opened by the client or promised
    // (section_9_push.rs migrates a promised one); a stream that has ended cannot migrate.
    let (mut peer, key) = server_with_response(Config::server(), 1);
    peer.send_body(key, "", EndStream::Yes);
    peer.expect(C1, data(1, "").end());
    assert_eq!(peer.migrate(key, C2), Err(MigrateError::Ended));
    let (mut peer, key) = server_with_response(Config::server(), 1);
    peer.send(C1, reset(1, ErrorCode::Cancel));
    assert_eq!(peer.migrate(key, C2), Err(MigrateError::Ended));
    peer.with_session(|session, _| session.release(key));
    assert_eq!(peer.migrate(key, C2), Err(MigrateError::Ended));
    peer.expect_silence();
}

#[test]
fn a_client_does_not_offer() {
    let (mut peer, key) = client_with_upload();
    let result =
        peer.with_session(|session, now| session.migrate(now, key, MigrationTarget::Offer));
    assert_eq!(result, Err(MigrateError::NotServer));
    let handles: [ConnHandle; 2] = [C1, C2];
    handles.into_iter().for_each(|handle| peer.expect_silence_on(handle));
}
