//! Abusive and stalling clients against a real server over TLS: each is ended with the right code
//! and counted, and other clients are not affected.

mod frame_conn;

use std::io::Read as _;
use std::time::Duration;

use frame_conn::{
    CANCEL, CONTINUATION, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GET_FIELD_BLOCK, HEADERS,
    RST_STREAM, WINDOW_UPDATE, encode_frame, start_server,
};

/// A timeout of the server under test: short, so that the tests are.
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

#[test]
fn rapid_reset_ends_the_connection() {
    let target = start_server(|_| {}, |builder| builder);
    let mut bystander = target.connect_http2();
    bystander.assert_responsive();
    let mut conn = target.connect_http2();
    conn.assert_responsive();
    // Far beyond the budget, whatever it refills meanwhile.
    for stream in (1..20_000).step_by(2) {
        let mut pair = encode_frame(HEADERS, END_HEADERS | END_STREAM, stream, GET_FIELD_BLOCK);
        pair.extend(encode_frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        if conn.send_bytes(&pair).is_err() {
            break;
        }
    }
    target.wait_for_stats(|stats| stats.limits_hit >= 1);
    // GOAWAY may be lost: the server closes while the client still writes, which is a reset.
    if let Some(code) = conn.read_goaway_code() {
        assert_eq!(code, ENHANCE_YOUR_CALM);
    }
    bystander.assert_responsive();
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_reset_burst_is_answered_with_enhance_your_calm() {
    let target = start_server(|config| config.limits.reset_burst = 20, |builder| builder);
    let mut conn = target.connect_http2();
    conn.assert_responsive();
    let mut burst = Vec::new();
    // Three times the budget, and short enough for a single write, so that GOAWAY can be read.
    for stream in (1..120).step_by(2) {
        burst.extend(encode_frame(HEADERS, END_HEADERS | END_STREAM, stream, GET_FIELD_BLOCK));
        burst.extend(encode_frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    conn.send_bytes(&burst).unwrap();
    assert_eq!(conn.read_goaway_code(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_missing_handshake_times_out() {
    let target = start_server(|_| {}, |builder| builder.handshake_timeout(SHORT_TIMEOUT));
    let mut silent = target.connect_tcp();
    let mut received = Vec::new();
    silent.read_to_end(&mut received).unwrap();
    assert!(received.is_empty());
    target.wait_for_stats(|stats| stats.handshakes_failed == 1);
}

#[test]
fn a_slow_preface_ends_the_connection() {
    let target =
        start_server(|config| config.limits.preface_timeout = SHORT_TIMEOUT, |builder| builder);
    let mut conn = target.connect_tls();
    conn.read_goaway_code();
    target.wait_for_stats(|stats| stats.connections_closed == 1);
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_slow_field_block_ends_the_connection() {
    let target =
        start_server(|config| config.limits.headers_timeout = SHORT_TIMEOUT, |builder| builder);
    let mut conn = target.connect_http2();
    conn.assert_responsive();
    conn.send(HEADERS, END_STREAM, 1, GET_FIELD_BLOCK).unwrap();
    assert_eq!(conn.read_goaway_code(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_flood_of_continuation_ends_the_connection() {
    let target = start_server(|_| {}, |builder| builder);
    let mut conn = target.connect_http2();
    conn.assert_responsive();
    let mut flood = encode_frame(HEADERS, END_STREAM, 1, GET_FIELD_BLOCK);
    for _ in 0..20 {
        flood.extend(encode_frame(CONTINUATION, 0, 1, &[]));
    }
    conn.send_bytes(&flood).unwrap();
    assert_eq!(conn.read_goaway_code(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_stalled_reader_is_reset_despite_window_updates() {
    let target = start_server(
        |config| {
            config.limits.stall_timeout = SHORT_TIMEOUT;
            config.limits.stall_bytes = 1 << 20;
            config.limits.max_small_data_frames = u32::MAX;
        },
        |builder| builder,
    );
    let mut conn = target.connect_http2();
    conn.assert_responsive();
    conn.send(HEADERS, END_HEADERS | END_STREAM, 1, GET_FIELD_BLOCK).unwrap();
    // The client uses up its first window, then returns single bytes of credit.
    let reset = loop {
        let frame = conn.next().expect("the connection is open");
        match frame.kind {
            RST_STREAM => break frame,
            frame_conn::PING => {
                conn.send(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()).unwrap();
                conn.send(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()).unwrap();
                conn.send(frame_conn::PING, 0, 0, b"slowly..").unwrap();
            }
            // Send the first PING; each reply triggers the next.
            HEADERS => conn.send(frame_conn::PING, 0, 0, b"slowly..").unwrap(),
            _ => {}
        }
    };
    assert_eq!((reset.stream, reset.word(0)), (1, CANCEL));
    target.wait_for_stats(|stats| stats.limits_hit == 1);
    // The connection still responds.
    conn.assert_responsive();
}

#[test]
fn too_many_connections_are_closed_and_counted() {
    let target = start_server(|_| {}, |builder| builder.max_connections(1));
    let mut first_conn = target.connect_http2();
    first_conn.assert_responsive();
    let mut second_conn = target.connect_tcp();
    let mut received = Vec::new();
    // A reset or FIN, without any data.
    drop(second_conn.read_to_end(&mut received));
    assert!(received.is_empty());
    target.wait_for_stats(|stats| stats.limits_hit == 1);
    first_conn.assert_responsive();
}
