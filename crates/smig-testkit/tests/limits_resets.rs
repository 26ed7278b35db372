//! Resets, sent or provoked by the peer, and the state kept for ended streams.

use core::time::Duration;

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Initiator, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, ConnHandle, Peer};

const RESET_LIMIT: &str = "too many streams were reset";

/// Sends a request and resets it at once; the application releases it.
fn request_and_reset(peer: &mut Peer, handle: ConnHandle, stream: u32) {
    let key = peer.get(handle, stream);
    peer.send(handle, reset(stream, ErrorCode::Cancel));
    peer.with_session(|session, _| session.release(key));
}

#[test]
fn a_burst_of_200_resets_is_allowed() {
    // CVE-2023-44487
    let mut peer = Peer::connected_to_server(Config::server());
    for n in 0..200 {
        request_and_reset(&mut peer, C1, 2 * n + 1);
    }
    peer.expect_silence();
    peer.get(C1, 401);
    peer.send(C1, reset(401, ErrorCode::Cancel));
    assert_eq!(peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm), 401);
    assert_eq!(peer.take_limit_hit(), RESET_LIMIT);
}

#[test]
fn after_the_burst_33_resets_per_second_are_allowed() {
    let mut peer = Peer::connected_to_server(Config::server());
    let mut ids = (0..).map(|n| 2 * n + 1);
    for _ in 0..200 {
        request_and_reset(&mut peer, C1, ids.next().unwrap());
    }
    for _ in 0..10 {
        peer.advance(Duration::from_secs(1));
        for _ in 0..33 {
            request_and_reset(&mut peer, C1, ids.next().unwrap());
        }
    }
    peer.expect_silence();
    let id = ids.next().unwrap();
    peer.get(C1, id);
    peer.send(C1, reset(id, ErrorCode::Cancel));
    peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_reset_after_a_complete_response_costs_nothing() {
    // RFC 9113 section 8.1: a server may answer before it has received the whole request, and a client need
    // not send the rest. This gains an attacker nothing: the response to a request that had ended may be
    // followed by RST_STREAM as well.
    let mut peer =
        Peer::connected_to_server(Config { max_concurrent_streams: 1, ..Config::server() });
    for n in 0..1_000 {
        let id = 2 * n + 1;
        let key = peer.post(C1, id);
        peer.respond(key, 200, EndStream::Yes);
        peer.expect(C1, headers(id).status(200).end());
        // The stream counts as long as the application works on it.
        if n % 2 == 0 {
            peer.with_session(|session, _| session.release(key));
            peer.send(C1, reset(id, ErrorCode::Cancel));
        } else {
            peer.send(C1, reset(id, ErrorCode::Cancel));
            assert_eq!(peer.take_error(key).code, ErrorCode::Cancel);
            peer.with_session(|session, _| session.release(key));
        }
        assert_eq!(peer.session().stream_count(), 0, "{n}");
    }
    peer.expect_silence();
    // The budget is neither reduced nor increased.
    for n in 1_000..1_200 {
        request_and_reset(&mut peer, C1, 2 * n + 1);
    }
    peer.expect_silence();
    peer.get(C1, 2_401);
    peer.send(C1, reset(2_401, ErrorCode::Cancel));
    peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_running_handler_counts_as_a_stream_until_it_ends() {
    // CVE-2023-44487: a reset frees no slot while the application works on the request.
    let mut peer =
        Peer::connected_to_server(Config { max_concurrent_streams: 10, ..Config::server() });
    let mut keys = Vec::new();
    for n in 0..10 {
        keys.push(peer.get(C1, 2 * n + 1));
        peer.send(C1, reset(2 * n + 1, ErrorCode::Cancel));
    }
    peer.send(C1, headers(21).get("/").end());
    peer.expect(C1, reset(21, ErrorCode::RefusedStream));
    peer.with_session(|session, _| session.release(keys[0]));
    peer.get(C1, 23);
    peer.expect_silence();
}

#[test]
fn a_client_counts_its_resets_whatever_their_cause() {
    // A server tolerates a limited number of resets, whatever their cause (CVE-2023-44487).
    let mut peer = Peer::connected_to_client(Config::client());
    let count = |peer: &Peer| peer.session().local_resets();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.with_session(|session, _| session.release(key));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    assert_eq!(count(&peer), 1, "the application");
    // An upload of which the server accepts only one window.
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send_body(key, vec![0; 70_000], EndStream::No);
    while peer.skip_data(C1) {}
    peer.advance(2 * Config::client().limits.stall_timeout);
    peer.expect(C1, reset(3, ErrorCode::Cancel));
    assert_eq!(peer.take_error(key).initiator, Initiator::Local);
    peer.with_session(|session, _| session.release(key));
    assert_eq!(count(&peer), 2, "a time limit, and it is counted once");
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(5).status(200).field("content-length", "1"));
    peer.send(C1, data(5, "xy"));
    peer.expect(C1, reset(5, ErrorCode::ProtocolError));
    peer.with_session(|session, _| session.release(key));
    assert_eq!(count(&peer), 3, "a response that breaks rules");
    // The server's own resets do not count.
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, reset(7, ErrorCode::Cancel));
    peer.with_session(|session, _| session.release(key));
    assert_eq!(count(&peer), 3);
}

/// Makes the server reset an open stream, given its id.
type Provocation = fn(&mut Peer, u32);

#[test]
fn resets_that_the_client_provokes_cost_twice() {
    // CVE-2025-8671, for frames that make a server reset a stream.
    let cases: [(&str, ErrorCode, Provocation); 8] = [
        ("window update of 0", ErrorCode::ProtocolError, |peer, id| {
            peer.send(C1, headers(id).post("/"));
            peer.send(C1, window_update(id, 0));
        }),
        ("window overflow", ErrorCode::FlowControlError, |peer, id| {
            peer.send(C1, headers(id).post("/"));
            peer.send(C1, window_update(id, 0x7fff_ffff));
        }),
        ("DATA after the end", ErrorCode::StreamClosed, |peer, id| {
            peer.send(C1, headers(id).get("/").end());
            peer.send(C1, data(id, "x"));
        }),
        ("HEADERS after the end", ErrorCode::StreamClosed, |peer, id| {
            peer.send(C1, headers(id).get("/").end());
            peer.send(C1, headers(id).field("x", "y").end());
        }),
        ("trailers without an end", ErrorCode::ProtocolError, |peer, id| {
            peer.send(C1, headers(id).post("/"));
            peer.send(C1, headers(id).field("x", "y"));
        }),
        ("more than content-length", ErrorCode::ProtocolError, |peer, id| {
            peer.send(C1, headers(id).post("/").field("content-length", "1"));
            peer.send(C1, data(id, "xy"));
        }),
        ("PRIORITY of a wrong size", ErrorCode::FrameSizeError, |peer, id| {
            peer.send(C1, headers(id).post("/"));
            peer.send(C1, raw(kind::PRIORITY, 0, id, [0; 4]));
        }),
        ("a malformed head", ErrorCode::ProtocolError, |peer, id| {
            peer.send(C1, headers(id).get("/").field("connection", "close").end());
        }),
    ];
    for (case_name, code, provoke) in cases {
        let mut peer = Peer::connected_to_server(Config::server()).with_spare();
        let other_key = peer.get(C2, 1);
        for n in 0..100 {
            provoke(&mut peer, 2 * n + 1);
            assert!(!peer.is_closed(C1), "{case_name}, {n}");
            peer.expect(C1, reset(2 * n + 1, code));
            release_all_except(&mut peer, other_key);
        }
        provoke(&mut peer, 201);
        peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
        assert_eq!(peer.take_limit_hit(), RESET_LIMIT, "{case_name}");
        peer.expect_not_failed(other_key);
    }
}

/// Releases all requests but one.
fn release_all_except(peer: &mut Peer, kept_key: StreamKey) {
    while let Some(key) = peer.try_take_event(|event| match event {
        smig_proto::Event::Request { stream, .. } if *stream != kept_key => Some(*stream),
        _ => None,
    }) {
        peer.with_session(|session, _| session.release(key));
    }
}

#[test]
fn a_provoked_reset_of_a_migrated_stream_costs_twice() {
    // CVE-2025-8671, with frames after a barrier (SMIG-5.19/behind-barrier).
    let mut config = Config::server();
    config.limits.reset_burst = 2;
    let mut peer = Peer::connected_to_server(config).with_spare();
    let cid = peer.cid(C2);
    for id in [1, 3] {
        peer.post(C1, id);
        peer.send(C1, migrate(id, cid, id));
        peer.expect(C1, accept(id, cid, id));
        peer.send(C1, data(id, "x"));
    }
    peer.expect(C2, reset(1, ErrorCode::StreamClosed));
    peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
}

#[test]
fn ended_streams_are_forgotten() {
    // CVE-2016-0150 and memory: 5000 requests leave only a few numbers.
    let mut peer = Peer::connected_to_server(Config::server());
    for n in 0..5_000 {
        let key = peer.get(C1, 2 * n + 1);
        peer.respond(key, 204, EndStream::Yes);
        peer.expect(C1, headers(2 * n + 1).status(204).end());
        peer.with_session(|session, _| session.release(key));
    }
    assert_eq!(peer.session().stream_count(), 0);
    assert_eq!(peer.session().connection(peer.conn_id(C1)).unwrap().stream_count, 0);
    assert!(!peer.session().has_obligations());
    // Late credit and resets for any of them are no error; DATA is.
    peer.send(C1, window_update(1, 10));
    peer.send(C1, reset(3, ErrorCode::Cancel));
    peer.send(C1, window_update(9_999, 10));
    peer.expect_silence();
    peer.send(C1, data(5, "x"));
    peer.expect_goaway(C1, ErrorCode::StreamClosed);
}

#[test]
fn late_frames_of_remembered_reset_streams_are_ignored() {
    let mut peer = Peer::connected_to_server(Config::server());
    for n in 0..1_100 {
        let key = peer.post(C1, 2 * n + 1);
        peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
        peer.with_session(|session, _| session.release(key));
        peer.expect(C1, reset(2 * n + 1, ErrorCode::Cancel));
    }
    peer.send(C1, data(2_199, "late"));
    peer.send(C1, headers(2_197).field("late", "too").end());
    peer.expect_silence();
    // The oldest are forgotten: memory is bounded, and DATA on a closed stream is an error.
    peer.send(C1, data(1, "very late"));
    peer.expect_goaway(C1, ErrorCode::StreamClosed);
}

#[test]
fn ended_streams_do_not_wait_for_windows() {
    // The connection's window is exhausted; streams that wait for it are reset, or migrate.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let first = peer.get(C1, 1);
    peer.respond(first, 200, EndStream::No);
    peer.send_body(first, vec![0; 65_535], EndStream::No);
    for n in 1..100 {
        let key = peer.get(C1, 2 * n + 1);
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, "waits", EndStream::No);
        if n == 50 {
            peer.migrate(key, C2).unwrap();
        } else {
            peer.send(C1, reset(2 * n + 1, ErrorCode::Cancel));
            peer.with_session(|session, _| session.release(key));
        }
        assert_eq!(peer.session().check_invariants(), [""; 0], "{n} streams");
    }
    // The same for streams that wait because the peer does not read.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.pause(C1);
    for n in 0..100 {
        let key = peer.get(C1, 2 * n + 1);
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, "waits", EndStream::No);
        peer.send(C1, reset(2 * n + 1, ErrorCode::Cancel));
        peer.with_session(|session, _| session.release(key));
        assert_eq!(peer.session().check_invariants(), [""; 0], "{n} streams");
    }
}
