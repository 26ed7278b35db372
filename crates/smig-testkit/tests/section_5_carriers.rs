//! spec/smig.md section 5: unbound carriers and skipped ids.

use core::time::Duration;

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Event, JoinRefusal, SmigConfig, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, ConnHandle, Peer, Setup};

/// A client engine with a GET on stream 1 of C1, and a spare.
fn client(config: Config) -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_client(config).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    (peer, key)
}

/// A server engine with an upload on stream 1 of C1, and a spare.
fn server(config: Config) -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_server(config).with_spare();
    let key = peer.post(C1, 1);
    (peer, key)
}

fn with_max_open_migrations(max_open_migrations: u32, config: Config) -> Config {
    Config { smig: Some(SmigConfig { max_open_migrations, ..SmigConfig::default() }), ..config }
}

fn unbound_count(peer: &Peer, handle: ConnHandle) -> usize {
    peer.session().connection(peer.conn_id(handle)).unwrap().unbound_carrier_count
}

#[test]
fn a_client_accepts_four_frame_types_on_an_unbound_carrier() {
    // SMIG-5.21/unbound-frames
    let (mut peer, key) = client(Config::client());
    let cid = peer.cid(C2);
    peer.send(C2, window_update(2, 100));
    peer.send(C2, headers(2).status(200));
    peer.send(C2, data(2, "body").end());
    peer.send(C2, reset(4, ErrorCode::Cancel));
    peer.expect_silence();
    assert_eq!(unbound_count(&peer, C2), 1, "the reset one is closed");
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    assert_eq!(peer.take_response(key), 200);
    assert_eq!(&peer.read_to_end(key)[..], b"body");
    assert_eq!(unbound_count(&peer, C2), 0);
}

#[test]
fn a_server_accepts_credit_and_resets_on_an_unbound_carrier() {
    // SMIG-5.21/unbound-frames
    let (mut peer, _) = server(Config::server());
    peer.send(C2, window_update(1, 100));
    peer.send(C2, reset(3, ErrorCode::Cancel));
    assert_eq!(unbound_count(&peer, C2), 1);
    peer.expect_silence();
    // HEADERS on an idle odd id is a new request.
    peer.get(C2, 5);
    peer.expect_silence();
}

#[test]
fn any_other_use_of_an_idle_id_ends_the_connection() {
    // SMIG-5.21/unbound-frames, a server: DATA cannot belong to a carrier.
    let (mut peer, other_key) = server(Config::server());
    peer.send(C2, data(1, "x"));
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
    peer.expect_not_failed(other_key);
    // SMIG-5.21/unbound-frames: the receiver's own idle ids.
    for frame in [window_update(2, 1), data(2, "x"), reset(2, ErrorCode::Cancel)] {
        let (mut peer, _) = server(Config::server());
        peer.send(C2, frame);
        peer.expect_goaway(C2, ErrorCode::ProtocolError);
    }
    let (mut peer, _) = server(Config::server());
    peer.send(C2, headers(2).status(200));
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
    let frames: [Frame; 4] = [
        window_update(5, 1),
        data(5, "x"),
        reset(5, ErrorCode::Cancel),
        headers(5).status(200).into(),
    ];
    for frame in frames {
        let (mut peer, other_key) = client(Config::client());
        peer.send(C2, frame);
        peer.expect_goaway(C2, ErrorCode::ProtocolError);
        peer.expect_not_failed(other_key);
        peer.expect_silence_on(C1);
    }
    // SMIG-5.21/unbound-frames: MIGRATE and its answer are not permitted on an unbound carrier.
    for frame in
        [migrate(1, smig_proto::Cid { app: smig_proto::AppId::new(1), number: 1 }, 3), decline(1)]
    {
        let (mut peer, _) = server(Config::server());
        peer.send(C2, window_update(1, 100));
        peer.send(C2, frame);
        peer.expect_goaway(C2, ErrorCode::ProtocolError);
    }
}

#[test]
fn there_are_no_carriers_on_a_connection_that_has_not_joined() {
    // SMIG-5.21/unbound-frames
    let mut peer = Peer::for_server(Setup::new(Config::server()).with_scripted_joins());
    peer.connect();
    peer.connect();
    peer.refuse_join(C2, JoinRefusal::NotHere);
    peer.expect(C2, join_refused(5));
    peer.send(C2, window_update(1, 10));
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    peer.send(C2, data(2, "x"));
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
    peer.expect_silence_on(C1);
}

#[test]
fn frames_after_the_end_of_a_carrier_reset_it() {
    // SMIG-5.31/ended-carrier: no MIGRATE has named it yet. It is closed, and the stream continues.
    let ends: [Frame; 2] = [data(2, "").end(), headers(2).status(200).end().into()];
    let later_frames: [Frame; 3] =
        [data(2, "").end(), data(2, "x"), headers(2).field("a", "b").into()];
    for end in ends {
        for frame in later_frames.clone() {
            let (mut peer, key) = client(Config::client());
            let cid = peer.cid(C2);
            peer.send(C2, end.clone());
            // Credit belongs to the other direction.
            peer.send(C2, window_update(2, 100));
            peer.expect_silence();
            peer.send(C2, frame);
            peer.expect(C2, reset(2, ErrorCode::StreamClosed));
            let limit_hit = |event: &Event| matches!(event, Event::LimitHit { .. }).then_some(());
            assert_eq!(peer.try_take_event(limit_hit), None, "it exceeded no limit");
            assert_eq!(unbound_count(&peer, C2), 0);
            assert_eq!(peer.session().connection(peer.conn_id(C2)).unwrap().unread_bytes, 0);
            peer.send(C2, data(2, "late").end());
            peer.send(C1, migrate(1, cid, 2));
            peer.expect(C1, decline(1).end());
            peer.expect_silence();
            peer.expect_not_failed(key);
        }
    }
    // SMIG-5.31/ended-carrier, at a mover: the stream has failed.
    for frame in [data(2, "").end(), data(2, "x"), headers(2).field("a", "b").end().into()] {
        let (mut peer, key) = server(Config::server());
        let (c1, c2) = (peer.cid(C1), peer.cid(C2));
        peer.respond(key, 200, EndStream::No);
        peer.expect(C1, headers(1).status(200));
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, c2, 2));
        peer.send(C2, data(2, "").end());
        peer.send(C2, window_update(2, 100));
        peer.expect_silence();
        peer.send(C2, frame);
        peer.expect(C2, reset(2, ErrorCode::StreamClosed));
        assert_eq!(peer.take_error(key).code, ErrorCode::StreamClosed);
        // SMIG-5.31/ended-carrier: a side that has ended its direction may still migrate.
        let (mut peer, key) = server(Config::server());
        peer.respond(key, 200, EndStream::No);
        peer.expect(C1, headers(1).status(200));
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, c2, 2));
        peer.send(C2, data(2, "").end());
        peer.send(C2, migrate(2, c1, 3));
        peer.send(C1, accept(1, c2, 2));
        peer.expect(C2, accept(2, c1, 3));
        peer.expect_silence();
        peer.expect_not_failed(key);
        assert_eq!(peer.location(key), (C1, 3));
    }
}

#[test]
fn an_unbound_carrier_holds_no_more_than_the_largest_window() {
    // SMIG-5.22/unbound-bytes: the limit is the open window of some stream, or of one that has not begun
    // here.
    let config = Config { stream_window: 100_000, ..Config::client() };
    let (mut peer, key) = client(config);
    let cid = peer.cid(C2);
    peer.send(C1, headers(1).status(200));
    peer.send(C1, data(1, vec![0; 16_000]));
    peer.send(C1, data(1, vec![0; 4_000]));
    for _ in 0..6 {
        peer.send(C2, data(2, vec![0; 16_000]));
    }
    peer.send(C2, data(2, vec![0; 4_000]));
    peer.expect_silence();
    peer.send(C2, data(2, "x"));
    peer.expect(C2, reset(2, ErrorCode::FlowControlError));
    assert_eq!(peer.take_limit_hit(), "unbound carrier holds more than a stream's window");
    // Its data is credited, it is closed, and the stream is not affected.
    assert_eq!(peer.session().connection(peer.conn_id(C2)).unwrap().unread_bytes, 0);
    peer.send(C2, data(2, "late"));
    peer.expect_silence();
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    peer.send(C1, data(1, vec![0; 16_000]).end());
    assert_eq!(peer.read_to_end(key).len(), 36_000);
}

#[test]
fn an_unbound_carrier_may_belong_to_a_stream_that_has_not_begun() {
    // SMIG-5.22/unbound-bytes: the DATA of a pushed stream arrives on C2 before its promise on C1, and no
    // other stream has a window.
    let config = Config { stream_window: 4_000, ..Config::client() };
    let (mut peer, _) = client(config);
    peer.send(C1, headers(1).status(200));
    peer.send(C1, data(1, vec![0; 4_000]));
    peer.send(C2, data(2, vec![0; 4_000]));
    peer.expect_silence();
    peer.send(C2, data(2, "x"));
    peer.expect(C2, reset(2, ErrorCode::FlowControlError));
}

#[test]
fn a_bound_carrier_holds_no_more_than_its_streams_window() {
    // SMIG-5.22/unbound-bytes, applied to a mover that waits for the answer.
    let config = Config { stream_window: 100_000, ..Config::server() };
    let (mut peer, key) = server(config);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, data(1, vec![0; 16_000]));
    for _ in 0..5 {
        peer.send(C2, data(2, vec![0; 16_000]));
    }
    peer.send(C2, data(2, vec![0; 4_001]));
    peer.expect(C2, reset(2, ErrorCode::FlowControlError));
    assert_eq!(peer.take_error(key).code, ErrorCode::FlowControlError);
    assert_eq!(peer.session().connection(peer.conn_id(C2)).unwrap().unread_bytes, 0);
}

#[test]
fn a_carrier_holds_no_more_than_16_header_sections() {
    // In addition to SMIG-5.22/unbound-bytes: 1xx heads use memory, too. Unbound, and bound at a mover.
    let (mut peer, key) = client(Config::client());
    for _ in 0..16 {
        peer.send(C2, headers(2).status(103));
    }
    peer.expect_silence();
    peer.send(C2, headers(2).status(103));
    peer.expect(C2, reset(2, ErrorCode::EnhanceYourCalm));
    assert_eq!(peer.take_limit_hit(), "unbound carrier holds too many header sections");
    peer.expect_not_failed(key);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1).end());
    for _ in 0..16 {
        peer.send(C2, headers(1).status(103));
    }
    peer.expect_silence();
    peer.send(C2, headers(1).status(103));
    peer.expect(C2, reset(1, ErrorCode::EnhanceYourCalm));
    assert_eq!(peer.take_error(key).code, ErrorCode::EnhanceYourCalm);
}

#[test]
fn small_data_on_an_unbound_carrier_is_complete_and_in_order() {
    // SMIG-5.22/unbound-bytes and SMIG-5.15/kept-in-order: one byte per frame.
    let (mut peer, key) = client(Config::client());
    let cid = peer.cid(C2);
    peer.send(C2, headers(2).status(200));
    let body: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
    for byte in &body {
        peer.send(C2, data(2, [*byte]));
    }
    peer.send(C2, data(2, vec![7; 2_000]));
    peer.send(C2, data(2, "").end());
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    let read = peer.read_to_end(key);
    assert_eq!((&read[..20_000], read.len()), (&body[..], 22_000));
}

#[test]
fn more_unbound_carriers_than_tolerated_are_refused() {
    // SMIG-5.23/unbound-count: in the session, not per connection; offers do not count.
    let (mut peer, _) = client(with_max_open_migrations(2, Config::client()));
    peer.connect();
    peer.send(C1, offer(1));
    peer.send(C2, data(2, "x"));
    peer.send(C3, window_update(2, 1));
    peer.expect_silence();
    peer.send(C2, data(2, "more of the same"));
    peer.send(C2, headers(4).status(200));
    peer.expect(C2, reset(4, ErrorCode::RefusedStream));
    assert_eq!(peer.take_limit_hit(), "unbound carriers");
    peer.send(C3, window_update(4, 1));
    peer.expect(C3, reset(4, ErrorCode::RefusedStream));
    // The reset of an unused id does not create one.
    peer.send(C3, reset(6, ErrorCode::Cancel));
    peer.expect_silence();
    // One ends, so that another is accepted.
    peer.send(C2, reset(2, ErrorCode::Cancel));
    peer.send(C3, data(8, "x"));
    peer.expect_silence();
}

#[test]
fn a_carrier_that_stays_unbound_is_cancelled() {
    // SMIG-5.24/unbound-timeout: after 10 seconds, with a timer that fires once per second.
    let (mut peer, key) = client(Config::client());
    let cid = peer.cid(C2);
    peer.send(C2, data(2, "x"));
    peer.advance(Duration::from_secs(9));
    peer.expect_silence();
    peer.advance(Duration::from_secs(2));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    assert_eq!(peer.take_limit_hit(), "unbound carrier time");
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    peer.expect_not_failed(key);
    // A carrier that is bound in time is not affected.
    let (mut peer, key) = client(Config::client());
    peer.send(C2, window_update(2, 5));
    peer.advance(Duration::from_secs(9));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.advance(Duration::from_secs(20));
    peer.expect_silence();
    peer.expect_not_failed(key);
}

#[test]
fn a_reset_closes_an_unbound_carrier() {
    // SMIG-5.25/unbound-reset: its data is dropped and credited; a MIGRATE that names it is declined.
    let (mut peer, key) = client(Config::client());
    let cid = peer.cid(C2);
    peer.send(C2, headers(2).status(200));
    peer.send(C2, data(2, vec![0; 1_000]));
    peer.send(C2, reset(2, ErrorCode::InternalError));
    let view = peer.session().connection(peer.conn_id(C2)).unwrap();
    assert_eq!((view.unbound_carrier_count, view.unread_bytes), (0, 0));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    // The mover sends the reset on S1 (SMIG-8.3/reset-remembered).
    peer.send(C1, reset(1, ErrorCode::InternalError));
    assert_eq!(peer.take_error(key).code, ErrorCode::InternalError);
    peer.expect_silence();
}

#[test]
fn an_error_on_an_unbound_carrier_closes_it_alone() {
    // SMIG-5.25/unbound-reset: RST_STREAM, sent on it.
    let (mut peer, key) = client(Config::client());
    let cid = peer.cid(C2);
    peer.send(C2, data(2, "x"));
    peer.send(C2, window_update(2, 0));
    peer.expect(C2, reset(2, ErrorCode::ProtocolError));
    assert_eq!(unbound_count(&peer, C2), 0);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    peer.expect_not_failed(key);
    peer.advance(Duration::from_secs(11));
    peer.expect_silence();
}

#[test]
fn skipped_ids_stay_available_as_carriers() {
    // SMIG-5.26/skipped-ids: 5 overtakes 1 and 3.
    let (mut peer, first_key) = server(Config::server());
    let second_key = peer.post(C1, 3);
    let cid = peer.cid(C2);
    peer.get(C2, 5);
    peer.send(C1, migrate(1, cid, 3));
    peer.expect(C1, accept(1, cid, 3));
    peer.send(C2, window_update(1, 9));
    peer.send(C1, migrate(3, cid, 1));
    peer.expect(C1, accept(3, cid, 1));
    assert_eq!((peer.location(first_key), peer.location(second_key)), ((C2, 3), (C2, 1)));
    peer.send(C2, data(1, "x").end());
    assert_eq!(&peer.read_to_end(second_key)[..], b"x");
    peer.expect_silence();
    // SMIG-5.26/skipped-ids, a client: 4 overtakes 2.
    let (mut peer, key) = client(Config::client());
    peer.send(C2, data(4, "x"));
    peer.send(C2, headers(2).status(204).end());
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    assert_eq!(peer.take_response(key), 204);
}

#[test]
fn a_request_may_be_overtaken_by_a_migrate_but_not_by_a_request() {
    // SMIG-5.26/skipped-ids: the MIGRATE that names 3 on C2 arrives before request 1 there.
    let (mut peer, _) = server(Config::server());
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 3));
    peer.expect(C1, accept(1, cid, 3));
    peer.get(C2, 1);
    peer.expect_silence();
    // SMIG-5.26/skipped-ids: ids of requests increase.
    let (mut peer, _) = server(Config::server());
    peer.get(C2, 5);
    peer.send(C2, headers(3).get("/").end());
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
    peer.expect_silence_on(C1);
}

#[test]
fn at_least_256_skipped_ids_are_remembered() {
    // SMIG-5.26/skipped-ids: 256 ids below 513 were skipped; the lowest may still be a carrier. Of many more,
    // the lowest are forgotten, that is, closed.
    let (mut peer, _) = server(Config::server());
    let cid = peer.cid(C2);
    peer.get(C2, 513);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    let (mut peer, _) = server(Config::server());
    peer.get(C2, 100_001);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, decline(1));
    peer.send(C1, migrate(1, cid, 100_001 - 2 * 256));
    peer.expect(C1, accept(1, cid, 100_001 - 2 * 256));
}

#[test]
fn frames_on_an_abandoned_carrier_are_dropped_without_an_error() {
    // SMIG-5.27/abandoned-dropped at a follower that declined.
    let config = Config { connection_window: 65_535, ..Config::client() };
    let smig = SmigConfig { max_migrations_per_stream: 0, ..SmigConfig::default() };
    let (mut peer, key) = client(Config { smig: Some(smig), ..config });
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    for _ in 0..2 {
        peer.send(C2, data(2, vec![0; 16_000]));
    }
    peer.send(C2, data(2, vec![0; 1_000]));
    peer.expect(C2, window_update(0, 33_000));
    peer.send(C2, headers(2).status(200));
    peer.send(C2, window_update(2, 5));
    peer.send(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
    peer.expect_not_failed(key);
    // SMIG-5.27/abandoned-dropped at a mover whose migration was declined: the follower's frames there are
    // dropped too.
    let (mut peer, key) = server(Config::server());
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, decline(1));
    peer.send(C2, window_update(2, 5));
    peer.send(C2, data(2, "x"));
    peer.send(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
    peer.expect_not_failed(key);
}
