//! spec/smig.md section 6: a carrier refused for load does not mean that the request was not
//! processed.

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Processed, SmigConfig, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, Peer};

/// A client engine that tolerates one unbound carrier, with a stream on C1.
fn client(end: EndStream) -> (Peer, StreamKey) {
    let smig = SmigConfig { max_open_migrations: 1, ..SmigConfig::default() };
    let config = Config { smig: Some(smig), ..Config::client() };
    let mut peer = Peer::connected_to_client(config).with_spare();
    let key = peer.open(C1, Method::POST, end);
    (peer, key)
}

#[test]
fn a_request_whose_carrier_was_refused_may_have_been_processed() {
    // SMIG-6.12/refused-carrier: the server migrates a response before its HEADERS; the client's
    // limit is reached, and the code is sent on S1.
    let (mut peer, key) = client(EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C2, window_update(8, 1));
    peer.send(C2, headers(2).status(200));
    peer.expect(C2, reset(2, ErrorCode::RefusedStream));
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    peer.send(C1, reset(1, ErrorCode::RefusedStream));
    assert_eq!(peer.take_error(key).processed, Processed::Maybe);
    // SMIG-6.12/refused-carrier: the client migrates, and the server's limit is reached.
    let (mut peer, key) = client(EndStream::No);
    peer.migrate(key, C2).unwrap();
    let carrier_id = peer.location(key).1;
    peer.send(C2, reset(carrier_id, ErrorCode::RefusedStream));
    assert_eq!(peer.take_error(key).processed, Processed::Maybe);
}

#[test]
fn a_request_refused_before_any_frame_was_not_processed() {
    // SMIG-6.12/refused-carrier does not change RFC 9113 section 8.7.
    let (mut peer, key) = client(EndStream::Yes);
    peer.send(C1, reset(1, ErrorCode::RefusedStream));
    assert_eq!(peer.take_error(key).processed, Processed::No);
}
