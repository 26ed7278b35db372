//! RFC 9218: the order in which streams are sent.

use smig_proto::{Config, EndStream, ErrorCode, Priority, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, Peer, Setup};

/// A server engine whose client does not read, with one response of `bytes` bytes for each
/// priority field, on streams 1, 3, 5...
fn server_with_responses(priorities: &[&str], bytes: usize) -> (Peer, Vec<StreamKey>) {
    let setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 1 << 20);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    peer.send(C1, window_update(0, 1 << 20));
    let mut keys = Vec::new();
    for (n, priority) in priorities.iter().enumerate() {
        let id = 2 * n as u32 + 1;
        let head = headers(id).get("/");
        let head = if priority.is_empty() { head } else { head.field("priority", priority) };
        peer.send(C1, head.end());
        let key = peer.take_request();
        peer.respond(key, 200, EndStream::No);
        peer.expect(C1, headers(id).status(200));
        keys.push(key);
    }
    peer.pause(C1);
    for &key in &keys {
        peer.send_body(key, vec![0; bytes], EndStream::Yes);
    }
    (peer, keys)
}

/// Returns the order of streams in the DATA frames sent.
fn take_send_order(peer: &mut Peer) -> Vec<u32> {
    peer.resume(C1);
    let mut order = Vec::new();
    while let Some(Frame::Data { stream, .. }) = peer.next_if_any(C1) {
        order.push(stream);
    }
    peer.expect_silence();
    order
}

#[test]
fn more_urgent_responses_go_first() {
    let (mut peer, _) = server_with_responses(&["u=7", "u=0", "u=5", "u=1"], 20_000);
    assert_eq!(take_send_order(&mut peer), [3, 3, 7, 7, 5, 5, 1, 1]);
}

#[test]
fn equal_sequential_responses_go_one_by_one() {
    let (mut peer, _) = server_with_responses(&["u=3", "u=3", "u=3"], 40_000);
    assert_eq!(take_send_order(&mut peer), [1, 1, 1, 3, 3, 3, 5, 5, 5]);
}

#[test]
fn equal_incremental_responses_take_turns() {
    let (mut peer, _) = server_with_responses(&["i", "u=3, i", "i, u=3"], 40_000);
    assert_eq!(take_send_order(&mut peer), [1, 3, 5, 1, 3, 5, 1, 3, 5]);
}

#[test]
fn urgency_takes_precedence_over_incremental() {
    let (mut peer, _) = server_with_responses(&["u=4, i", "u=4, i", "u=2"], 40_000);
    assert_eq!(take_send_order(&mut peer), [5, 5, 5, 1, 3, 1, 3, 1, 3]);
}

#[test]
fn mixed_responses_of_one_urgency_do_not_starve() {
    let (mut peer, _) = server_with_responses(&["u=3", "u=3, i", "u=3, i"], 40_000);
    let order = take_send_order(&mut peer);
    assert_eq!(order.iter().filter(|&&id| id == 1).count(), 3);
    assert!(order[..3].contains(&1) && order[..3].contains(&3), "{order:?}");
}

#[test]
fn responses_without_a_priority_take_turns() {
    // A deviation from RFC 9218 section 4, by which a server SHOULD apply the defaults, one after the other
    // (`Priority::UNSIGNALLED`): behind a long response, another must not appear to hang.
    let (mut peer, keys) = server_with_responses(&["", ""], 40_000);
    assert_eq!(take_send_order(&mut peer), [1, 3, 1, 3, 1, 3]);
    assert_eq!(peer.session().stream(keys[0]).unwrap().priority.urgency(), 3);
}

#[test]
fn invalid_priority_members_are_ignored() {
    // RFC 9218 section 4: unknown members and values out of range are ignored.
    for (field, priority) in [
        ("u=8", Priority::sequential(3)),
        ("u=-1", Priority::sequential(3)),
        ("u=1.5", Priority::sequential(3)),
        ("u=2;x=1, y", Priority::sequential(2)),
        ("u=5, i=?0", Priority::sequential(5)),
        ("i=?1 , u=0", Priority::incremental(0)),
        ("u=1,u=6", Priority::sequential(6)),
        ("foo", Priority::sequential(3)),
    ] {
        let (peer, keys) = server_with_responses(&[field], 1);
        let view = peer.session().stream(keys[0]).unwrap();
        assert_eq!(view.priority, priority, "{field}");
    }
}

#[test]
fn a_priority_update_reorders_responses() {
    let (mut peer, _) = server_with_responses(&["u=3", "u=3", "u=3"], 20_000);
    peer.send(C1, priority_update(5, "u=1"));
    assert_eq!(take_send_order(&mut peer), [5, 5, 1, 1, 3, 3]);
    // In the middle of its body, and back.
    let (mut peer, _) = server_with_responses(&["u=3", "u=3"], 40_000);
    peer.take_output(C1, 16_384);
    peer.send(C1, priority_update(1, "u=6"));
    assert_eq!(take_send_order(&mut peer), [1, 3, 3, 3, 1, 1]);
}

#[test]
fn a_flood_of_priority_updates_leaves_the_last_one_in_force() {
    // CVE-2019-9513: also for streams that wait for the connection's window.
    let (mut peer, _) = server_with_responses(&["u=3", "u=3"], 20_000);
    for n in 0..1_000 {
        peer.send(C1, priority_update(3, ["u=1", "u=5", "i"][n % 3]));
    }
    assert_eq!(take_send_order(&mut peer), [3, 3, 1, 1], "the last update had u=1");
    let setup = Setup::new(Config::server()).with_setting(setting::INITIAL_WINDOW_SIZE, 1 << 20);
    let mut peer = Peer::for_server(setup);
    peer.connect();
    let keys = [peer.get(C1, 1), peer.get(C1, 3)];
    for key in keys {
        peer.respond(key, 200, EndStream::No);
        peer.send_body(key, vec![0; 70_000], EndStream::Yes);
    }
    for n in 0..1_000 {
        peer.send(C1, priority_update(3, ["u=1", "u=5", "u=2"][n % 3]));
    }
    while peer.next_if_any(C1).is_some() {}
    peer.send(C1, window_update(0, 70_000));
    let order = take_send_order(&mut peer);
    assert_eq!(order[..4], [3; 4], "also while waiting for the window");
}

#[test]
fn a_priority_update_may_come_before_its_request() {
    // RFC 9218 section 7: it overrides the request's own field.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.send(C1, priority_update(1, "u=1, i"));
    peer.send(C1, priority_update(1, "u=2, i"));
    peer.send(C1, headers(1).get("/").field("priority", "u=5").end());
    let key = peer.take_request();
    assert_eq!(peer.session().stream(key).unwrap().priority, Priority::incremental(2));
    // For a stream that has ended it has no effect.
    peer.respond(key, 204, EndStream::Yes);
    peer.expect(C1, headers(1).status(204).end());
    peer.send(C1, priority_update(1, "u=2"));
    peer.expect_silence();
}

#[test]
fn invalid_priority_updates_are_connection_errors() {
    let mut peer = Peer::connected_to_server(Config::server());
    peer.send(C1, priority_update(0, "u=1"));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    // A client must not receive any.
    let mut peer = Peer::connected_to_client(Config::client());
    peer.open(C1, http::Method::GET, EndStream::Yes);
    peer.send(C1, priority_update(1, "u=1"));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

#[test]
fn rfc_7540_dependencies_are_ignored() {
    // RFC 9113 section 5.3.2
    let (mut peer, _) = server_with_responses(&["u=3", "u=3"], 20_000);
    peer.send(C1, raw(kind::PRIORITY, 0, 1, [0, 0, 0, 3, 255]));
    assert_eq!(take_send_order(&mut peer), [1, 1, 3, 3]);
    let mut peer = Peer::for_server(Setup::new(Config::server()));
    peer.open_transport();
    let Frame::Settings(entries) = peer.next(C1) else { panic!("SETTINGS come first") };
    assert!(entries.contains(&(setting::NO_RFC7540_PRIORITIES, 1)));
}

#[test]
fn a_client_sends_its_priorities() {
    let mut peer = Peer::connected_to_client(Config::client());
    let key = peer.open(C1, http::Method::GET, EndStream::Yes);
    peer.with_session(|session, _| session.reprioritize(key, Priority::incremental(6)));
    peer.expect(C1, priority_update(1, "u=6, i"));
    peer.expect_silence();
}
