//! Bulk is sent only as far as the driver allows it, and nothing else waits for it.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use smig_proto::{
    BulkHint, BulkReason, Config, EndStream, ErrorCode, ResponseHead, StreamKey, TransmitDemand,
    TransmitLimits,
};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, ConnHandle, Peer, Setup};

const NO_BULK: TransmitLimits = TransmitLimits::interactive(1 << 20);
const NOTHING: TransmitDemand = TransmitDemand { interactive: false, bulk: false };
const ONLY_BULK: TransmitDemand = TransmitDemand { interactive: false, bulk: true };
const ONLY_INTERACTIVE: TransmitDemand = TransmitDemand { interactive: true, bulk: false };
const BOTH: TransmitDemand = TransmitDemand { interactive: true, bulk: true };
const ALL: TransmitLimits = TransmitLimits::any(1 << 20);

/// A server engine whose client does not read C1, with one response of unknown length on streams 1, 3, 5...
/// whose bodies are bulk where `hints` says so.
fn server_with_responses(hints: &[BulkHint]) -> (Peer, Vec<StreamKey>) {
    let setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 4 << 20);
    let mut peer = Peer::for_server(setup).with_spare();
    peer.connect();
    peer.send(C1, window_update(0, 4 << 20));
    let mut keys = Vec::new();
    for (n, &hint) in hints.iter().enumerate() {
        let id = 2 * n as u32 + 1;
        let key = peer.get(C1, id);
        peer.respond(key, 200, EndStream::No);
        peer.expect(C1, headers(id).status(200));
        peer.with_session(|session, _| session.set_bulk_hint(key, hint));
        keys.push(key);
    }
    peer.pause(C1);
    (peer, keys)
}

fn demand(peer: &Peer, handle: ConnHandle) -> TransmitDemand {
    peer.session().transmit_demand(peer.conn_id(handle))
}

fn limits(bulk_bytes: usize) -> TransmitLimits {
    TransmitLimits { bytes: 1 << 20, bulk_bytes }
}

/// Returns stream and length of the DATA frames that the engine has sent.
fn data_frames(peer: &mut Peer) -> Vec<(u32, usize)> {
    let mut frames = Vec::new();
    while let Some(Frame::Data { stream, data, .. }) = peer.next_if_any(C1) {
        frames.push((stream, data.len()));
    }
    frames
}

#[test]
fn bulk_is_sent_within_its_own_limit() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::Bulk]);
    assert_eq!(demand(&peer, C1), NOTHING);
    peer.send_body(keys[0], vec![0; 10_000], EndStream::Yes);
    assert_eq!(demand(&peer, C1), ONLY_BULK);
    assert_eq!(peer.take_output_within(C1, NO_BULK).bytes, 0);
    // Less than 1 KiB is not worth a frame.
    assert_eq!(peer.take_output_within(C1, limits(1023)).bytes, 0);
    let taken = peer.take_output_within(C1, limits(2000));
    assert_eq!((taken.bytes, taken.bulk_bytes), (2000, 2000), "with the frame's header");
    assert_eq!(data_frames(&mut peer), [(1, 1991)]);
    assert_eq!(peer.take_output_within(C1, limits(usize::MAX)).bulk_bytes, 8009 + 9);
    assert_eq!(demand(&peer, C1), NOTHING);
}

#[test]
fn interactive_data_passes_bulk() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::Bulk, BulkHint::None, BulkHint::Bulk]);
    for &key in &keys {
        peer.send_body(key, vec![0; 5000], EndStream::No);
    }
    assert_eq!(demand(&peer, C1), BOTH);
    let taken = peer.take_output_within(C1, limits(3000));
    assert_eq!((taken.bytes, taken.bulk_bytes), (5009 + 3000, 3000));
    assert_eq!(data_frames(&mut peer), [(3, 5000), (1, 2991)]);
    // Bulk streams take turns by RFC 9218, as others do.
    peer.take_output_within(C1, limits(3000));
    assert_eq!(data_frames(&mut peer), [(5, 2991)]);
}

#[test]
fn a_flood_of_interactive_data_does_not_starve_bulk() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::Bulk, BulkHint::Interactive]);
    for key in keys {
        peer.send_body(key, vec![0; 400_000], EndStream::No);
    }
    peer.take_output_within(C1, TransmitLimits::any(300_000));
    let frames = data_frames(&mut peer);
    let bulk_frames = frames.iter().filter(|&&(stream, _)| stream == 1).count();
    assert_eq!((frames.len(), bulk_frames), (19, 2), "{frames:?}");
    assert_eq!(frames[8].0, 1);
}

#[test]
fn trailers_ends_and_resets_do_not_wait() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::Bulk; 4]);
    peer.send_body(keys[0], vec![0; 3000], EndStream::No);
    assert_eq!(peer.take_output_within(C1, ALL).bulk_bytes, 3009);
    let mut trailers = HeaderMap::new();
    trailers.insert("x", HeaderValue::from_static("y"));
    peer.with_session(|session, _| session.send_trailers(keys[0], trailers)).unwrap();
    // An empty end, and one of 1 KiB.
    peer.send_body(keys[1], "", EndStream::Yes);
    peer.send_body(keys[2], vec![0; 1024], EndStream::Yes);
    peer.send_body(keys[3], vec![0; 5000], EndStream::No);
    peer.with_session(|session, _| session.reset(keys[3], ErrorCode::Cancel));
    assert_eq!(demand(&peer, C1), ONLY_INTERACTIVE);
    assert_eq!(peer.take_output_within(C1, NO_BULK).bulk_bytes, 0);
    assert_eq!(data_frames(&mut peer), [(1, 3000)]);
    assert_eq!(demand(&peer, C1), NOTHING);
}

#[test]
fn the_head_of_another_response_does_not_wait() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::Bulk]);
    peer.send_body(keys[0], vec![0; 3000], EndStream::No);
    let key = peer.get(C1, 3);
    peer.respond(key, 200, EndStream::No);
    assert_eq!(demand(&peer, C1), BOTH);
    assert_eq!(peer.take_output_within(C1, NO_BULK).bulk_bytes, 0);
    peer.expect(C1, headers(3).status(200));
    assert_eq!(demand(&peer, C1), ONLY_BULK);
}

#[test]
fn trailers_follow_their_data() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::Bulk]);
    peer.send_body(keys[0], vec![0; 3000], EndStream::No);
    peer.with_session(|session, _| session.send_trailers(keys[0], HeaderMap::new())).unwrap();
    assert_eq!(peer.take_output_within(C1, NO_BULK).bytes, 0);
    peer.take_output_within(C1, limits(4000));
    assert_eq!(peer.next(C1), data(1, vec![0; 3000]));
    assert_eq!(demand(&peer, C1), NOTHING);
}

#[test]
fn the_policy_decides_by_content_length_and_by_bytes_without_a_pause() {
    let (mut peer, _) = server_with_responses(&[]);
    peer.resume(C1);
    let key = peer.get(C1, 1);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("300000"));
    let head = ResponseHead { status: StatusCode::OK, headers };
    peer.with_session(|session, _| session.send_response(key, &head, EndStream::No)).unwrap();
    peer.pause(C1);
    peer.send_body(key, vec![0; 5000], EndStream::No);
    assert_eq!(peer.session().stream(key).unwrap().bulk, Some(BulkReason::Size));
    assert_eq!(demand(&peer, C1), ONLY_BULK);

    let (mut peer, keys) = server_with_responses(&[BulkHint::None]);
    let bulk = |peer: &Peer| peer.session().stream(keys[0]).unwrap().bulk;
    // Many messages with pauses between them.
    for _ in 0..20 {
        peer.send_body(keys[0], vec![0; 20_000], EndStream::No);
        peer.take_output_within(C1, ALL);
    }
    assert_eq!(bulk(&peer), None);
    peer.send_body(keys[0], vec![0; 60_000], EndStream::No);
    peer.take_output_within(C1, TransmitLimits::any(30_000));
    peer.send_body(keys[0], vec![0; 60_000], EndStream::No);
    peer.take_output_within(C1, TransmitLimits::any(30_000));
    assert_eq!(bulk(&peer), Some(BulkReason::UnknownLength));
    assert_eq!(demand(&peer, C1), ONLY_BULK);
    peer.take_output_within(C1, ALL);
    // A short pause does not end it, a long one does.
    peer.advance(std::time::Duration::from_millis(900));
    peer.send_body(keys[0], vec![0; 2000], EndStream::No);
    assert_eq!(peer.take_output_within(C1, ALL).bulk_bytes, 2009);
    peer.advance(std::time::Duration::from_millis(1000));
    for bulk_bytes in [2009, 0] {
        peer.send_body(keys[0], vec![0; 2000], EndStream::No);
        assert_eq!(peer.take_output_within(C1, ALL).bulk_bytes, bulk_bytes);
    }
}

#[test]
fn a_body_of_unknown_length_is_bulk_while_much_of_it_was_announced() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::None]);
    let bulk = |peer: &Peer| peer.session().stream(keys[0]).unwrap().bulk;
    peer.advance(std::time::Duration::from_secs(1));
    peer.with_session(|session, _| session.announce_min_body(keys[0], 256 << 10));
    peer.send_body(keys[0], vec![0; 10_000], EndStream::No);
    assert_eq!(bulk(&peer), Some(BulkReason::Size));
    assert_eq!(demand(&peer, C1), ONLY_BULK);
    peer.take_output_within(C1, ALL);
    assert_eq!(bulk(&peer), Some(BulkReason::Size), "after a long pause, too");
    peer.send_body(keys[0], vec![0; (256 << 10) - 10_000], EndStream::No);
    peer.take_output_within(C1, ALL);
    // All that was announced has been queued: what follows after a long pause is not bulk.
    peer.advance(std::time::Duration::from_secs(1));
    for bulk_bytes in [2009, 0] {
        peer.send_body(keys[0], vec![0; 2000], EndStream::No);
        assert_eq!(peer.take_output_within(C1, ALL).bulk_bytes, bulk_bytes);
    }
}

#[test]
fn a_stream_is_bulk_wherever_a_migration_takes_it() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::Bulk]);
    peer.pause(C2);
    peer.send_body(keys[0], vec![0; 50_000], EndStream::No);
    peer.migrate(keys[0], C2).unwrap();
    assert_eq!(demand(&peer, C1), ONLY_INTERACTIVE, "MIGRATE");
    peer.take_output_within(C1, NO_BULK);
    assert_eq!(demand(&peer, C2), ONLY_BULK);
    assert_eq!(peer.take_output_within(C2, limits(2000)).bulk_bytes, 2000);
    // What was sent on the carrier returns with the decline.
    peer.send(C1, decline(1).end());
    assert!(!demand(&peer, C2).bulk);
    assert_eq!(demand(&peer, C1), ONLY_BULK);
    assert_eq!(peer.take_output_within(C1, ALL).bulk_bytes, 50_000 + 4 * 9);
}

#[test]
fn a_hint_applies_to_what_is_queued() {
    let (mut peer, keys) = server_with_responses(&[BulkHint::Bulk]);
    peer.send_body(keys[0], vec![0; 50_000], EndStream::No);
    assert_eq!(demand(&peer, C1), ONLY_BULK);
    peer.with_session(|session, _| session.set_bulk_hint(keys[0], BulkHint::Interactive));
    assert_eq!(demand(&peer, C1), ONLY_INTERACTIVE);
    assert_eq!(peer.take_output_within(C1, NO_BULK).bytes, 50_000 + 4 * 9);
}

#[test]
fn without_a_policy_no_stream_is_bulk() {
    let mut peer = Peer::connected_to_server(Config { bulk: None, ..Config::server() });
    let key = peer.get(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    peer.with_session(|session, _| session.set_bulk_hint(key, BulkHint::Bulk));
    peer.pause(C1);
    peer.send_body(key, vec![0; 5000], EndStream::No);
    assert_eq!(demand(&peer, C1), ONLY_INTERACTIVE);
}
