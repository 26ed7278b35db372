//! spec/smig.md section 7: flow control, priority, limits.

use http::{HeaderMap, Method, Uri};
use smig_proto::{Config, EndStream, ErrorCode, OpenError, Priority, RequestHead, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, ConnHandle, Peer, Setup};

/// A server engine that responds on stream 1 of C1; C2's SETTINGS have another initial window.
fn server_with_response(windows: [u32; 2]) -> (Peer, StreamKey) {
    let setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, windows[0]);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    let mut second_setup = peer.setup_mut().clone();
    second_setup = second_setup.with_setting(setting::INITIAL_WINDOW_SIZE, windows[1]);
    *peer.setup_mut() = second_setup;
    peer.connect();
    let key = peer.post(C1, 1);
    peer.respond(key, 200, EndStream::No);
    peer.expect(C1, headers(1).status(200));
    (peer, key)
}

fn send_window(peer: &Peer, key: StreamKey) -> i64 {
    peer.session().stream(key).unwrap().send_window
}

fn recv_window(peer: &Peer, key: StreamKey) -> i64 {
    peer.session().stream(key).unwrap().recv_window
}

fn set_initial_window(peer: &mut Peer, handle: ConnHandle, size: u32) {
    peer.send(handle, settings(&[(setting::INITIAL_WINDOW_SIZE, size)]));
    peer.expect(handle, settings_ack());
}

#[test]
fn the_windows_migrate_with_the_stream() {
    // SMIG-7.1/windows-move: 400 of 1000 bytes are used on S1; S2 has the other 600, whatever C2's SETTINGS
    // are.
    for second_window in [0, 50, 1_000_000] {
        let (mut peer, key) = server_with_response([1_000, second_window]);
        let cid = peer.cid(C2);
        peer.send_body(key, vec![1; 400], EndStream::No);
        peer.expect(C1, data(1, vec![1; 400]));
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(1, cid, 2));
        peer.send_body(key, vec![2; 1_000], EndStream::No);
        peer.expect(C2, data(2, vec![2; 600]));
        peer.send(C1, accept(1, cid, 2));
        peer.expect_silence();
        peer.send(C2, window_update(2, 400));
        peer.expect(C2, data(2, vec![2; 400]));
        peer.expect_silence();
    }
    // SMIG-7.1/windows-move, the receiver: the part used on S1 counts on S2.
    let config = Config { stream_window: 100_000, ..Config::server() };
    let mut peer = Peer::connected_to_server(config).with_spare();
    let key = peer.post(C1, 1);
    let cid = peer.cid(C2);
    for _ in 0..5 {
        peer.send(C1, data(1, vec![0; 16_000]));
    }
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    peer.send(C2, data(1, vec![0; 16_000]));
    peer.send(C2, data(1, vec![0; 4_001]));
    peer.expect(C2, reset(1, ErrorCode::FlowControlError));
    assert_eq!(peer.take_error(key).code, ErrorCode::FlowControlError);
}

#[test]
fn credit_on_the_old_id_counts_until_the_barrier() {
    // SMIG-7.2/credit-on-s2: the follower's WINDOW_UPDATE on S1, before its answer.
    let (mut peer, key) = server_with_response([100, 0]);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send_body(key, vec![1; 300], EndStream::No);
    peer.expect(C2, data(2, vec![1; 100]));
    peer.send(C1, window_update(1, 150));
    peer.expect(C2, data(2, vec![1; 150]));
    peer.send(C1, accept(1, cid, 2));
    // SMIG-7.2/credit-on-s2: after it, only on S2; on S1 it is a frame behind the barrier.
    peer.send(C2, window_update(2, 50));
    peer.expect(C2, data(2, vec![1; 50]));
    peer.send(C1, window_update(1, 50));
    peer.expect(C2, reset(2, ErrorCode::StreamClosed));
    // SMIG-7.2/credit-on-s2: the engine's own credit is sent on S2, here after its answer (section_5_mover.rs
    // shows it after MIGRATE).
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let key = peer.post(C1, 1);
    for _ in 0..33 {
        peer.send(C1, data(1, vec![0; 16_000]));
    }
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    peer.read(key);
    peer.expect(C2, window_update(1, 528_000));
    peer.expect_silence();
}

#[test]
fn credit_for_an_unbound_carrier_is_added_when_it_is_bound() {
    // SMIG-7.3/unbound-credit
    let (mut peer, key) = server_with_response([100, 100]);
    let cid = peer.cid(C2);
    peer.send_body(key, vec![1; 1_000], EndStream::No);
    peer.expect(C1, data(1, vec![1; 100]));
    peer.send(C2, window_update(1, 30));
    peer.send(C2, window_update(1, 40));
    peer.expect_silence();
    peer.send(C1, window_update(1, 10));
    peer.expect(C1, data(1, vec![1; 10]));
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    peer.expect(C2, data(1, vec![1; 70]));
    peer.expect_silence();
    // SMIG-7.3/unbound-credit: credit above the maximum window overflows when the carrier is bound.
    let (mut peer, key) = server_with_response([100, 100]);
    peer.send(C2, window_update(1, 0x7fff_ffff));
    peer.send(C2, window_update(1, 0x7fff_ffff));
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    peer.expect(C2, reset(1, ErrorCode::FlowControlError));
    assert_eq!(peer.take_error(key).code, ErrorCode::FlowControlError);
}

#[test]
fn a_new_initial_window_adjusts_the_streams_that_have_not_migrated() {
    // SMIG-7.4/initial-window, the sender of data.
    let (mut peer, key) = server_with_response([1_000, 1_000]);
    let cid = peer.cid(C2);
    set_initial_window(&mut peer, C1, 1_500);
    assert_eq!(send_window(&peer, key), 1_500);
    set_initial_window(&mut peer, C2, 9_000);
    assert_eq!(send_window(&peer, key), 1_500, "it was not opened on C2");
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    set_initial_window(&mut peer, C1, 2_000);
    assert_eq!(send_window(&peer, key), 1_500, "its barrier has been sent");
    peer.send(C1, accept(1, cid, 2));
    set_initial_window(&mut peer, C1, 3_000);
    set_initial_window(&mut peer, C2, 10);
    assert_eq!(send_window(&peer, key), 1_500, "carriers are never adjusted");
    // SMIG-7.4/initial-window: for a follower, the answer is the barrier.
    let (mut peer, key) = server_with_response([1_000, 1_000]);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    set_initial_window(&mut peer, C1, 2_000);
    assert_eq!(send_window(&peer, key), 1_000);
}

/// A server engine with a stream window of 10000 and an upload on stream 1, whose client has not acknowledged
/// C1's SETTINGS.
fn server_with_unacknowledged_settings() -> (Peer, StreamKey) {
    let config = Config { stream_window: 10_000, ..Config::server() };
    let mut peer = Peer::for_server(Setup::new(config));
    peer.open_transport();
    peer.send_preface(C1);
    let (Frame::Settings(_), Frame::WindowUpdate { .. }) = (peer.next(C1), peer.next(C1)) else {
        panic!("SETTINGS and the connection's window come first");
    };
    peer.expect(C1, settings_ack());
    peer.connect();
    let key = peer.post(C1, 1);
    assert_eq!(recv_window(&peer, key), 65_535);
    (peer, key)
}

#[test]
fn a_receiver_adjusts_when_it_reads_the_acknowledgement() {
    // SMIG-7.4/initial-window: as in RFC 9113, without a migration.
    let (mut peer, key) = server_with_unacknowledged_settings();
    peer.send(C1, settings_ack());
    assert_eq!(recv_window(&peer, key), 10_000);
    // SMIG-7.4/initial-window: the client's barrier was read before.
    let (mut peer, key) = server_with_unacknowledged_settings();
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    peer.send(C1, settings_ack());
    assert_eq!(recv_window(&peer, key), 65_535);
    // SMIG-7.4/initial-window: the server's own barrier concerns the other direction; the client's was not
    // read yet.
    let (mut peer, key) = server_with_unacknowledged_settings();
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, settings_ack());
    assert_eq!(recv_window(&peer, key), 10_000);
    peer.send(C1, accept(1, cid, 2));
    assert_eq!(recv_window(&peer, key), 10_000);
}

#[test]
fn an_undone_barrier_does_not_exclude_settings() {
    // SMIG-7.5/undone-barrier: declined.
    let (mut peer, key) = server_with_response([1_000, 1_000]);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send_body(key, vec![1; 600], EndStream::No);
    peer.expect(C2, data(2, vec![1; 600]));
    set_initial_window(&mut peer, C1, 2_000);
    set_initial_window(&mut peer, C1, 1_200);
    assert_eq!(send_window(&peer, key), 400);
    peer.send(C1, decline(1));
    peer.expect(C1, data(1, vec![1; 600]));
    assert_eq!(send_window(&peer, key), 600);
    set_initial_window(&mut peer, C1, 1_300);
    assert_eq!(send_window(&peer, key), 700, "and it counts again");
    // SMIG-7.5/undone-barrier: abandoned, by a client that then follows.
    let setup = Setup::new(Config::client()).with_setting(setting::INITIAL_WINDOW_SIZE, 1_000);
    let mut peer = Peer::for_client(setup);
    peer.connect();
    peer.connect();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 1));
    set_initial_window(&mut peer, C1, 1_700);
    assert_eq!(send_window(&peer, key), 1_000);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2));
    assert_eq!(send_window(&peer, key), 1_700);
    set_initial_window(&mut peer, C1, 5_000);
    assert_eq!(send_window(&peer, key), 1_700, "its answer is a barrier");
    // SMIG-7.5/undone-barrier: ignored in a collision, at the receiving server.
    let (mut peer, key) = server_with_unacknowledged_settings();
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C1, migrate(1, cid, 1));
    peer.send(C1, settings_ack());
    assert_eq!(recv_window(&peer, key), 10_000);
}

#[test]
fn a_deferred_migrate_does_not_hide_an_acknowledgement() {
    // SMIG-7.5/undone-barrier: a client that keeps a MIGRATE applies the acknowledgement if it declines, and
    // ignores it if it accepts.
    for is_accepted in [true, false] {
        let config = Config { stream_window: 10_000, ..Config::client() };
        let mut peer = Peer::for_client(Setup::new(config).with_scripted_joins());
        peer.open_transport();
        peer.take_preface(C1);
        peer.send(C1, settings(&[(setting::SMIG, 16)]));
        peer.expect(C1, settings_ack());
        let key = peer.open(C1, Method::GET, EndStream::Yes);
        peer.connect();
        let cid = peer.cid(C2);
        peer.send(C1, migrate(1, cid, 2));
        peer.send(C1, settings_ack());
        if is_accepted {
            let answer = peer.join_answer(C2);
            peer.send(C2, answer);
            peer.expect(C1, accept(1, cid, 2).end());
        } else {
            peer.send(C2, join_refused(4));
            peer.expect(C1, decline(1).end());
        }
        assert_eq!(recv_window(&peer, key), if is_accepted { 65_535 } else { 10_000 });
    }
}

#[test]
fn a_carrier_does_not_count_as_a_stream_of_its_connection() {
    // SMIG-7.6/counts-once: one stream is allowed, and it may migrate; it still counts once.
    let config = Config { max_concurrent_streams: 1, ..Config::server() };
    let mut peer = Peer::connected_to_server(config).with_spare();
    let key = peer.post(C1, 1);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 1));
    peer.expect(C1, accept(1, cid, 1));
    for handle in [C1, C2] {
        peer.send(handle, headers(3).get("/").end());
        peer.expect(handle, reset(3, ErrorCode::RefusedStream));
    }
    peer.with_session(|session, _| session.release(key));
    peer.expect(C2, reset(1, ErrorCode::Cancel));
    peer.get(C2, 5);
    peer.expect_silence();
    // SMIG-7.6/counts-once, a client: C2's limit of 0 does not exclude carriers.
    let mut peer = Peer::connected_to_client(Config::client());
    let setup = peer.setup_mut().clone().with_setting(setting::MAX_CONCURRENT_STREAMS, 0);
    *peer.setup_mut() = setup;
    peer.connect();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    peer.expect_not_failed(key);
}

#[test]
fn priorities_migrate_with_the_stream() {
    // SMIG-7.7/priority-moves: urgency and incremental of the request apply on C2.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let cid = peer.cid(C2);
    let mut keys = Vec::new();
    for (id, priority) in [(1, "u=5"), (3, "u=1"), (5, "u=3, i")] {
        peer.send(C1, headers(id).get("/").field("priority", priority).end());
        keys.push(peer.take_request());
        peer.respond(keys[keys.len() - 1], 200, EndStream::No);
        peer.expect(C1, headers(id).status(200));
    }
    peer.pause(C2);
    for (n, &key) in keys.iter().enumerate() {
        peer.migrate(key, C2).unwrap();
        peer.expect(C1, migrate(2 * n as u32 + 1, cid, 2 * n as u32 + 2));
        peer.send_body(key, "x", EndStream::Yes);
    }
    assert_eq!(peer.session().stream(keys[2]).unwrap().priority, Priority::incremental(3));
    peer.resume(C2);
    for id in [4, 6, 2] {
        peer.expect(C2, data(id, "x").end());
    }
    // SMIG-7.7/priority-moves: after the answer, PRIORITY_UPDATE names the even S2 on C2.
    peer.send(C1, priority_update(1, "u=0"));
    assert_eq!(peer.session().stream(keys[0]).unwrap().priority, Priority::sequential(0));
    peer.send(C1, accept(1, cid, 2).end());
    let key = peer.get(C1, 7);
    peer.migrate(key, C2).unwrap();
    peer.send(C1, accept(7, cid, 8).end());
    peer.send(C2, priority_update(8, "u=6"));
    assert_eq!(peer.session().stream(key).unwrap().priority, Priority::sequential(6));
    // On S1 it names no stream any more.
    peer.send(C1, priority_update(7, "u=2"));
    assert!(!peer.is_closed(C1));
}

#[test]
fn a_carriers_priority_update_may_overtake_the_answer() {
    // SMIG-7.8/even-priorities: sent after the client's answer on C1, and read before it.
    let (mut peer, key) = server_with_response([65_535, 65_535]);
    let cid = peer.cid(C2);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.send(C2, priority_update(2, "u=6"));
    assert_eq!(peer.session().stream(key).unwrap().priority, Priority::sequential(6));
    peer.send(C1, accept(1, cid, 2));
    // SMIG-7.8/even-priorities: for an id that has ended it is dropped.
    peer.send(C2, reset(2, ErrorCode::Cancel));
    peer.send(C2, priority_update(2, "u=1"));
    peer.expect_silence();
    assert!(!peer.is_closed(C2));
    // SMIG-7.8/even-priorities: for an id that the server never used it is an error.
    peer.send(C2, priority_update(4, "u=1"));
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
}

#[test]
fn the_limit_of_the_opening_connection_applies_to_all_streams_of_the_session() {
    // SMIG-7.9/whose-limit: C1's SETTINGS allow three open streams, C2's two.
    let setup = Setup::new(Config::client()).with_setting(setting::MAX_CONCURRENT_STREAMS, 3);
    let mut peer = Peer::for_client(setup);
    peer.connect();
    let second_setup = peer.setup_mut().clone().with_setting(setting::MAX_CONCURRENT_STREAMS, 2);
    *peer.setup_mut() = second_setup;
    peer.connect();
    peer.open(C2, Method::GET, EndStream::Yes);
    peer.open(C1, Method::GET, EndStream::Yes);
    let open = |peer: &mut Peer, handle| {
        let (conn, head) = (Some(peer.conn_id(handle)), request());
        peer.with_session(|session, now| session.open(now, conn, &head, EndStream::Yes)).map(|_| ())
    };
    assert_eq!(open(&mut peer, C2), Err(OpenError::Blocked), "two are open, wherever they are");
    assert_eq!(open(&mut peer, C1), Ok(()));
    assert_eq!(open(&mut peer, C1), Err(OpenError::Blocked));
}

fn request() -> RequestHead {
    RequestHead {
        method: Method::GET,
        uri: Uri::from_static("https://a.example/"),
        protocol: None,
        headers: HeaderMap::new(),
    }
}

#[test]
fn a_carrier_uses_only_its_connections_window() {
    // SMIG-7.10/own-window: an unbound carrier, then a bound one that is not read.
    let config = Config { connection_window: 65_535, stream_window: 32_000, ..Config::client() };
    let mut peer = Peer::connected_to_client(config).with_spare();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C1, headers(1).status(200));
    let cid = peer.cid(C2);
    let windows = |peer: &Peer| {
        [C1, C2].map(|handle| peer.session().connection(peer.conn_id(handle)).unwrap().recv_window)
    };
    for _ in 0..2 {
        peer.send(C2, data(2, vec![0; 16_000]));
    }
    assert_eq!(windows(&peer), [65_535, 33_535]);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, accept(1, cid, 2).end());
    assert_eq!(windows(&peer), [65_535, 33_535], "bound, and not read");
    // Another stream of C1 is not affected, and another of C2 has the rest.
    for (handle, id) in [(C1, 3), (C2, 1)] {
        let other_key = peer.open(handle, Method::GET, EndStream::Yes);
        peer.send(handle, headers(id).status(200));
        peer.send(handle, data(id, vec![0; 16_000]));
        peer.send(handle, data(id, vec![0; 16_000]).end());
        assert_eq!(peer.read_to_end(other_key).len(), 32_000);
        while peer.skip_window_update(handle).is_some() {}
    }
    let unread =
        |peer: &Peer, handle| peer.session().connection(peer.conn_id(handle)).unwrap().unread_bytes;
    assert_eq!([C1, C2].map(|handle| unread(&peer, handle)), [0, 32_000]);
    peer.read(key);
    assert_eq!(unread(&peer, C2), 0);
    peer.expect_silence_on(C1);
}

#[test]
fn a_barrier_waits_for_no_window() {
    // SMIG-7.10/own-window: C1's connection window is exhausted, the stream's is not.
    let (mut peer, key) = server_with_response([100_000, 100_000]);
    let cid = peer.cid(C2);
    peer.send_body(key, vec![0; 70_000], EndStream::No);
    let mut sent_bytes = 0;
    while let Some(Frame::Data { data, .. }) = peer.next_if_any(C1) {
        sent_bytes += data.len();
    }
    assert_eq!(sent_bytes, 65_535);
    peer.migrate(key, C2).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    peer.expect(C2, data(2, vec![0; 70_000 - 65_535]));
    peer.send(C1, accept(1, cid, 2));
    peer.expect_silence();
}
