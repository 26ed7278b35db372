//! Cost to a client of streams and migrations that end through its fault: all of them take tokens from the
//! same budget (CVE-2023-44487, CVE-2025-8671).

use core::time::Duration;

use smig_proto::{Cid, Config, EndStream, ErrorCode, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, Peer};

/// Tokens of a session in these tests; they are not replenished.
const TOKENS: u32 = 20;

fn config() -> Config {
    let mut config = Config::server();
    config.limits.reset_burst = TOKENS;
    config.limits.resets_per_second = 0;
    config.max_concurrent_streams = 100;
    config.smig.as_mut().unwrap().migrations_per_second = 1000;
    config
}

/// Sends plain resets until the connection is closed. Returns how many the budget still allowed.
fn spend_remaining_tokens(peer: &mut Peer) -> u32 {
    for n in 0..=TOKENS {
        let id = 1001 + 2 * n;
        peer.send(C1, headers(id).get("/").end());
        peer.send(C1, reset(id, ErrorCode::Cancel));
        if peer.is_closed(C1) {
            return n;
        }
    }
    panic!("resets cost nothing");
}

/// A response on stream 1 of C1 whose migration to stream 2 of C2 is open, and an upload of 5 bytes in
/// progress.
fn open_migration(peer: &mut Peer) -> StreamKey {
    peer.send(C1, headers(1).post("/").field("content-length", "5"));
    let key = peer.take_request();
    peer.respond(key, 200, EndStream::No);
    peer.migrate(key, C2).unwrap();
    key
}

type Case = (&'static str, u32, fn(&mut Peer));

/// Frames on a stream that has not migrated.
const STREAM_CASES: [Case; 16] = [
    ("nothing", 0, |peer| _ = peer.get(C1, 1)),
    ("RST_STREAM", 1, |peer| {
        peer.get(C1, 1);
        peer.send(C1, reset(1, ErrorCode::Cancel));
    }),
    ("RST_STREAM of an upload after its complete response", 0, |peer| {
        let key = peer.post(C1, 1);
        peer.respond(key, 200, EndStream::Yes);
        peer.send(C1, reset(1, ErrorCode::Cancel));
    }),
    ("RST_STREAM of an upload during its response", 1, |peer| {
        let key = peer.post(C1, 1);
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, "x", EndStream::No);
        peer.send(C1, reset(1, ErrorCode::Cancel));
    }),
    ("RST_STREAM of an upload whose response is complete but not sent", 1, |peer| {
        let key = peer.post(C1, 1);
        peer.respond(key, 200, EndStream::No);
        // More than the window allows.
        for end in [EndStream::No, EndStream::Yes] {
            peer.send_body(key, vec![0; 60_000], end);
        }
        peer.send(C1, reset(1, ErrorCode::Cancel));
    }),
    ("RST_STREAM of a tunnel whose other direction has ended", 1, |peer| {
        peer.send(C1, headers(1).connect("a:1"));
        let key = peer.take_request();
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, "x", EndStream::Yes);
        peer.send(C1, reset(1, ErrorCode::Cancel));
    }),
    ("window update of 0", 2, |peer| {
        peer.send(C1, headers(1).post("/"));
        peer.send(C1, window_update(1, 0));
    }),
    ("window overflow", 2, |peer| {
        peer.send(C1, headers(1).post("/"));
        peer.send(C1, window_update(1, 0x7fff_ffff));
    }),
    ("DATA after the end", 2, |peer| {
        peer.get(C1, 1);
        peer.send(C1, data(1, "x"));
    }),
    ("HEADERS after the end", 2, |peer| {
        peer.get(C1, 1);
        peer.send(C1, headers(1).field("x", "y").end());
    }),
    ("trailers without an end", 2, |peer| {
        peer.send(C1, headers(1).post("/"));
        peer.send(C1, headers(1).field("x", "y"));
    }),
    ("a length that differs from content-length", 2, |peer| {
        peer.send(C1, headers(1).post("/").field("content-length", "5"));
        peer.send(C1, data(1, "x").end());
    }),
    ("a malformed head", 2, |peer| {
        peer.send(C1, headers(1).get("/").field("connection", "close").end());
    }),
    ("PRIORITY of a wrong size", 2, |peer| {
        peer.send(C1, headers(1).post("/"));
        peer.send(C1, raw(kind::PRIORITY, 0, 1, [0; 4]));
    }),
    ("a head with too many fields", 1, |peer| {
        let head = (0..200).fold(headers(1).get("/"), |head, _| head.field("x", "v"));
        peer.send(C1, head.end());
    }),
    ("a stream that is not read", 1, |peer| {
        peer.send(C1, headers(1).get("/").end());
        let key = peer.take_request();
        peer.respond(key, 200, EndStream::No);
        // More than the window allows.
        for _ in 0..2 {
            peer.send_body(key, vec![0; 60_000], EndStream::No);
        }
        peer.advance(Duration::from_secs(70));
    }),
];

/// The client's migrations.
const CLIENT_MIGRATION_CASES: [Case; 9] = [
    ("a migration that is followed", 0, |peer| {
        peer.post(C1, 1);
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 1));
    }),
    ("a migration to its own connection", 1, |peer| {
        peer.post(C1, 1);
        let cid = peer.cid(C1);
        peer.send(C1, migrate(1, cid, 3));
    }),
    ("the same, and its end is premature", 3, |peer| {
        peer.send(C1, headers(1).post("/").field("content-length", "5"));
        let cid = peer.cid(C1);
        peer.send(C1, migrate(1, cid, 3).end());
    }),
    ("a migration that is followed, and its end is premature", 2, |peer| {
        peer.send(C1, headers(1).post("/").field("content-length", "5"));
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 1).end());
    }),
    ("a migration of an ended stream", 1, |peer| {
        let key = peer.get(C1, 1);
        peer.with_session(|session, _| session.reset(key, ErrorCode::InternalError));
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 1).end());
    }),
    ("a frame after its barrier", 2, |peer| {
        peer.post(C1, 1);
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 1));
        peer.send(C1, data(1, "x"));
    }),
    ("RST_STREAM after its barrier", 2, |peer| {
        peer.post(C1, 1);
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 1));
        peer.send(C1, reset(1, ErrorCode::Cancel));
    }),
    ("credit on its carrier that overflows", 2, |peer| {
        peer.post(C1, 1);
        let cid = peer.cid(C2);
        peer.send(C2, window_update(1, 0x7fff_ffff));
        peer.send(C1, migrate(1, cid, 1));
    }),
    ("one carrier more than is tolerated", 1, |peer| {
        for n in 0..17 {
            peer.send(C2, window_update(2 * n + 1, 1));
        }
    }),
];

/// The client's reactions to the server's migrations.
const SERVER_MIGRATION_CASES: [Case; 10] = [
    ("RST_STREAM after a complete response that a decline may still replay", 1, |peer| {
        let key = open_migration(peer);
        peer.send_body(key, "whole", EndStream::Yes);
        peer.send(C1, reset(1, ErrorCode::Cancel));
    }),
    ("an answer whose end is premature", 2, |peer| {
        open_migration(peer);
        let cid = peer.cid(C2);
        peer.send(C1, accept(1, cid, 2).end());
    }),
    ("a decline whose end is premature", 2, |peer| {
        open_migration(peer);
        peer.send(C1, decline(1).end());
    }),
    ("a collision", 1, |peer| {
        open_migration(peer);
        let cid = peer.cid(C3);
        peer.send(C1, migrate(1, cid, 1));
    }),
    ("a collision whose end is premature", 3, |peer| {
        open_migration(peer);
        let cid = peer.cid(C3);
        peer.send(C1, migrate(1, cid, 1).end());
    }),
    ("too much data after its answer", 2, |peer| {
        open_migration(peer);
        let cid = peer.cid(C2);
        peer.send(C2, data(2, "too much"));
        peer.send(C1, accept(1, cid, 2));
    }),
    ("another migration after its answer, declined", 1, |peer| {
        open_migration(peer);
        let c2 = peer.cid(C2);
        peer.send(C2, migrate(2, c2, 5));
        peer.send(C1, accept(1, c2, 2));
    }),
    ("another migration of a stream that failed before the answer", 2, |peer| {
        let key = open_migration(peer);
        let cid = peer.cid(C3);
        peer.send(C2, migrate(2, cid, 1));
        peer.with_session(|session, _| session.reset(key, ErrorCode::InternalError));
        // A second MIGRATE, of a stream that has ended.
        peer.send(C1, migrate(1, cid, 3));
    }),
    ("no answer", 1, |peer| {
        open_migration(peer);
        peer.advance(Duration::from_secs(40));
    }),
    ("a GOAWAY that excludes what it had accepted", 1, |peer| {
        open_migration(peer);
        let cid = peer.cid(C2);
        peer.send(C1, accept(1, cid, 2));
        peer.send(C2, goaway(0, ErrorCode::NoError));
    }),
];

#[test]
fn failed_streams_and_declined_migrations_cost_tokens() {
    let cases = STREAM_CASES.iter().chain(&CLIENT_MIGRATION_CASES).chain(&SERVER_MIGRATION_CASES);
    let mut wrong_prices = Vec::new();
    for &(case_name, price, act) in cases {
        let mut peer = Peer::connected_to_server(config()).with_spare().with_spare();
        act(&mut peer);
        let paid = TOKENS - spend_remaining_tokens(&mut peer);
        if paid != price {
            wrong_prices.push(format!("{case_name}: {paid} tokens instead of {price}"));
        }
    }
    assert!(wrong_prices.is_empty(), "{wrong_prices:#?}");
}

#[test]
fn a_refused_stream_costs_a_token() {
    let mut peer = Peer::connected_to_server(Config { max_concurrent_streams: 1, ..config() });
    let key = peer.get(C1, 1);
    peer.send(C1, headers(3).get("/").end());
    peer.expect(C1, reset(3, ErrorCode::RefusedStream));
    peer.with_session(|session, _| session.release(key));
    peer.clear_events();
    let mut reset_count = 0;
    while !peer.is_closed(C1) {
        let key = peer.get(C1, 5 + 2 * reset_count);
        peer.send(C1, reset(5 + 2 * reset_count, ErrorCode::Cancel));
        peer.with_session(|session, _| session.release(key));
        reset_count += 1;
    }
    // The refused stream costs one token, and the last reset, which finds none left, closes the connection.
    assert_eq!(reset_count, TOKENS - 1 + 1);
}

#[test]
fn a_flood_of_declined_migrations_closes_the_connection() {
    // CVE-2025-8671: each frame made the server reset a stream, at no cost.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let unknown_cid = Cid { number: 99, ..peer.cid(C1) };
    let mut streams = 0;
    while !peer.is_closed(C1) {
        let id = 2 * streams + 1;
        peer.send(C1, headers(id).post("/").field("content-length", "5"));
        let key = peer.take_request();
        peer.send_if_open(C1, migrate(id, unknown_cid, id + 2).end());
        peer.with_session(|session, _| session.release(key));
        streams += 1;
        assert!(streams < 500, "the flood is not stopped");
    }
    // 200 tokens, three for each.
    assert_eq!(streams, 67);
}

#[test]
fn an_error_without_tokens_resets_its_stream_on_the_carrier() {
    // SMIG-5.19/behind-barrier: the stream is on C2, and the error occurred on C1.
    let mut config = config();
    config.limits.reset_burst = 1;
    let mut peer = Peer::connected_to_server(config).with_spare();
    let other_key = peer.get(C2, 1);
    peer.send(C1, headers(1).post("/").field("content-length", "5"));
    let key = peer.take_request();
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 3).end());
    peer.expect(C1, accept(1, cid, 3));
    peer.expect(C2, reset(3, ErrorCode::ProtocolError));
    assert_eq!(peer.take_error(key).code, ErrorCode::ProtocolError);
    peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
    peer.expect_not_failed(other_key);
}

#[test]
fn streams_refused_in_one_read_do_not_harm_others() {
    // RFC 9113 section 5.1.2: after a reset, a client may open another stream, and HEADERS above the limit
    // are a stream error. Here a reset stream counts as long as the application holds it.
    let mut peer = Peer::connected_to_server(Config::server());
    let keys: Vec<StreamKey> = (0..128).map(|n| peer.get(C1, 2 * n + 1)).collect();
    let resets = (0..70).map(|n| reset(2 * n + 1, ErrorCode::Cancel));
    let heads = (128..198).map(|n| headers(2 * n + 1).get("/").end().into());
    peer.send_all(C1, resets.chain(heads));
    for n in 128..198 {
        peer.expect(C1, reset(2 * n + 1, ErrorCode::RefusedStream));
    }
    keys[70..].iter().for_each(|&key| peer.expect_not_failed(key));
    peer.expect_silence();
    // A client that has not read the server's limit yet.
    let mut peer =
        Peer::connected_to_server(Config { max_concurrent_streams: 30, ..Config::server() });
    peer.send_all(C1, (0..100).map(|n| headers(2 * n + 1).get("/").end()));
    for n in 30..100 {
        peer.expect(C1, reset(2 * n + 1, ErrorCode::RefusedStream));
    }
    peer.expect_silence();
    // Header sections that are too large.
    let mut peer = Peer::connected_to_server(Config::server());
    let key = peer.get(C1, 1);
    let large = |id| (0..200).fold(headers(id).get("/"), |head, _| head.field("x", "v"));
    peer.send_all(C1, (1..71).map(|n| large(2 * n + 1).end()));
    for n in 1..71 {
        peer.expect(C1, headers(2 * n + 1).status(431).end());
        peer.expect(C1, reset(2 * n + 1, ErrorCode::NoError));
    }
    peer.expect_not_failed(key);
    peer.expect_silence();
}

#[test]
fn errors_in_one_read_cost_tokens() {
    let mut peer = Peer::connected_to_server(config());
    let other_key = peer.get(C1, 1);
    peer.send_all(C1, (1..11).map(|n| window_update(2 * n + 1, 0)));
    for n in 1..11 {
        peer.expect(C1, reset(2 * n + 1, ErrorCode::ProtocolError));
    }
    peer.expect_not_failed(other_key);
    peer.send(C1, window_update(23, 0));
    peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
}
