//! Floods and slow peers: frames that are each valid, but sent in numbers that only an attacker sends. Each
//! limit closes the connection or resets the stream, is reported by name, and affects no other connection.

use core::time::Duration;

use http::Method;
use smig_proto::{
    Config, EndStream, ErrorCode, Event, Limits, RequestHead, ResponseHead, StreamKey,
};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, Peer, Setup};

fn server() -> Peer {
    Peer::connected_to_server(Config::server())
}

fn server_with_limits(change: impl FnOnce(&mut Limits)) -> Peer {
    let mut config = Config::server();
    change(&mut config.limits);
    Peer::connected_to_server(config)
}

/// Expects GOAWAY(ENHANCE_YOUR_CALM) and the event that names the limit.
#[track_caller]
fn expect_limit(peer: &mut Peer, limit: &str) {
    peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
    assert_eq!(peer.take_limit_hit(), limit);
}

// CONTINUATION (VU#421644).

fn header_fragment(size: usize) -> Vec<u8> {
    // A literal field that is too long to end within the test.
    let mut bytes = vec![0, 1, b'x', 0x7f, 0xff, 0xff, 0xff, 0x0f];
    bytes.resize(size, b'v');
    bytes
}

#[test]
fn a_header_block_has_at_most_eight_continuations() {
    // The header block of a valid request, split into nine frames.
    let mut peer = server();
    let block = b"\x82\x84\x87\x01\x0bexample.com";
    peer.send(C1, raw(kind::HEADERS, flag::END_STREAM, 1, &block[..1]));
    for byte in 1..8 {
        peer.send(C1, raw(kind::CONTINUATION, 0, 1, &block[byte..=byte]));
    }
    peer.send(C1, raw(kind::CONTINUATION, flag::END_HEADERS, 1, &block[8..]));
    peer.take_request();
    // One more frame.
    let mut peer = server().with_spare();
    let other_key = peer.get(C2, 1);
    peer.send(C1, raw(kind::HEADERS, flag::END_STREAM, 1, &block[..1]));
    for byte in 1..=8 {
        peer.send(C1, raw(kind::CONTINUATION, 0, 1, &block[byte..=byte]));
    }
    peer.expect_silence_on(C1);
    peer.send(C1, raw(kind::CONTINUATION, 0, 1, &block[9..10]));
    expect_limit(&mut peer, "too many CONTINUATION frames");
    peer.expect_not_failed(other_key);
    peer.expect_silence();
}

#[test]
fn a_header_block_has_at_most_64_kilobytes() {
    let mut peer = server();
    peer.send(C1, raw(kind::HEADERS, flag::END_STREAM, 1, header_fragment(16_384)));
    for _ in 0..3 {
        peer.send(C1, raw(kind::CONTINUATION, 0, 1, vec![b'v'; 16_384]));
    }
    peer.expect_silence_on(C1);
    peer.send(C1, raw(kind::CONTINUATION, 0, 1, "v"));
    expect_limit(&mut peer, "header block larger than allowed");
}

#[test]
fn a_header_block_times_out_after_ten_seconds() {
    let mut peer = server();
    peer.send(C1, raw(kind::HEADERS, flag::END_STREAM, 1, header_fragment(100)));
    peer.advance(Duration::from_secs(5));
    peer.send(C1, raw(kind::CONTINUATION, 0, 1, "v"));
    peer.advance(Duration::from_secs(4));
    peer.expect_silence_on(C1);
    peer.advance(Duration::from_secs(2));
    expect_limit(&mut peer, "header block not finished in time");
}

// Empty frames (CVE-2019-9518).

#[test]
fn at_most_ten_empty_frames_in_a_row_are_allowed() {
    let frames: [Frame; 4] =
        [data(1, ""), padded_data(1, "", 200), raw(0xee, 0xff, 77, "unknown"), raw(0x42, 0, 0, "")];
    for frame in frames {
        let mut peer = server();
        peer.post(C1, 1);
        for _ in 0..10 {
            peer.send(C1, frame.clone());
        }
        peer.expect_silence_on(C1);
        peer.send(C1, frame);
        expect_limit(&mut peer, "too many empty frames in a row");
    }
    // One byte of data in between resets the count.
    let mut peer = server();
    peer.post(C1, 1);
    for _ in 0..5 {
        for _ in 0..10 {
            peer.send(C1, data(1, ""));
        }
        peer.send(C1, data(1, "x"));
    }
    peer.expect_silence();
}

// GOAWAY.

#[test]
fn repeated_goaways_are_bounded() {
    let mut peer = Peer::connected_to_client(Config::client());
    let included_key = peer.open(C1, Method::GET, EndStream::Yes);
    let excluded_key = peer.open(C1, Method::GET, EndStream::Yes);
    for _ in 0..5 {
        peer.send(C1, goaway(3, ErrorCode::NoError));
    }
    peer.expect_not_failed(excluded_key);
    for _ in 0..5 {
        peer.send(C1, goaway(1, ErrorCode::NoError));
    }
    assert_eq!(peer.take_error(excluded_key).code, ErrorCode::RefusedStream);
    peer.expect_not_failed(included_key);
    peer.expect_silence_on(C1);
    peer.send(C1, goaway(1, ErrorCode::NoError));
    peer.expect_silence_on(C1);
    peer.send(C1, goaway(1, ErrorCode::NoError));
    expect_limit(&mut peer, "too many empty frames in a row");
}

// PRIORITY (CVE-2019-9513).

#[test]
fn a_browser_may_reprioritize_all_of_its_streams() {
    // Chromium when it lays out a page with many images: it sends up to three for each.
    let mut peer = server();
    let max_streams = Config::server().max_concurrent_streams;
    let priority = |n: u32| raw(kind::PRIORITY, 0, 2 * n + 1, [0x80, 0, 0, 0, 146]);
    for row in 0..2 {
        peer.post(C1, 2 * row + 1);
        for n in 0..8 * max_streams {
            peer.send(C1, priority(n % max_streams + 10));
        }
        peer.expect_silence_on(C1);
    }
    // No browser sends so many without other frames.
    peer.send(C1, priority(1));
    expect_limit(&mut peer, "too many consecutive PRIORITY frames");
}

// Queued answers (CVE-2019-9512, -9514, -9515).

#[test]
fn pings_are_answered_until_64_answers_are_queued() {
    let mut peer = server();
    for n in 0..1_000u64 {
        peer.send(C1, ping(n.to_be_bytes()));
        peer.expect(C1, pong(n.to_be_bytes()));
    }
    // 64 answers may be queued; the 65th exceeds the limit.
    peer.pause(C1);
    for _ in 0..64 {
        peer.send(C1, ping([7; 8]));
    }
    let hit = |event: &Event| matches!(event, Event::LimitHit { .. }).then_some(());
    assert_eq!(peer.try_take_event(hit), None);
    peer.send(C1, ping([7; 8]));
    assert_eq!(peer.take_limit_hit(), "too many unsent replies: read faster");
    peer.resume(C1);
    for _ in 0..65 {
        assert!(matches!(peer.next(C1), Frame::Pong(_) | Frame::GoAway { .. }));
    }
    assert!(peer.is_closed(C1));
}

#[test]
fn settings_are_bounded_in_number_and_in_entries() {
    let mut peer = server();
    // The first SETTINGS of the handshake count.
    for _ in 0..15 {
        peer.send(C1, settings(&[]));
        peer.expect(C1, settings_ack());
    }
    peer.send(C1, settings(&[]));
    expect_limit(&mut peer, "too many SETTINGS");
    // After ten seconds the limit allows more.
    let mut peer = server();
    for _ in 0..40 {
        peer.send(C1, settings(&[]));
        peer.expect(C1, settings_ack());
        peer.advance(Duration::from_secs(1));
    }
    let mut peer = server();
    peer.send(C1, settings(&[(0x7777, 1); 32]));
    peer.expect(C1, settings_ack());
    peer.send(C1, settings(&[(0x7777, 1); 33]));
    expect_limit(&mut peer, "too many SETTINGS");
}

#[test]
fn unread_resets_are_bounded() {
    // The peer is a server. A client pays for them from its budget, read or not (limits_offences.rs).
    let mut peer = Peer::connected_to_client(Config::client());
    peer.pause(C1);
    for n in 1..=65 {
        peer.send(C1, window_update(2 * n, 0));
    }
    assert_eq!(peer.take_limit_hit(), "too many unsent replies: read faster");
}

#[test]
fn unread_answers_to_migrate_are_bounded() {
    let mut peer = server();
    let key = peer.post(C1, 1);
    let cid = peer.cid(C1);
    peer.pause(C1);
    for n in 1..=65 {
        peer.send(C1, migrate(1, cid, 2 * n + 1));
    }
    assert_eq!(peer.take_limit_hit(), "too many unsent replies: read faster");
    peer.take_error(key);
    // The same for a stream that has ended.
    let mut peer = server();
    let key = peer.get(C1, 1);
    peer.respond(key, 204, EndStream::Yes);
    peer.pause(C1);
    for n in 1..=65 {
        peer.send(C1, migrate(1, cid, 2 * n + 1));
    }
    assert_eq!(peer.take_limit_hit(), "too many unsent replies: read faster");
}

// Windows (CVE-2019-9511, -9517).

fn start_response(peer: &mut Peer, bytes: usize) -> StreamKey {
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.send_body(key, vec![b'x'; bytes], EndStream::Yes);
    key
}

#[test]
fn a_window_that_is_kept_tiny_ends_the_connection() {
    // The stream's window, and the connection's.
    for stream in [1, 0] {
        let window = if stream == 1 { 0 } else { 200_000 };
        let mut setup =
            Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, window);
        setup.config.limits.max_small_data_frames = 100;
        let mut peer = Peer::for_server(setup);
        peer.connect();
        start_response(&mut peer, 100_000);
        while peer.skip_data(C1) {}
        for n in 0..101 {
            assert!(!peer.is_closed(C1), "after {n} updates");
            peer.send(C1, window_update(stream, 1));
            peer.expect(C1, data(1, "x"));
        }
        peer.send_if_open(C1, window_update(stream, 1));
        expect_limit(&mut peer, "the window forces too many small DATA frames");
    }
}

#[test]
fn data_frames_carry_at_least_1_kilobyte() {
    // The driver polls for 100 bytes at a time: no DATA frame is shorter than 1 KB, except the last.
    let mut peer = server();
    peer.limit_transmit(100);
    start_response(&mut peer, 10_000);
    let mut sum = 0;
    loop {
        let Frame::Data { data, end, .. } = peer.next(C1) else { panic!("DATA follows") };
        sum += data.len();
        if end.is_end() {
            break;
        }
        assert!(data.len() >= 1_024, "{}", data.len());
    }
    assert_eq!(sum, 10_000);
}

#[test]
fn queued_requests_do_not_pause_input() {
    // Two ends that stop reading because of their own unsent data would deadlock.
    let mut peer = Peer::connected_to_client(Config::client());
    peer.pause(C1);
    let mut fields = http::HeaderMap::new();
    fields.insert("x-long", "v".repeat(8_000).parse().unwrap());
    let uri = "https://localhost/".parse().unwrap();
    let head = RequestHead { method: Method::GET, uri, protocol: None, headers: fields };
    let conn = peer.conn_id(C1);
    for _ in 0..60 {
        peer.with_session(|session, now| session.open(now, Some(conn), &head, EndStream::Yes))
            .unwrap();
        assert!(peer.session().wants_input(conn));
    }
}

#[test]
fn input_pauses_when_the_peer_does_not_read() {
    // The engine buffers 64 KB per stream, then the application waits; 256 KB framed and unsent on a
    // connection, then its input waits.
    let mut peer = server();
    peer.pause(C1);
    let key = peer.get(C1, 1);
    let mut fields = http::HeaderMap::new();
    fields.insert("x-long", "v".repeat(8_000).parse().unwrap());
    let head = ResponseHead { status: http::StatusCode::from_u16(103).unwrap(), headers: fields };
    let conn = peer.conn_id(C1);
    for _ in 0..60 {
        assert!(
            peer.session().wants_input(conn) || !peer.session().transmit_demand(conn).is_none()
        );
        peer.with_session(|session, _| session.send_informational(key, &head)).unwrap();
    }
    assert!(!peer.session().wants_input(conn));
    peer.resume(C1);
    assert!(peer.session().wants_input(conn));
    let mut peer = server();
    peer.pause(C1);
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    assert_eq!(peer.with_session(|session, _| session.send_capacity(key)), 64 << 10);
    peer.send_body(key, vec![0; 64 << 10], EndStream::No);
    assert_eq!(peer.with_session(|session, _| session.send_capacity(key)), 0);
    let writable = |event: &Event| matches!(event, Event::Writable { .. }).then_some(());
    assert_eq!(peer.try_take_event(writable), None);
    peer.resume(C1);
    peer.take_event(writable);
}

#[test]
fn a_stalled_stream_is_reset_despite_small_credit() {
    let mut setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 0);
    setup.settings.push((0x7777, 1));
    let mut peer = Peer::for_server(setup);
    peer.connect();
    peer.connect();
    let key = start_response(&mut peer, 10_000);
    let other_key = peer.get(C2, 1);
    for _ in 0..59 {
        peer.advance(Duration::from_secs(1));
        peer.send(C1, window_update(1, 10));
        peer.expect(C1, data(1, "x".repeat(10)));
    }
    peer.expect_silence();
    peer.advance(Duration::from_secs(3));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    assert_eq!(peer.take_limit_hit(), "stalled stream");
    assert_eq!(peer.take_error(key).code, ErrorCode::Cancel);
    peer.expect_not_failed(other_key);
    // One kilobyte per minute is progress.
    let mut peer = Peer::for_server(
        Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 0),
    );
    peer.connect();
    let key = start_response(&mut peer, 10_000);
    for _ in 0..9 {
        peer.advance(Duration::from_secs(50));
        peer.send(C1, window_update(1, 1_100));
        peer.next(C1);
    }
    peer.expect_not_failed(key);
}

#[test]
fn a_stream_with_nothing_to_send_is_not_stalled() {
    let mut peer = Peer::for_server(Setup::new(Config::server()));
    peer.connect();
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    for _ in 0..100 {
        // Below the minimum rate of a stream that has unsent data.
        peer.advance(Duration::from_secs(59));
        peer.send_body(key, "event", EndStream::No);
        peer.expect(C1, data(1, "event"));
    }
    peer.expect_not_failed(key);
}

#[test]
fn a_migration_does_not_restart_the_stall_clock() {
    // Repeated migrations, and a declined one.
    let setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 5_000);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    peer.connect();
    let (c1, c2) = (peer.cid(C1), peer.cid(C2));
    let key = start_response(&mut peer, 20_000);
    peer.expect(C1, data(1, "x".repeat(5_000)));
    peer.advance(Duration::from_secs(2));
    peer.send(C1, migrate(1, c2, 1).end());
    peer.expect(C1, accept(1, c2, 1));
    peer.advance(Duration::from_secs(20));
    peer.send(C2, migrate(1, c1, 3).end());
    peer.expect(C2, accept(1, c1, 3));
    peer.advance(Duration::from_secs(20));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(3, c2, 2));
    peer.advance(Duration::from_secs(10));
    peer.send(C1, decline(3).end());
    peer.expect_silence();
    peer.advance(Duration::from_secs(11));
    peer.expect(C1, reset(3, ErrorCode::Cancel));
    assert_eq!(peer.take_limit_hit(), "stalled stream");
}

#[test]
fn a_released_response_that_is_replayed_can_stall() {
    // The response was sent completely on the carrier, and the application released the stream. After the
    // decline, the response is sent again, and the client never opens the window of the old connection.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let cid = peer.cid(C2);
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    for stream in [0, 2] {
        peer.send(C2, window_update(stream, 1_000_000));
    }
    peer.send_body(key, vec![b'x'; 50_000], EndStream::No);
    peer.send_body(key, vec![b'x'; 50_000], EndStream::Yes);
    while peer.skip_data(C2) {}
    peer.with_session(|session, _| session.release(key));
    for _ in 0..10 {
        peer.advance(Duration::from_secs(1));
    }
    peer.send(C1, decline(1));
    peer.expect(C2, reset(2, ErrorCode::Cancel));
    while peer.skip_data(C1) {}
    for _ in 0..50 {
        peer.advance(Duration::from_secs(1));
    }
    peer.expect_silence();
    assert_eq!(peer.session().stream_count(), 1);
    for _ in 0..20 {
        peer.advance(Duration::from_secs(1));
    }
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    assert_eq!(peer.take_limit_hit(), "stalled stream");
    assert_eq!(peer.session().stream_count(), 0);
}

#[test]
fn a_stream_whose_carrier_was_declined_can_stall() {
    // The client opens the window only on the carrier, then declines at once: no data was delivered.
    let setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 0);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    peer.connect();
    let cid = peer.cid(C2);
    let key = start_response(&mut peer, 20_000);
    peer.advance(Duration::from_secs(30));
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C2, window_update(2, 2_000));
    peer.expect(C2, data(2, "x".repeat(2_000)));
    peer.send(C1, decline(1).end());
    peer.advance(Duration::from_secs(20));
    assert!(
        peer.try_take_event(|event| matches!(event, Event::Failed { .. }).then_some(())).is_none()
    );
    peer.advance(Duration::from_secs(62));
    assert_eq!(peer.take_limit_hit(), "stalled stream");
    peer.take_error(key);
}

// PRIORITY_UPDATE (CVE-2019-9513).

#[test]
fn priority_updates_for_idle_streams_are_bounded() {
    let mut peer = server();
    for n in 0..100 {
        peer.send(C1, priority_update(2 * n + 1, "u=1"));
        peer.send(C1, priority_update(2 * n + 1, "u=2"));
    }
    peer.expect_silence_on(C1);
    peer.send(C1, priority_update(201, "u=1"));
    expect_limit(&mut peer, "too many PRIORITY_UPDATE for idle streams");
    // A stream that opens frees its entry.
    let mut peer = server();
    for n in 0..100 {
        peer.send(C1, priority_update(2 * n + 1, "u=1"));
    }
    peer.get(C1, 1);
    peer.send(C1, priority_update(201, "u=1"));
    peer.expect_silence();
}

#[test]
fn failed_requests_free_their_priority_updates() {
    type Case = (&'static str, u32, fn(&mut Peer, u32));
    let cases: [Case; 4] = [
        ("refused", 0, |peer, id| peer.send(C1, headers(id).get("/").end())),
        ("malformed", 128, |peer, id| {
            peer.send(C1, headers(id).get("/").field("connection", "close").end());
        }),
        ("too large", 128, |peer, id| {
            let head = (0..200).fold(headers(id).get("/"), |head, _| head.field("x", "v"));
            peer.send(C1, head.end());
        }),
        ("passed over", 128, |peer, id| {
            if id == 199 {
                peer.get(C1, 201);
            }
        }),
    ];
    for (case_name, max_concurrent_streams, send_request) in cases {
        let mut peer =
            Peer::connected_to_server(Config { max_concurrent_streams, ..Config::server() });
        for n in 0..100 {
            peer.send(C1, priority_update(2 * n + 1, "u=1"));
            send_request(&mut peer, 2 * n + 1);
        }
        while peer.next_if_any(C1).is_some() {}
        peer.clear_events();
        for n in 101..201 {
            assert!(!peer.is_closed(C1), "{case_name}, {n}");
            peer.send(C1, priority_update(2 * n + 1, "u=1"));
        }
        peer.expect_silence();
        // The same limit as before.
        peer.send(C1, priority_update(403, "u=1"));
        expect_limit(&mut peer, "too many PRIORITY_UPDATE for idle streams");
    }
}

// Slow peers.

#[test]
fn the_preface_times_out_after_five_seconds() {
    for partial_preface in
        [&b""[..], b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04"]
    {
        let mut peer = Peer::for_server(Setup::new(Config::server()));
        peer.open_transport();
        peer.send_bytes(C1, partial_preface);
        peer.advance(Duration::from_secs(4));
        assert!(!peer.is_closed(C1));
        peer.advance(Duration::from_secs(2));
        assert!(peer.is_closed(C1));
        assert_eq!(peer.take_limit_hit(), "no connection preface in time");
    }
}

#[test]
fn unacknowledged_settings_time_out_after_thirty_seconds() {
    let mut peer = Peer::for_server(Setup::new(Config::server()));
    peer.open_transport();
    peer.send_preface(C1);
    while !matches!(peer.next(C1), Frame::SettingsAck) {}
    peer.advance(Duration::from_secs(29));
    assert!(!peer.is_closed(C1));
    peer.advance(Duration::from_secs(2));
    peer.expect_goaway(C1, ErrorCode::SettingsTimeout);
    assert_eq!(peer.take_limit_hit(), "SETTINGS not acknowledged in time (RFC 9113 section 6.5.3)");
}

#[test]
fn limits_are_configurable() {
    let mut peer = server_with_limits(|limits| limits.max_consecutive_empty_frames = 1);
    peer.post(C1, 1);
    peer.send(C1, data(1, ""));
    peer.expect_silence_on(C1);
    peer.send(C1, data(1, ""));
    expect_limit(&mut peer, "too many empty frames in a row");
    let mut peer = server_with_limits(|limits| limits.max_idle_priority_updates = 0);
    peer.send(C1, priority_update(1, "u=1"));
    expect_limit(&mut peer, "too many PRIORITY_UPDATE for idle streams");
    let mut peer = server_with_limits(|limits| limits.max_continuations = 0);
    peer.send(C1, raw(kind::HEADERS, 0, 1, "\u{2}"));
    peer.send(C1, raw(kind::CONTINUATION, flag::END_HEADERS, 1, ""));
    expect_limit(&mut peer, "too many CONTINUATION frames");
}
