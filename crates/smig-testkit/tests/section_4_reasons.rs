//! spec/smig.md section 4: the reason given for a refusal when several apply.

use smig_proto::{AppId, Config, Identity, SmigConfig};
use smig_testkit::script::frame::*;
use smig_testkit::script::{ConnHandle, Peer};

/// Further errors of a JOIN to a session that is full.
struct Wrong {
    session: bool,
    proof: bool,
    identity: bool,
}

fn join(wrong: &Wrong) -> (Peer, ConnHandle) {
    let smig = SmigConfig { max_connections: 1, ..SmigConfig::default() };
    let mut peer = Peer::of_server(Config { smig: Some(smig), ..Config::server() });
    let setup = peer.setup_mut();
    if wrong.session {
        setup.app = AppId::new(99);
    }
    if wrong.identity {
        setup.identity = Identity([8; 32]);
    }
    let line = peer.open_line();
    peer.greet(line);
    peer.take_greeting(line);
    let Frame::Join { nonce, mut mac, ack } = peer.proof(line) else { panic!("a JOIN") };
    mac[31] ^= u8::from(wrong.proof);
    peer.send_as_join(line, Frame::Join { nonce, mac, ack });
    (peer, line)
}

#[test]
fn a_refusal_says_no_more_than_it_must() {
    // SMIG-4.6/refusal-reasons: unknown session takes precedence over bad proof, identity, limit,
    // in this order.
    for (session, proof, identity, reason) in [
        (true, true, true, 1),
        (false, true, true, 2),
        (false, true, false, 2),
        (false, false, true, 3),
        (false, false, false, 4),
    ] {
        let (mut peer, line) = join(&Wrong { session, proof, identity });
        peer.expect(line, join_refused(reason));
        peer.expect_nothing(line);
    }
}
