//! Clients that ask for too much or do too little, played against a real server over TLS: each is
//! ended by the right code and counted, and nobody else notices.

mod wire;

use std::io::Read as _;
use std::time::Duration;

use wire::{
    CANCEL, CONTINUATION, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GET, HEADERS, RST_STREAM,
    WINDOW_UPDATE, frame, target,
};

/// Short, so that the tests are; it may take longer, never for ever.
const SOON: Duration = Duration::from_millis(300);

#[test]
fn rapid_reset_ends_the_connection() {
    let target = target(|_| {}, |builder| builder);
    let mut bystander = target.http2();
    bystander.is_well();
    let mut wire = target.http2();
    wire.is_well();
    // Far beyond the budget, whatever it refills meanwhile.
    for stream in (1..20_000).step_by(2) {
        let mut pair = frame(HEADERS, END_HEADERS | END_STREAM, stream, GET);
        pair.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        if wire.send_bytes(&pair).is_err() {
            break;
        }
    }
    target.until(|stats| stats.limits_hit >= 1);
    // What the server says may be lost behind what we had still to say; then it ended it anyhow.
    if let Some(code) = wire.goaway() {
        assert_eq!(code, ENHANCE_YOUR_CALM);
    }
    bystander.is_well();
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn rapid_reset_is_told_to_calm_down() {
    let target = target(|config| config.limits.reset_burst = 20, |builder| builder);
    let mut wire = target.http2();
    wire.is_well();
    let mut burst = Vec::new();
    // No more than the budget and a little, so that the answer can be read.
    for stream in (1..120).step_by(2) {
        burst.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
        burst.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    wire.send_bytes(&burst).unwrap();
    assert_eq!(wire.goaway(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_handshake_that_does_not_come_is_not_waited_for() {
    let target = target(|_| {}, |builder| builder.handshake_timeout(SOON));
    let mut silent = target.tcp();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    target.until(|stats| stats.handshakes_failed == 1);
}

#[test]
fn a_slow_preface_ends_the_connection() {
    let target = target(|config| config.limits.preface_timeout = SOON, |builder| builder);
    let mut wire = target.tls();
    wire.goaway();
    target.until(|stats| stats.connections_closed == 1);
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_slow_header_block_ends_the_connection() {
    let target = target(|config| config.limits.headers_timeout = SOON, |builder| builder);
    let mut wire = target.http2();
    wire.is_well();
    wire.send(HEADERS, END_STREAM, 1, GET).unwrap();
    assert_eq!(wire.goaway(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_flood_of_continuation_ends_the_connection() {
    let target = target(|_| {}, |builder| builder);
    let mut wire = target.http2();
    wire.is_well();
    let mut flood = frame(HEADERS, END_STREAM, 1, GET);
    for _ in 0..20 {
        flood.extend(frame(CONTINUATION, 0, 1, &[]));
    }
    wire.send_bytes(&flood).unwrap();
    assert_eq!(wire.goaway(), Some(ENHANCE_YOUR_CALM));
    assert_eq!(target.server.stats().limits_hit, 1);
}

#[test]
fn a_reader_that_stalls_loses_its_stream_whatever_it_says() {
    let target = target(
        |config| {
            config.limits.stall_timeout = SOON;
            config.limits.stall_bytes = 1 << 20;
            config.limits.max_small_data_frames = u32::MAX;
        },
        |builder| builder,
    );
    let mut wire = target.http2();
    wire.is_well();
    wire.send(HEADERS, END_HEADERS | END_STREAM, 1, GET).unwrap();
    // It takes what its first window lets through, then one byte now and then.
    let reset = loop {
        let came = wire.next().expect("the connection lives");
        match came.kind {
            RST_STREAM => break came,
            wire::PING => {
                wire.send(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()).unwrap();
                wire.send(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()).unwrap();
                wire.send(wire::PING, 0, 0, b"slowly..").unwrap();
            }
            // The first of these answers begins the dance.
            HEADERS => wire.send(wire::PING, 0, 0, b"slowly..").unwrap(),
            _ => {}
        }
    };
    assert_eq!((reset.stream, reset.word(0)), (1, CANCEL));
    target.until(|stats| stats.limits_hit == 1);
    // The connection and its next stream are well.
    wire.is_well();
}

#[test]
fn too_many_connections_are_closed_and_counted() {
    let target = target(|_| {}, |builder| builder.max_connections(1));
    let mut first = target.http2();
    first.is_well();
    let mut second = target.tcp();
    let mut rest = Vec::new();
    // A reset or an end: nothing is said either way.
    drop(second.read_to_end(&mut rest));
    assert!(rest.is_empty());
    target.until(|stats| stats.limits_hit == 1);
    first.is_well();
}
