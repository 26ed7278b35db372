//! spec/smig.md section 2: code points and frames, in all invalid forms.

use smig_proto::{AppId, Cid, Config, EndStream, ErrorCode};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, Peer, Setup};

/// A client with two joined connections to a server engine.
fn server_with_two_connections() -> Peer {
    let mut peer = Peer::connected_to_server(Config::server());
    peer.connect();
    peer
}

fn client_with_two_connections() -> Peer {
    let mut peer = Peer::connected_to_client(Config::client());
    peer.connect();
    peer
}

#[test]
fn migrate_of_a_wrong_length_ends_the_connection() {
    // SMIG-2.1/frame-size
    for length in [0, 15, 17, 32] {
        let mut peer = server_with_two_connections();
        peer.get(C1, 1);
        peer.send(C1, raw(kind::MIGRATE, 0, 1, vec![0; length]));
        peer.expect_goaway(C1, ErrorCode::FrameSizeError);
        peer.expect_silence_on(C2);
    }
}

#[test]
fn join_of_a_wrong_length_ends_the_connection() {
    // SMIG-2.1/frame-size
    for length in [0, 1, 47, 49] {
        let mut peer = Peer::connected_to_server(Config::server());
        peer.send(C1, raw(kind::JOIN, 0, 0, vec![1; length]));
        peer.expect_goaway(C1, ErrorCode::FrameSizeError);
    }
    for (flags, length) in [(flag::REFUSED, 0), (flag::REFUSED, 48), (flag::SMIG_ACK, 1)] {
        let mut peer = Peer::connected_to_client(Config::client());
        peer.send(C1, raw(kind::JOIN, flags, 0, vec![1; length]));
        peer.expect_goaway(C1, ErrorCode::FrameSizeError);
    }
}

#[test]
fn smig_frames_are_ignored_while_the_extension_is_off() {
    // SMIG-2.2/off-ignored, at a server whose client does not offer the extension.
    let mut setup = Setup::new(Config::server());
    setup.settings.clear();
    let mut peer = Peer::for_server(setup);
    peer.connect();
    let key = peer.get(C1, 1);
    for frame in invalid_smig_frames() {
        peer.send(C1, frame);
    }
    peer.expect_silence();
    peer.respond(key, 204, EndStream::Yes);
    peer.expect(C1, headers(1).status(204).end());

    // SMIG-2.2/off-ignored, at a client whose server does not offer it.
    let mut setup = Setup::new(Config::client());
    setup.settings.clear();
    let mut peer = Peer::for_client(setup);
    peer.connect();
    for frame in invalid_smig_frames() {
        peer.send(C1, frame);
    }
    peer.expect_silence();

    // SMIG-2.2/off-ignored, where the engine itself does not offer it.
    let mut peer = Peer::connected_to_server(Config { smig: None, ..Config::server() });
    for frame in invalid_smig_frames() {
        peer.send(C1, frame);
    }
    peer.expect_silence();
}

fn invalid_smig_frames() -> Vec<Frame> {
    vec![
        raw(kind::MIGRATE, 0, 1, [9; 16]),
        raw(kind::MIGRATE, 0, 0, [0; 3]),
        raw(kind::MIGRATE, 0xff, 99, [0; 16]),
        raw(kind::JOIN, 0, 0, [0; 48]),
        raw(kind::JOIN, flag::REFUSED, 7, [0; 48]),
    ]
}

#[test]
fn migrate_on_stream_zero_or_an_idle_stream_ends_the_connection() {
    // SMIG-2.3/where-allowed
    for stream in [0, 1, 2, 9] {
        let mut peer = server_with_two_connections();
        let cid = peer.cid(C2);
        peer.send(C1, migrate(stream, cid, 1));
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
        peer.expect_silence_on(C2);
        let mut peer = client_with_two_connections();
        let cid = peer.cid(C2);
        peer.send(C1, migrate(stream, cid, 2));
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
    // An answer on an idle stream is a connection error as well.
    let mut peer = server_with_two_connections();
    peer.send(C1, decline(5));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

#[test]
fn migrate_on_a_connection_that_is_not_joined_ends_it() {
    // SMIG-2.3/where-allowed: C2's JOIN is refused, then it is plain HTTP/2.
    let mut peer = Peer::for_server(Setup::new(Config::server()).with_scripted_joins());
    peer.connect();
    peer.connect();
    peer.refuse_join(C2, smig_proto::JoinRefusal::NotHere);
    peer.expect(C2, join_refused(5));
    peer.send(C2, headers(1).get("/").end());
    let cid = peer.cid(C1);
    peer.send(C2, migrate(1, cid, 1));
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
    peer.expect_silence_on(C1);
}

#[test]
fn a_misplaced_join_ends_the_connection() {
    // SMIG-2.3/where-allowed: on a stream.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.send(C1, raw(kind::JOIN, 0, 1, [0; 48]));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    // SMIG-2.3/where-allowed: an answer, at a server.
    for answer in [raw(kind::JOIN, flag::SMIG_ACK, 0, [0; 48]), join_refused(1)] {
        let mut peer = Peer::connected_to_server(Config::server());
        peer.send(C1, answer);
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
    // SMIG-2.3/where-allowed: a JOIN without ACK, at a client.
    let mut peer = Peer::connected_to_client(Config::client());
    peer.send(C1, raw(kind::JOIN, 0, 0, [0; 48]));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

#[test]
fn reserved_bits_and_undefined_flags_are_ignored() {
    // SMIG-2.4/reserved-bits: R of dstSID, and all flags that MIGRATE does not define. The script's
    // codec checks this for every frame that the engine sends.
    let mut peer = server_with_two_connections();
    let key = peer.get(C1, 1);
    let Cid { app, number } = peer.cid(C2);
    let payload = [&app.to_bytes()[..], &number.to_be_bytes(), &(1u32 | 1 << 31).to_be_bytes()];
    peer.send(C1, raw(kind::MIGRATE, 0xfc | flag::END_STREAM, 1, payload.concat()));
    let cid = peer.cid(C2);
    peer.expect(C1, accept(1, cid, 1));
    peer.take_migrated(key);
}

#[test]
fn an_offers_dst_sid_is_ignored_and_a_client_may_not_offer() {
    // SMIG-2.5/zero-cid: dstSID of an offer and of a decline are ignored.
    let payload = [&[0; 12][..], &77u32.to_be_bytes()].concat();
    let mut peer = client_with_two_connections();
    let key = peer.open(C1, http::Method::GET, EndStream::Yes);
    peer.send(C1, raw(kind::MIGRATE, 0, 1, &payload));
    peer.expect_silence();
    peer.with_session(|session, _| session.decline_offer(key));
    peer.expect(C1, decline(1).end());

    let mut peer = server_with_two_connections();
    let key = peer.get(C1, 1);
    let to = peer.conn_id(C2);
    peer.with_session(|session, now| {
        session.migrate(now, key, smig_proto::MigrationTarget::Connection(to))
    })
    .unwrap();
    let cid = peer.cid(C2);
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, raw(kind::MIGRATE, flag::SMIG_ACK | flag::END_STREAM, 1, &payload));
    peer.expect_not_failed(key);
    assert_eq!(peer.session().stream(key).unwrap().connection, peer.conn_id(C1));

    // SMIG-2.5/zero-cid: an offer from a client.
    let mut peer = server_with_two_connections();
    peer.get(C1, 1);
    peer.send(C1, offer(1));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    peer.expect_silence_on(C2);
}

#[test]
fn a_destination_that_the_mover_may_not_open_ends_the_connection() {
    // SMIG-2.6/bad-destination: 0, and the other side's parity.
    for to in [0, 2] {
        let mut peer = server_with_two_connections();
        let cid = peer.cid(C2);
        peer.get(C1, 1);
        peer.send(C1, migrate(1, cid, to));
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
    for to in [0, 3] {
        let mut peer = client_with_two_connections();
        let cid = peer.cid(C2);
        peer.open(C1, http::Method::GET, EndStream::Yes);
        peer.send(C1, migrate(1, cid, to));
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
    // SMIG-2.6/bad-destination: an open stream.
    let mut peer = server_with_two_connections();
    let cid = peer.cid(C2);
    peer.get(C1, 1);
    let other_key = peer.get(C2, 1);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    peer.expect_not_failed(other_key);
    peer.expect_silence_on(C2);
    // SMIG-2.6/bad-destination: a promised stream.
    let config = Config { push: smig_proto::Push::Enabled, ..Config::client() };
    let mut peer = Peer::connected_to_client(config);
    peer.connect();
    let cid = peer.cid(C2);
    peer.open(C1, http::Method::GET, EndStream::Yes);
    peer.open(C2, http::Method::GET, EndStream::Yes);
    peer.send(C2, push_promise(1, 2, headers(0).get("/style.css")));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    peer.expect_silence_on(C2);
}

#[test]
fn an_answer_on_a_closed_id_is_dropped_and_on_an_open_one_an_error() {
    // SMIG-2.7/stray-answer: the stream is closed.
    let mut peer = server_with_two_connections();
    let cid = peer.cid(C2);
    let key = peer.get(C1, 1);
    peer.respond(key, 204, EndStream::Yes);
    peer.expect(C1, headers(1).status(204).end());
    peer.send(C1, decline(1));
    peer.send(C1, accept(1, cid, 2));
    peer.expect_silence();
    // SMIG-2.7/stray-answer: it is open, and has no open migration.
    for answer in [decline(1), accept(1, cid, 2)] {
        let mut peer = server_with_two_connections();
        peer.get(C1, 1);
        peer.send(C1, answer);
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
        peer.expect_silence_on(C2);
    }
}

#[test]
fn an_answer_that_does_not_fit_the_migrate_ends_the_connection() {
    // SMIG-2.7/stray-answer: another connection, another id; for an open stream and for one that
    // was reset.
    for reset_code in [None, Some(ErrorCode::Cancel)] {
        let unknown_cid = Cid { app: AppId::new(0x0102_0304_0506_0708), number: 9 };
        for case_index in 0..3 {
            let mut peer = server_with_two_connections();
            let (c1, c2) = (peer.cid(C1), peer.cid(C2));
            let key = peer.get(C1, 1);
            let to = peer.conn_id(C2);
            let target = smig_proto::MigrationTarget::Connection(to);
            peer.with_session(|session, now| session.migrate(now, key, target)).unwrap();
            peer.expect(C1, migrate(1, c2, 2));
            if let Some(code) = reset_code {
                peer.with_session(|session, _| session.reset(key, code));
                peer.expect(C2, reset(2, code));
            }
            let wrong_answer =
                [accept(1, c2, 4), accept(1, c1, 2), accept(1, unknown_cid, 2)][case_index].clone();
            peer.send(C1, wrong_answer);
            assert_eq!(peer.expect_goaway(C1, ErrorCode::ProtocolError), 1);
        }
    }
    // SMIG-2.7/stray-answer: an accepting answer to an offer.
    let mut peer = server_with_two_connections();
    let cid = peer.cid(C2);
    let key = peer.get(C1, 1);
    peer.with_session(|session, now| session.migrate(now, key, smig_proto::MigrationTarget::Offer))
        .unwrap();
    peer.expect(C1, offer(1));
    peer.send(C1, accept(1, cid, 2));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

#[test]
fn an_unsolicited_join_answer_ends_the_connection() {
    // SMIG-2.8/unasked-answer: on the first connection, and on one that has received its answer.
    for handle in [C1, C2] {
        for answer in [raw(kind::JOIN, flag::SMIG_ACK, 0, [0; 48]), join_refused(4)] {
            let mut peer = client_with_two_connections();
            peer.send(handle, answer);
            peer.expect_goaway(handle, ErrorCode::ProtocolError);
        }
    }
}

#[test]
fn migrate_may_follow_end_stream_but_not_interrupt_a_header_block() {
    // SMIG-2.9/stream-states: after END_STREAM of the sender's direction, here of a GET.
    let mut peer = server_with_two_connections();
    let key = peer.get(C1, 1);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1).end());
    peer.expect(C1, accept(1, cid, 1));
    peer.take_migrated(key);
    // SMIG-2.9/stream-states: after END_STREAM of the other direction.
    let key = peer.post(C1, 3);
    peer.respond(key, 200, EndStream::Yes);
    peer.expect(C1, headers(3).status(200).end());
    peer.send(C1, migrate(3, cid, 3));
    peer.expect(C1, accept(3, cid, 3).end());
    peer.take_migrated(key);
    peer.expect_silence();
    // SMIG-2.9/stream-states: before the last CONTINUATION.
    peer.send(C1, raw(kind::HEADERS, 0, 5, []));
    peer.send(C1, migrate(1, cid, 5));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

#[test]
fn end_stream_on_an_offer_is_ignored() {
    // SMIG-2.5/zero-cid: END_STREAM of an offer is ignored.
    let mut peer = client_with_two_connections();
    let key = peer.open(C1, http::Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(200));
    peer.send(C1, offer(1).end());
    peer.send(C1, data(1, "it goes on").end());
    assert_eq!(peer.read_to_end(key), "it goes on");
}
