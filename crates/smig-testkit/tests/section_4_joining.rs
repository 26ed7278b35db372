//! spec/smig.md section 4: joining a connection to a session.
//!
//! The crate `smig` disables early data at both ends, and tests that at its server.

use core::time::Duration;

use http::Method;
use smig_proto::{
    Config, EndStream, ErrorCode, Event, Identity, JoinRefusal, KeyingRequest, MigrationTarget,
    Security, SmigConfig,
};
use smig_testkit::script::frame::*;
use smig_testkit::script::{C1, C2, C3, C4, ConnHandle, Peer, Setup};

fn is_joined(peer: &Peer, handle: ConnHandle) -> bool {
    let session = peer.session();
    session.connection(peer.conn_id(handle)).is_some_and(|view| view.is_joined)
        && std::ptr::eq(peer.session_of(handle), session)
}

/// Opens another connection to a server engine, up to preface and SETTINGS, without a JOIN.
fn connect_without_join(peer: &mut Peer) -> ConnHandle {
    let handle = peer.open_transport();
    peer.send_preface(handle);
    peer.take_preface(handle);
    handle
}

#[test]
fn a_client_proves_a_further_connection_before_it_uses_it() {
    // SMIG-4.1/client-proof: JOIN is the frame after SETTINGS, with a valid MAC (the script verifies it), and
    // no stream precedes it.
    let mut peer = Peer::connected_to_client(Config::client());
    peer.clear_events();
    peer.open_transport();
    let Frame::Settings(entries) = peer.next(C2) else { panic!("SETTINGS come first") };
    peer.set_cid_from_settings(C2, &entries);
    peer.take_join(C2);
    let request = peer.take_event(|event| match event {
        Event::KeyingMaterialNeeded { request, .. } => Some(request.clone()),
        _ => None,
    });
    let mut context = vec![1, 2, 3, 4, 5, 6, 7, 8];
    context.extend(peer.cid(C2).number.to_be_bytes());
    assert_eq!(request, KeyingRequest::Exporter { label: "EXPORTER-smig-join", context });
}

#[test]
fn each_join_has_its_own_nonce() {
    // SMIG-4.1/client-proof: two connections, two nonces.
    let mut peer = Peer::connected_to_client(Config::client());
    let mut nonces = Vec::new();
    for handle in [C2, C3] {
        peer.open_transport();
        let Frame::Settings(_) = peer.next(handle) else { panic!("SETTINGS come first") };
        let Frame::Join { nonce, .. } = peer.next(handle) else { panic!("then JOIN") };
        nonces.push(nonce);
    }
    assert_ne!(nonces[0], nonces[1]);
}

#[test]
fn nothing_after_a_join_is_processed_before_its_answer() {
    // SMIG-4.2/join-first
    let mut peer = Peer::for_server(Setup::new(Config::server()).with_scripted_joins());
    peer.connect();
    let handle = connect_without_join(&mut peer);
    let join = peer.join_request(handle);
    peer.send(handle, join);
    assert!(!peer.session_of(handle).wants_input(peer.conn_id(handle)));
    peer.send(handle, headers(1).get("/").end());
    peer.send(handle, ping([1; 8]));
    peer.expect_silence();
    peer.decide_join(handle);
    peer.expect_joined(handle);
    peer.expect(handle, pong([1; 8]));
    let key = peer.take_request();
    peer.respond(key, 204, EndStream::Yes);
    peer.expect(handle, headers(1).status(204).end());
}

#[test]
fn a_join_after_a_frame_of_a_stream_ends_the_connection() {
    // SMIG-4.2/join-first
    for frame in
        [headers(1).get("/").end().into(), window_update(1, 5), reset(1, ErrorCode::Cancel)]
    {
        let mut peer = Peer::connected_to_server(Config::server());
        let handle = connect_without_join(&mut peer);
        peer.send(handle, Frame::clone(&frame));
        let join = peer.join_request(handle);
        peer.send(handle, join);
        peer.expect_goaway(handle, ErrorCode::ProtocolError);
        peer.expect_silence_on(C1);
    }
}

#[test]
fn a_server_accepts_with_a_proof_of_its_own() {
    // SMIG-4.3/server-proof: `connect` verifies the server's MAC; then the connection is joined for the
    // server.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.connect();
    assert!(is_joined(&peer, C2));
    let key = peer.get(C1, 1);
    let cid = peer.cid(C2);
    peer.with_session(|session, now| session.migrate(now, key, MigrationTarget::Spare)).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
}

#[test]
fn a_client_accepts_only_a_valid_answer() {
    // SMIG-4.3/server-proof: C2 is joined only after the answer.
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    assert!(!is_joined(&peer, C2));
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    assert!(is_joined(&peer, C2));
    peer.expect_silence();

    // SMIG-4.3/server-proof: an invalid MAC, with one bit changed in it or in the nonce.
    for altered_field in 0..2 {
        let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
        peer.connect();
        peer.connect();
        let Frame::Join { mut nonce, mut mac, ack } = peer.join_answer(C2) else { unreachable!() };
        if altered_field == 0 {
            mac[31] ^= 1
        } else {
            nonce[0] ^= 1
        }
        let key = peer.open(C1, Method::GET, EndStream::Yes);
        peer.send(C2, Frame::Join { nonce, mac, ack });
        peer.expect_goaway(C2, ErrorCode::ProtocolError);
        peer.expect_not_failed(key);
        peer.expect_silence();
    }
    // An unsolicited answer proves nothing.
    let mut peer = Peer::connected_to_client(Config::client());
    peer.send(C1, raw(kind::JOIN, flag::SMIG_ACK, 0, [0; 48]));
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
}

/// Sends a JOIN changed by `alter` on a new connection, and returns the connection.
fn send_altered_join(
    peer: &mut Peer,
    alter: impl FnOnce(&mut [u8; 16], &mut [u8; 32]),
) -> ConnHandle {
    let handle = connect_without_join(peer);
    resend_altered_join(peer, handle, alter);
    handle
}

fn resend_altered_join(
    peer: &mut Peer,
    handle: ConnHandle,
    alter: impl FnOnce(&mut [u8; 16], &mut [u8; 32]),
) {
    let Frame::Join { mut nonce, mut mac, ack } = peer.join_request(handle) else { unreachable!() };
    alter(&mut nonce, &mut mac);
    peer.send_join(handle, Frame::Join { nonce, mac, ack });
}

#[test]
fn every_byte_of_a_proof_is_compared() {
    // SMIG-4.4/constant-time: constant time is guaranteed by `subtle`; this test shows that every byte is
    // compared.
    for byte in 0..32 {
        let mut peer = Peer::connected_to_server(Config::server());
        let handle = send_altered_join(&mut peer, |_, mac| mac[byte] ^= 0x80);
        peer.expect(handle, join_refused(2));
        assert!(!is_joined(&peer, handle));
    }
    for byte in 0..16 {
        let mut peer = Peer::connected_to_server(Config::server());
        let handle = send_altered_join(&mut peer, |nonce, _| nonce[byte] ^= 1);
        peer.expect(handle, join_refused(2));
    }
}

#[test]
fn a_join_cannot_be_replayed() {
    // SMIG-4.1/client-proof: the proof covers the new connection's exporter and CID, so that a JOIN recorded
    // on one connection is invalid on another.
    let mut peer = Peer::connected_to_server(Config::server());
    let handle = connect_without_join(&mut peer);
    let join = peer.join_request(handle);
    peer.send(handle, Frame::clone(&join));
    peer.expect_joined(handle);
    let other_handle = connect_without_join(&mut peer);
    peer.send(other_handle, Frame::clone(&join));
    peer.expect(other_handle, join_refused(2));
    // The same CID, on a connection that ended.
    peer.lose(handle);
    let reused_handle = peer.open_transport();
    peer.set_conn_no(reused_handle, 2);
    peer.send_preface(reused_handle);
    peer.take_preface(reused_handle);
    peer.send(reused_handle, join);
    peer.expect(reused_handle, join_refused(2));
}

#[test]
fn another_identity_is_refused() {
    // SMIG-4.5/same-identity: listener, SNI, client certificate and tenant, in a digest computed by the
    // driver.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.setup_mut().identity = Identity([8; 32]);
    let handle = connect_without_join(&mut peer);
    let join = peer.join_request(handle);
    peer.send(handle, join);
    peer.expect(handle, join_refused(3));
    assert!(!is_joined(&peer, handle));
}

#[test]
fn joins_are_refused_with_the_reason() {
    // SMIG-4.6/refusal-reasons, reason 1: no such session.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.setup_mut().app_id = smig_proto::AppId::new(99);
    let handle = send_altered_join(&mut peer, |_, _| {});
    peer.expect(handle, join_refused(1));
    // SMIG-4.6/refusal-reasons, reason 2: a ConnNo that is in use or was used, including that of the first
    // connection.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.connect();
    peer.lose(C1);
    for number in [1, 2] {
        let handle = peer.open_transport();
        peer.set_conn_no(handle, number);
        peer.send_preface(handle);
        peer.take_preface(handle);
        peer.set_session_key_from(C1);
        let join = peer.join_request(handle);
        peer.send(handle, join);
        peer.expect(handle, join_refused(2));
    }
    // SMIG-4.6/refusal-reasons, reason 5: the driver cannot reach the session.
    let mut peer = Peer::for_server(Setup::new(Config::server()).with_scripted_joins());
    peer.connect();
    let handle = send_altered_join(&mut peer, |_, _| {});
    peer.refuse_join(handle, JoinRefusal::NotHere);
    peer.expect(handle, join_refused(5));
}

#[test]
fn a_session_has_a_bounded_number_of_connections() {
    // SMIG-4.12/max-connections and SMIG-4.6/refusal-reasons, reason 4, at a server.
    let smig = SmigConfig { max_connections: 2, ..SmigConfig::default() };
    let mut peer = Peer::connected_to_server(Config { smig: Some(smig), ..Config::server() });
    peer.connect();
    let handle = send_altered_join(&mut peer, |_, _| {});
    peer.expect(handle, join_refused(4));
    assert!(!is_joined(&peer, handle));
    // SMIG-4.12/max-connections: a connection that ended frees its slot.
    peer.lose(C2);
    peer.connect();
    assert!(is_joined(&peer, C4));
    // SMIG-4.12/max-connections at a client: 4 by default, and never more than 16.
    let mut peer = Peer::connected_to_client(Config::client());
    for _ in 1..4 {
        assert!(peer.session().can_join());
        peer.connect();
    }
    assert!(!peer.session().can_join());
    let smig = SmigConfig { max_connections: 100, ..SmigConfig::default() };
    let mut peer = Peer::connected_to_client(Config { smig: Some(smig), ..Config::client() });
    for _ in 1..16 {
        assert!(peer.session().can_join());
        peer.connect();
    }
    assert!(!peer.session().can_join());
}

#[test]
fn a_session_joins_connections_for_a_year() {
    // SMIG-4.13/rising-numbers: the state kept for ConnNos does not grow, so that it limits no session.
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let mut peer = Peer::connected_to_server(Config::server());
    for n in 0..3_000 {
        let handle = peer.connect();
        assert!(is_joined(&peer, handle), "the server refuses connection {n}");
        peer.close(handle);
        peer.advance(year / 3_000);
    }
    let handle = peer.connect();
    let key = peer.get(C1, 1);
    let cid = peer.cid(handle);
    peer.migrate(key, handle).unwrap();
    peer.expect(C1, migrate(1, cid, 2));
    // A client.
    let mut peer = Peer::connected_to_client(Config::client());
    let mut last_cid = peer.cid(C1);
    for n in 0..3_000 {
        assert!(peer.session().can_join(), "the client opens no connection {n}");
        let handle = peer.connect();
        assert!(is_joined(&peer, handle) && peer.cid(handle) > last_cid, "connection {n}");
        last_cid = peer.cid(handle);
        peer.close(handle);
        peer.advance(year / 3_000);
    }
    let handle = peer.connect();
    let key = peer.open(C1, Method::POST, EndStream::No);
    peer.migrate(key, handle).unwrap();
    let cid = peer.cid(handle);
    peer.expect(C1, migrate(1, cid, 1));
}

#[test]
fn conn_numbers_rise() {
    // SMIG-4.13/rising-numbers: connections that were opened together may join in any order; an old number is
    // refused.
    let mut peer = Peer::connected_to_server(Config::server());
    for (number, reason) in [(200, None), (190, None), (190, Some(2)), (137, None), (136, Some(2))]
    {
        let handle = peer.open_transport();
        peer.set_conn_no(handle, number);
        peer.send_preface(handle);
        peer.take_preface(handle);
        let join = peer.join_request(handle);
        peer.send(handle, join);
        match reason {
            Some(reason) => peer.expect(handle, join_refused(reason)),
            None => peer.expect_joined(handle),
        }
        peer.close(handle);
    }
}

#[test]
fn a_refused_connection_remains_usable() {
    // SMIG-4.7/refused-lives at a server.
    let mut peer = Peer::connected_to_server(Config::server());
    let handle = send_altered_join(&mut peer, |_, mac| mac[0] ^= 1);
    peer.expect(handle, join_refused(2));
    peer.send(handle, ping([3; 8]));
    peer.expect(handle, pong([3; 8]));
    peer.send(handle, headers(1).get("/").end());
    let requested = peer.try_take_event_on(handle, |event| match event {
        Event::Request { end, .. } => Some(*end),
        _ => None,
    });
    assert_eq!(requested, Some(EndStream::Yes));
    // SMIG-4.7/refused-lives at a client: C2 is not part of the session but accepts streams.
    for reason in [2, 3, 4, 5, 200] {
        let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
        peer.connect();
        peer.connect();
        peer.send(C2, join_refused(reason));
        peer.expect_silence();
        assert!(!is_joined(&peer, C2));
        let key = peer.open(C1, Method::GET, EndStream::Yes);
        assert!(
            peer.with_session(|session, now| session.migrate(now, key, MigrationTarget::Spare))
                .is_err()
        );
        let other_key = peer.open(C2, Method::GET, EndStream::Yes);
        peer.send(C2, headers(1).status(204).end());
        assert_eq!(peer.take_response(other_key), 204);
    }
}

#[test]
fn a_refused_join_to_an_unknown_session_starts_a_new_session_at_the_server() {
    // SMIG-4.8/new-session: C2 is the first connection of a new session with K from C2; C3 joins
    // that.
    let mut peer = Peer::connected_to_server(Config::server());
    peer.setup_mut().app_id = smig_proto::AppId::new(99);
    let handle = send_altered_join(&mut peer, |_, _| {});
    peer.expect(handle, join_refused(1));
    peer.set_session_key_from(handle);
    let next_handle = send_altered_join(&mut peer, |_, _| {});
    peer.expect_joined(next_handle);
    assert!(std::ptr::eq(peer.session_of(handle), peer.session_of(next_handle)));
    let view = peer.session_of(handle).connection(peer.conn_id(handle)).unwrap();
    assert!(view.is_joined);
}

#[test]
fn a_refused_join_to_an_unknown_session_starts_a_new_session_at_the_client() {
    // SMIG-4.8/new-session
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    let old_key = peer.open(C1, Method::GET, EndStream::Yes);
    peer.send(C2, join_refused(1));
    peer.expect_silence();
    assert!(is_joined(&peer, C2), "C2 is the first connection now");
    assert!(!is_joined(&peer, C1));
    // The next JOIN is proved with K from C2 (`connect` checks it).
    peer.set_session_key_from(C2);
    peer.connect();
    let answer = peer.join_answer(C3);
    peer.send(C3, answer);
    assert!(is_joined(&peer, C3));
    // The stream on C1 continues there, and cannot migrate.
    assert!(
        peer.with_session(|session, now| session.migrate(now, old_key, MigrationTarget::Spare))
            .is_err()
    );
    // Offers and MIGRATEs in flight there are declined and have no effect (SMIG-6.2/offer-answered).
    peer.send(C1, offer(1));
    peer.expect(C1, decline(1).end());
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.expect(C1, decline(1).end());
    peer.send(C1, headers(1).status(200));
    peer.send(C1, data(1, "still here").end());
    assert_eq!(peer.take_response(old_key), 200);
    assert_eq!(&peer.read_to_end(old_key)[..], b"still here");
    peer.expect_silence();
}

#[test]
fn a_refused_join_to_an_unknown_session_starts_a_new_session_on_cleartext() {
    // SMIG-4.8/new-session with SMIG-3.9/cleartext-key, a client: a JOIN with a new K, and its answer.
    let setup = Setup::new(Config::client()).with_security(Security::TrustedCleartext);
    let mut peer = Peer::for_client(setup.with_scripted_joins());
    let random_key = [0x5a; 32];
    peer.set_session_key(random_key);
    for handle in [C1, C2] {
        peer.open_transport();
        let Frame::Settings(entries) = peer.next(handle) else { panic!("SETTINGS come first") };
        peer.set_cid_from_settings(handle, &entries);
        let Frame::Join { nonce, .. } = peer.next(handle) else { panic!("then JOIN") };
        peer.set_join_nonce(handle, nonce);
        peer.next(handle);
        peer.send_preface(handle);
        peer.expect(handle, settings_ack());
        if handle == C1 {
            let answer = peer.join_answer(handle);
            peer.send(handle, answer);
        }
    }
    peer.send(C2, join_refused(1));
    let Frame::Join { nonce, mac, ack: Ack::No } = peer.next(C2) else { panic!("a new K") };
    assert_eq!(
        ([nonce, mac[..16].try_into().unwrap()].concat(), &mac[16..]),
        (random_key.to_vec(), &[0; 16][..])
    );
    peer.set_join_nonce(C2, nonce);
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    assert!(is_joined(&peer, C2) && !is_joined(&peer, C1));
    // SMIG-4.8/new-session, a server: it accepts the new K on the refused connection.
    let setup = Setup::new(Config::server()).with_security(Security::TrustedCleartext);
    let mut peer = Peer::for_server(setup);
    peer.open_transport();
    peer.send_preface(C1);
    peer.take_preface(C1);
    peer.set_session_key([1; 32]);
    let join = peer.join_request(C1);
    peer.send(C1, join);
    peer.expect(C1, join_refused(1));
    let key = [0x77; 32];
    peer.set_session_key(key);
    let mut mac = [0; 32];
    mac[..16].copy_from_slice(&key[16..]);
    peer.send_join(C1, Frame::Join { nonce: [0x77; 16], mac, ack: Ack::No });
    peer.expect_joined(C1);
    peer.connect();
    assert!(is_joined(&peer, C1) && is_joined(&peer, C2));
}

#[test]
fn three_wrong_proofs_end_the_connection() {
    // SMIG-4.9/three-refusals
    let mut peer = Peer::connected_to_server(Config::server());
    let handle = send_altered_join(&mut peer, |_, mac| mac[0] ^= 1);
    peer.expect(handle, join_refused(2));
    resend_altered_join(&mut peer, handle, |_, mac| mac[9] ^= 1);
    peer.expect(handle, join_refused(2));
    resend_altered_join(&mut peer, handle, |nonce, _| nonce[9] ^= 1);
    peer.expect(handle, join_refused(2));
    peer.expect_goaway(handle, ErrorCode::EnhanceYourCalm);
    peer.expect_silence_on(C1);
}

#[test]
fn three_refused_joins_end_the_connection_whatever_the_reasons() {
    // SMIG-4.9/three-refusals
    use JoinRefusal::{BadProof, DifferentIdentity, Limit, NotHere};
    for (reasons, bytes) in [
        ([NotHere; 3], [5, 5, 5]),
        ([DifferentIdentity, Limit, BadProof], [3, 4, 2]),
        ([Limit; 3], [4, 4, 4]),
    ] {
        let mut peer = Peer::for_server(Setup::new(Config::server()).with_scripted_joins());
        peer.connect();
        let handle = connect_without_join(&mut peer);
        for (reason, byte) in reasons.into_iter().zip(bytes) {
            let join = peer.join_request(handle);
            peer.send(handle, join);
            peer.refuse_join(handle, reason);
            peer.expect(handle, join_refused(byte));
        }
        peer.expect_goaway(handle, ErrorCode::EnhanceYourCalm);
        peer.expect_silence_on(C1);
    }
    // SMIG-4.9/three-refusals: a cleartext connection that names unknown sessions.
    let setup = Setup::new(Config::server()).with_security(Security::TrustedCleartext);
    let mut peer = Peer::for_server(setup);
    peer.open_transport();
    peer.send_preface(C1);
    peer.take_preface(C1);
    peer.set_session_key([1; 32]);
    for _ in 0..3 {
        let join = peer.join_request(C1);
        peer.send(C1, join);
        peer.expect(C1, join_refused(1));
    }
    peer.expect_goaway(C1, ErrorCode::EnhanceYourCalm);
}

#[test]
fn a_connection_joins_one_session_once() {
    // SMIG-4.14/join-once: a founder that was refused with reason 1, and sends another JOIN.
    let mut peer = Peer::connected_to_server(Config::server());
    let join = peer.join_request(C1);
    peer.send(C1, join);
    peer.expect(C1, join_refused(1));
    let join = peer.join_request(C1);
    peer.send(C1, join);
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    // SMIG-4.14/join-once: a founder that others have joined.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    peer.close(C2);
    let join = peer.join_request(C1);
    peer.send(C1, join);
    peer.expect_goaway(C1, ErrorCode::ProtocolError);
    // SMIG-4.14/join-once: a connection that has joined, and is the only one.
    let mut peer = Peer::connected_to_server(Config::server()).with_spare();
    let join = peer.join_request(C2);
    peer.close(C1);
    peer.send(C2, join);
    peer.expect_goaway(C2, ErrorCode::ProtocolError);
}

#[test]
fn an_unanswered_join_times_out() {
    // SMIG-4.15/join-timeout, and SMIG-5.12/join-pending: what waited for the answer is declined.
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    let key = peer.open(C1, Method::GET, EndStream::Yes);
    let cid = peer.cid(C2);
    peer.send(C1, migrate(1, cid, 2));
    peer.advance(Duration::from_secs(9));
    peer.expect_silence();
    peer.advance(Duration::from_secs(3));
    peer.expect_goaway(C2, ErrorCode::SettingsTimeout);
    assert_eq!(peer.take_limit_hit(), "JOIN not answered in time");
    peer.expect(C1, decline(1).end());
    peer.expect_not_failed(key);
    assert!(peer.session().can_join());
    // SMIG-4.15/join-timeout: an answer in time cancels the timeout.
    let mut peer = Peer::for_client(Setup::new(Config::client()).with_scripted_joins());
    peer.connect();
    peer.connect();
    peer.advance(Duration::from_secs(9));
    let answer = peer.join_answer(C2);
    peer.send(C2, answer);
    peer.advance(Duration::from_secs(60));
    assert!(is_joined(&peer, C2));
    peer.expect_silence();
    // SMIG-4.15/join-timeout: it applies to the JOIN that founds a session on cleartext.
    let setup = Setup::new(Config::client()).with_security(Security::TrustedCleartext);
    let mut peer = Peer::for_client(setup.with_scripted_joins());
    peer.open_transport();
    peer.advance(Duration::from_secs(12));
    assert!(peer.is_closed(C1));
}

#[test]
fn a_valid_proof_after_a_wrong_one_joins() {
    // SMIG-4.9/three-refusals permits two more attempts.
    let mut peer = Peer::connected_to_server(Config::server());
    let handle = send_altered_join(&mut peer, |_, mac| mac[0] ^= 1);
    peer.expect(handle, join_refused(2));
    resend_altered_join(&mut peer, handle, |_, _| {});
    peer.expect_joined(handle);
    assert!(is_joined(&peer, handle));
}

#[test]
fn limits_apply_to_the_whole_session() {
    // SMIG-4.11/session-limits: streams. Two connections have the limit of one.
    let config = Config { max_concurrent_streams: 2, ..Config::server() };
    let mut peer = Peer::connected_to_server(config);
    peer.connect();
    peer.get(C1, 1);
    let second_key = peer.get(C2, 1);
    peer.send(C2, headers(3).get("/").end());
    peer.expect(C2, reset(3, ErrorCode::RefusedStream));
    // SMIG-4.11/session-limits: a running handler counts until it ends, even if its stream was reset.
    peer.send(C2, reset(1, ErrorCode::Cancel));
    peer.send(C1, headers(3).get("/").end());
    peer.expect(C1, reset(3, ErrorCode::RefusedStream));
    peer.with_session(|session, _| session.release(second_key));
    peer.get(C1, 5);
    peer.expect_silence();
    // SMIG-4.11/session-limits: resets.
    let mut config = Config::server();
    config.limits.reset_burst = 4;
    let mut peer = Peer::connected_to_server(config);
    peer.connect();
    for stream in [1, 3] {
        for handle in [C1, C2] {
            let key = peer.get(handle, stream);
            peer.send(handle, reset(stream, ErrorCode::Cancel));
            peer.with_session(|session, _| session.release(key));
        }
    }
    peer.get(C2, 5);
    peer.send(C2, reset(5, ErrorCode::Cancel));
    peer.expect_goaway(C2, ErrorCode::EnhanceYourCalm);
    // SMIG-4.11/session-limits: streams, at a client: the server's limit on one connection applies to all.
    let setup = Setup::new(Config::client()).with_setting(setting::MAX_CONCURRENT_STREAMS, 1);
    let mut peer = Peer::for_client(setup);
    peer.connect();
    peer.connect();
    peer.open(C1, Method::GET, EndStream::Yes);
    let conn = peer.conn_id(C2);
    let head = smig_testkit::script::request_head(Method::GET);
    let opened =
        peer.with_session(|session, now| session.open(now, Some(conn), &head, EndStream::Yes));
    assert_eq!(opened, Err(smig_proto::OpenError::Blocked));
}
