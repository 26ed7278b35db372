//! spec/smig.md section 6: offers, collisions, declines.

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Event, MigrateError, SmigConfig, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, Peer};

fn server() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    (peer, key)
}

/// A client engine that uploads on stream 1 of C1 and has received the response head.
fn client() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_client(Config::client()).with_spare().with_spare();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send(C1, headers(1).status(200));
    peer.take_response(key);
    (peer, key)
}

fn take_offer(peer: &mut Peer) -> StreamKey {
    peer.take_event(|event| match event {
        Event::MigrationOffered { stream } => Some(*stream),
        _ => None,
    })
}

// Offers.

#[test]
fn an_offer_is_no_barrier() {
    // SMIG-6.1/offer: the server continues to send on S1.
    let (mut peer, key) = server();
    peer.offer(key).unwrap();
    peer.send_body(key, "on", EndStream::No);
    peer.expect(C1, offer(1));
    peer.expect(C1, data(1, "on"));
    peer.send(C1, data(1, "up"));
    assert_eq!(&peer.read(key)[..], b"up");
    // SMIG-6.1/offer at a client: it continues, too.
    let (mut peer, key) = client();
    peer.send(C1, offer(1));
    assert_eq!(take_offer(&mut peer), key);
    peer.send(C1, data(1, "down"));
    assert_eq!(&peer.read(key)[..], b"down");
    peer.send_body(key, "up", EndStream::No);
    peer.expect(C1, data(1, "up"));
}

#[test]
fn a_client_answers_an_offer_by_migrate_or_decline() {
    // SMIG-6.2/offer-answered: to a connection that the client opens for it (Figure 2: the server
    // migrates, without a spare).
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(200));
    peer.send(C1, offer(1));
    take_offer(&mut peer);
    peer.connect();
    peer.migrate_to_spare(key).unwrap();
    let cid = peer.cid(C2);
    peer.expect(C1, migrate(1, cid, 1).end());
    peer.send(C1, data(1, "one "));
    peer.send(C1, accept(1, cid, 1));
    peer.send(C2, data(1, "two").end());
    assert_eq!(&peer.read_to_end(key)[..], b"one two");
    peer.expect_silence();
    // SMIG-6.2/offer-answered: a decline, which ends nothing.
    let (mut peer, key) = client();
    peer.send(C1, offer(1));
    peer.with_session(|session, _| session.decline_offer(key));
    peer.expect(C1, decline(1));
    peer.with_session(|session, _| session.decline_offer(key));
    peer.expect_silence();
}

#[test]
fn the_clients_open_migration_answers_an_offer() {
    // SMIG-6.2/offer-answered: no further answer; also if the stream was reset meanwhile.
    for reset_first in [false, true] {
        let (mut peer, key) = client();
        let cid = peer.cid(C2);
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, cid, 1));
        if reset_first {
            peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
            peer.expect(C2, reset(1, ErrorCode::Cancel));
        }
        peer.send(C1, offer(1));
        peer.expect_silence();
        peer.send(C1, accept(1, cid, 1));
        peer.expect_silence();
    }
    // SMIG-6.2/offer-answered and SMIG-6.3/offer-stays-open, the server: the client's MIGRATE
    // answers its offer.
    let (mut peer, key) = server();
    peer.offer(key).unwrap();
    peer.expect(C1, offer(1));
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    assert_eq!(peer.location(key), (C2, 1));
    peer.migrate(key, C1).unwrap();
}

#[test]
fn an_offer_stays_open_until_it_is_answered() {
    // SMIG-6.3/offer-stays-open: no other MIGRATE meanwhile, however long it takes.
    let (mut peer, key) = server();
    peer.offer(key).unwrap();
    peer.expect(C1, offer(1));
    peer.advance(core::time::Duration::from_secs(50));
    assert_eq!(peer.migrate(key, C2), Err(MigrateError::InProgress));
    peer.send(C1, decline(1));
    let declined = peer.try_take_event(|event| match event {
        Event::MigrationDeclined { stream } => Some(*stream),
        _ => None,
    });
    assert_eq!(declined, Some(key));
    // A migration to a given connection is still possible.
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    // SMIG-6.3/offer-stays-open: the server declines the client's MIGRATE that answered the offer;
    // this ends the offer as well.
    let (mut peer, key) = server();
    peer.offer(key).unwrap();
    peer.expect(C1, offer(1));
    let c1 = peer.cid(C1);
    peer.send(C1, migrate(1, c1, 3));
    peer.expect(C1, decline(1));
    peer.migrate(key, C2).unwrap();
    // SMIG-6.3/offer-stays-open: the end of the stream ends its offer; a late answer is dropped.
    let (mut peer, key) = server();
    peer.offer(key).unwrap();
    peer.expect(C1, offer(1));
    peer.send(C1, reset(1, ErrorCode::Cancel));
    peer.send(C1, decline(1));
    peer.expect_silence();
}

#[test]
fn a_declined_stream_is_not_offered_again() {
    // SMIG-6.4/offered-once
    let (mut peer, key) = server();
    peer.offer(key).unwrap();
    peer.expect(C1, offer(1));
    peer.send(C1, decline(1));
    assert_eq!(peer.offer(key), Err(MigrateError::LimitReached));
    peer.expect_silence();
    // An accepted offer may be followed by another; after a decline, further offers are declined.
    let (mut peer, key) = client();
    peer.send(C1, offer(1));
    take_offer(&mut peer);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1));
    peer.send(C1, accept(1, cid, 1));
    peer.send(C2, offer(1));
    assert_eq!(take_offer(&mut peer), key);
    peer.with_session(|session, _| session.decline_offer(key));
    peer.expect(C2, decline(1));
    peer.send(C2, offer(1));
    peer.expect(C2, decline(1));
    let again = |event: &Event| matches!(event, Event::MigrationOffered { .. }).then_some(());
    assert_eq!(peer.try_take_event(again), None);
}

// Collisions.

#[test]
fn the_servers_migration_wins_at_the_server() {
    // SMIG-6.5/server-wins: the client's MIGRATE is not answered, its id is abandoned, its
    // END_STREAM counts.
    let (mut peer, key) = server();
    peer.connect();
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 2));
    peer.send(C1, data(1, "all"));
    peer.send(C3, window_update(1, 1_000));
    peer.send(C1, migrate(1, c3, 1).end());
    peer.expect_silence();
    assert_eq!(peer.session().connection(peer.conn_id(C3)).unwrap().unbound_carrier_count, 0);
    let window = peer.session().stream(key).unwrap().send_window;
    assert_eq!(window, 65_535, "SMIG-6.10/lost-credit: credit of the abandoned id counts nowhere");
    peer.send(C3, reset(1, ErrorCode::Cancel));
    peer.send(C1, accept(1, c2, 2).end());
    assert_eq!(&peer.read_to_end(key)[..], b"all");
    assert_eq!(peer.location(key), (C2, 2));
    peer.expect_silence();
}

#[test]
fn a_colliding_migrate_of_a_reset_stream_is_ignored() {
    // SMIG-6.5/server-wins: the server's migration is still open.
    let (mut peer, key) = server();
    peer.connect();
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.migrate(key, C2).unwrap();
    peer.with_session(|session, _| session.reset(key, ErrorCode::InternalError));
    peer.expect(C1, migrate(1, c2, 2));
    peer.expect(C2, reset(2, ErrorCode::InternalError));
    peer.send(C1, migrate(1, c3, 1));
    peer.expect_silence();
    // SMIG-8.3/reset-remembered: after a decline the reset is sent on S1.
    peer.send(C1, decline(1));
    peer.expect(C1, reset(1, ErrorCode::InternalError));
    peer.expect_silence();
}

#[test]
fn the_client_abandons_its_migration_and_follows() {
    // SMIG-6.6/client-yields: its data is sent on the server's S2; its own carrier was not used and
    // needs no reset.
    let (mut peer, key) = client();
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.send_body(key, "one", EndStream::No);
    peer.expect(C1, data(1, "one"));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 1));
    peer.send_body(key, "two", EndStream::Yes);
    peer.send(C1, migrate(1, c3, 2));
    peer.expect(C1, accept(1, c3, 2));
    peer.expect(C3, data(2, "two").end());
    assert_eq!(peer.location(key), (C3, 2));
    peer.send(C3, data(2, "down").end());
    assert_eq!(&peer.read_to_end(key)[..], b"down");
    peer.expect_silence();
    // Later frames on the abandoned carrier are dropped (SMIG-5.27/abandoned-dropped).
    peer.send(C2, window_update(1, 5));
    peer.expect_silence();
}

#[test]
fn both_ends_may_choose_the_same_connection() {
    // SMIG-6.6/client-yields: the ids differ in parity, so that they cannot collide.
    let (mut peer, key) = client();
    let c2 = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 1));
    peer.send(C2, data(2, "early").end());
    peer.send(C1, migrate(1, c2, 2));
    peer.expect(C1, accept(1, c2, 2));
    assert_eq!(&peer.read_to_end(key)[..], b"early");
    peer.expect_silence();
}

#[test]
fn a_client_that_yields_may_still_decline() {
    // SMIG-6.6/client-yields: the stream is back on S1, and all held data is sent there.
    let (mut peer, key) = client();
    let (c1, c2) = (peer.cid(C1), peer.cid(C2));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 1));
    peer.send_body(key, "held", EndStream::Yes);
    peer.send(C1, migrate(1, c1, 2));
    peer.expect(C1, decline(1));
    peer.expect(C1, data(1, "held").end());
    assert_eq!(peer.location(key), (C1, 1));
    peer.expect_silence();
}

// Declines.

#[test]
fn a_follower_that_declines_drops_the_carriers_frames() {
    // SMIG-6.7/decline-drops: including credit; its own direction continues on S1.
    let smig = SmigConfig { max_migrations_per_stream: 0, ..SmigConfig::default() };
    let config = Config { smig: Some(smig), ..Config::client() };
    let mut peer = Peer::connected_to_client(config).with_spare();
    let key = peer.open(C1, Method::POST, EndStream::No);
    let cid = peer.cid(C2);
    peer.send(C2, headers(2).status(404));
    peer.send(C2, data(2, "wrong").end());
    peer.send(C2, window_update(2, 70_000));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1));
    assert_eq!(peer.session().stream(key).unwrap().send_window, 65_535);
    let view = peer.session().connection(peer.conn_id(C2)).unwrap();
    assert_eq!((view.unbound_carrier_count, view.unread_bytes), (0, 0));
    peer.send_body(key, "up", EndStream::Yes);
    peer.expect(C1, data(1, "up").end());
    peer.send(C1, headers(1).status(200));
    peer.send(C1, data(1, "right").end());
    assert_eq!(peer.take_response(key), 200);
    assert_eq!(&peer.read_to_end(key)[..], b"right");
    peer.expect_silence();
}

#[test]
fn a_declined_mover_resumes_after_its_barrier() {
    // SMIG-6.8/resume, and SMIG-6.9/lost-bytes: data sent on S2 counts against no window of the
    // stream.
    let (mut peer, key) = server();
    let cid = peer.cid(C2);
    peer.send_body(key, "one", EndStream::No);
    peer.expect(C1, data(1, "one"));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send_body(key, "two", EndStream::No);
    peer.expect(C2, data(2, "two"));
    assert_eq!(peer.session().stream(key).unwrap().send_window, 65_529);
    peer.send(C1, decline(1));
    peer.expect(C1, data(1, "two"));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.send_body(key, "three", EndStream::Yes);
    peer.expect(C1, data(1, "three").end());
    assert_eq!(peer.session().stream(key).unwrap().send_window, 65_535 - 11);
    peer.expect_silence();
}

#[test]
fn the_connection_window_stays_charged_for_an_abandoned_carrier() {
    // SMIG-6.9/lost-bytes concerns the stream's windows; C2's own window stays charged
    // (SMIG-5.27/abandoned-dropped credits it).
    let (mut peer, key) = server();
    let window = |peer: &Peer| peer.session().connection(peer.conn_id(C2)).unwrap().send_window;
    peer.migrate(key, C2).unwrap();
    peer.send_body(key, "two", EndStream::No);
    peer.send(C1, decline(1));
    assert_eq!(window(&peer), 65_532);
}

#[test]
fn an_end_sent_with_the_barrier_is_not_sent_again() {
    // SMIG-6.8/resume: the client's GET had ended before; after the decline nothing follows.
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1).end());
    peer.send(C1, decline(1));
    peer.expect_silence();
    // SMIG-6.8/resume: an end that was sent on S2 is sent again.
    let (mut peer, key) = server();
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send_body(key, "", EndStream::Yes);
    peer.expect(C2, data(2, "").end());
    peer.send(C1, decline(1));
    peer.expect(C1, data(1, "").end());
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
}

#[test]
fn credit_sent_on_an_abandoned_carrier_is_repeated() {
    // SMIG-6.10/lost-credit, a decline.
    let (mut peer, key) = server();
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    for _ in 0..33 {
        peer.send(C1, data(1, vec![0; 16_000]));
    }
    peer.read(key);
    peer.expect(C2, window_update(2, 528_000));
    peer.send(C1, decline(1));
    peer.expect(C1, window_update(1, 528_000));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    peer.expect_silence();
    // SMIG-6.10/lost-credit, a collision: the client repeats the credit on the server's S2.
    let (mut peer, key) = client();
    let (c2, c3) = (peer.cid(C2), peer.cid(C3));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, c2, 1));
    for _ in 0..263 {
        peer.send(C1, data(1, vec![0; 16_000]));
    }
    peer.read(key);
    peer.expect(C2, window_update(1, 4_208_000));
    peer.send(C1, migrate(1, c3, 2));
    peer.expect(C1, accept(1, c3, 2));
    peer.expect(C3, window_update(2, 4_208_000));
    peer.expect(C2, reset(1, ErrorCode::Cancel));
    peer.expect_silence();
}

#[test]
fn an_abandoned_carrier_is_reset_only_if_it_was_used() {
    // SMIG-6.11/close-abandoned, a decline: nothing was sent on S2.
    let (mut peer, key) = server();
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, decline(1));
    peer.expect_silence();
    // SMIG-6.11/close-abandoned: C2 has ended, so no reset can be sent.
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 4));
    peer.send_body(key, "x", EndStream::No);
    peer.expect(C2, data(4, "x"));
    peer.lose(C2);
    peer.send(C1, decline(1));
    peer.expect(C1, data(1, "x"));
    peer.expect_silence();
}
