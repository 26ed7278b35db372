//! Limited credit of one stream (RFC 9113 section 5.2): the peer's other streams, and the connection, keep theirs.

use smig_proto::Config;
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, Peer};

const STREAM_WINDOW: u32 = 128 << 10;
const FRAME_BYTES: u32 = 16 << 10;

fn server() -> Peer {
    let config = Config {
        smig: None,
        stream_window: STREAM_WINDOW,
        connection_window: 16 << 20,
        ..Config::server()
    };
    Peer::connected_to_server(config)
}

fn frame(stream: u32) -> Frame {
    data(stream, vec![0; FRAME_BYTES as usize])
}

#[test]
fn a_limited_stream_gets_credit_for_what_has_arrived_and_others_keep_their_window() {
    let mut peer = server();
    let (upload, other) = (peer.post(C1, 1), peer.post(C1, 3));
    peer.with_session(|session, _| session.limit_receive_credit(upload, Some(32 << 10)));
    // What was granted before is used up first.
    for _ in 0..STREAM_WINDOW / FRAME_BYTES - 2 {
        peer.send(C1, frame(1));
        peer.read(upload);
    }
    peer.expect_silence();
    // From then on, what arrives is granted at once, of the credit that was held back.
    for _ in 0..100 {
        peer.send(C1, frame(1));
        peer.expect(C1, window_update(1, FRAME_BYTES));
        peer.read(upload);
        peer.expect_silence();
    }
    // The other stream: half a window at a time.
    for _ in 0..10 {
        for _ in 1..STREAM_WINDOW / FRAME_BYTES / 2 {
            peer.send(C1, frame(3));
            peer.read(other);
            peer.expect_silence();
        }
        peer.send(C1, frame(3));
        peer.read(other);
        peer.expect(C1, window_update(3, STREAM_WINDOW / 2));
    }
    // Without the limit, the whole window is open again.
    peer.with_session(|session, _| session.limit_receive_credit(upload, None));
    peer.expect(C1, window_update(1, STREAM_WINDOW - (32 << 10)));
}

#[test]
fn a_limit_of_nothing_leaves_some_credit() {
    let mut peer = server();
    let upload = peer.post(C1, 1);
    peer.with_session(|session, _| session.limit_receive_credit(upload, Some(0)));
    for _ in 0..STREAM_WINDOW / FRAME_BYTES - 1 {
        peer.send(C1, frame(1));
        peer.read(upload);
        peer.expect_silence();
    }
    peer.send(C1, frame(1));
    peer.expect(C1, window_update(1, 8 << 10));
    peer.read(upload);
    peer.expect_silence();
}
