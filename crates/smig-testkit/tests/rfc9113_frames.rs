//! RFC 9113 sections 3, 4 and 6: the preface, frames, and the rules of each frame type.

use core::time::Duration;

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Event, Processed};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, Peer, Setup};

/// A server engine with an open request on stream 1.
fn server() -> Peer {
    let mut peer = Peer::connected_to_server(Config::server());
    peer.post(C1, 1);
    peer
}

#[track_caller]
fn expect_connection_error(frame: Frame, code: ErrorCode) {
    let mut peer = server();
    peer.send(C1, frame.clone());
    assert!(peer.is_closed(C1), "{frame:?} did not end the connection");
    assert_eq!(peer.expect_goaway(C1, code), 1, "{frame:?}: the last stream id");
}

#[track_caller]
fn expect_stream_error(frame: Frame, code: ErrorCode) {
    let mut peer = server();
    let other_key = peer.get(C1, 3);
    peer.send(C1, frame.clone());
    assert!(!peer.is_closed(C1), "{frame:?} ended the connection");
    peer.expect(C1, reset(1, code));
    peer.expect_silence();
    peer.expect_not_failed(other_key);
}

// Section 3.4: the preface.

#[test]
fn a_wrong_preface_ends_the_connection() {
    for preface in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"X"] {
        let mut peer = Peer::for_server(Setup::new(Config::server()));
        peer.open_transport();
        peer.send_bytes(C1, preface);
        assert!(peer.is_closed(C1));
        let Frame::Settings(_) = peer.next(C1) else { panic!("a server's SETTINGS come first") };
        let Frame::WindowUpdate { stream: 0, .. } = peer.next(C1) else { panic!("then credit") };
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
}

#[test]
fn a_preface_may_come_in_pieces() {
    let mut peer = Peer::for_server(Setup::new(Config::server()));
    peer.open_transport();
    let bytes =
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x08\x06\0\0\0\0\0pingping";
    for byte in bytes {
        peer.send_bytes(C1, &[*byte]);
    }
    peer.take_preface(C1);
    peer.expect(C1, pong(*b"pingping"));
}

#[test]
fn the_first_frame_is_settings() {
    for frame in [ping([0; 8]), settings_ack(), headers(1).get("/").end().into()] {
        let mut peer = Peer::for_server(Setup::new(Config::server()));
        peer.open_transport();
        peer.send_bytes(C1, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        peer.send(C1, Frame::clone(&frame));
        assert!(peer.is_closed(C1), "{frame:?}");
        let mut peer = Peer::for_client(Setup::new(Config::client()));
        peer.open_transport();
        peer.take_preface(C1);
        peer.send(C1, frame);
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
}

// Section 4: frames.

#[test]
fn a_frame_longer_than_allowed_ends_the_connection() {
    expect_connection_error(data(1, vec![0; 16_385]), ErrorCode::FrameSizeError);
    expect_connection_error(raw(0x77, 0, 0, vec![0; 16_385]), ErrorCode::FrameSizeError);
    // The header is enough to refuse it: the engine does not wait for 16 megabytes.
    let mut peer = server();
    peer.send_bytes(C1, &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
    peer.expect_goaway(C1, ErrorCode::FrameSizeError);
    // The maximum length is accepted.
    let mut peer = server();
    peer.send(C1, data(1, vec![0; 16_384]));
    peer.expect_silence();
    let config = Config { max_frame_size: 65_536, ..Config::server() };
    let mut peer = Peer::connected_to_server(config);
    peer.post(C1, 1);
    peer.send(C1, data(1, vec![0; 65_536]));
    peer.expect_silence();
}

#[test]
fn the_peers_frame_size_is_respected_and_used() {
    for max_frame_size in [16_384, 20_000] {
        let setup =
            Setup::new(Config::server()).with_setting(setting::MAX_FRAME_SIZE, max_frame_size);
        let mut peer = Peer::for_server(setup);
        peer.connect();
        let key = peer.get(C1, 1);
        let mut fields = http::HeaderMap::new();
        fields.insert("x-long", "~".repeat(40_000).parse().unwrap());
        let head = smig_proto::ResponseHead { status: http::StatusCode::OK, headers: fields };
        peer.with_session(|session, _| session.send_response(key, &head, EndStream::No)).unwrap();
        // The script's codec checks each frame's length.
        let Frame::Headers { fields, .. } = peer.next(C1) else { panic!("HEADERS") };
        assert_eq!(fields.0[1].1.len(), 40_000);
        let largest = max_frame_size as usize;
        peer.send_body(key, vec![0; largest + 1], EndStream::Yes);
        peer.expect(C1, data(1, vec![0; largest]));
        peer.expect(C1, data(1, vec![0; 1]).end());
    }
}

#[test]
fn unknown_frames_and_flags_are_ignored() {
    let mut peer = server();
    for kind in [0x0a, 0x0b, 0x21, 0xfe] {
        peer.send(C1, raw(kind, 0xff, 1, "anything"));
        peer.send(C1, raw(kind, 0, 0, ""));
    }
    peer.send(C1, raw(kind::PING, 0xfe, 0, [4; 8]));
    peer.expect(C1, pong([4; 8]));
    peer.expect_silence();
    // But not within a header block (section 5.5).
    let mut peer = server();
    peer.send(C1, raw(kind::HEADERS, 0, 3, "\u{2}"));
    peer.send(C1, raw(0x21, 0, 0, ""));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

#[test]
fn a_broken_header_block_ends_the_connection() {
    // Section 4.3: on an open stream, a new one, and one that has ended.
    for stream in [1, 3] {
        let mut peer = server();
        peer.send(
            C1,
            raw(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, [0xff, 0xff]),
        );
        peer.expect_goaway(C1, ErrorCode::CompressionError);
    }
    let mut peer = Peer::connected_to_server(Config::server());
    let key = peer.post(C1, 1);
    peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel));
    peer.expect(C1, reset(1, ErrorCode::Cancel));
    peer.send(C1, raw(kind::HEADERS, flag::END_HEADERS, 1, [0xbe]));
    peer.expect_goaway(C1, ErrorCode::CompressionError);
}

#[test]
fn a_header_block_is_not_interrupted() {
    // Sections 4.3 and 6.10.
    let interrupting_frames: [Frame; 4] = [
        data(1, "x"),
        ping([0; 8]),
        headers(5).get("/").end().into(),
        raw(kind::CONTINUATION, flag::END_HEADERS, 5, "\u{2}"),
    ];
    for frame in interrupting_frames {
        let mut peer = server();
        peer.send(C1, raw(kind::HEADERS, 0, 3, "\u{2}"));
        peer.send(C1, frame);
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
    expect_connection_error(
        raw(kind::CONTINUATION, flag::END_HEADERS, 1, ""),
        ErrorCode::ProtocolError,
    );
    expect_connection_error(
        raw(kind::CONTINUATION, flag::END_HEADERS, 0, ""),
        ErrorCode::ProtocolError,
    );
}

// Section 6.

#[test]
fn frame_types_require_or_forbid_a_stream() {
    let stream_frame_kinds =
        [kind::DATA, kind::HEADERS, kind::PRIORITY, kind::RST_STREAM, kind::PUSH_PROMISE];
    for kind in stream_frame_kinds {
        expect_connection_error(raw(kind, 0, 0, [0, 0, 0, 8, 0]), ErrorCode::ProtocolError);
    }
    for (kind, length) in [(kind::SETTINGS, 0), (kind::PING, 8), (kind::GOAWAY, 8)] {
        expect_connection_error(raw(kind, 0, 1, vec![0; length]), ErrorCode::ProtocolError);
    }
    expect_connection_error(
        raw(kind::PRIORITY_UPDATE, 0, 1, [0, 0, 0, 1]),
        ErrorCode::ProtocolError,
    );
}

#[test]
fn wrong_frame_lengths_are_errors() {
    let wrong_lengths = [
        (kind::RST_STREAM, 1, 3),
        (kind::RST_STREAM, 1, 5),
        (kind::SETTINGS, 0, 5),
        (kind::PING, 0, 7),
        (kind::PING, 0, 9),
        (kind::GOAWAY, 0, 7),
        (kind::WINDOW_UPDATE, 0, 3),
        (kind::WINDOW_UPDATE, 1, 5),
        (kind::PRIORITY_UPDATE, 0, 3),
    ];
    for (kind, stream, length) in wrong_lengths {
        expect_connection_error(raw(kind, 0, stream, vec![1; length]), ErrorCode::FrameSizeError);
    }
    expect_connection_error(raw(kind::SETTINGS, flag::ACK, 0, [0; 6]), ErrorCode::FrameSizeError);
    // PRIORITY is the only type whose wrong length is a stream error (section 6.3).
    expect_stream_error(raw(kind::PRIORITY, 0, 1, [0; 4]), ErrorCode::FrameSizeError);
}

#[test]
fn padding_is_checked_and_counted() {
    // Sections 6.1 and 6.2: as long as the payload or longer.
    expect_connection_error(
        raw(kind::DATA, flag::PADDED, 1, [4, 0, 0, 0]),
        ErrorCode::ProtocolError,
    );
    expect_connection_error(raw(kind::DATA, flag::PADDED, 1, []), ErrorCode::FrameSizeError);
    expect_connection_error(
        raw(kind::HEADERS, flag::PADDED | flag::END_HEADERS, 3, [9, 0x82]),
        ErrorCode::ProtocolError,
    );
    // A frame of padding only has an empty body.
    let mut peer = Peer::connected_to_server(Config::server());
    let key = peer.post(C1, 1);
    peer.send(C1, padded_data(1, "x", 100));
    peer.send(C1, raw(kind::DATA, flag::PADDED | flag::END_STREAM, 1, [3, 0, 0, 0]));
    assert_eq!(&peer.read_to_end(key)[..], b"x");
    // A padded HEADERS, with a deprecated priority.
    let mut peer = Peer::connected_to_server(Config::server());
    let block = b"\x82\x84\x87\x01\x0bexample.com";
    let payload = [&[2, 0, 0, 0, 5, 200][..], block, &[0, 0]].concat();
    let flags = flag::PADDED | flag::PRIORITY | flag::END_HEADERS | flag::END_STREAM;
    peer.send(C1, raw(kind::HEADERS, flags, 1, payload));
    peer.take_request();
}

#[test]
fn padding_counts_in_both_windows_and_is_credited() {
    // Section 6.9.1: the length byte counts as well. 1,000 frames exhaust a window of 100,000 twice.
    let config = Config { stream_window: 100_000, connection_window: 100_000, ..Config::server() };
    let mut peer = Peer::connected_to_server(config);
    let key = peer.post(C1, 1);
    let (mut stream_window, mut connection_window) = (100_000i64, 100_000i64);
    for _ in 0..1_000 {
        (stream_window, connection_window) = (stream_window - 257, connection_window - 257);
        assert!(stream_window >= 0 && connection_window >= 0, "padding is not credited");
        peer.send(C1, padded_data(1, "x", 255));
        assert_eq!(peer.read(key).len(), 1);
        while let Some((id, increment)) = peer.skip_window_update(C1) {
            let window = if id == 0 { &mut connection_window } else { &mut stream_window };
            *window += i64::from(increment);
        }
        let view = peer.session().stream(key).unwrap();
        assert_eq!(view.recv_window, stream_window);
    }
    peer.expect_silence();
    // Beyond the stream's window it is refused.
    let config = Config { stream_window: 100, ..Config::server() };
    let mut peer = Peer::connected_to_server(config);
    peer.post(C1, 1);
    peer.send(C1, padded_data(1, "x", 99));
    peer.expect(C1, reset(1, ErrorCode::FlowControlError));
}

#[test]
fn unread_data_does_not_block_the_connections_window() {
    // Section 6.9: whether it arrives before or after the data that is read.
    for read_first in [true, false] {
        let config = Config { connection_window: 100_000, ..Config::server() };
        let mut peer = Peer::connected_to_server(config);
        let key = peer.post(C1, 1);
        peer.post(C1, 3);
        let read_four_frames = |peer: &mut Peer| {
            for _ in 0..4 {
                peer.send(C1, data(1, vec![0; 10_000]));
                assert_eq!(peer.read(key).len(), 10_000);
            }
        };
        if read_first {
            read_four_frames(&mut peer);
        }
        for _ in 0..6 {
            peer.send(C1, data(3, vec![0; 10_000]));
        }
        if !read_first {
            read_four_frames(&mut peer);
        }
        let mut credited_bytes = 0;
        while let Some((0, increment)) = peer.skip_window_update(C1) {
            credited_bytes += increment;
        }
        // All but the last DATA and the part of a KiB that each increment leaves.
        assert!(credited_bytes >= 29_000, "{credited_bytes} of the 40000 bytes that were read");
        peer.expect_silence();
    }
}

#[test]
fn settings_are_applied_and_acknowledged() {
    // Section 6.5: each once, in order; unknown ones are ignored.
    let mut peer = server();
    peer.send(C1, settings(&[(0x0bad, 7), (setting::INITIAL_WINDOW_SIZE, 1)]));
    peer.send(
        C1,
        settings(&[(setting::INITIAL_WINDOW_SIZE, 5), (setting::INITIAL_WINDOW_SIZE, 9)]),
    );
    peer.expect(C1, settings_ack());
    peer.expect(C1, settings_ack());
    let key = peer.post(C1, 3);
    assert_eq!(peer.session().stream(key).unwrap().send_window, 9);
    // An acknowledgement without SETTINGS.
    expect_connection_error(settings_ack(), ErrorCode::ProtocolError);
}

#[test]
fn settings_out_of_range_are_errors() {
    // Section 6.5.2 and RFC 8441 section 3.
    let invalid_settings = [
        (setting::ENABLE_PUSH, 2, ErrorCode::ProtocolError),
        (setting::INITIAL_WINDOW_SIZE, 1 << 31, ErrorCode::FlowControlError),
        (setting::MAX_FRAME_SIZE, 16_383, ErrorCode::ProtocolError),
        (setting::MAX_FRAME_SIZE, 1 << 24, ErrorCode::ProtocolError),
        (setting::ENABLE_CONNECT_PROTOCOL, 2, ErrorCode::ProtocolError),
    ];
    for (id, value, code) in invalid_settings {
        expect_connection_error(settings(&[(id, value)]), code);
    }
    // A server may not enable push, nor withdraw extended CONNECT.
    let mut peer = Peer::connected_to_client(Config::client());
    peer.send(C1, settings(&[(setting::ENABLE_PUSH, 1)]));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    let mut peer = Peer::connected_to_client(Config::client());
    peer.send(C1, settings(&[(setting::ENABLE_CONNECT_PROTOCOL, 1)]));
    peer.send(C1, settings(&[(setting::ENABLE_CONNECT_PROTOCOL, 0)]));
    peer.expect(C1, settings_ack());
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

#[test]
fn the_peers_table_size_is_obeyed() {
    // Section 6.5.2 and RFC 7541 section 4.2: the codec's decoder has no dynamic table then.
    let mut peer =
        Peer::for_server(Setup::new(Config::server()).with_setting(setting::HEADER_TABLE_SIZE, 0));
    peer.connect();
    for id in [1, 3] {
        let key = peer.get(C1, id);
        let mut fields = http::HeaderMap::new();
        fields.insert("server", "smig".parse().unwrap());
        let head = smig_proto::ResponseHead { status: http::StatusCode::OK, headers: fields };
        peer.with_session(|session, _| session.send_response(key, &head, EndStream::Yes)).unwrap();
        peer.expect(C1, headers(id).status(200).field("server", "smig").end());
    }
}

#[test]
fn a_push_promise_to_a_server_ends_the_connection() {
    // Section 8.4
    expect_connection_error(push_promise(1, 2, headers(0).get("/")), ErrorCode::ProtocolError);
}

#[test]
fn pings_are_answered_ahead_of_data() {
    // Section 6.7
    let mut peer = Peer::connected_to_server(Config::server());
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.pause(C1);
    peer.send_body(key, "data", EndStream::Yes);
    peer.send(C1, ping([9; 8]));
    peer.resume(C1);
    peer.expect(C1, pong([9; 8]));
    peer.expect(C1, data(1, "data").end());
    // An answer is not answered.
    peer.send(C1, pong([9; 8]));
    peer.expect_silence();
}

#[test]
fn a_graceful_shutdown_sends_two_goaways() {
    // Section 6.8: streams in flight at the first one are still accepted.
    let mut peer = server();
    peer.with_session(|session, now| session.shutdown(now));
    let Frame::GoAway { last_stream_id: 0x7fff_ffff, code: ErrorCode::NoError, .. } = peer.next(C1)
    else {
        panic!("a warning first");
    };
    let Frame::Ping(opaque) = peer.next(C1) else { panic!("then PING") };
    let late_key = peer.get(C1, 3);
    peer.send(C1, pong(opaque));
    let Frame::GoAway { last_stream_id: 3, code: ErrorCode::NoError, .. } = peer.next(C1) else {
        panic!("then the last id");
    };
    // Later frames are ignored: no answer, no effect.
    peer.send(C1, headers(5).get("/").end());
    peer.send(C1, data(5, "x"));
    peer.expect_silence();
    assert!(!peer.should_close(C1));
    peer.respond(late_key, 204, EndStream::Yes);
    peer.expect(C1, headers(3).status(204).end());
    peer.send(C1, reset(1, ErrorCode::Cancel));
    assert!(peer.should_close(C1), "when the last stream has ended");
}

#[test]
fn a_graceful_shutdown_does_not_need_an_answer_to_its_ping() {
    // Section 6.8
    let mut peer = server();
    let running_key = peer.get(C1, 3);
    peer.with_session(|session, now| session.shutdown(now));
    let Frame::GoAway { last_stream_id: 0x7fff_ffff, .. } = peer.next(C1) else {
        panic!("a warning first")
    };
    let Frame::Ping(opaque) = peer.next(C1) else { panic!("then PING") };
    peer.advance(Duration::from_secs(9));
    peer.expect_silence();
    peer.advance(Duration::from_secs(3));
    let Frame::GoAway { last_stream_id: 3, code: ErrorCode::NoError, .. } = peer.next(C1) else {
        panic!("then the last id");
    };
    assert_eq!(peer.take_limit_hit(), "drain PING answer time");
    // A late answer has no effect.
    peer.send(C1, pong(opaque));
    peer.expect_silence();
    peer.respond(running_key, 204, EndStream::Yes);
    peer.expect(C1, headers(3).status(204).end());
    peer.send(C1, reset(1, ErrorCode::Cancel));
    assert!(peer.should_close(C1));
}

#[test]
fn goaway_reports_requests_that_were_not_processed() {
    // Section 6.8
    let mut peer = Peer::connected_to_client(Config::client());
    let keys = [(); 3].map(|()| peer.open(C1, Method::GET, EndStream::Yes));
    peer.send(C1, goaway(0x7fff_ffff, ErrorCode::NoError));
    let conn = peer.conn_id(C1);
    let head = smig_testkit::script::request_head(Method::GET);
    let refused =
        peer.with_session(|session, now| session.open(now, Some(conn), &head, EndStream::Yes));
    assert!(refused.is_err(), "no new streams");
    peer.send(C1, goaway(3, ErrorCode::NoError));
    let error = peer.take_error(keys[2]);
    assert_eq!((error.processed, error.code), (Processed::No, ErrorCode::RefusedStream));
    for (key, id) in [(keys[0], 1), (keys[1], 3)] {
        peer.send(C1, headers(id).status(204).end());
        assert_eq!(peer.take_response(key), 204);
    }
    let received_code = peer.take_event(|event| match event {
        Event::GoingAway { code, .. } => Some(*code),
        _ => None,
    });
    assert_eq!(received_code, ErrorCode::NoError);
    assert!(peer.should_close(C1));
}

#[test]
fn windows_do_not_overflow() {
    // Section 6.9.1: the connection's, a stream's, and all streams' by SETTINGS.
    expect_connection_error(window_update(0, 0x7fff_ffff), ErrorCode::FlowControlError);
    expect_connection_error(window_update(0, 0), ErrorCode::ProtocolError);
    expect_stream_error(window_update(1, 0x7fff_ffff), ErrorCode::FlowControlError);
    expect_stream_error(window_update(1, 0), ErrorCode::ProtocolError);
    let mut peer = server();
    peer.send(C1, window_update(1, 1));
    peer.send(C1, settings(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]));
    peer.expect_goaway(C1, ErrorCode::FlowControlError);
}

#[test]
fn a_window_may_become_negative() {
    // Section 6.9.2
    let mut peer = Peer::connected_to_server(Config::server());
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.send_body(key, vec![0; 60_000], EndStream::No);
    peer.send(C1, settings(&[(setting::INITIAL_WINDOW_SIZE, 1_000)]));
    assert_eq!(peer.session().stream(key).unwrap().send_window, 1_000 - 60_000);
    peer.send_body(key, "x", EndStream::Yes);
    peer.send(C1, window_update(1, 59_000));
    peer.expect(C1, headers(1).status(200));
    while peer.skip_data(C1) {}
    peer.expect(C1, settings_ack());
    peer.expect_silence();
    peer.send(C1, window_update(1, 1));
    peer.expect(C1, data(1, "x").end());
}

#[test]
fn data_beyond_a_window_is_an_error() {
    let config = Config { stream_window: 20_000, connection_window: 65_535, ..Config::server() };
    let mut peer = Peer::connected_to_server(config.clone());
    let other_key = peer.post(C1, 1);
    peer.post(C1, 3);
    peer.send(C1, data(3, vec![0; 16_000]));
    peer.send(C1, data(3, vec![0; 4_001]));
    peer.expect(C1, reset(3, ErrorCode::FlowControlError));
    peer.expect_not_failed(other_key);
    let mut peer = Peer::connected_to_server(config);
    for n in 0..4 {
        peer.post(C1, 2 * n + 1);
        peer.send(C1, data(2 * n + 1, vec![0; 16_000]));
    }
    peer.post(C1, 9);
    peer.send(C1, data(9, vec![0; 2_000]));
    peer.expect_goaway(C1, ErrorCode::FlowControlError);
}
