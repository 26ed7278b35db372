//! spec/smig.md section 10: frames of other versions.

use smig_proto::{Config, Event, JoinRefusal};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, Peer, Setup};

#[test]
fn an_unknown_reason_means_not_here() {
    // SMIG-10.1/unknown-reason: any unknown reason, with ACK or without.
    for reason in [0, 6, 255] {
        for flags in [4, 6] {
            let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
            peer.connect();
            peer.connect();
            peer.send(C2, raw(0xf6, flags, 0, [reason]));
            let refused = peer.take_event(|event| match event {
                Event::JoinRefused { reason, .. } => Some(*reason),
                _ => None,
            });
            assert_eq!(refused, JoinRefusal::NotHere);
            peer.send(C2, ping([1; 8]));
            peer.expect(C2, pong([1; 8]));
        }
    }
}

#[test]
fn reserved_frame_types_are_ignored() {
    // SMIG-10.2/reserved-types: on the connection, and on idle ids of either side.
    for mut peer in
        [Peer::connected_to_server(Config::server()), Peer::connected_to_client(Config::client())]
    {
        peer.connect();
        for kind in [0xf7, 0xf8] {
            for (stream, length) in [(0, 0), (1, 16), (2, 1), (7, 48)] {
                peer.send(C2, raw(kind, 0xff, stream, vec![0xff; length]));
                peer.send(C1, raw(kind, 0, stream, vec![0; length]));
            }
        }
        peer.expect_silence();
        peer.send(C2, ping([1; 8]));
        peer.expect(C2, pong([1; 8]));
    }
}
