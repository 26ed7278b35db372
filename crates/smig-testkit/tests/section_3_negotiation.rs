//! spec/smig.md section 3: negotiation.

use http::Method;
use smig_proto::{Config, EndStream, ErrorCode, Event, KeyingRequest, MigrationTarget, Security};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, Peer, Setup, cid_settings};

fn setting_value(entries: &[(u16, u32)], id: u16) -> Option<u32> {
    entries.iter().find(|(other, _)| *other == id).map(|&(_, value)| value)
}

/// Returns whether the engine has the extension on, on its only connection. Observed from outside:
/// an unsolicited JOIN answer is an error, which closes the connection, if it is on, and an unknown
/// frame if it is off.
fn probe_is_smig_on(peer: &mut Peer) -> bool {
    peer.send(C1, join_refused(1));
    let is_on = peer.is_closed(C1);
    if is_on {
        peer.expect_goaway(C1, ErrorCode::ProtocolError);
    }
    is_on
}

#[test]
fn a_client_names_the_connection_in_its_first_settings() {
    // SMIG-3.1/client-settings
    let mut peer = Peer::for_client(Setup::new(Config::client()));
    peer.open_transport();
    let entries = peer.take_preface(C1);
    assert_eq!(setting_value(&entries, setting::SMIG), Some(16));
    assert_eq!(peer.cid(C1).app.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(setting_value(&entries, setting::SMIG_CID_HI), Some(0x0102_0304));
    assert_eq!(setting_value(&entries, setting::SMIG_CID_MID), Some(0x0506_0708));
    assert_ne!(setting_value(&entries, setting::SMIG_CID_LO), Some(0));
    // A ConnNo is never reused, even after its connection has ended.
    peer.send_preface(C1);
    peer.expect(C1, settings_ack());
    peer.connect();
    peer.lose(C2);
    peer.connect();
    let numbers = [C1, C2, C3].map(|handle| peer.cid(handle).number);
    assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2]);
}

#[test]
fn a_server_offers_the_extension_before_it_knows_the_client() {
    // SMIG-3.2/server-settings
    let mut peer = Peer::for_server(Setup::new(Config::server()));
    peer.open_transport();
    let Frame::Settings(entries) = peer.next(C1) else { panic!("SETTINGS come first") };
    assert_eq!(setting_value(&entries, setting::SMIG), Some(16));
    for setting_id in [setting::SMIG_CID_HI, setting::SMIG_CID_MID, setting::SMIG_CID_LO] {
        assert_eq!(setting_value(&entries, setting_id), None, "only a client has a CID");
    }
}

#[test]
fn the_extension_needs_both_settings_and_a_complete_cid() {
    // SMIG-3.3/when-on, a server: each of the client's four entries is required, and ConnNo 0 is
    // invalid.
    let (hi, mid, lo) = (setting::SMIG_CID_HI, setting::SMIG_CID_MID, setting::SMIG_CID_LO);
    let complete_entries = [(setting::SMIG, 1), (hi, 0), (mid, 7), (lo, 1)];
    for case in 0..=6 {
        let mut entries = complete_entries.to_vec();
        match case {
            0..4 => drop(entries.remove(case)),
            4 => entries[0].1 = 0,
            5 => entries[3].1 = 0,
            _ => {}
        }
        let mut peer = server_with_peer_settings(&entries);
        peer.take_preface(C1);
        assert_eq!(probe_is_smig_on(&mut peer), case == 6, "with {entries:x?}");
    }
    // SMIG-3.3/when-on, a client.
    for (smig, is_on) in [(None, false), (Some(0), false), (Some(1), true)] {
        let mut setup = Setup::new(Config::client());
        setup.settings = smig.map(|value| (setting::SMIG, value)).into_iter().collect();
        let mut peer = Peer::for_client(setup);
        peer.connect();
        assert_eq!(probe_is_smig_on(&mut peer), is_on, "with {smig:?}");
    }
}

/// A server engine whose client sends exactly these first SETTINGS.
fn server_with_peer_settings(entries: &[(u16, u32)]) -> Peer {
    let mut peer = Peer::for_server(Setup::new(Config::server()));
    peer.open_transport();
    peer.send_bytes(C1, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    peer.send(C1, settings(entries));
    peer
}

#[test]
fn later_values_of_the_settings_are_ignored() {
    // SMIG-3.3/when-on: off stays off.
    let mut peer = server_with_peer_settings(&[]);
    peer.take_preface(C1);
    let mut entries = vec![(setting::SMIG, 16)];
    entries.extend(cid_settings(peer.cid(C1)));
    peer.send(C1, settings(&entries));
    peer.expect(C1, settings_ack());
    assert!(!probe_is_smig_on(&mut peer));
    // SMIG-3.3/when-on: on stays on, with the first value for the number of migrations.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.connect();
    peer.send(C1, settings(&[(setting::SMIG, 0), (setting::SMIG_CID_LO, 77)]));
    peer.expect(C1, settings_ack());
    let key = peer.get(C1, 1);
    let cid = peer.cid(C2);
    peer.with_session(|session, now| session.migrate(now, key, MigrationTarget::Spare)).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
}

#[test]
fn nothing_of_the_extension_is_sent_before_the_peers_settings() {
    // SMIG-3.4/settings-first: a client on its first connection.
    let mut peer = Peer::for_client(Setup::new(Config::client()));
    peer.open_transport();
    peer.take_preface(C1);
    peer.expect_silence_on(C1);
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let result =
        peer.with_session(|session, now| session.migrate(now, key, MigrationTarget::Spare));
    assert!(result.is_err());
    peer.expect_silence_on(C1);
    // SMIG-3.4/settings-first: a client that knows the server joins in its first flight, before
    // SETTINGS arrive on C2.
    peer.send_preface(C1);
    peer.expect(C1, settings_ack());
    peer.open_transport();
    peer.take_preface(C2);
    peer.expect_silence_on(C2);
    // SMIG-3.4/settings-first: a server whose client's SETTINGS lack the extension migrates nothing.
    let mut peer = server_with_peer_settings(&[]);
    peer.take_preface(C1);
    let key = peer.get(C1, 1);
    for target in [MigrationTarget::Offer, MigrationTarget::Spare] {
        assert!(peer.with_session(|session, now| session.migrate(now, key, target)).is_err());
    }
    peer.expect_silence_on(C1);
}

#[test]
fn a_join_has_no_effect_if_the_server_lacks_the_extension() {
    // SMIG-3.4/settings-first and SMIG-3.3/when-on: C2 reached another server, which ignores the
    // JOIN.
    let mut peer = Peer::connected_to_client(Config::client());
    peer.open_transport();
    peer.take_preface(C2);
    peer.send(C2, settings(&[]));
    peer.expect(C2, settings_ack());
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let result =
        peer.with_session(|session, now| session.migrate(now, key, MigrationTarget::Spare));
    assert!(result.is_err(), "C2 is no spare");
    let other_key = peer.open(C2, Method::GET, EndStream::Yes);
    peer.send(C2, headers(1).status(204).end());
    assert_eq!(peer.take_response(other_key), 204);
}

#[test]
fn an_engine_does_not_forward_the_extension() {
    // SMIG-3.5/hop-by-hop: requests and responses, as the application sees them, contain nothing of
    // the extension that could be forwarded.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.connect();
    peer.send(C2, headers(1).get("/").field("accept", "*/*").end());
    let head = peer.take_event(|event| match event {
        Event::Request { head, .. } => Some(head.clone()),
        _ => None,
    });
    assert_eq!(head.headers.len(), 1);
    assert!(head.protocol.is_none());
}

#[test]
fn the_first_connection_is_joined_from_the_start() {
    // SMIG-3.6/founding
    let mut peer = Peer::connected_to_server(Config::server());
    let view = peer.session().connection(peer.conn_id(C1)).unwrap();
    assert!(view.is_joined);
    let established = peer.take_event(|event| match event {
        Event::SessionEstablished { app, .. } => Some(*app),
        _ => None,
    });
    assert_eq!(established, peer.cid(C1).app);
    let mut peer = Peer::connected_to_client(Config::client());
    let id = peer.conn_id(C1);
    assert!(peer.session().connection(id).unwrap().is_joined);
    // Nothing can migrate from or to a connection that has ended.
    let ended = peer.with_session(|session, now| {
        session.close(now, id, ErrorCode::NoError, "");
        session.connection(id)
    });
    assert!(!ended.unwrap().is_joined);
}

#[test]
fn a_client_waits_for_settings_and_acknowledgement_before_the_next_connection() {
    // SMIG-3.6/founding
    let mut peer = Peer::for_client(Setup::new(Config::client()));
    peer.open_transport();
    peer.take_preface(C1);
    assert!(!peer.session().can_join(), "the server's SETTINGS have not arrived");
    peer.send(C1, settings(&[(setting::SMIG, 16)]));
    peer.expect(C1, settings_ack());
    assert!(!peer.session().can_join(), "the server has not acknowledged ours");
    peer.send(C1, settings_ack());
    assert!(peer.session().can_join());

    // SMIG-3.6/founding: with a driver that does not wait, the connection has no CID; it does not
    // create a second session.
    let mut peer = Peer::for_client(Setup::new(Config::client()));
    peer.open_transport();
    peer.take_preface(C1);
    peer.open_transport();
    let Frame::Settings(entries) = peer.next(C2) else { panic!("SETTINGS come first") };
    assert_eq!(setting_value(&entries, setting::SMIG_CID_LO), None);
    assert_eq!(setting_value(&entries, setting::SMIG), None);
}

#[test]
fn k_is_exported_from_the_first_connection_and_never_sent() {
    // SMIG-3.7/session-key: label and context. Every JOIN in the other tests shows that both ends
    // have the same K, and that it is not the nonce.
    for mut peer in
        [Peer::connected_to_server(Config::server()), Peer::connected_to_client(Config::client())]
    {
        let request = peer.take_event(|event| match event {
            Event::KeyingMaterialNeeded { request, .. } => Some(request.clone()),
            _ => None,
        });
        let context = vec![1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(request, KeyingRequest::Exporter { label: "EXPORTER-smig-session", context });
        peer.expect_silence();
    }
}

#[test]
fn k_is_forgotten_with_the_last_connection_of_the_session() {
    // SMIG-3.7/session-key: a client that connects again creates a new session; it does not join
    // with the old K.
    let mut peer = Peer::connected_to_client(Config::client());
    peer.connect();
    peer.lose(C1);
    assert!(peer.session().can_join(), "C2 still holds the session");
    peer.lose(C2);
    assert!(!peer.session().can_join());
    peer.open_transport();
    let Frame::Settings(_) = peer.next(C3) else { panic!("SETTINGS come first") };
    assert_eq!(peer.next(C3), window_update(0, (16 << 20) - 65_535));
    peer.expect_silence_on(C3);

    // SMIG-3.7/session-key: a connection whose JOIN was refused is not part of the session.
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    peer.send(C2, join_refused(5));
    peer.lose(C1);
    assert!(!peer.session().can_join());
    peer.open_transport();
    let Frame::Settings(entries) = peer.next(C3) else { panic!("SETTINGS come first") };
    assert_eq!(setting_value(&entries, setting::SMIG_CID_LO), Some(3));
    assert_eq!(peer.next(C3), window_update(0, (16 << 20) - 65_535));
    peer.expect_silence_on(C3);
}

#[test]
fn without_tls_1_3_the_extension_is_off() {
    // SMIG-3.7/session-key and SMIG-3.8/cleartext-off: an earlier TLS version, and cleartext that
    // was not declared trusted.
    let mut peer =
        Peer::for_server(Setup::new(Config::server()).with_security(Security::Ineligible));
    peer.open_transport();
    let Frame::Settings(entries) = peer.next(C1) else { panic!("SETTINGS come first") };
    assert_eq!(setting_value(&entries, setting::SMIG), None);
    peer.send_preface(C1);
    assert!(!probe_is_smig_on(&mut peer));
    let mut peer =
        Peer::for_client(Setup::new(Config::client()).with_security(Security::Ineligible));
    peer.open_transport();
    let entries = peer.take_preface(C1);
    assert_eq!(setting_value(&entries, setting::SMIG), None);
    assert_eq!(setting_value(&entries, setting::SMIG_CID_LO), None);
    peer.send_preface(C1);
    assert!(!peer.session().can_join());
    assert!(!probe_is_smig_on(&mut peer));
}

/// JOIN with K as a cleartext client sends it: the nonce, then half of the MAC field.
fn cleartext_join(key: [u8; 32]) -> Frame {
    let mut mac = [0; 32];
    mac[..16].copy_from_slice(&key[16..]);
    Frame::Join { nonce: key[..16].try_into().unwrap(), mac, ack: Ack::No }
}

#[test]
fn a_trusted_cleartext_client_sends_k_after_its_settings() {
    // SMIG-3.9/cleartext-key: 32 random bytes (the script's random bytes are 0x5a), in the first
    // flight.
    let setup = Setup::new(Config::client()).with_security(Security::TrustedCleartext);
    let mut peer = Peer::for_client(setup);
    peer.open_transport();
    let Frame::Settings(entries) = peer.next(C1) else { panic!("SETTINGS come first") };
    assert_eq!(setting_value(&entries, setting::SMIG), Some(16));
    peer.expect(C1, cleartext_join([0x5a; 32]));
    peer.expect(C1, window_update(0, (16 << 20) - 65_535));
    let random = peer.take_event(|event| match event {
        Event::KeyingMaterialNeeded { request, .. } => Some(request.clone()),
        _ => None,
    });
    assert_eq!(random, KeyingRequest::Random);
    peer.send_preface(C1);
    peer.expect(C1, settings_ack());
    assert!(!peer.session().can_join(), "the JOIN is not answered");
    assert!(!peer.session().connection(peer.conn_id(C1)).unwrap().is_joined);
}

#[test]
fn a_trusted_cleartext_server_accepts_k_and_answers() {
    // SMIG-3.9/cleartext-key: the answer is that of SMIG-4.3/server-proof with E of zero bytes.
    let setup = Setup::new(Config::server()).with_security(Security::TrustedCleartext);
    let mut peer = Peer::for_server(setup);
    peer.open_transport();
    peer.send_preface(C1);
    peer.take_preface(C1);
    peer.expect_silence_on(C1);
    let key = [0x33; 32];
    peer.set_session_key(key);
    peer.send_join(C1, cleartext_join(key));
    peer.expect_joined(C1);
    assert!(peer.session().connection(peer.conn_id(C1)).unwrap().is_joined);
    // Another connection proves K with E of zero bytes.
    peer.connect();
    assert!(peer.session().connection(peer.conn_id(C2)).unwrap().is_joined);
    // K is sent only once.
    peer.lose(C2);
    peer.send(C1, cleartext_join([0x44; 32]));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

#[test]
fn a_trusted_cleartext_client_joins_with_k() {
    // SMIG-3.9/cleartext-key and SMIG-4.1/client-proof with E of zero bytes.
    let setup = Setup::new(Config::client()).with_security(Security::TrustedCleartext);
    let mut peer = Peer::for_client(setup);
    peer.open_transport();
    peer.set_session_key([0x5a; 32]);
    let Frame::Settings(entries) = peer.next(C1) else { panic!("SETTINGS come first") };
    assert_eq!(setting_value(&entries, setting::SMIG_CID_LO), Some(1));
    peer.set_cid_from_settings(C1, &entries);
    let Frame::Join { nonce, .. } = peer.next(C1) else { panic!("K comes next") };
    peer.set_join_nonce(C1, nonce);
    peer.next(C1);
    peer.send_preface(C1);
    peer.expect(C1, settings_ack());
    let answer = peer.join_answer(C1);
    peer.send(C1, answer);
    assert!(peer.session().can_join());
    peer.connect();
    assert!(peer.session().connection(peer.conn_id(C2)).unwrap().is_joined);
}

#[test]
fn a_founding_join_is_recognized_by_its_last_sixteen_bytes() {
    // SMIG-3.12/founding-join: with all zero it carries K and is answered at once; one bit makes it
    // a proof, which the driver decides on.
    for bit in [None, Some(0), Some(7)] {
        let setup = Setup::new(Config::server()).with_security(Security::TrustedCleartext);
        let mut peer = Peer::for_server(setup.with_scripted_joins());
        peer.open_transport();
        peer.send_preface(C1);
        peer.take_preface(C1);
        let Frame::Join { nonce, mut mac, ack } = cleartext_join([0x33; 32]) else {
            panic!("a JOIN")
        };
        if let Some(bit) = bit {
            mac[16 + 2 * bit] = 1 << bit;
        }
        peer.set_session_key([0x33; 32]);
        peer.send_join(C1, Frame::Join { nonce, mac, ack });
        let requested_cid = peer.try_take_event(|event| match event {
            Event::JoinRequested { cid, .. } => Some(*cid),
            _ => None,
        });
        assert_eq!(requested_cid, bit.map(|_| peer.cid(C1)));
        if bit.is_none() {
            peer.expect_joined(C1);
        } else {
            peer.expect_silence_on(C1);
        }
    }
}
