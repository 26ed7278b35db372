//! RFC 9113 section 8.7: requests that were certainly not processed, so that the client may send them again
//! whatever their method.

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Initiator, Processed, StreamKey};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, ConnHandle, Peer};

/// How a server reports that it did not process a request.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Reset,
    GoAway,
}

impl Refusal {
    const ALL: [Self; 2] = [Self::Reset, Self::GoAway];

    fn send(self, peer: &mut Peer, handle: ConnHandle, stream: u32) {
        match self {
            Self::Reset => peer.send(handle, reset(stream, ErrorCode::RefusedStream)),
            Self::GoAway => peer.send(handle, goaway(0, ErrorCode::NoError)),
        }
    }
}

/// A client engine with an upload on stream 1 of C1.
fn client_with_upload() -> (Peer, StreamKey) {
    let mut peer = Peer::connected_to_client(Config::client()).with_spare();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.send_body(key, "begun", EndStream::No);
    peer.expect(C1, data(1, "begun"));
    (peer, key)
}

fn take_processed(peer: &mut Peer, key: StreamKey) -> Processed {
    let error = peer.take_error(key);
    assert_eq!((error.code, error.initiator), (ErrorCode::RefusedStream, Initiator::Peer));
    error.processed
}

#[test]
fn a_stream_refused_before_any_frame_was_not_processed() {
    for refusal in Refusal::ALL {
        let (mut peer, key) = client_with_upload();
        refusal.send(&mut peer, C1, 1);
        assert_eq!(take_processed(&mut peer, key), Processed::No, "{refusal:?}");
        // The same while the client's own migration is open: the server has not read the MIGRATE.
        let (mut peer, key) = client_with_upload();
        peer.migrate(key, C2).unwrap();
        refusal.send(&mut peer, C1, 1);
        assert_eq!(take_processed(&mut peer, key), Processed::No, "{refusal:?}, migrating");
    }
}

/// A frame that shows that the server has seen the request, with its name.
type Case = (&'static str, fn(&mut Peer));

#[test]
fn a_stream_refused_after_a_frame_may_have_been_processed() {
    let cases: [Case; 6] = [
        ("1xx", |peer| peer.send(C1, headers(1).status(100))),
        ("a head", |peer| peer.send(C1, headers(1).status(200))),
        ("a body", |peer| {
            peer.send(C1, headers(1).status(200));
            peer.send(C1, data(1, "x"));
        }),
        ("credit", |peer| peer.send(C1, window_update(1, 5))),
        ("an offer", |peer| peer.send(C1, offer(1))),
        ("a migration that is declined", |peer| {
            let cid = peer.cid(C1);
            peer.send(C1, migrate(1, cid, 2));
        }),
    ];
    for refusal in Refusal::ALL {
        for (case_name, act) in cases {
            let (mut peer, key) = client_with_upload();
            act(&mut peer);
            refusal.send(&mut peer, C1, 1);
            assert_eq!(
                take_processed(&mut peer, key),
                Processed::Maybe,
                "{case_name}, {refusal:?}"
            );
        }
    }
}

#[test]
fn a_migrated_stream_may_have_been_processed() {
    for refusal in Refusal::ALL {
        // The server accepted the client's migration.
        let (mut peer, key) = client_with_upload();
        let cid = peer.cid(C2);
        peer.migrate(key, C2).unwrap();
        peer.send(C1, accept(1, cid, 1));
        refusal.send(&mut peer, C2, 1);
        assert_eq!(take_processed(&mut peer, key), Processed::Maybe, "{refusal:?}");
        // The server declined it, so it knows the stream.
        let (mut peer, key) = client_with_upload();
        peer.migrate(key, C2).unwrap();
        peer.send(C1, decline(1));
        refusal.send(&mut peer, C1, 1);
        assert_eq!(take_processed(&mut peer, key), Processed::Maybe, "{refusal:?}, declined");
    }
    // The server migrated the stream itself.
    let (mut peer, key) = client_with_upload();
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.send(C2, reset(2, ErrorCode::RefusedStream));
    assert_eq!(take_processed(&mut peer, key), Processed::Maybe);
}

#[test]
fn a_refused_carrier_does_not_mean_an_unprocessed_request() {
    // SMIG-6.12/refused-carrier: REFUSED_STREAM on S2 before the answer, while the request runs on S1.
    let (mut peer, key) = client_with_upload();
    peer.migrate(key, C2).unwrap();
    peer.send(C2, reset(1, ErrorCode::RefusedStream));
    assert_eq!(take_processed(&mut peer, key), Processed::Maybe);
}

#[test]
fn a_server_does_not_send_refused_stream_after_a_response_head() {
    for has_response_head in [false, true] {
        let mut peer = Peer::connected_to_server(Config::server());
        let key = peer.post(C1, 1);
        let expected = if has_response_head {
            peer.respond(key, 200, EndStream::No);
            peer.expect(C1, headers(1).status(200));
            ErrorCode::Cancel
        } else {
            ErrorCode::RefusedStream
        };
        peer.with_session(|session, _| session.reset(key, ErrorCode::RefusedStream));
        peer.expect(C1, reset(1, expected));
    }
}
