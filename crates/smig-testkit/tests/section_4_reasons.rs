//! spec/smig.md section 4: the reason given for a refusal when several apply.

use smig_proto::{AppId, Config, Identity, SmigConfig};
use smig_testkit::script::frame::*;
use smig_testkit::script::{ConnHandle, Peer};

/// Further errors of a JOIN to a session that is full.
struct JoinErrors {
    unknown_session: bool,
    bad_proof: bool,
    different_identity: bool,
}

fn join(errors: &JoinErrors) -> (Peer, ConnHandle) {
    let smig = SmigConfig { max_connections: 1, ..SmigConfig::default() };
    let mut peer = Peer::connected_to_server(Config { smig: Some(smig), ..Config::server() });
    let setup = peer.setup_mut();
    if errors.unknown_session {
        setup.app_id = AppId::new(99);
    }
    if errors.different_identity {
        setup.identity = Identity([8; 32]);
    }
    let handle = peer.open_transport();
    peer.send_preface(handle);
    peer.take_preface(handle);
    let Frame::Join { nonce, mut mac, ack } = peer.join_request(handle) else { panic!("a JOIN") };
    mac[31] ^= u8::from(errors.bad_proof);
    peer.send_join(handle, Frame::Join { nonce, mac, ack });
    (peer, handle)
}

#[test]
fn a_refusal_gives_the_first_reason_that_applies() {
    // SMIG-4.6/refusal-reasons: unknown session takes precedence over bad proof, identity, limit,
    // in this order.
    for (unknown_session, bad_proof, different_identity, reason) in [
        (true, true, true, 1),
        (false, true, true, 2),
        (false, true, false, 2),
        (false, false, true, 3),
        (false, false, false, 4),
    ] {
        let (mut peer, handle) =
            join(&JoinErrors { unknown_session, bad_proof, different_identity });
        peer.expect(handle, join_refused(reason));
        peer.expect_silence_on(handle);
    }
}
